#include "trainer/watch/flight_record.h"

#include <inttypes.h>
#include <limits.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

enum { WORDS = sizeof(struct flight_record) / sizeof(uint64_t), COPY_TRIES = 1000 };
_Static_assert(sizeof(struct flight_record) % sizeof(uint64_t) == 0, "a record is a whole number of words");

/* The cause is written once, before has_cause is set. */
struct record_file {
    struct process owner;     /* process_share writes it */
    _Atomic uint64_t version; /* odd: being written */
    _Atomic uint64_t flags[RECORD_FLAGS], has_cause;
    struct record_cause cause;
    _Atomic uint64_t words[WORDS];
};

const char *const record_kinds[RECORD_KINDS] = {
    [RECORD_REDUCE_SCATTER] = "reduce-scatter",
    [RECORD_ALL_GATHER] = "all-gather",
    [RECORD_ALL_REDUCE] = "all-reduce",
    [RECORD_BROADCAST] = "broadcast",
    [RECORD_SEND] = "send",
    [RECORD_RECEIVE] = "receive",
    [RECORD_SUM] = "sum",
    [RECORD_MAXIMUM] = "maximum",
    [RECORD_BARRIER] = "barrier",
    [RECORD_AGREEMENT] = "agreement",
    [RECORD_SPLIT] = "split",
};

bool record_is_message(int kind)
{
    return kind == RECORD_SEND || kind == RECORD_RECEIVE;
}

const struct record_op *record_last(const struct flight_record *record)
{
    return record->operations ? &record->ring[record->operations % RECORD_RING] : NULL;
}

int record_member(const struct record_comm *comm, int index)
{
    for (int i = 0; i < RECORD_RUNS; index -= comm->members[i++].count)
        if (index < comm->members[i].count)
            return comm->members[i].first + index * comm->members[i].stride;
    return -1;
}

/* ---- the file ---- */

struct record_file *record_create(int *fd, struct error *err)
{
    struct record_file *file = process_share(sizeof *file, fd);

    if (!file)
        error_errno(err, CODE_IO, "memory for a flight record");
    return file;
}

struct record_file *record_map(const struct process *owner, int fd, struct error *err)
{
    struct record_file *file = process_map(owner, fd, sizeof *file, false);

    if (!file)
        error_errno(err, CODE_IO, "the flight record of process %" PRId64, owner->pid);
    return file;
}

void record_close(struct record_file *file)
{
    if (file)
        munmap(file, sizeof *file);
}

/* ---- the sequence lock ---- */

/*
 * Every word is stored with release and loaded with acquire: a reader that has read a new word also reads the odd
 * version stored before it, and tries again. On x86 these are plain moves.
 */
void record_write_begin(struct record_file *file)
{
    uint64_t version = atomic_load_explicit(&file->version, memory_order_relaxed);

    atomic_store_explicit(&file->version, version + 1, memory_order_relaxed);
}

void record_write_end(struct record_file *file)
{
    uint64_t version = atomic_load_explicit(&file->version, memory_order_relaxed);

    atomic_store_explicit(&file->version, version + 1, memory_order_release);
}

void record_put(struct record_file *file, const struct flight_record *from, size_t offset, size_t bytes)
{
    size_t first = offset / sizeof(uint64_t), count = bytes / sizeof(uint64_t);

    for (size_t i = first; i < first + count; i++) {
        uint64_t word;

        memcpy(&word, (const char *)from + i * sizeof word, sizeof word);
        atomic_store_explicit(&file->words[i], word, memory_order_release);
    }
}

static bool is_run(const struct record_run *run, int world)
{
    int64_t last = run->first + ((int64_t)run->count - 1) * run->stride;

    return run->count == 0 || (run->count > 0 && run->first >= 0 && run->first < world && last >= 0 && last < world);
}

void record_make_safe(struct flight_record *r, int world)
{
    for (int i = 0; i <= RECORD_RING; i++) {
        struct record_op *op = i < RECORD_RING ? &r->ring[i] : &r->waiting;

        op->purpose[RECORD_TEXT_SIZE - 1] = '\0';
        if (op->kind < 0 || op->kind >= RECORD_KINDS || op->comm < 0 || op->comm >= RECORD_COMMS)
            memset(op, 0, sizeof *op);
    }
    for (int i = 0; i < RECORD_COMMS; i++) {
        struct record_comm *c = &r->comms[i];

        bool good = c->size >= 0 && c->size <= world && c->npeers >= 0 && c->npeers <= RECORD_PEERS;

        for (int k = 0; k < RECORD_RUNS; k++)
            good &= is_run(&c->members[k], world);
        c->name[RECORD_NAME_SIZE - 1] = '\0';
        if (!good)
            memset(c, 0, sizeof *c);
    }
    r->phase[RECORD_TEXT_SIZE - 1] = '\0';
}

bool record_copy(struct flight_record *out, const struct record_file *file)
{
    bool whole = false;

    for (int tries = 0; tries < COPY_TRIES && !whole; tries++) {
        uint64_t before = atomic_load_explicit(&file->version, memory_order_acquire);

        for (size_t i = 0; i < WORDS; i++) {
            uint64_t word = atomic_load_explicit(&file->words[i], memory_order_acquire);

            memcpy((char *)out + i * sizeof word, &word, sizeof word);
        }
        whole = before % 2 == 0 && before == atomic_load_explicit(&file->version, memory_order_relaxed);
    }
    record_make_safe(out, INT_MAX);
    return whole;
}

/* ---- messages of watchdogs ---- */

void record_set_flag(struct record_file *file, enum record_flag flag, int value)
{
    atomic_store_explicit(&file->flags[flag], (uint64_t)value, memory_order_release);
}

int record_flag(const struct record_file *file, enum record_flag flag)
{
    return (int)atomic_load_explicit(&file->flags[flag], memory_order_acquire);
}

void record_set_cause(struct record_file *file, const struct record_cause *cause)
{
    file->cause = *cause;
    atomic_store_explicit(&file->has_cause, 1, memory_order_release);
}

bool record_get_cause(const struct record_file *file, struct record_cause *cause)
{
    if (!atomic_load_explicit(&file->has_cause, memory_order_acquire))
        return false;
    *cause = file->cause;
    cause->text[sizeof cause->text - 1] = '\0';
    return true;
}
