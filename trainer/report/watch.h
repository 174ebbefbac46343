/*
 * watch.h - what is known of a run that is being followed, step by step. No files, no clock: follow.c has those.
 */
#ifndef MUSTER_TRAINER_REPORT_WATCH_H
#define MUSTER_TRAINER_REPORT_WATCH_H

#include <stdbool.h>
#include <stddef.h>

#include "trainer/report/metrics.h"
#include "trainer/report/progress.h"

enum { WATCH_RECENT = 20, WATCH_EVENTS = 64 };

struct watch {
    struct metrics_step last;     /* step 0: none yet */
    long steps;                   /* of the whole run; 0 unknown */
    long furthest;                /* highest step ever seen: a resumed job begins below it when work was lost */
    bool anew;                    /* the file was replaced, and what it holds is being read */
    double seconds[WATCH_RECENT]; /* of the latest steps on this mesh, a ring; for the ETA */
    size_t timed;                 /* steps that went into it */
    struct watch_event {
        long step;
        int world, dp, tp, pp;
    } told[WATCH_EVENTS]; /* the latest changes, a ring: a file that is read again must not tell them twice */
    size_t ntold;
};

void watch_start(struct watch *watch, long steps);

/*
 * Takes in one step. Returns true and one line of text when something happened that the user should read, such as
 * "resumed at step 121 on 2 ranks (was 4)".
 */
bool watch_step(struct watch *watch, const struct metrics_step *step, char *event, size_t size);

/* The file begins anew: the same steps will come again. */
void watch_anew(struct watch *watch);

/* At the end of what a new file holds: true and a line when the run is further back than it was ("back at step
 * 100..."). */
bool watch_rewound(struct watch *watch, char *event, size_t size);

struct progress watch_progress(const struct watch *watch);

#endif
