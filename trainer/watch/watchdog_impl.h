/* watchdog_impl.h - what watchdog.c (the thread) and watchdog_report.c (what it does in an alarm) share. */
#ifndef MUSTER_TRAINER_WATCH_WATCHDOG_IMPL_H
#define MUSTER_TRAINER_WATCH_WATCHDOG_IMPL_H

#include <pthread.h>
#include <stdatomic.h>

#include "trainer/watch/watchdog.h"

struct watchdog {
    struct watchdog_config config;
    char *directory, *title; /* copies that config points to */
    pthread_t thread;

    pthread_mutex_t lock; /* over what follows */
    pthread_cond_t changed;
    bool stopping, explain; /* requests of the main thread */
    bool alarm;
    bool judged, gave_up; /* `verdict` is set; the directory cannot be used */
    char verdict[RECORD_VERDICT_SIZE];

    atomic_bool abort; /* the verdict: this rank aborted by itself */
};

/* Waits for `changed`, at most so long. The lock is held. */
void watchdog_wait(struct watchdog *watchdog, double seconds);

/* Sets the verdict; only the first call counts. */
void watchdog_set_verdict(struct watchdog *watchdog, const char *text);

/*
 * Publishes the records, then judges or waits for another rank's report in the directory; sets the verdict, or gave_up.
 * Runs in its own thread, because the file system may be what hangs.
 */
void *watchdog_report(void *watchdog);

/* Judges by this host's records, without files. */
void watchdog_judge_alone(struct watchdog *watchdog);

#endif
