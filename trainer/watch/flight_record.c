#include "trainer/watch/flight_record.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define SHM    "/dev/shm/"
#define PREFIX "muster-record."

enum { WORDS = sizeof(struct flight_record) / sizeof(uint64_t), COPY_TRIES = 1000 };
_Static_assert(sizeof(struct flight_record) % sizeof(uint64_t) == 0, "a record is a whole number of words");

/* The mapped file. The cause is written once, before has_cause is set. */
struct shared {
    _Atomic uint64_t version; /* odd: being written */
    _Atomic uint64_t flags[RECORD_FLAGS], has_cause;
    struct record_cause cause;
    _Atomic uint64_t words[WORDS];
};

struct record_file {
    struct shared *shared;
    uint64_t filesystem; /* of the owner's */
    char path[96];       /* "" if there is nothing to unlink */
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

static void format_path(char *path, size_t size, const struct process *p)
{
    snprintf(path, size, SHM PREFIX "%" PRIu64 ".%" PRId64 ".%" PRIu64, p->pid_namespace, p->pid, p->started);
}

static bool is_left_over(const char *name)
{
    struct process p;
    char rest;

    return sscanf(name, PREFIX "%" SCNu64 ".%" SCNd64 ".%" SCNu64 "%c", &p.pid_namespace, &p.pid, &p.started, &rest) ==
               3 &&
           process_inspect(&p) == PROCESS_GONE;
}

/* Failures are ignored: in a directory with the sticky bit other users' files cannot be removed. */
static void remove_left_over(void)
{
    DIR *dir = opendir(SHM);
    struct dirent *entry;

    while (dir && (entry = readdir(dir)))
        if (is_left_over(entry->d_name))
            unlinkat(dirfd(dir), entry->d_name, 0);
    if (dir)
        closedir(dir);
}

/* fd -1 maps private memory. */
static struct record_file *map_record(int fd, int protection, struct error *err)
{
    struct record_file *file = error_calloc(1, sizeof *file, err);

    if (!file)
        return NULL;
    file->shared =
        mmap(NULL, sizeof *file->shared, protection, fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED, fd, 0);
    if (file->shared == MAP_FAILED) {
        error_errno(err, CODE_IO, "no memory for a flight record of %zu bytes", sizeof *file->shared);
        free(file);
        return NULL;
    }
    return file;
}

/* All of its memory is allocated at once: with /dev/shm full, a write to a new page would raise SIGBUS. */
static struct record_file *create_shared(struct error *err)
{
    struct record_file *file = NULL;
    struct process self = process_self();
    struct stat status;
    char path[sizeof file->path];
    int fd;

    if (self.pid == 0)
        return NULL;
    format_path(path, sizeof path, &self);
    fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return NULL;
    if (posix_fallocate(fd, 0, (off_t)sizeof(struct shared)) == 0 && fstat(fd, &status) == 0)
        file = map_record(fd, PROT_READ | PROT_WRITE, err);
    close(fd);
    if (!file) {
        unlink(path);
        return NULL;
    }
    file->filesystem = status.st_dev;
    snprintf(file->path, sizeof file->path, "%s", path);
    return file;
}

struct record_file *record_create(struct error *err)
{
    struct record_file *file;

    remove_left_over();
    file = create_shared(err);
    return file ? file : map_record(-1, PROT_READ | PROT_WRITE, err);
}

uint64_t record_filesystem(const struct record_file *file)
{
    return file->filesystem;
}

struct record_file *record_map(const struct process *owner, struct error *err)
{
    struct record_file *file = NULL;
    struct stat status;
    char path[sizeof file->path];
    int fd;

    format_path(path, sizeof path, owner);
    /* O_NONBLOCK: another user may have created a FIFO of that name. */
    fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) {
        error_errno(err, CODE_IO, "%s", path);
        return NULL;
    }
    /* A read beyond the end would raise SIGBUS: another version's file is refused. */
    if (fstat(fd, &status) < 0 || status.st_size != (off_t)sizeof(struct shared) || status.st_uid != geteuid())
        error_set(err, CODE_IO, "%s: not a record of this version", path);
    else
        file = map_record(fd, PROT_READ, err);
    close(fd);
    return file;
}

void record_unlink(struct record_file *file)
{
    if (file->path[0])
        unlink(file->path);
    file->path[0] = '\0';
}

void record_close(struct record_file *file)
{
    if (!file)
        return;
    record_unlink(file);
    munmap(file->shared, sizeof *file->shared);
    free(file);
}

/* ---- the sequence lock ---- */

/*
 * Every word is stored with release and loaded with acquire: a reader that has read a new word also reads the odd
 * version stored before it, and tries again. On x86 these are plain moves.
 */
void record_write_begin(struct record_file *file)
{
    uint64_t version = atomic_load_explicit(&file->shared->version, memory_order_relaxed);

    atomic_store_explicit(&file->shared->version, version + 1, memory_order_relaxed);
}

void record_write_end(struct record_file *file)
{
    uint64_t version = atomic_load_explicit(&file->shared->version, memory_order_relaxed);

    atomic_store_explicit(&file->shared->version, version + 1, memory_order_release);
}

void record_put(struct record_file *file, const struct flight_record *from, size_t offset, size_t bytes)
{
    size_t first = offset / sizeof(uint64_t), count = bytes / sizeof(uint64_t);

    for (size_t i = first; i < first + count; i++) {
        uint64_t word;

        memcpy(&word, (const char *)from + i * sizeof word, sizeof word);
        atomic_store_explicit(&file->shared->words[i], word, memory_order_release);
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
    const struct shared *shared = file->shared;
    bool whole = false;

    for (int tries = 0; tries < COPY_TRIES && !whole; tries++) {
        uint64_t before = atomic_load_explicit(&shared->version, memory_order_acquire);

        for (size_t i = 0; i < WORDS; i++) {
            uint64_t word = atomic_load_explicit(&shared->words[i], memory_order_acquire);

            memcpy((char *)out + i * sizeof word, &word, sizeof word);
        }
        whole = before % 2 == 0 && before == atomic_load_explicit(&shared->version, memory_order_relaxed);
    }
    record_make_safe(out, INT_MAX);
    return whole;
}

/* ---- messages of watchdogs ---- */

void record_set_flag(struct record_file *file, enum record_flag flag, int value)
{
    atomic_store_explicit(&file->shared->flags[flag], (uint64_t)value, memory_order_release);
}

int record_flag(const struct record_file *file, enum record_flag flag)
{
    return (int)atomic_load_explicit(&file->shared->flags[flag], memory_order_acquire);
}

void record_set_cause(struct record_file *file, const struct record_cause *cause)
{
    file->shared->cause = *cause;
    atomic_store_explicit(&file->shared->has_cause, 1, memory_order_release);
}

bool record_get_cause(const struct record_file *file, struct record_cause *cause)
{
    if (!atomic_load_explicit(&file->shared->has_cause, memory_order_acquire))
        return false;
    *cause = file->shared->cause;
    cause->text[sizeof cause->text - 1] = '\0';
    return true;
}
