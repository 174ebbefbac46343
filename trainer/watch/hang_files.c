#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/io.h"
#include "trainer/watch/hang.h"

#define REPORT "hang-report.txt"

enum { PATH_SIZE = 2048 };

int hang_raise(const char *dir, struct error *err)
{
    char parent[PATH_SIZE], *slash;

    snprintf(parent, sizeof parent, "%s", dir);
    slash = strrchr(parent, '/');
    if (slash && slash > parent) { /* checkpoint.dir may not exist before the first checkpoint */
        *slash = '\0';
        mkdir(parent, 0777);
    }
    if (mkdir(dir, 0777) < 0 && errno != EEXIST)
        return error_errno(err, CODE_IO, "%s", dir);
    return 0;
}

bool hang_raised(const char *dir)
{
    return access(dir, F_OK) == 0;
}

static int write_file(const char *path, const char *text, size_t length, struct error *err)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666), result;

    if (fd < 0)
        return error_errno(err, CODE_IO, "%s", path);
    result = io_write_all(fd, text, length) < 0 ? error_errno(err, CODE_IO, "%s", path) : 0;
    if (close(fd) < 0 && result == 0)
        result = error_errno(err, CODE_IO, "%s", path);
    return result;
}

int hang_publish(const char *dir, int speaker, const struct hang_rank *ranks, const bool *chosen, int world,
                 struct error *err)
{
    char path[PATH_SIZE], part[PATH_SIZE];
    json_t *json = hang_encode(ranks, chosen, world);
    char *text = json ? json_dumps(json, JSON_COMPACT) : NULL;
    int result;

    json_decref(json);
    if (!text)
        return error_set(err, CODE_IO, "out of memory for the records of this host");
    snprintf(path, sizeof path, "%s/records-%05d.json", dir, speaker);
    snprintf(part, sizeof part, "%s/.records-%05d.part", dir, speaker);
    result = write_file(part, text, strlen(text), err);
    if (result == 0 && rename(part, path) < 0)
        result = error_errno(err, CODE_IO, "%s", path);
    free(text);
    return result;
}

int hang_spoken(const char *dir, bool *spoken, int world, struct error *err)
{
    DIR *list = opendir(dir);
    struct dirent *entry;

    memset(spoken, 0, (size_t)world * sizeof *spoken);
    if (!list)
        return error_errno(err, CODE_IO, "%s", dir);
    while ((entry = readdir(list))) {
        int speaker, length = 0;

        if (sscanf(entry->d_name, "records-%d.json%n", &speaker, &length) == 1 && length > 0 && speaker >= 0 &&
            speaker < world)
            spoken[speaker] = true;
    }
    closedir(list);
    return 0;
}

void hang_collect(const char *dir, const bool *spoken, struct hang_rank *ranks, int world)
{
    for (int speaker = 0; speaker < world; speaker++) {
        char path[PATH_SIZE];
        struct error ignored;
        json_t *json;

        if (!spoken[speaker])
            continue;
        snprintf(path, sizeof path, "%s/records-%05d.json", dir, speaker);
        json = json_load_file(path, 0, NULL);
        if (json)
            hang_decode(ranks, world, json, &ignored);
        json_decref(json);
    }
}

int hang_report_publish(const char *dir, int rank, const char *text, size_t length, struct error *err)
{
    char path[PATH_SIZE], part[PATH_SIZE];
    int result;

    snprintf(path, sizeof path, "%s/" REPORT, dir);
    snprintf(part, sizeof part, "%s/.report-%05d.part", dir, rank);
    if (write_file(part, text, length, err) < 0)
        return -1;
    if (link(part, path) == 0)
        result = 1;
    else if (errno == EEXIST)
        result = 0;
    else if (access(path, F_OK) < 0 && rename(part, path) == 0) /* file systems without links: two may win */
        return 1;
    else
        result = error_errno(err, CODE_IO, "%s", path);
    unlink(part);
    return result;
}

bool hang_report_sentence(const char *dir, char *text, size_t size)
{
    char path[PATH_SIZE];
    FILE *file;
    bool found;

    snprintf(path, sizeof path, "%s/" REPORT, dir);
    file = fopen(path, "re");
    if (!file)
        return false;
    found = fgets(text, (int)size, file) != NULL;
    fclose(file);
    if (found)
        text[strcspn(text, "\n")] = '\0';
    return found;
}

static const char *const states[] = {
    [HANG_SILENT] = "silent", [HANG_RUNNING] = "running", [HANG_STOPPED] = "stopped",
    [HANG_DEAD] = "dead",     [HANG_ABORTED] = "aborted", [HANG_ENDED] = "ended",
};
enum { STATES = sizeof states / sizeof *states };

static int find_name(const char *const *names, int count, const char *name)
{
    for (int i = 0; i < count; i++)
        if (name && strcmp(names[i], name) == 0)
            return i;
    return -1;
}

/* ---- writing ---- */

static json_t *encode_op(const struct record_op *op)
{
    return json_pack("{s:I,s:I,s:I,s:I,s:s,s:i,s:i,s:s}", "number", (json_int_t)op->number, "sequence",
                     (json_int_t)op->sequence, "entered", (json_int_t)op->entered, "left", (json_int_t)op->left, "kind",
                     record_kinds[op->kind], "comm", (int)op->comm, "peer", (int)op->peer, "purpose", op->purpose);
}

/* Each group of a mesh is one run, however many ranks it has. */
static json_t *encode_members(const int *members, int size)
{
    json_t *runs = json_array();

    for (int i = 0; i < size;) {
        int count = 1, stride = i + 1 < size ? members[i + 1] - members[i] : 1;

        while (i + count < size && members[i + count] - members[i + count - 1] == stride)
            count++;
        json_array_append_new(runs, json_pack("[iii]", members[i], stride, count));
        i += count;
    }
    return runs;
}

static json_t *encode_comm(const struct record_comm *comm, const int *members, int slot)
{
    json_t *peers = json_array();

    for (int i = 0; i < comm->npeers; i++)
        json_array_append_new(peers, json_pack("[III]", (json_int_t)comm->peers[i].rank,
                                               (json_int_t)comm->peers[i].sends, (json_int_t)comm->peers[i].receives));
    return json_pack("{s:i,s:s,s:I,s:I,s:I,s:o,s:o}", "slot", slot, "name", comm->name, "id", (json_int_t)comm->id,
                     "entered", (json_int_t)comm->entered, "left", (json_int_t)comm->left, "members",
                     encode_members(members, members ? comm->size : 0), "peers", peers);
}

static json_t *encode_rank(const struct hang_rank *rank, int number)
{
    const struct flight_record *r = &rank->record;
    json_t *comms = json_array(), *ring = json_array();
    json_t *json =
        json_pack("{s:i,s:s,s:s,s:I,s:I,s:I,s:s,s:I,s:I,s:f,s:I,s:o,s:o}", "rank", number, "host", rank->host, "state",
                  states[rank->state], "taken", (json_int_t)rank->taken, "operations", (json_int_t)r->operations,
                  "active", (json_int_t)r->active, "phase", r->phase, "step", (json_int_t)r->step, "micro_batch",
                  (json_int_t)r->micro_batch, "waited_seconds", r->waited_seconds, "waiting_since",
                  (json_int_t)r->waiting_since, "comms", comms, "ring", ring);

    for (int i = 0; json && i < RECORD_COMMS; i++)
        if (r->comms[i].id)
            json_array_append_new(comms, encode_comm(&r->comms[i], rank->members[i], i));
    for (int i = 0; json && i < RECORD_RING; i++)
        if (r->ring[i].number)
            json_array_append_new(ring, encode_op(&r->ring[i]));
    if (json && r->waiting_since)
        json_object_set_new(json, "waiting", encode_op(&r->waiting));
    return json;
}

json_t *hang_encode(const struct hang_rank *ranks, const bool *chosen, int world)
{
    json_t *list = json_array();

    for (int rank = 0; rank < world; rank++)
        if (chosen[rank])
            json_array_append_new(list, encode_rank(&ranks[rank], rank));
    return json_pack("{s:i,s:o}", "version", 1, "ranks", list);
}

/* ---- reading ---- */

static int decode_op(struct record_op *op, const json_t *json)
{
    json_int_t number, sequence, entered, left;
    const char *kind, *purpose;
    int comm, peer;

    if (json_unpack((json_t *)json, "{s:I,s:I,s:I,s:I,s:s,s:i,s:i,s:s}", "number", &number, "sequence", &sequence,
                    "entered", &entered, "left", &left, "kind", &kind, "comm", &comm, "peer", &peer, "purpose",
                    &purpose) < 0)
        return -1;
    *op = (struct record_op){
        .number = (uint64_t)number,
        .sequence = (uint64_t)sequence,
        .entered = entered,
        .left = left,
        .kind = find_name(record_kinds, RECORD_KINDS, kind),
        .comm = comm,
        .peer = peer,
    };
    snprintf(op->purpose, sizeof op->purpose, "%s", purpose);
    return op->kind < 0 || comm < 0 || comm >= RECORD_COMMS ? -1 : 0;
}

/* NULL if a member is outside the world, or there are more members than ranks. */
static int *decode_members(const json_t *runs, int world, int *size)
{
    int *members = calloc((size_t)world, sizeof *members);

    *size = 0;
    for (size_t i = 0; members && i < json_array_size(runs); i++) {
        int first, stride, count;

        if (json_unpack(json_array_get(runs, i), "[iii]", &first, &stride, &count) < 0 || count < 0 ||
            count > world - *size)
            goto fail;
        for (int k = 0; k < count; k++) {
            int64_t member = first + (int64_t)k * stride;

            if (member < 0 || member >= world)
                goto fail;
            members[(*size)++] = (int)member;
        }
    }
    return members;
fail:
    free(members);
    return NULL;
}

static int decode_comm(struct hang_rank *rank, int world, const json_t *json)
{
    json_int_t id, entered, left;
    json_t *members, *peers;
    struct record_comm *comm;
    const char *name;
    int slot;

    if (json_unpack((json_t *)json, "{s:i,s:s,s:I,s:I,s:I,s:o,s:o}", "slot", &slot, "name", &name, "id", &id, "entered",
                    &entered, "left", &left, "members", &members, "peers", &peers) < 0 ||
        slot < 0 || slot >= RECORD_COMMS || json_array_size(peers) > RECORD_PEERS || rank->members[slot])
        return -1;
    comm = &rank->record.comms[slot];
    comm->id = (uint64_t)id;
    comm->entered = (uint64_t)entered;
    comm->left = (uint64_t)left;
    snprintf(comm->name, sizeof comm->name, "%s", name);
    rank->members[slot] = decode_members(members, world, &comm->size);
    for (size_t i = 0; i < json_array_size(peers); i++) {
        json_int_t number, sends, receives;

        if (json_unpack(json_array_get(peers, i), "[III]", &number, &sends, &receives) < 0)
            return -1;
        comm->peers[comm->npeers++] =
            (struct record_peer){.rank = number, .sends = (uint64_t)sends, .receives = (uint64_t)receives};
    }
    return rank->members[slot] ? 0 : -1;
}

static int decode_lists(struct hang_rank *rank, int world, const json_t *json, const json_t *comms, const json_t *ring)
{
    const json_t *waiting = json_object_get(json, "waiting");

    for (size_t i = 0; i < json_array_size(comms); i++)
        if (decode_comm(rank, world, json_array_get(comms, i)) < 0)
            return -1;
    for (size_t i = 0; i < json_array_size(ring); i++) {
        struct record_op op;

        if (decode_op(&op, json_array_get(ring, i)) < 0)
            return -1;
        rank->record.ring[op.number % RECORD_RING] = op;
    }
    if (!waiting)
        rank->record.waiting_since = 0;
    return waiting ? decode_op(&rank->record.waiting, waiting) : 0;
}

static void forget_rank(struct hang_rank *rank)
{
    for (int i = 0; i < RECORD_COMMS; i++) {
        free(rank->members[i]);
        rank->members[i] = NULL;
    }
    memset(&rank->record, 0, sizeof rank->record);
    rank->state = HANG_SILENT;
}

static int decode_rank(struct hang_rank *ranks, int world, const json_t *json)
{
    json_int_t taken, operations, active, step, micro_batch, waiting_since;
    const char *host, *state, *phase;
    json_t *comms, *ring;
    struct hang_rank *rank;
    struct flight_record *r;
    double waited;
    int number;

    if (json_unpack((json_t *)json, "{s:i,s:s,s:s,s:I,s:I,s:I,s:s,s:I,s:I,s:F,s:I,s:o,s:o}", "rank", &number, "host",
                    &host, "state", &state, "taken", &taken, "operations", &operations, "active", &active, "phase",
                    &phase, "step", &step, "micro_batch", &micro_batch, "waited_seconds", &waited, "waiting_since",
                    &waiting_since, "comms", &comms, "ring", &ring) < 0 ||
        number < 0 || number >= world || find_name(states, STATES, state) < 0)
        return -1;
    rank = &ranks[number];
    forget_rank(rank);
    r = &rank->record;
    snprintf(rank->host, sizeof rank->host, "%s", host);
    snprintf(r->phase, sizeof r->phase, "%s", phase);
    rank->taken = taken;
    r->operations = (uint64_t)operations;
    r->active = active;
    r->step = step;
    r->micro_batch = micro_batch;
    r->waited_seconds = waited;
    r->waiting_since = waiting_since;
    if (decode_lists(rank, world, json, comms, ring) < 0) {
        forget_rank(rank);
        return -1;
    }
    rank->state = (enum hang_state)find_name(states, STATES, state);
    r->ended = rank->state == HANG_ENDED;
    return 0;
}

int hang_decode(struct hang_rank *ranks, int world, const json_t *json, struct error *err)
{
    const json_t *list = json_object_get(json, "ranks");

    if (json_integer_value(json_object_get(json, "version")) != 1 || !json_is_array(list))
        return error_set(err, CODE_DATA, "not records of version 1");
    for (size_t i = 0; i < json_array_size(list); i++)
        if (decode_rank(ranks, world, json_array_get(list, i)) < 0)
            return error_set(err, CODE_DATA, "record %zu is not valid for this run", i + 1);
    return 0;
}
