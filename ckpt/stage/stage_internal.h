/* stage_internal.h - an open stage, within the files of ckpt/stage. */
#ifndef MUSTER_CKPT_STAGE_STAGE_INTERNAL_H
#define MUSTER_CKPT_STAGE_STAGE_INTERNAL_H

#include <time.h>

#include "ckpt/stage/stage.h"
#include "ckpt/stage/stage_dir.h"

#define STAGE_SLOTS_MAPPED 16
#define SLOT_NAME_SIZE     (FILE_NAME_SIZE + 64)

/* A slot that this process has mapped. It stays mapped while a save uses it and the drainer reads it. */
struct slot {
    char name[SLOT_NAME_SIZE]; /* beneath the stage */
    int fd;                    /* -1: none */
    uint64_t bytes;
    unsigned char *data;
};

struct ckpt_stage {
    struct directory directory;
    struct ckpt_stage_config config; /* without its strings; the defaults put in */
    int users;                       /* the shared lock of a process that may stage */
    char run[STAGE_RUN_SIZE];        /* the present one */
    struct slot slots[STAGE_SLOTS_MAPPED];

    /* The shard that was staged last, for ckpt_stage_lend. */
    const struct slot *last;
    char *last_part;
    size_t last_part_bytes;

    /* The copy that is being received. */
    struct slot *borrowed; /* NULL: none */
    struct staged_save borrowed_save;
    int borrowed_shard;

    struct status *status; /* as last read */
    uint64_t seen;         /* the greatest serial that was reported, or existed at the beginning */
    struct timespec status_time;
    uint64_t status_inode;
};

/*
 * A slot of that many bytes for the shard, reserved and mapped: one that no save uses any more, or a new one while
 * fewer than `max_staged` saves hold the shard. 0; 1 with CODE_IO when there is no room, or when so many do.
 */
int slot_take(struct ckpt_stage *stage, int shard, int shards, uint64_t bytes, struct slot **slot, struct error *err);
void slot_unmap(struct slot *slot);

/* Make slots until the shard has `max_staged`, in use or not. 0, or 1 when there is no room. */
int slot_reserve(struct ckpt_stage *stage, int shard, int shards, uint64_t bytes, struct error *err);

#endif
