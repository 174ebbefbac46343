#include "trainer/watch/watchdog.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/thread.h"
#include "trainer/watch/recorder.h"

/* Seconds. */
#define POLL_INTERVAL      0.25
#define MOST_WAIT_PER_POLL 1.0  /* if more time has passed between two polls, the process was suspended */
#define CHECK_INTERVAL     1.0  /* between checks of the node's processes, and of the directory */
#define CAUSE_TIMEOUT      20.0 /* to get the cause through the directory; then a node takes 3 s to judge alone */
#define END_TIMEOUT        3.0  /* for the main thread and the node's other ranks to end */
#define CUT_SECONDS        5.0  /* of waiting, after which a connection that timed out is a reason for alarm */

enum { WATCHING, ALARMED, STOPPING };

struct watchdog {
    struct watchdog_config config;
    pthread_t thread;

    atomic_int state;      /* WATCHING, ... */
    atomic_int found;      /* watchdog_find_cause's result; if it is 1, `verdict` is set */
    atomic_bool has_cause; /* `cause` is set, by this rank's thread */
    struct record_cause verdict, cause;

    pid_t process;
    atomic_bool announced; /* this rank has announced its end */
    atomic_bool may_abort; /* the cause blames this rank's own end: wait_for_end returns, and it ends */
};

/* The thread's state between polls. */
struct polling {
    int64_t last, checked; /* times of the latest poll and check */
    uint64_t operation;    /* that this rank waited in at the last poll */
    double waited;
};

/* False if it was left already. */
static bool leave_watching(struct watchdog *w, int state)
{
    int watching = WATCHING;

    return atomic_compare_exchange_strong(&w->state, &watching, state);
}

static double seconds_since(int64_t then)
{
    return 1e-9 * (double)(recorder_now() - then);
}

/* ---- an end of this process that was not announced --------------------------------------------------------------- */

/*
 * The signals that end a process, except those that ask it to stop (trainer/train.c). The first nine are always caught:
 * only libraries have handlers for them, which report a crash; those run after ours. From SIGALRM on, a handler that
 * exists has another purpose, and stays.
 */
static const int fatal_signals[] = {SIGABRT, SIGSEGV, SIGBUS,  SIGFPE,    SIGILL,  SIGSYS, SIGTRAP,  SIGQUIT,
                                    SIGXCPU, SIGALRM, SIGPROF, SIGVTALRM, SIGPOLL, SIGPWR, SIGSTKFLT};
enum { FATAL_SIGNALS = sizeof fatal_signals / sizeof *fatal_signals, ALWAYS_CAUGHT = 9, STACK_SIZE = 1 << 16 };

static struct sigaction handlers_before[FATAL_SIGNALS];
static char signal_stack[STACK_SIZE]; /* for a main thread that has used up its own */
static struct watchdog *_Atomic on_duty;
static _Thread_local bool is_watchdog;

/*
 * The loss of another rank may be what crashed this one. So the thread that ends waits here until the watchdog has
 * found the cause. If that is another rank, the watchdog ends the process with CODE_PEER. Otherwise this returns.
 */
static void wait_for_end(int signal)
{
    struct watchdog *w = on_duty;

    if (!w || is_watchdog || w->process != getpid())
        return;
    record_set_flag(w->config.record_file, RECORD_ABORTING, signal);
    for (double waited = 0; waited < WATCHDOG_SECONDS && !w->may_abort; waited += POLL_INTERVAL)
        clock_sleep(POLL_INTERVAL);
}

static void catch_signal(int signal)
{
    int k = 0;

    wait_for_end(signal);
    while (fatal_signals[k] != signal)
        k++;
    sigaction(signal, &handlers_before[k], NULL);
    raise(signal); /* when this handler returns */
}

/* A library gives up, as in MPI_Abort; or it is the end of main. */
static void catch_exit(void)
{
    struct watchdog *w = on_duty;

    if (w && !w->announced)
        wait_for_end(SIGABRT);
}

static void catch_ends(struct watchdog *w)
{
    struct sigaction action = {.sa_handler = catch_signal, .sa_flags = SA_ONSTACK};

    on_duty = w;
    sigaltstack(&(stack_t){.ss_sp = signal_stack, .ss_size = sizeof signal_stack}, NULL);
    for (int k = 0; k < FATAL_SIGNALS; k++) {
        sigaction(fatal_signals[k], NULL, &handlers_before[k]);
        if (k < ALWAYS_CAUGHT || handlers_before[k].sa_handler == SIG_DFL)
            sigaction(fatal_signals[k], &action, NULL);
    }
    atexit(catch_exit);
}

/* ---- reasons for alarm ---- */

static bool waits_too_long(struct watchdog *w, struct polling *polling, const struct flight_record *record)
{
    double passed = seconds_since(polling->last);

    polling->last = recorder_now();
    if (!record->waiting_since || record->waiting.number != polling->operation)
        polling->waited = 0;
    else
        polling->waited += passed < MOST_WAIT_PER_POLL ? passed : MOST_WAIT_PER_POLL;
    polling->operation = record->waiting_since ? record->waiting.number : 0;
    return polling->waited > w->config.hang_seconds;
}

/* Between short operations nobody waits long. */
static bool raised_elsewhere(const struct watchdog *w, const struct flight_record *record)
{
    return seconds_since(record->last_change) > CHECK_INTERVAL && hang_alarm_raised(w->config.output.directory);
}

static bool alarm_is_due(struct watchdog *w, struct polling *polling)
{
    enum links_news news = links_poll(w->config.links, NULL);
    struct flight_record record;

    record_copy(&record, w->config.record_file);
    if (waits_too_long(w, polling, &record) || record_flag(w->config.record_file, RECORD_ABORTING) ||
        local_ranks_alarm(w->config.local_ranks) || news == LINKS_ALARM ||
        (news == LINKS_CUT && polling->waited > CUT_SECONDS))
        return true;
    if (seconds_since(polling->checked) < CHECK_INTERVAL || !local_ranks_publisher(w->config.local_ranks))
        return false;
    polling->checked = recorder_now();
    return local_ranks_any_dead(w->config.local_ranks) || raised_elsewhere(w, &record);
}

/* ---- the alarm ---- */

/* Runs in a thread of its own, because the file system may be what hangs. */
static void *judge_by_directory(void *arg)
{
    struct watchdog *w = arg;
    struct error err;

    w->found = watchdog_find_cause(&w->config, &w->has_cause, &w->verdict, &err);
    return NULL;
}

/*
 * Returns when the cause is known, from one of three sources: the record of a rank of this node that knows it; the
 * directory; or, if that is not usable within CAUSE_TIMEOUT, the records of this node alone. In a rank that is not the
 * publisher, the thread `judge` only makes the directory, and takes over if the publisher ends.
 */
static void get_cause(struct watchdog *w)
{
    const struct local_ranks *local = w->config.local_ranks;
    int64_t began = recorder_now();
    bool known = local_ranks_cause(local, &w->cause), alone = false;
    pthread_t judge;

    if (!known) {
        alone = thread_start(&judge, judge_by_directory, w) != 0;
        if (!alone)
            pthread_detach(judge);
    }
    while (!known && !alone && w->found <= 0) {
        clock_sleep(POLL_INTERVAL / 2);
        known = local_ranks_cause(local, &w->cause);
        alone = w->found < 0 || seconds_since(began) > CAUSE_TIMEOUT;
    }
    if (!known && w->found > 0)
        w->cause = w->verdict;
    else if (!known) {
        watchdog_find_cause_alone(&w->config, &w->cause);
        /* The publisher may have found a cause meanwhile, and may have sent SIGCONT to the stopped ranks. Then our
         * records show them as running, and its cause is the right one. */
        local_ranks_cause(local, &w->cause);
    }
    w->has_cause = true;
}

/*
 * Prints the cause for a main thread that can no longer do it: rank 0's, and one that ends in a library, whose own
 * message would be the last line otherwise. If the main thread holds the lock of stdout, nothing is flushed.
 */
static void end_process(struct watchdog *w)
{
    links_tell(w->config.links, LINK_ENDING);
    if (w->config.rank == 0 || record_flag(w->config.record_file, RECORD_ABORTING))
        dprintf(STDERR_FILENO, "%s: %s\n", program_invocation_short_name, w->cause.text);
    if (ftrylockfile(stdout) == 0) {
        fflush(stdout);
        funlockfile(stdout);
    }
    _exit(CODE_PEER);
}

static void apply_cause(struct watchdog *w)
{
    struct record_file *own = w->config.record_file;
    bool blamed = w->cause.aborted && record_flag(own, RECORD_ABORTING); /* read now: if this rank aborts later, that is
                                                                            a consequence of the hang, not its cause */
    int64_t began = recorder_now();
    struct error err;

    error_set(&err, CODE_PEER, "%s", w->cause.text);
    record_set_cause(own, &w->cause);
    if (local_ranks_publisher(w->config.local_ranks))
        local_ranks_continue(w->config.local_ranks);
    w->config.on_cause(&err);
    while (seconds_since(began) < END_TIMEOUT && !local_ranks_all_ending(w->config.local_ranks)) {
        if (local_ranks_publisher(w->config.local_ranks)) /* the previous publisher may have ended by now */
            local_ranks_continue(w->config.local_ranks);
        clock_sleep(POLL_INTERVAL);
    }
    while (seconds_since(began) < END_TIMEOUT && !record_flag(own, RECORD_ABORTING))
        clock_sleep(POLL_INTERVAL); /* meanwhile the main thread ends the process, unless it is in abort */
    if (blamed)
        w->may_abort = true;
    else
        end_process(w);
}

static void *watch_rank(void *arg)
{
    struct watchdog *w = arg;
    struct polling polling = {.last = recorder_now()};

    is_watchdog = true;
    while (w->state == WATCHING && !alarm_is_due(w, &polling))
        for (int k = 0; k < 5 && w->state == WATCHING; k++)
            clock_sleep(POLL_INTERVAL / 5);
    if (!leave_watching(w, ALARMED))
        return NULL;
    record_set_flag(w->config.record_file, RECORD_ALARM, 1);
    links_tell(w->config.links, LINK_ALARM);
    get_cause(w);
    apply_cause(w);
    return NULL;
}

/* ---- for the main thread ---- */

struct watchdog *watchdog_start(const struct watchdog_config *config, struct error *err)
{
    struct watchdog *w = error_calloc(1, sizeof *w, err);

    if (w) {
        w->config = *config;
        w->process = getpid();
        if (thread_start(&w->thread, watch_rank, w) == 0) {
            catch_ends(w);
            return w;
        }
        error_set(err, CODE_IO, "cannot start the watchdog: out of threads");
    }
    local_ranks_destroy(config->local_ranks);
    links_destroy(config->links);
    free(w);
    return NULL;
}

void watchdog_leave_together(struct watchdog *w)
{
    int64_t began = recorder_now();
    bool has_cause = w && w->has_cause;

    if (!w)
        return;
    w->announced = true;
    links_tell(w->config.links, LINK_ENDING);
    while (has_cause && seconds_since(began) < END_TIMEOUT && !local_ranks_all_ending(w->config.local_ranks))
        clock_sleep(POLL_INTERVAL / 10);
}

bool watchdog_stop(struct watchdog *w)
{
    if (!w)
        return true;
    if (!leave_watching(w, STOPPING))
        return false;
    pthread_join(w->thread, NULL);
    on_duty = NULL;
    for (int k = 0; k < FATAL_SIGNALS; k++)
        sigaction(fatal_signals[k], &handlers_before[k], NULL);
    local_ranks_destroy(w->config.local_ranks);
    links_destroy(w->config.links);
    free(w);
    return true;
}
