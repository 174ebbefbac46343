#include "trainer/stop.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"

static sigset_t asking; /* the signals that ask to stop */
static double started;

void stop_install(void)
{
    static const int signals[] = {SIGTERM, SIGINT, SIGUSR1, SIGUSR2};
    struct sigaction hangup;

    sigemptyset(&asking);
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        signal(signals[i], SIG_DFL); /* a shell's background has INT ignored */
        sigaddset(&asking, signals[i]);
    }
    sigaddset(&asking, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &asking, NULL);
    if (sigaction(SIGHUP, NULL, &hangup) == 0 && hangup.sa_handler == SIG_IGN)
        sigdelset(&asking, SIGHUP); /* blocked all the same: UCX would catch it */
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* a limit on files is said like a full disk, and ends nothing that need not end */
}

/* The last one that came, 0 while none did. */
static int signal_caught(void)
{
    static int caught;
    const struct timespec at_once = {0};
    int number;

    while ((number = sigtimedwait(&asking, NULL, &at_once)) > 0)
        caught = number;
    return caught;
}

void stop_start_clock(void)
{
    started = clock_monotonic();
}

static enum stop_reason own_reason(const struct comm *world, const struct job *job, int caught)
{
    if (caught)
        return STOP_SIGNAL;
    if (comm_rank(world) != 0) /* the file and the clock are rank 0's business: one look a step, not one a rank */
        return STOP_NONE;
    if (job->report.kill_file[0] && access(job->report.kill_file, F_OK) == 0)
        return STOP_FILE;
    if (job->report.minutes > 0 && clock_monotonic() - started >= 60.0 * job->report.minutes)
        return STOP_MINUTES;
    return STOP_NONE;
}

int stop_agreed(struct comm *world, const struct job *job, enum stop_reason *reason, int *signal, struct error *err)
{
    int caught = signal_caught();
    double values[2] = {own_reason(world, job, caught), caught};

    comm_purpose(world, "reasons to stop", NULL);
    if (comm_max_f64(world, values, 2, err) < 0)
        return -1;
    *reason = (enum stop_reason)values[0];
    *signal = (int)values[1];
    return 0;
}

void stop_describe(char *text, int size, const struct job *job, enum stop_reason reason, int signal)
{
    switch (reason) {
    case STOP_SIGNAL:
        snprintf(text, (size_t)size, "signal %d (%s)", signal, strsignal(signal));
        break;
    case STOP_FILE:
        snprintf(text, (size_t)size, "the file %s", job->report.kill_file);
        break;
    case STOP_MINUTES:
        snprintf(text, (size_t)size, "the limit of %g minutes", job->report.minutes);
        break;
    case STOP_NONE:
        snprintf(text, (size_t)size, "nothing");
        break;
    }
}
