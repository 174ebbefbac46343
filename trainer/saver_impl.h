/* saver_impl.h - what the files of saver.h share: saver.c, saver_open.c and saver_drain.c. Private to them. */
#ifndef MUSTER_TRAINER_SAVER_IMPL_H
#define MUSTER_TRAINER_SAVER_IMPL_H

#include "ckpt/stage/stage.h"
#include "trainer/ckptd.h"
#include "trainer/nodes.h"
#include "trainer/saver.h"
#include "trainer/saver_copy.h"

enum { SAVER_MOST_RESTARTS = 5 }; /* of muster-ckptd, each after a short life */

struct saver {
    struct engine *engine;
    const struct job *job;
    struct comm *world;
    saver_say *say;
    void *arg;
    struct nodes *nodes;
    struct ckpt_stage *stage; /* NULL: saves go straight */
    struct saver_copy copy;   /* into the stage; begun alike on all ranks, and ended alike */
    struct ckptd ckptd;       /* of the first rank of each node */
    int restarts;
    double restarted; /* when it was last */
    bool said;        /* that staging is not possible */
    bool prune_said;  /* that old checkpoints cannot be removed */
    bool others_said; /* that another job saves here */
    bool first;
    uint64_t saved, staged, committed;  /* steps; UINT64_MAX: none */
    double waited;                      /* that training stood still for the last staged save, in seconds */
    struct ckpt_stage_trouble replaced; /* the save that was dropped last for a newer one */
};

/* On rank 0. */
void saver_say_line(struct saver *saver, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* That saves go straight, and why: once, for a log that repeats itself is not read. */
void saver_say_straight(struct saver *saver, const struct error *why);

/* After a save, on rank 0: says so, once, where checkpoint.dir has what another job must have saved. */
void saver_look_for_others(struct saver *saver);

/*
 * Until all that is staged is drained: 0. 1 when it is left in the stage, err says why: the target has failed for
 * checkpoint.last_seconds, or the job's time is over. Collective, in short operations, so that no watchdog takes it for
 * a hang.
 */
int saver_wait_for_drain(struct saver *saver, struct error *err);

/*
 * Collective: whether the stage has room for a save, alike on all ranks. If not, and the target fails on some node, the
 * oldest save there is told to make room. `wait`: return only when there is room, or when nobody drains.
 */
int saver_make_room(struct saver *saver, bool wait, bool *ready, struct error *err);

#endif
