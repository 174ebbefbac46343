/*
 * stage_status.h - status.json of a stage: what its drainer does and did. Only the drainer writes it, whole, and
 * renames it into place. It is for people (muster-ckpt status), and ranks read from it how their saves ended.
 *
 *   {"pid", "host", "updated",                      of the drainer; seconds since 1970
 *    "generations": [{"step", "attempt", "dir", "state", "bytes_done", "bytes_total", "rate", "started", "ended",
 *                     "serial", "reason"}]}
 *
 * Generations that are under way come first, then the last STATUS_ENDED that ended, oldest first. serial counts those
 * that ended, from 1, and never decreases: a reader that remembers the greatest one it has seen misses none.
 */
#ifndef MUSTER_CKPT_STAGE_STAGE_STATUS_H
#define MUSTER_CKPT_STAGE_STAGE_STATUS_H

#include <jansson.h>

#include "ckpt/stage/stage_dir.h"

#define STATUS_NAME  "status.json"
#define STATUS_ENDED 32
#define STATUS_MOST  64

enum status_state {
    STATUS_STAGING, /* not all local shards are complete */
    STATUS_STAGED,
    STATUS_DRAINING,
    STATUS_DRAINED, /* waits for other nodes */
    STATUS_UNKNOWN, /* has a file of an unknown form (json_fields.h); only status_gather sets it */
    STATUS_COMMITTED,
    STATUS_SUPERSEDED,
    STATUS_FAILED,
};

struct status_generation {
    uint64_t step;
    char attempt[CKPT_ATTEMPT_SIZE];
    char dir[4096];
    enum status_state state;
    uint64_t bytes_done, bytes_total; /* of this node's shards; total of those that are complete */
    double rate;                      /* bytes a second, of the drain */
    double started, ended;            /* ended is 0 while it is under way */
    uint64_t serial;                  /* 0 while it is under way */
    char reason[512]; /* of STATUS_FAILED and STATUS_UNKNOWN; otherwise why it has not ended yet, "" if nothing fails */
};

struct status {
    int pid;
    char host[65];
    double updated;
    size_t count;
    struct status_generation generations[STATUS_MOST];
};

const char *status_state_name(enum status_state state);

/* The state by the directory's contents alone, for a node with `local` shards. */
enum status_state status_of(const struct contents *contents, int local);
static inline bool status_has_ended(enum status_state state)
{
    return state >= STATUS_COMMITTED;
}

/* As JSON, or NULL. */
json_t *status_json(const struct status *status);

/* A missing file is an empty status: 0. */
int status_read(struct status *status, const struct directory *stage, struct error *err);
int status_write(const struct status *status, const struct directory *stage, struct error *err);

/* The generation's entry, or NULL. */
struct status_generation *status_find(struct status *status, uint64_t step, const char *attempt);

/* The greatest serial. */
uint64_t status_serial(const struct status *status);

/* The drainer's status and, from the directories, the generations that it has not seen yet. For people. */
int status_gather(struct status *status, const struct directory *stage, struct error *err);

#endif
