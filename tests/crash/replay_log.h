/* replay_log.h - a log as replay.c has it in memory, for replay_build.c. */
#ifndef MUSTER_TESTS_CRASH_REPLAY_LOG_H
#define MUSTER_TESTS_CRASH_REPLAY_LOG_H

#include "tests/crash/replay.h"
#include "tests/crash/shim.h"

#include <stdbool.h>

enum fate { DROPPED, KEPT, HOLLOW, TORN_512, TORN_4096 };

/* A file or a directory. */
struct object {
    uint64_t inode;
    bool directory;
    struct object *next;
    bool later_kept; /* a change of its names, later than the one that is looked at, survives */
    /* While a tree is built: */
    unsigned char *data;
    uint64_t length, room;
};

/* Of names (made, renamed, removed) or of a file's contents. */
struct change {
    size_t moment;       /* the record's number */
    size_t durable_from; /* the number of the sync that made it durable */
    enum shim_kind kind;
    bool name;
    struct object *object;    /* whose name or contents */
    struct object *from, *to; /* directories; NULL where it has not been, or is no longer */
    const char *from_name, *to_name;
    uint64_t offset, bytes;
    const unsigned char *data;
    enum fate fate;
};

struct promise {
    size_t moment;
    uint64_t step;
};

struct replay {
    char *log;
    size_t count;
    struct object *objects, *root;
    struct change *changes;
    struct promise *promises;
    size_t nchanges, npromises, room;
};

/* Carry out the changes that are not dropped, beneath `into`. */
void replay_build(struct replay *replay, uint64_t *random, const char *into);

#endif
