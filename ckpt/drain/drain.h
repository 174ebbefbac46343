/*
 * drain.h - drains a node's stage (stage.h) to the checkpoint directory, and commits: the loop of muster-ckptd(8).
 *
 * Each complete staged shard is copied to <dir>/step-N.ATTEMPT.partial in blocks of 4 MiB past the page cache, each
 * verified against its checksum from staging; then synced and renamed; then its part. A shard whose part is in the
 * target is not copied again. Then ckpt_commit is tried until the step is committed. Generations are drained oldest
 * first; one that waits for other nodes does not hold up the next.
 *
 * A generation with a file of a form that this muster does not know (json_fields.h) is left alone, and so is the stage.
 *
 * After a kill at any moment, the next call continues. Two nodes may copy one shard at the same time (a
 * partner's copy): each has a temporary file of its own, and the names mean the same bytes.
 *
 * A target that fails, with whatever errno, does not end a generation: it stays in the stage and is tried again after
 * pauses that grow to 30 s, until it is committed, a newer step is committed, or ckpt_stage_replace drops it. Only
 * damaged staged data ends it as failed, and an attempt that can never be committed (stage.h).
 */
#ifndef MUSTER_CKPT_DRAIN_DRAIN_H
#define MUSTER_CKPT_DRAIN_DRAIN_H

#include <signal.h>

#include "ckpt/ckpt.h"

struct ckpt_drain_options {
    int threads;    /* shards copied at the same time; 0: 2 */
    uint64_t cap;   /* bytes a second, of all threads together; 0: unlimited */
    double seconds; /* return after this time; 0: no limit */
    double idle;    /* for this long nothing has changed in the checkpoint directory, and a generation waits for other
                       nodes' shards: log it and drain a partner's copies; with `once`, or where an earlier life of the
                       job staged it, leave it to the other nodes. 0: 300 */
    bool once;      /* return when nothing is left, not only when the stage was closed; without `seconds` also when the
                       target fails for all that is left */
    bool partner;   /* drain partner's copies that the target lacks */
    const volatile sig_atomic_t *stop;        /* may be NULL: return soon after it became other than 0 */
    void (*log)(const char *line, void *arg); /* may be NULL: one line for each event, without newline */
    void *log_arg;
};

enum ckpt_drained {
    CKPT_DRAIN_DONE = 0, /* nothing is left: every generation ended; status.json has the results */
    CKPT_DRAIN_LEFT = 1, /* something is left in the stage (time limit, stop, staged by another release), or was not
                            committed because other nodes' shards are missing */
    CKPT_DRAIN_BUSY = 2, /* another process drains this stage */
};

/*
 * One of the above, or -1 when the stage cannot be used at all. A generation that fails is not a failure of this call.
 * A stage that does not exist is done. *failed (may be NULL) counts the generations that ended as failed meanwhile.
 */
int ckpt_drain(const char *stage_dir, const struct ckpt_drain_options *options, int *failed, struct error *err);

#endif
