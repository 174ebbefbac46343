/*
 * replay.h - from a log of shim.h, the trees that a machine could show if it had crashed at some moment of it.
 *
 * What fsync had not made durable by then may be there or not: each write and each change of a directory has its own
 * fate, as on a disk that reorders what it was given. The model, after ALICE (Pillai et al., OSDI 2014):
 *   - fsync of a file makes its writes and its length durable, not its name; fsync of a directory makes the names in it
 *     durable. A rename from one directory to another is durable when either is synced.
 *   - A rename is never half done; and what happened to a file's or directory's names after a change that is lost is
 * lost too. Everything else is independent.
 *   - A write may also be torn: any of its sectors may be missing, or all of them though the file has grown.
 */
#ifndef MUSTER_TESTS_CRASH_REPLAY_H
#define MUSTER_TESTS_CRASH_REPLAY_H

#include <stddef.h>
#include <stdint.h>

struct replay;

/* Read the log of a program that was watched from when `root`, the inode of a directory, was empty. */
struct replay *replay_create(const char *log, uint64_t root);
void replay_destroy(struct replay *replay);

/* Moments: before the first record is 0, after the last is the count. */
size_t replay_count(const struct replay *replay);

/* The newest N of "committed N" that was said before that moment; 0 if none was. */
uint64_t replay_promised(const struct replay *replay, size_t moment);

enum replay_loss {
    REPLAY_NOTHING_LOST,
    REPLAY_ALL_LOST,   /* all that was not durable */
    REPLAY_TAIL_LOST,  /* all from some moment on: a journal */
    REPLAY_DATA_LOST,  /* of writes; the directories are as they were */
    REPLAY_NAMES_LOST, /* and the files' contents are there */
    REPLAY_ONE_LOST,   /* one change alone */
    REPLAY_ONE_KEPT,
    REPLAY_ANY_LOST, /* each with one chance in two */
    REPLAY_TORN_512, /* the same, and sectors of each write likewise */
    REPLAY_TORN_4096,
    REPLAY_HOLLOW, /* the same, and writes that grew the file without their data */
    REPLAY_LOSSES
};

/* Make the tree in the empty directory `into`. What has no name is left out, as fsck does. */
void replay_tree(struct replay *replay, size_t moment, enum replay_loss loss, uint64_t *random, const char *into);

#endif
