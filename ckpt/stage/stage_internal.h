/* stage_internal.h - an open stage, within the files of ckpt/stage. */
#ifndef MUSTER_CKPT_STAGE_STAGE_INTERNAL_H
#define MUSTER_CKPT_STAGE_STAGE_INTERNAL_H

#include <time.h>

#include "ckpt/stage/stage.h"
#include "ckpt/stage/stage_dir.h"

#define STAGE_MAPPINGS 16
#define SLOT_NAME_SIZE (FILE_NAME_SIZE + 64)

/* A data file that this process has mapped. It stays mapped while the drainer has it and frees it. */
struct mapping {
    int fd; /* -1: none */
    uint64_t device, inode, bytes;
    unsigned char *data;
};

/* A file in .free that this process is about to fill, under that name. */
struct slot {
    char name[SLOT_NAME_SIZE];
    struct mapping *mapping;
};

struct ckpt_stage {
    struct directory directory;
    struct ckpt_stage_config config; /* without its strings; the defaults put in */
    int users;                       /* the shared lock of a process that may stage */
    char run[STAGE_RUN_SIZE];        /* the present one */
    struct mapping mappings[STAGE_MAPPINGS];

    /* The shard that was staged last, for ckpt_stage_lend. */
    const struct mapping *last;
    char *last_part;
    size_t last_part_bytes;

    /* The copy that is being received. */
    struct slot borrowed;
    struct staged_save borrowed_save;
    int borrowed_shard;

    struct status *status; /* as last read */
    uint64_t seen;         /* the greatest serial that was reported, or existed at the beginning */
    struct timespec status_time;
    uint64_t status_inode;
};

/*
 * A file of that many bytes for the shard, reserved and mapped: one that was given back, or a new one while this shard
 * has fewer than `max_staged` files. `within`: ".", or STAGE_PARTNER. 0; 1 with CODE_IO when there is no room, or when
 * `max_staged` files are in use.
 */
int slot_take(struct ckpt_stage *stage, const char *within, int shard, int shards, uint64_t bytes, struct slot *slot,
              struct error *err);

/* Make files until the shard has `max_staged`, in use or not. 0, or 1 when there is no room. */
int slot_reserve(struct ckpt_stage *stage, int shard, int shards, uint64_t bytes, struct error *err);

#endif
