/* drain_internal.h - a drain under way. */
#ifndef MUSTER_CKPT_DRAIN_DRAIN_INTERNAL_H
#define MUSTER_CKPT_DRAIN_DRAIN_INTERNAL_H

#include <pthread.h>

#include "ckpt/drain/drain.h"
#include "ckpt/stage/stage_status.h"

enum {
    DRAIN_COMMITTED = 1,
    DRAIN_INTERRUPTED, /* stop was set, or time is up */
    DRAIN_SUPERSEDED,  /* a newer step was committed */
    DRAIN_ALONE,       /* all shards of this node are in the target, and nothing moves there any more */
};

/* A generation's state from one turn to the next. */
struct waiting {
    char name[FILE_NAME_SIZE];
    double next, delay;  /* when to try to commit, and how long after that again */
    uint64_t activity;   /* measure_activity when it changed last */
    double moved;        /* when that was */
    double began;        /* when copying began; 0: not yet */
    uint64_t drained;    /* bytes of shards that are in the target */
    double retry, pause; /* the target failed: when to try again, and the pause before that. 0: it did not */
    bool alone;          /* DRAIN_ALONE was returned before */
    int checked;         /* parts whose forms are known */
    bool unknown;        /* it has a file of an unknown form, which was logged */
};

/* A target that fails: since when, and when to log it next. since is 0 while it works. */
struct trouble {
    double since, next, pause;
};

struct drainer {
    struct directory stage;
    struct ckpt_drain_options options;
    double deadline; /* of clock_monotonic; 0: none */
    int lock;
    int failed;
    int unknown;    /* generations of this turn that are of an unknown form */
    int stuck;      /* generations of this turn whose target fails */
    int incomplete; /* generations that ended without other nodes' shards */
    struct trouble trouble;
    bool users;        /* a process may still stage */
    bool prune_failed; /* and that was logged */
    struct waiting waiting[STATUS_MOST];

    pthread_mutex_t mutex; /* of what follows: the threads that copy share it */
    struct status *status;
    double status_written;
    double cap_free; /* when the cap lets the next block go */
};

/* A generation in its turn. */
struct drain {
    struct drainer *drainer;
    struct generation *generation;
    struct directory source;  /* in the stage */
    struct directory parent;  /* the checkpoint directory; closed (-1) until it is needed */
    struct directory partial; /* in it; likewise */
    struct status_generation *entry;
    struct waiting *waiting;
    double sign_checked;
    bool abort; /* under the mutex: a thread has failed, the others stop */
};

void drainer_log(const struct drainer *drainer, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Write status.json; unless `now`, only if that was not done in the last fifth of a second. Takes the mutex. */
void drainer_write_status(struct drainer *drainer, bool now);

/*
 * Two kinds of failure. CODE_DATA: the staged data is bad, or the attempt can never be committed (another node has
 * given it up; the step is another run's): it ends the generation. Any other code, every errno of the target among
 * them: the generation stays in the stage and is tried again (drain_retry). All functions below set err->code by this
 * rule.
 */

/*
 * Before a block of so many bytes is copied, and accounted for: waits as the cap wants. 0; DRAIN_INTERRUPTED; or -1
 * when another node has given up the attempt.
 */
int drain_pace(struct drain *drain, uint64_t bytes, struct error *err);

/*
 * Open the target's directories, and make missing ones if this generation may. -1 also when the attempt was given up.
 */
int drain_open_target(struct drain *drain, struct error *err);

/*
 * Copy all complete staged shards in `from`, and their parts, some at the same time, and make them durable. 0,
 * DRAIN_INTERRUPTED or -1.
 */
int drain_shards(struct drain *drain, const struct directory *from, struct error *err);

/* -1 if the attempt was given up by another node, with its reason. */
int drain_check_given_up(struct drain *drain, struct error *err);

/* Why it has not ended yet, in status.json; "" for no reason. */
void drain_set_reason(struct drain *drain, const char *text);

/* The target failed: the generation stays, and is tried again after a pause that grows. Returns 1. */
int drain_retry(struct drain *drain, const struct error *why);

/* The target works again, if it failed before. */
void drain_recover(struct drain *drain);

/* The drainer ends before the generations do: one log line with the steps and the reason. */
void drain_log_left(struct drainer *drainer);

/* Do for a generation what can be done now. 0 if it has ended, 1 if not. */
int drain_generation(struct drainer *drainer, struct generation *generation);

#endif
