#include "trainer/watch/recorder.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

static struct {
    struct record_file *file; /* NULL: nothing is recorded */
    struct flight_record now; /* the file's content; only this thread changes it */
    const char *base;         /* recorder_base; NULL: computing */
    double spent[RECORDER_SHARES];
    enum recorder_share share; /* of the time since then */
    int64_t since;
    int64_t idle_since; /* in a wait: when this rank had nothing else to do; 0: its device is busy */
    enum recorder_share axis[RECORD_COMMS];
} recorder;

const char *const recorder_share_names[RECORDER_SHARES] = {
    [SHARE_COMPUTING] = "computing",
    [SHARE_DATA] = "reading data",
    [SHARE_VALIDATING] = "validating",
    [SHARE_REPORTING] = "reporting",
    [SHARE_CLAIM] = "checking the claim",
    [SHARE_SYNC] = "flushing the metrics",
    [SHARE_SAVING] = "saving a checkpoint",
    [SHARE_PARTNER] = "copying to the partner",
    [SHARE_OTHER] = "other",
    [SHARE_DP] = "waiting, dp",
    [SHARE_TP] = "waiting, tp",
    [SHARE_PP] = "waiting, pp",
    [SHARE_WORLD] = "waiting, all ranks",
};

static void put_at(const void *field, size_t bytes)
{
    if (bytes)
        record_put(recorder.file, &recorder.now, (size_t)((const char *)field - (const char *)&recorder.now), bytes);
}

/* Puts the fields before `comms`, which are few, and two other parts of the record into the file, all at one moment. */
static void write_parts(const void *part, size_t bytes, const void *other, size_t other_bytes)
{
    if (!recorder.file)
        return;
    record_write_begin(recorder.file);
    put_at(&recorder.now, offsetof(struct flight_record, comms));
    put_at(part, bytes);
    put_at(other, other_bytes);
    record_write_end(recorder.file);
}

int64_t recorder_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

struct record_file *recorder_start(int *fd, struct error *err)
{
    recorder_stop();
    recorder.file = record_create(fd, err);
    if (!recorder.file)
        return NULL;
    memset(&recorder.now, 0, sizeof recorder.now);
    memset(recorder.spent, 0, sizeof recorder.spent);
    recorder.base = NULL;
    recorder.share = SHARE_OTHER;
    recorder.now.last_change = recorder.since = recorder_now();
    recorder_phase("starting");
    return recorder.file;
}

void recorder_stop(void)
{
    record_close(recorder.file);
    recorder.file = NULL;
}

/* ---- for the engine ---- */

/* The time from `now` on is `share`'s. */
static void begin_share(enum recorder_share share, int64_t now)
{
    recorder.spent[recorder.share] += 1e-9 * (double)(now - recorder.since);
    recorder.share = share;
    recorder.since = now;
}

void recorder_phase(const char *what)
{
    enum recorder_share share = SHARE_COMPUTING;

    if (!what)
        what = recorder.base ? recorder.base : recorder_share_names[SHARE_COMPUTING];
    while (share < SHARE_OTHER && strcmp(what, recorder_share_names[share]) != 0)
        share++;
    recorder.now.last_change = recorder_now();
    begin_share(share, recorder.now.last_change);
    snprintf(recorder.now.phase, sizeof recorder.now.phase, "%s", what);
    write_parts(NULL, 0, NULL, 0);
}

void recorder_base(const char *what)
{
    recorder.base = what;
    recorder_phase(NULL);
}

void recorder_shares(double seconds[RECORDER_SHARES])
{
    if (recorder.file)
        begin_share(recorder.share, recorder_now());
    memcpy(seconds, recorder.spent, sizeof recorder.spent);
}

void recorder_step(int64_t step)
{
    recorder.now.step = step;
    recorder_micro_batch(0);
}

void recorder_micro_batch(int64_t micro_batch)
{
    recorder.now.micro_batch = micro_batch;
    write_parts(NULL, 0, NULL, 0);
}

double recorder_waited_seconds(void)
{
    return recorder.now.waited_seconds;
}

void recorder_ending(void)
{
    recorder.now.ending = 1;
    write_parts(NULL, 0, NULL, 0);
}

void recorder_alarm(void)
{
    if (recorder.file)
        record_set_flag(recorder.file, RECORD_ALARM, 1);
}

/* ---- communicators ---- */

/* FNV-1a: the same name and members are the same communicator. Never 0. */
static uint64_t hash_comm(const char *name, const int *members, int size)
{
    uint64_t h = 0xcbf29ce484222325u;

    for (; *name; name++)
        h = (h ^ (unsigned char)*name) * 0x100000001b3u;
    for (int i = 0; i < size; i++)
        h = (h ^ (uint64_t)(unsigned)members[i]) * 0x100000001b3u;
    return h ? h : 1;
}

static void fill_members(struct record_comm *c, const int *members, int size)
{
    struct record_run *run = c->members;

    for (int i = 0; i < size && run < c->members + RECORD_RUNS; i += run++->count) {
        *run = (struct record_run){members[i], i + 1 < size ? members[i + 1] - members[i] : 1, 1};
        while (i + run->count < size && members[i + run->count] - members[i + run->count - 1] == run->stride)
            run->count++;
    }
}

bool recorder_must_add_comm(int comm)
{
    return recorder.file && comm == 0;
}

static struct record_comm *find_comm(int comm)
{
    return recorder.file && comm > 0 ? &recorder.now.comms[comm - 1] : NULL;
}

/* The names are those of split_world (trainer/engine.c). */
static enum recorder_share find_axis(const char *name)
{
    if (strcmp(name, "tied embedding") == 0 || strncmp(name, "pp ", 3) == 0)
        return SHARE_PP;
    return strcmp(name, "dp") == 0 ? SHARE_DP : strcmp(name, "tp") == 0 ? SHARE_TP : SHARE_WORLD;
}

void recorder_add_comm(int *comm, const char *name, const int *members, int size)
{
    struct record_comm *c;
    int slot = 0;

    while (slot < RECORD_COMMS && recorder.now.comms[slot].id != 0)
        slot++;
    *comm = slot < RECORD_COMMS ? slot + 1 : -1;
    c = find_comm(*comm);
    if (!c)
        return;
    memset(c, 0, sizeof *c);
    fill_members(c, members, size);
    snprintf(c->name, sizeof c->name, "%s", name);
    c->size = size;
    c->id = hash_comm(c->name, members, size);
    recorder.axis[slot] = find_axis(name);
    write_parts(c, sizeof *c, NULL, 0);
}

void recorder_remove_comm(int *comm)
{
    struct record_comm *c = find_comm(*comm);

    if (c) {
        memset(c, 0, sizeof *c);
        write_parts(c, sizeof *c, NULL, 0);
    }
    *comm = 0;
}

/* ---- operations ---- */

static struct record_peer *find_peer(struct record_comm *c, int rank)
{
    for (int i = 0; i < c->npeers; i++)
        if (c->peers[i].rank == rank)
            return &c->peers[i];
    if (c->npeers == RECORD_PEERS)
        return NULL;
    c->peers[c->npeers].rank = rank;
    return &c->peers[c->npeers++];
}

/* The operation's number on its communicator; 0 if there are more than RECORD_PEERS peers. */
static uint64_t count_operation(struct record_comm *c, enum record_kind kind, int rank)
{
    struct record_peer *peer;

    if (!record_is_message(kind))
        return ++c->collectives_entered;
    peer = find_peer(c, rank);
    if (!peer)
        return 0;
    return kind == RECORD_SEND ? ++peer->sends : ++peer->receives;
}

/* Appends a word after a blank, truncated to the buffer. */
static void append_word(char text[static RECORD_TEXT_SIZE], const char *word)
{
    size_t at = strlen(text);

    if (!word || !*word || at >= RECORD_TEXT_SIZE - 2)
        return;
    if (at > 0)
        text[at++] = ' ';
    memccpy(text + at, word, 0, RECORD_TEXT_SIZE - 1 - at);
}

void recorder_enter(struct record_op *op, int comm, enum record_kind kind, int peer, const char *unit, const char *data)
{
    struct record_comm *c = find_comm(comm);
    struct record_op *place;

    op->number = 0;
    if (!c)
        return;
    memset(op, 0, sizeof *op);
    op->number = ++recorder.now.operations;
    op->sequence = count_operation(c, kind, peer);
    op->entered = recorder.now.last_change = recorder_now();
    op->kind = kind;
    op->comm = comm - 1;
    op->peer = record_is_message(kind) ? peer : -1;
    append_word(op->purpose, unit);
    append_word(op->purpose, data);
    place = &recorder.now.ring[op->number % RECORD_RING];
    *place = *op;
    if (record_is_message(kind))
        write_parts(place, sizeof *place, &c->size, sizeof *c - offsetof(struct record_comm, size));
    else
        write_parts(place, sizeof *place, &c->collectives_entered, sizeof c->collectives_entered);
}

void recorder_wait_begin(const struct record_op *op)
{
    if (!recorder.file || op->number == 0)
        return;
    recorder.now.last_change = recorder.now.waiting_since = recorder.idle_since = recorder_now();
    if (recorder.share == SHARE_COMPUTING)
        begin_share(recorder.axis[op->comm], recorder.now.last_change);
    recorder.now.waiting = *op;
    write_parts(NULL, 0, NULL, 0);
}

void recorder_device_busy(bool busy)
{
    int64_t now = recorder_now();

    if (!recorder.file || recorder.now.waiting_since == 0)
        return;
    recorder.idle_since = busy ? 0 : now;
    if (busy && recorder.share > SHARE_OTHER)
        begin_share(SHARE_COMPUTING, now);
    else if (!busy && recorder.share == SHARE_COMPUTING)
        begin_share(recorder.axis[recorder.now.waiting.comm], now);
}

void recorder_leave(const struct record_op *op)
{
    struct record_op *place = &recorder.now.ring[op->number % RECORD_RING];
    struct record_comm *c = &recorder.now.comms[op->comm];
    int64_t now;

    if (!recorder.file || op->number == 0)
        return;
    now = recorder_now();
    if (recorder.now.waiting_since && recorder.idle_since)
        recorder.now.waited_seconds += 1e-9 * (double)(now - recorder.idle_since);
    if (recorder.share > SHARE_OTHER)
        begin_share(SHARE_COMPUTING, now);
    recorder.now.last_change = now;
    recorder.now.waiting_since = 0;
    if (place->number == op->number)
        place->finished = now;
    if (!record_is_message(op->kind))
        c->collectives_finished++;
    write_parts(&place->finished, sizeof place->finished, &c->collectives_finished, sizeof c->collectives_finished);
}
