/*
 * drain.h - drains a node's stage to the checkpoint directory, and commits, as stage.h describes: the loop of
 * muster-ckptd(8).
 *
 * A shard is copied in blocks of 4 MiB, past the page cache. Each block is verified against its checksum from staging. A
 * shard whose part is in the target is not copied again. A copy that is stopped in order (`seconds`, `stop`) is
 * continued by the next drainer, from its last whole block. Saves are drained oldest first; one that waits for other
 * nodes does not delay the next.
 *
 * After a kill at any moment, the next call continues. Two nodes may copy one shard at the same time (a partner's
 * copy): each writes a temporary file of its own, and both rename the same bytes to the same name.
 *
 * If the target fails, with any errno, the drainer tries the save again after pauses that grow to 30 s, until this or a
 * newer step is committed or ckpt_stage_drop is called. A save fails only if its staged data is damaged, its attempt can
 * never be committed, or, after the run, other nodes' shards are missing and do not grow for a second.
 */
#ifndef MUSTER_CKPT_DRAIN_DRAIN_H
#define MUSTER_CKPT_DRAIN_DRAIN_H

#include <signal.h>

#include "ckpt/ckpt.h"

/* A line about an event, without newline. `failure`: it says that something has failed, or is left as it is. */
typedef void ckpt_drain_log(const char *line, bool failure, void *arg);

struct ckpt_drain_options {
    int threads;    /* shards copied at the same time; 0: 2 */
    uint64_t cap;   /* bytes a second, of all threads together; 0: unlimited */
    double seconds; /* return after this time; 0: no limit */
    bool once;      /* return as soon as nothing is left. Without `seconds`, return also when the target fails for all
                            that is left. If false: waits for more saves while a process may stage; then continues as
                            with `once` */
    bool partner;   /* drain partner's copies that the target lacks, also while a process may stage */
    bool require_unused; /* return CKPT_DRAIN_BUSY also if a process may still stage. With `once`, try a target that
                            fails once, whatever `seconds` */
    const volatile sig_atomic_t *stop;      /* may be NULL: return soon after it became other than 0 */
    const volatile sig_atomic_t *run_ended; /* may be NULL. As long as it is 0, the run goes on that started this: what
                                               fails is tried again and again, with `once` too */
    ckpt_drain_log *log;                    /* may be NULL */
    void *log_arg;
};

/* All but CKPT_DRAIN_BUSY are exit codes of muster-ckptd (common/error.h). */
enum ckpt_drained {
    CKPT_DRAIN_DONE = CODE_OK,      /* nothing is left: every save ended; status.json has the results */
    CKPT_DRAIN_BUSY = 1,            /* another process drains this stage; or see `require_unused` */
    CKPT_DRAIN_LEFT = CODE_STOPPED, /* something is left in the stage: time limit, stop, a target that fails, or staged
                                       by another release; or another process drains it for longer than `seconds`, with
                                       `once` */
    /* Nothing is left, and a save is not committed: */
    CKPT_DRAIN_DAMAGED = CODE_IO,  /* its staged data was damaged, or its step is another run's */
    CKPT_DRAIN_OTHERS = CODE_PEER, /* because of other nodes: their shards are missing, or one of them abandoned it */
};

/* One of the above, or -1 when the stage cannot be used at all. A stage that does not exist is done. */
int ckpt_drain(const char *stage_dir, const struct ckpt_drain_options *options, struct error *err);

/*
 * Remove the saves that were staged more than `seconds` ago and could not be drained since, and the stage if it is then
 * empty. Logs a line for each save that is lost. A stage of another release stays, and so does one that a process uses
 * or drains. Returns the number of saves that were removed, or -1.
 */
int ckpt_reclaim(const char *stage_dir, double seconds, ckpt_drain_log *log, void *log_arg, struct error *err);

#endif
