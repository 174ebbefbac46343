#include "trainer/watch/watchdog.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "trainer/watch/watchdog_impl.h"
#include "trainer/watch/hang_files.h"
#include "trainer/watch/hang_report.h"
#include "trainer/watch/recorder.h"

#define LOOK_SECONDS      0.25
#define MOST_SECONDS      1.0  /* that one look can add to a wait: the process was suspended for the rest */
#define NEIGHBOUR_SECONDS 1.0  /* between looks at the host's processes, and at the directory at most so often */
#define DIRECTORY_SECONDS 10.0 /* and at least, while nothing happens: a thousand hosts look at one file system */
#define ALARM_SECONDS     20.0
#define LINGER_SECONDS    3.0

/* What the thread remembers from look to look. */
struct looking {
    int64_t last, neighbours, directory; /* when it looked */
    uint64_t operation;                  /* that it saw this rank wait in */
    double waited;
};

static double seconds_since(int64_t then)
{
    return 1e-9 * (double)(recorder_now() - then);
}

void watchdog_wait(struct watchdog *w, double seconds)
{
    int64_t until = recorder_now() + (int64_t)(seconds * 1e9);
    struct timespec time = {.tv_sec = (time_t)(until / 1000000000), .tv_nsec = (long)(until % 1000000000)};

    pthread_cond_timedwait(&w->changed, &w->lock, &time);
}

void watchdog_set_verdict(struct watchdog *w, const char *text)
{
    pthread_mutex_lock(&w->lock);
    if (!w->judged)
        snprintf(w->verdict, sizeof w->verdict, "%s", text);
    w->judged = true;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
}

/* ---- abort ---- */

static struct watchdog *_Atomic on_duty;
static _Thread_local bool is_watchdog;

/*
 * The thread that aborts waits here while the watchdog finds out why, and ends the process with that. When it does not,
 * for there is nobody else to blame, abort goes on where this returns.
 */
static void catch_abort(int number)
{
    struct watchdog *w = on_duty;

    (void)number;
    if (!w || is_watchdog)
        return;
    record_set_aborting(w->config.record);
    for (double waited = 0; waited < ALARM_SECONDS + LINGER_SECONDS && !w->abort; waited += LOOK_SECONDS)
        nanosleep(&(struct timespec){.tv_nsec = (long)(LOOK_SECONDS * 1e9)}, NULL);
}

static void take_duty(struct watchdog *w)
{
    struct sigaction action = {.sa_handler = w ? catch_abort : SIG_DFL};

    on_duty = w;
    sigemptyset(&action.sa_mask);
    sigaction(SIGABRT, &action, NULL);
}

/* ---- reasons for alarm ---- */

static bool waits_too_long(struct watchdog *w, struct looking *l, const struct record *record)
{
    double passed = seconds_since(l->last);

    l->last = recorder_now();
    if (!record->waiting_since || record->waiting.number != l->operation)
        l->waited = 0;
    else
        l->waited += passed < MOST_SECONDS ? passed : MOST_SECONDS;
    l->operation = record->waiting_since ? record->waiting.number : 0;
    return l->waited > w->config.hang_seconds;
}

/*
 * The shared directory is looked at by one rank a host, the more seldom the longer this rank has been at the same
 * thing, but often again when it may be about to raise the alarm itself: then the others are about to, too.
 */
static bool raised_elsewhere(struct watchdog *w, struct looking *l, const struct record *record)
{
    double idle = seconds_since(record->active), pause = idle / 8;

    if (pause > DIRECTORY_SECONDS)
        pause = DIRECTORY_SECONDS;
    if (pause < NEIGHBOUR_SECONDS || idle > 0.75 * w->config.hang_seconds)
        pause = NEIGHBOUR_SECONDS;
    if (seconds_since(l->directory) < pause || idle < NEIGHBOUR_SECONDS)
        return false;
    l->directory = recorder_now();
    return hang_raised(w->directory);
}

static bool alarm_is_due(struct watchdog *w, struct looking *l)
{
    struct record record;

    record_copy(&record, w->config.record);
    if (waits_too_long(w, l, &record) || record_aborting(w->config.record) || neighbours_alarm(w->config.neighbours))
        return true;
    if (seconds_since(l->neighbours) < NEIGHBOUR_SECONDS || !neighbours_speaker(w->config.neighbours))
        return false;
    l->neighbours = recorder_now();
    return neighbours_dead(w->config.neighbours) >= 0 || raised_elsewhere(w, l, &record);
}

/* ---- the alarm ---- */

/* All signals stay with the main thread. */
static int start_thread(pthread_t *thread, void *(*run)(void *), void *arg)
{
    sigset_t all, before;
    int result;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    result = pthread_create(thread, NULL, run, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return result;
}

/* Until there is a verdict. */
static void get_verdict(struct watchdog *w)
{
    char text[RECORD_VERDICT_SIZE];
    int64_t began = recorder_now();
    pthread_t reporter;
    bool judged = false, alone = false;

    if (neighbours_verdict(w->config.neighbours, text)) {
        watchdog_set_verdict(w, text);
        return;
    }
    alone = start_thread(&reporter, watchdog_report, w) != 0;
    if (!alone)
        pthread_detach(reporter);
    while (!judged && !alone) {
        pthread_mutex_lock(&w->lock);
        if (!w->judged && !w->gave_up)
            watchdog_wait(w, LOOK_SECONDS / 2);
        judged = w->judged;
        alone = !judged && (w->gave_up || seconds_since(began) > ALARM_SECONDS);
        pthread_mutex_unlock(&w->lock);
        if (!judged && neighbours_verdict(w->config.neighbours, text)) {
            watchdog_set_verdict(w, text);
            judged = true;
        }
    }
    if (alone)
        watchdog_judge_alone(w);
}

/* The main thread may be anywhere, and hold any lock. */
static void end_process(void)
{
    if (ftrylockfile(stdout) == 0) {
        fflush(stdout);
        funlockfile(stdout);
    }
    _exit(CODE_PEER);
}

static void give_verdict(struct watchdog *w)
{
    int64_t began = recorder_now();
    struct error err;

    error_set(&err, CODE_PEER, "%s", w->verdict);
    record_set_verdict(w->config.record, w->verdict);
    if (neighbours_speaker(w->config.neighbours))
        neighbours_wake(w->config.neighbours);
    w->config.verdict(&err);
    while (seconds_since(began) < LINGER_SECONDS && !neighbours_left(w->config.neighbours)) {
        if (neighbours_speaker(w->config.neighbours)) /* the one that was may have ended by now */
            neighbours_wake(w->config.neighbours);
        nanosleep(&(struct timespec){.tv_nsec = (long)(LOOK_SECONDS * 1e9)}, NULL);
    }
    while (seconds_since(began) < LINGER_SECONDS && !record_aborting(w->config.record))
        nanosleep(&(struct timespec){.tv_nsec = (long)(LOOK_SECONDS * 1e9)},
                  NULL); /* the main thread ends in its way */
    if (hang_blames_abort(w->verdict, w->config.rank))
        w->abort = true;
    else
        end_process();
}

static void *watch_rank(void *arg)
{
    struct watchdog *w = arg;
    struct looking looking = {.last = recorder_now()};

    is_watchdog = true;
    pthread_mutex_lock(&w->lock);
    while (!w->stopping && !w->alarm) {
        if (!w->explain)
            watchdog_wait(w, LOOK_SECONDS);
        if (w->stopping)
            break;
        pthread_mutex_unlock(&w->lock);
        bool due = alarm_is_due(w, &looking);
        pthread_mutex_lock(&w->lock);
        w->alarm = (due || w->explain) && !w->stopping;
    }
    pthread_mutex_unlock(&w->lock);
    if (w->alarm) {
        record_raise_alarm(w->config.record);
        get_verdict(w);
        give_verdict(w);
    }
    return NULL;
}

/* ---- for the main thread ---- */

static void destroy_watchdog(struct watchdog *w)
{
    neighbours_destroy(w->config.neighbours);
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
    free(w->directory);
    free(w->title);
    free(w);
}

struct watchdog *watchdog_start(const struct watchdog_config *config, struct error *err)
{
    struct watchdog *w = calloc(1, sizeof *w);
    pthread_condattr_t attributes;

    if (!w) {
        neighbours_destroy(config->neighbours);
        error_set(err, CODE_IO, "out of memory");
        return NULL;
    }
    w->config = *config;
    pthread_mutex_init(&w->lock, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&w->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    w->config.directory = w->directory = strdup(config->directory);
    w->config.title = w->title = strdup(config->title);
    if (!w->directory || !w->title || start_thread(&w->thread, watch_rank, w) != 0) {
        error_set(err, CODE_IO, "no memory or no thread for a watchdog");
        destroy_watchdog(w);
        return NULL;
    }
    take_duty(w);
    return w;
}

void watchdog_leave_together(struct watchdog *w)
{
    int64_t began = recorder_now();
    bool judged;

    if (!w)
        return;
    pthread_mutex_lock(&w->lock);
    judged = w->judged;
    pthread_mutex_unlock(&w->lock);
    while (judged && seconds_since(began) < LINGER_SECONDS && !neighbours_left(w->config.neighbours))
        nanosleep(&(struct timespec){.tv_nsec = (long)(LOOK_SECONDS / 10 * 1e9)}, NULL);
}

bool watchdog_stop(struct watchdog *w)
{
    bool alarm;

    if (!w)
        return true;
    pthread_mutex_lock(&w->lock);
    w->stopping = true;
    alarm = w->alarm;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
    if (alarm)
        return false;
    pthread_join(w->thread, NULL);
    take_duty(NULL);
    destroy_watchdog(w);
    return true;
}

void watchdog_explain(struct error *err, void *arg)
{
    struct watchdog *w = arg;
    int64_t began = recorder_now();
    char before[sizeof err->text];

    pthread_mutex_lock(&w->lock);
    w->explain = true;
    pthread_cond_broadcast(&w->changed);
    while (!w->judged && seconds_since(began) < ALARM_SECONDS + LINGER_SECONDS)
        watchdog_wait(w, LOOK_SECONDS);
    if (w->judged && !strstr(err->text, w->verdict)) {
        memcpy(before, err->text, sizeof before);
        error_set(err, CODE_PEER, "%.700s (%.300s)", w->verdict, before);
    }
    pthread_mutex_unlock(&w->lock);
}
