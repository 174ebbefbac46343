/* watchdog_impl.h - what watchdog.c (the thread) and watchdog_report.c (what it does in an alarm) share. */
#ifndef MUSTER_TRAINER_WATCH_WATCHDOG_IMPL_H
#define MUSTER_TRAINER_WATCH_WATCHDOG_IMPL_H

#include <pthread.h>
#include <stdatomic.h>

#include "trainer/watch/watchdog.h"

struct watchdog {
    struct watchdog_config config;
    char *directory, *title; /* what config points at */
    pthread_t thread;

    pthread_mutex_t lock; /* over what follows */
    pthread_cond_t changed;
    bool stopping, explain; /* asked for by the main thread */
    bool alarm;
    bool judged, gave_up; /* `verdict` is there; the directory is no use */
    char verdict[RECORD_VERDICT_SIZE];

    atomic_bool abort; /* the verdict is that this rank aborted of itself */
};

/* Waits until `changed` or for so long. The lock is held. */
void watchdog_wait(struct watchdog *watchdog, double seconds);

/* The verdict, from wherever it comes; the first one counts. */
void watchdog_set_verdict(struct watchdog *watchdog, const char *text);

/*
 * Publishes, judges or finds the judgement of another, by way of the directory; sets the verdict, or gave_up. In a
 * thread of its own, for it may never return: the file system may be what hangs.
 */
void *watchdog_report(void *watchdog);

/* By this host's records alone, without a file. */
void watchdog_judge_alone(struct watchdog *watchdog);

#endif
