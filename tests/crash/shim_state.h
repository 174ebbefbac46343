/* shim_state.h - what the wrappers of shim.c share: who is watched, the log, and the calls that fail. */
#ifndef MUSTER_TESTS_CRASH_SHIM_STATE_H
#define MUSTER_TESTS_CRASH_SHIM_STATE_H

#include "tests/crash/shim.h"

#include <stdbool.h>
#include <stddef.h>

/* Whether the path, or what the descriptor stands for, lies beneath the directory, or is it. */
bool shim_watches_path(int directory, const char *path);
bool shim_watches(int fd);

/* Inode numbers; 0 if there is none. */
uint64_t shim_inode(int fd);
uint64_t shim_inode_at(int directory, const char *path);

/* The directory that holds the last part of a path, and that part; 0 if it is not there. */
uint64_t shim_parent(int directory, const char *path, const char **name);

/* From before a call to after its record: so that the log's order is the order of effects. errno is kept. */
void shim_lock(void);
void shim_unlock(void);

/* Append to the log. name, name2 and data may be NULL. */
void shim_log(struct shim_record record, const char *name, const char *name2, const void *data);

/* Whether this process's next call of that name has to fail; sets errno. */
bool shim_fails(const char *call);

/* Whether this process's next write has to be cut short. To be asked before shim_fails("write"), which counts. */
bool shim_cuts(void);

/* SHIM_LATE: waits so long; and whether a directory's name was made or renamed less than that ago. */
void shim_be_late(void);
bool shim_is_young(int directory, const char *name);

enum shim_sync { SYNC_NONE = 0, SYNC_FILES = 1, SYNC_DIRECTORIES = 2, SYNC_ALL = 3 };
enum shim_sync shim_sync(void);

#endif
