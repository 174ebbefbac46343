#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/io.h"
#include "trainer/watch/hang.h"

#define REPORT "hang-report.txt"

enum { PATH_SIZE = 2048 };

static int find_name(const char *const *names, int count, const char *name)
{
    for (int i = 0; i < count; i++)
        if (name && strcmp(names[i], name) == 0)
            return i;
    return -1;
}

/* ---- writing records ---- */

static json_t *encode_op(const struct record_op *op)
{
    return json_pack("{s:I,s:I,s:I,s:I,s:s,s:i,s:i,s:s}", "number", (json_int_t)op->number, "sequence",
                     (json_int_t)op->sequence, "entered", (json_int_t)op->entered, "finished", (json_int_t)op->finished,
                     "kind", record_kinds[op->kind], "comm", (int)op->comm, "peer", (int)op->peer, "purpose",
                     op->purpose);
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
                     "entered", (json_int_t)comm->collectives_entered, "finished",
                     (json_int_t)comm->collectives_finished, "members",
                     encode_members(members, members ? comm->size : 0), "peers", peers);
}

static json_t *encode_rank(const struct hang_rank *rank, int number)
{
    const struct flight_record *r = &rank->record;
    json_t *comms = json_array(), *ring = json_array();
    json_t *json =
        json_pack("{s:i,s:s,s:s,s:i,s:I,s:I,s:I,s:s,s:I,s:I,s:f,s:I,s:o,s:o}", "rank", number, "host", rank->host,
                  "state", hang_states[rank->state], "signal", rank->signal, "taken", (json_int_t)rank->taken,
                  "operations", (json_int_t)r->operations, "last_change", (json_int_t)r->last_change, "phase", r->phase,
                  "step", (json_int_t)r->step, "micro_batch", (json_int_t)r->micro_batch, "waited_seconds",
                  r->waited_seconds, "waiting_since", (json_int_t)r->waiting_since, "comms", comms, "ring", ring);

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

static json_t *encode_ranks(const struct hang_rank *ranks, int world)
{
    json_t *list = json_array();

    for (int rank = 0; rank < world; rank++)
        if (ranks[rank].state != HANG_SILENT)
            json_array_append_new(list, encode_rank(&ranks[rank], rank));
    return json_pack("{s:i,s:o}", "version", 1, "ranks", list);
}

/* ---- reading records ---- */

static int decode_op(struct record_op *op, const json_t *json)
{
    json_int_t number, sequence, entered, finished;
    const char *kind, *purpose;
    int comm, peer;

    if (json_unpack((json_t *)json, "{s:I,s:I,s:I,s:I,s:s,s:i,s:i,s:s}", "number", &number, "sequence", &sequence,
                    "entered", &entered, "finished", &finished, "kind", &kind, "comm", &comm, "peer", &peer, "purpose",
                    &purpose) < 0)
        return -1;
    *op = (struct record_op){
        .number = (uint64_t)number,
        .sequence = (uint64_t)sequence,
        .entered = entered,
        .finished = finished,
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
    json_int_t id, entered, finished;
    json_t *members, *peers;
    struct record_comm *comm;
    const char *name;
    int slot;

    if (json_unpack((json_t *)json, "{s:i,s:s,s:I,s:I,s:I,s:o,s:o}", "slot", &slot, "name", &name, "id", &id, "entered",
                    &entered, "finished", &finished, "members", &members, "peers", &peers) < 0 ||
        slot < 0 || slot >= RECORD_COMMS || json_array_size(peers) > RECORD_PEERS || rank->members[slot])
        return -1;
    comm = &rank->record.comms[slot];
    comm->id = (uint64_t)id;
    comm->collectives_entered = (uint64_t)entered;
    comm->collectives_finished = (uint64_t)finished;
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

static int decode_rank(struct hang_rank *ranks, int world, const json_t *json)
{
    json_int_t taken, operations, last_change, step, micro_batch, waiting_since;
    const char *host, *state, *phase;
    json_t *comms, *ring;
    struct hang_rank *rank;
    struct flight_record *r;
    int number, signal, found;
    double waited;
    bool is_dead;

    if (json_unpack((json_t *)json, "{s:i,s:s,s:s,s:i,s:I,s:I,s:I,s:s,s:I,s:I,s:F,s:I,s:o,s:o}", "rank", &number,
                    "host", &host, "state", &state, "signal", &signal, "taken", &taken, "operations", &operations,
                    "last_change", &last_change, "phase", &phase, "step", &step, "micro_batch", &micro_batch,
                    "waited_seconds", &waited, "waiting_since", &waiting_since, "comms", &comms, "ring", &ring) < 0 ||
        number < 0 || number >= world || (found = find_name(hang_states, HANG_STATES, state)) < 0)
        return -1;
    rank = &ranks[number];
    is_dead = found == HANG_DEAD || rank->state == HANG_DEAD;
    if (found == HANG_DEAD && taken == 0) { /* seen from another node: there may be a record from its own */
        rank->state = rank->state == HANG_ENDING ? HANG_ENDING : HANG_DEAD;
        return 0;
    }
    hang_rank_clear(rank);
    r = &rank->record;
    snprintf(rank->host, sizeof rank->host, "%s", host);
    snprintf(r->phase, sizeof r->phase, "%s", phase);
    rank->taken = taken;
    r->operations = (uint64_t)operations;
    r->last_change = last_change;
    r->step = step;
    r->micro_batch = micro_batch;
    r->waited_seconds = waited;
    r->waiting_since = waiting_since;
    if (decode_lists(rank, world, json, comms, ring) < 0) {
        hang_rank_clear(rank);
        return -1;
    }
    rank->signal = signal;
    rank->state = is_dead && found != HANG_ENDING ? HANG_DEAD : (enum hang_state)found;
    r->ending = rank->state == HANG_ENDING;
    return 0;
}

static void decode_ranks(struct hang_rank *ranks, int world, const json_t *json)
{
    const json_t *list = json_object_get(json, "ranks");

    if (json_integer_value(json_object_get(json, "version")) != 1)
        return;
    for (size_t i = 0; i < json_array_size(list); i++)
        if (decode_rank(ranks, world, json_array_get(list, i)) < 0)
            return;
}

/* ---- the directory ---- */

int hang_raise_alarm(const char *dir, struct error *err)
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

bool hang_alarm_raised(const char *dir)
{
    return access(dir, F_OK) == 0;
}

static int write_file(const char *path, const char *text, struct error *err)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666);
    bool written = fd >= 0 && io_write_all(fd, text, strlen(text)) == 0;

    if (fd >= 0 && close(fd) < 0)
        written = false;
    return written ? 0 : error_errno(err, CODE_IO, "%s", path);
}

int hang_records_publish(const char *dir, int publisher, const struct hang_rank *ranks, int world, struct error *err)
{
    char path[PATH_SIZE], part[PATH_SIZE];
    json_t *json = encode_ranks(ranks, world);
    char *text = json ? json_dumps(json, JSON_COMPACT) : NULL;
    int result;

    json_decref(json);
    if (!text)
        return error_set(err, CODE_IO, "out of memory for the records of this node");
    snprintf(path, sizeof path, "%s/records-%05d.json", dir, publisher);
    snprintf(part, sizeof part, "%s/.records-%05d.part", dir, publisher);
    result = write_file(part, text, err);
    if (result == 0 && rename(part, path) < 0)
        result = error_errno(err, CODE_IO, "%s", path);
    free(text);
    return result;
}

int hang_published(const char *dir, bool *published, int world, struct error *err)
{
    DIR *list = opendir(dir);
    struct dirent *entry;

    memset(published, 0, (size_t)world * sizeof *published);
    if (!list)
        return error_errno(err, CODE_IO, "%s", dir);
    while ((entry = readdir(list))) {
        int publisher, length = 0;

        if (sscanf(entry->d_name, "records-%d.json%n", &publisher, &length) == 1 && length > 0 && publisher >= 0 &&
            publisher < world)
            published[publisher] = true;
    }
    closedir(list);
    return 0;
}

void hang_collect(const char *dir, const bool *published, struct hang_rank *ranks, int world)
{
    for (int publisher = 0; publisher < world; publisher++) {
        char path[PATH_SIZE];
        json_t *json;

        if (!published[publisher])
            continue;
        snprintf(path, sizeof path, "%s/records-%05d.json", dir, publisher);
        json = json_load_file(path, 0, NULL);
        decode_ranks(ranks, world, json);
        json_decref(json);
    }
}

int hang_report_publish(const char *dir, int rank, const char *text, struct error *err)
{
    char path[PATH_SIZE], part[PATH_SIZE];
    int result;

    snprintf(path, sizeof path, "%s/" REPORT, dir);
    snprintf(part, sizeof part, "%s/.report-%05d.part", dir, rank);
    if (write_file(part, text, err) < 0)
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

bool hang_cause_read(const char *dir, struct record_cause *cause)
{
    char path[PATH_SIZE], line[sizeof cause->text];
    FILE *file;
    bool found;

    snprintf(path, sizeof path, "%s/" REPORT, dir);
    file = fopen(path, "re");
    if (!file)
        return false;
    *cause = (struct record_cause){0};
    found = fgets(cause->text, sizeof cause->text, file) != NULL;
    cause->text[strcspn(cause->text, "\n")] = '\0';
    while (fgets(line, sizeof line, file))
        cause->aborted |= strcmp(line, HANG_ABORTED_LINE) == 0;
    fclose(file);
    return found;
}
