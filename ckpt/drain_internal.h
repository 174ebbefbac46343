/* drain_internal.h - a drain under way. */
#ifndef MUSTER_CKPT_DRAIN_INTERNAL_H
#define MUSTER_CKPT_DRAIN_INTERNAL_H

#include "ckpt/drain.h"
#include "ckpt/stage_status.h"

#include <pthread.h>

enum {
    DRAIN_COMMITTED = 1,
    DRAIN_INTERRUPTED, /* stop was set, or time is up */
    DRAIN_SUPERSEDED,  /* a newer step was committed */
    DRAIN_ALONE,       /* all shards of this node are in the target, and nothing moves there any more */
};

/* What is remembered of a generation from one look at it to the next. */
struct waiting {
    char name[LAYOUT_NAME_SIZE];
    double next, delay;  /* when to try to commit, and how long after that again */
    uint64_t activity;   /* drain_activity when something moved last */
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
    double deadline; /* of stage_clock; 0: none */
    int lock;
    int failed;
    int unknown;    /* generations of this look that are of an unknown form */
    int stuck;      /* generations of this look whose target fails */
    int incomplete; /* generations that ended without other nodes' shards */
    struct trouble trouble;
    bool users;        /* someone may still stage */
    bool prune_failed; /* and that was said */
    struct waiting waiting[STATUS_MOST];

    pthread_mutex_t mutex; /* of what follows: the threads that copy share it */
    struct status *status;
    double status_written;
    double cap_free; /* when the cap lets the next block go */
};

/* A generation that is being looked at. */
struct drain {
    struct drainer *drainer;
    struct generation *generation;
    struct directory source;  /* in the stage */
    struct directory parent;  /* the checkpoint directory; closed (-1) until it is needed */
    struct directory partial; /* in it; likewise */
    struct status_generation *entry;
    struct waiting *waiting;
    double sign_looked;
    bool abort; /* under the mutex: a thread has failed, the others stop */
};

void drainer_log(const struct drainer *drainer, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Write status.json; unless `now`, only if that was not done in the last fifth of a second. Takes the mutex. */
void drainer_tell(struct drainer *drainer, bool now);

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
 * Open the target's directories, making what is not there if this generation may. -1 also when the attempt was given
 * up.
 */
int drain_open_target(struct drain *drain, struct error *err);

/*
 * Copy all complete staged shards that lie in `from`, and their parts, some at the same time, and make them durable. 0,
 * DRAIN_INTERRUPTED or -1.
 */
int drain_shards(struct drain *drain, const struct directory *from, struct error *err);

/* Whether the attempt was given up by someone, as the error. */
int drain_check_given_up(struct drain *drain, struct error *err);

/* DRAIN_COMMITTED if the step is committed and is ours; 0 if it is not committed; -1 also if it is another run's. */
int drain_check_committed(struct drain *drain, struct error *err);

/* Try to commit when it is time to. As drain_check_committed, or DRAIN_SUPERSEDED or DRAIN_ALONE. */
int drain_commit(struct drain *drain, struct error *err);

/* Whether a newer step than this generation's is committed. */
bool drain_is_superseded(const struct drain *drain);

/* Why it is not over yet, in status.json; "" for no reason. */
void drain_set_reason(struct drain *drain, const char *text);

/* The target failed: the generation stays, and is tried again after a pause that grows. Returns 1. */
int drain_retry(struct drain *drain, const struct error *why);

/* The target works again, if it failed before. */
void drain_recover(struct drain *drain);

/* The stage is left with generations in it: one log line with what they are, and why. */
void drain_log_left(struct drainer *drainer);

/* The memory of that generation, new if there is none. */
struct waiting *drain_waiting(struct drainer *drainer, const char *name);

/* Take the generation out of the stage. */
void drain_remove(struct drain *drain);

/* Do for a generation what can be done now. 1 if it is still there afterwards, 0 if it has ended. */
int drain_generation(struct drainer *drainer, struct generation *generation);

/* The generation has ended: say so, and give its memory back. */
void drain_end(struct drain *drain, enum status_state state, const char *reason);

#endif
