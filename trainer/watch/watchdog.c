#include "trainer/watch/watchdog.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"
#include "trainer/watch/recorder.h"
#include "trainer/watch/watchdog_impl.h"

#define POLL_SECONDS      0.25
#define MOST_SECONDS      1.0  /* that one poll can add to a wait: the process was suspended for the rest */
#define NEIGHBOUR_SECONDS 1.0  /* between checks of the host's processes; least time between checks of the directory */
#define DIRECTORY_SECONDS 10.0 /* most time between checks of the directory: a thousand hosts share the file system */
#define ALARM_SECONDS     20.0
#define LINGER_SECONDS    3.0

/* The thread's state between polls. */
struct polling {
    int64_t last, neighbours, directory; /* times of the latest poll and checks */
    uint64_t operation;                  /* that this rank waited in at the last poll */
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
 * The aborting thread waits here while the watchdog finds the reason and ends the process. If no other rank is to
 * blame, this returns and abort goes on.
 */
static void catch_abort(int number)
{
    struct watchdog *w = on_duty;

    (void)number;
    if (!w || is_watchdog)
        return;
    record_set_aborting(w->config.record);
    for (double waited = 0; waited < ALARM_SECONDS + LINGER_SECONDS && !w->abort; waited += POLL_SECONDS)
        clock_sleep(POLL_SECONDS);
}

static void handle_abort(struct watchdog *w)
{
    struct sigaction action = {.sa_handler = w ? catch_abort : SIG_DFL};

    on_duty = w;
    sigemptyset(&action.sa_mask);
    sigaction(SIGABRT, &action, NULL);
}

/* ---- reasons for alarm ---- */

static bool waits_too_long(struct watchdog *w, struct polling *l, const struct flight_record *record)
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
 * One rank a host checks the shared directory. The longer this rank has been at the same operation or phase, the less
 * often it checks; but often again shortly before it would raise the alarm itself, because then others may do so too.
 */
static bool raised_elsewhere(struct watchdog *w, struct polling *l, const struct flight_record *record)
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

static bool alarm_is_due(struct watchdog *w, struct polling *l)
{
    struct flight_record record;

    record_copy(&record, w->config.record);
    if (waits_too_long(w, l, &record) || record_aborting(w->config.record) || neighbours_alarm(w->config.neighbours))
        return true;
    if (seconds_since(l->neighbours) < NEIGHBOUR_SECONDS || !neighbours_speaker(w->config.neighbours))
        return false;
    l->neighbours = recorder_now();
    return neighbours_dead(w->config.neighbours) >= 0 || raised_elsewhere(w, l, &record);
}

/* ---- the alarm ---- */

/* Signals are handled by the main thread. */
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

/* Returns when there is a verdict. */
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
            watchdog_wait(w, POLL_SECONDS / 2);
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

/* The main thread may hold any lock. */
static void end_process(void)
{
    if (ftrylockfile(stdout) == 0) {
        fflush(stdout);
        funlockfile(stdout);
    }
    _exit(CODE_PEER);
}

static void apply_verdict(struct watchdog *w)
{
    int64_t began = recorder_now();
    struct error err;

    error_set(&err, CODE_PEER, "%s", w->verdict);
    record_set_verdict(w->config.record, w->verdict);
    if (neighbours_speaker(w->config.neighbours))
        neighbours_wake(w->config.neighbours);
    w->config.verdict(&err);
    while (seconds_since(began) < LINGER_SECONDS && !neighbours_left(w->config.neighbours)) {
        if (neighbours_speaker(w->config.neighbours)) /* the previous speaker may have ended by now */
            neighbours_wake(w->config.neighbours);
        clock_sleep(POLL_SECONDS);
    }
    while (seconds_since(began) < LINGER_SECONDS && !record_aborting(w->config.record))
        clock_sleep(POLL_SECONDS); /* meanwhile the main thread ends the process */
    if (hang_blames_abort(w->verdict, w->config.rank))
        w->abort = true;
    else
        end_process();
}

static void *watch_rank(void *arg)
{
    struct watchdog *w = arg;
    struct polling polling = {.last = recorder_now()};

    is_watchdog = true;
    pthread_mutex_lock(&w->lock);
    while (!w->stopping && !w->alarm) {
        if (!w->explain)
            watchdog_wait(w, POLL_SECONDS);
        if (w->stopping)
            break;
        pthread_mutex_unlock(&w->lock);
        bool due = alarm_is_due(w, &polling);
        pthread_mutex_lock(&w->lock);
        w->alarm = (due || w->explain) && !w->stopping;
    }
    pthread_mutex_unlock(&w->lock);
    if (w->alarm) {
        record_raise_alarm(w->config.record);
        get_verdict(w);
        apply_verdict(w);
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
        error_set(err, CODE_IO, "cannot start the watchdog: out of memory or threads");
        destroy_watchdog(w);
        return NULL;
    }
    handle_abort(w);
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
        clock_sleep(POLL_SECONDS / 10);
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
    handle_abort(NULL);
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
        watchdog_wait(w, POLL_SECONDS);
    if (w->judged && !strstr(err->text, w->verdict)) {
        memcpy(before, err->text, sizeof before);
        error_set(err, CODE_PEER, "%.700s (%.300s)", w->verdict, before);
    }
    pthread_mutex_unlock(&w->lock);
}
