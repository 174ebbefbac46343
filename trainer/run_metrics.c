/* run_metrics.c - rank 0's side of the process that writes the metrics (trainer/report/metrics.h). */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/text.h"
#include "trainer/programs.h"
#include "trainer/report/prometheus.h"
#include "trainer/run.h"

enum {
    WAIT_SECONDS = 2,       /* for the writer; after that, calls do not wait until it is done again */
    AGAIN_SECONDS = 5,      /* between two starts of a writer */
    PROMETHEUS_SECONDS = 5, /* between two texts for it */
    MOST_WAITING = 1 << 20, /* bytes of lines */
};

struct metrics_link {
    pid_t pid;
    int socket; /* -1: there is no writer */
    double started;
    bool fresh;            /* the run does not go on with the file's steps */
    bool starting, ending; /* the run */
    bool opened, refused;  /* some writer has opened the file; it can never be one of metrics */
    bool failing, late;    /* the last answer was a failure; the writer was not done in time */
    long last_step;        /* of the file, when it was opened */
    int validated;         /* that step */
    bool stepped;          /* the run has done a step */
    long gap_first, gap_last;
    char job[32];                     /* the Slurm job, or this process */
    const char *prometheus;           /* a directory; "" for none */
    double told_prometheus;           /* clock_monotonic */
    long skipped, consumed_before;    /* steps since the start; samples before it */
    char reason[METRICS_ANSWER_SIZE]; /* of the last failure */
    size_t begin, sent, end;          /* of `lines`: those that are not done; those not sent yet */
    char lines[MOST_WAITING];
};

typedef bool is_enough(const struct metrics_link *l);

static bool has_opened(const struct metrics_link *l)
{
    return l->opened || l->refused || l->failing;
}

static bool is_done(const struct metrics_link *l)
{
    return l->begin == l->end;
}

static bool has_ended(const struct metrics_link *l)
{
    return l->socket < 0;
}

static const char *why_not(const struct metrics_link *l)
{
    return l->failing ? l->reason : "the file does not answer";
}

static void report_failure(struct run *run, const char *why)
{
    struct metrics_link *l = run->metrics;

    snprintf(l->reason, sizeof l->reason, "%s", why);
    if (!l->failing)
        run_log(run, "metrics cannot be written, which is tried again; training goes on: %s", why);
    l->failing = true;
}

/* ---- the writer -------------------------------------------------------------------------------------------------- */

/* The step before those that are not written. */
static long find_step(const struct run *run)
{
    const struct metrics_link *l = run->metrics;
    const char *end = l->lines + l->end, *line = l->lines + l->begin;

    for (; line < end; line = (const char *)memchr(line, '\n', (size_t)(end - line)) + 1)
        if (strncmp(line, "{\"step\":", strlen("{\"step\":")) == 0)
            return atol(line + strlen("{\"step\":")) - 1;
    return (long)run->engine->step;
}

/* A stream of this process is another file in any other: the writer gets it as its standard output. */
static int open_stream(const char *path)
{
    static const char *const streams[] = {"/dev/std", "/dev/fd/", "/proc/self/", NULL};

    return text_begins_with(path, streams) ? open(path, O_WRONLY | O_APPEND | O_NONBLOCK | O_CLOEXEC) : -1;
}

static void start_writer(struct run *run)
{
    struct metrics_link *l = run->metrics;
    const struct job *job = run->job;
    int stream = open_stream(job->report.metrics);
    char write[32], board[JOB_PATH_SIZE + 32], prometheus[JOB_PATH_SIZE + 32];
    const char *path = stream < 0 ? job->report.metrics : METRICS_STREAM;
    const char *arguments[] = {write, path, l->job, board, prometheus, NULL};
    struct error err;

    l->started = clock_monotonic();
    snprintf(board, sizeof board, "--tensorboard=%s", job->report.tensorboard);
    snprintf(prometheus, sizeof prometheus, "--prometheus=%s", l->prometheus);
    snprintf(write, sizeof write, "--write=%ld", l->fresh && !l->opened ? -1 : find_step(run));
    l->socket = program_start(&l->pid, REPORT, arguments, stream, &err);
    if (stream >= 0)
        close(stream);
    l->sent = l->begin;
    if (l->socket < 0)
        report_failure(run, err.text);
}

static void lose_writer(struct run *run)
{
    struct metrics_link *l = run->metrics;

    close(l->socket);
    l->socket = -1;
    waitpid(l->pid, NULL, WNOHANG); /* it may still hang in the end of the process */
    if (!l->ending && !l->refused)
        report_failure(run, REPORT " --write has ended");
}

static void take_answer(struct run *run, const char *answer)
{
    struct metrics_link *l = run->metrics;

    if (*answer == '+' && l->begin < l->end) {
        l->begin = (size_t)((char *)memchr(l->lines + l->begin, '\n', l->end - l->begin) + 1 - l->lines);
        if (l->failing && is_done(l))
            run_log(run, "metrics are written again");
        l->failing &= !is_done(l);
    } else if (*answer == 'o') {
        l->opened = sscanf(answer, "o%ld %d", &l->last_step, &l->validated) == 2;
    } else if (*answer == ' ') {
        run_log(run, "%s", answer + 1);
    } else {
        l->refused = *answer == 'x' && l->starting;
        if (l->refused)
            snprintf(l->reason, sizeof l->reason, "%s", answer + 1);
        else
            report_failure(run, answer + 1);
    }
}

static void take_answers(struct run *run)
{
    char answer[METRICS_ANSWER_SIZE];
    ssize_t got;

    while ((got = metrics_receive(run->metrics->socket, answer, sizeof answer)) > 0)
        take_answer(run, answer);
    if (got == 0 || errno != EAGAIN)
        lose_writer(run);
}

static void send_lines(struct metrics_link *l)
{
    while (l->sent < l->end) {
        const char *line = l->lines + l->sent;
        size_t length = (size_t)((const char *)memchr(line, '\n', l->end - l->sent) + 1 - line);

        if (send(l->socket, line, length, MSG_NOSIGNAL) < 0)
            return;
        l->sent += length;
    }
}

/* Sends what the writer takes, and takes what it answers; waits until this is enough, at most for so long. */
static void exchange_lines(struct run *run, double seconds, is_enough *enough)
{
    struct metrics_link *l = run->metrics;
    double until = clock_monotonic() + seconds, left = seconds;

    if (l->socket < 0 && (l->ending || l->started == 0 || clock_monotonic() - l->started >= AGAIN_SECONDS))
        start_writer(run);
    while (l->socket >= 0) {
        send_lines(l);
        if (l->ending && (l->failing || l->sent == l->end))
            shutdown(l->socket, SHUT_WR);
        take_answers(run);
        left = until - clock_monotonic();
        if (l->socket < 0 || enough(l) || left <= 0)
            break;
        poll(&(struct pollfd){.fd = l->socket, .events = (short)(POLLIN | (l->sent < l->end ? POLLOUT : 0))}, 1,
             (int)(left * 1000) + 1);
    }
    if (l->gap_first > 0 && (is_done(l) || l->ending)) {
        run_log(run, "metrics of steps %ld to %ld are missing: %s", l->gap_first, l->gap_last, l->reason);
        l->gap_first = 0;
    }
}

/* ---- the run ----------------------------------------------------------------------------------------------------- */

static bool add_line(struct metrics_link *l, const char *line, size_t length)
{
    memmove(l->lines, l->lines + l->begin, l->end - l->begin);
    l->sent -= l->begin;
    l->end -= l->begin;
    l->begin = 0;
    if (l->end + length > sizeof l->lines)
        return false;
    memcpy(l->lines + l->end, line, length);
    l->end += length;
    return true;
}

static void add_event(struct metrics_link *l, const struct metrics_start *start)
{
    char line[METRICS_LINE_SIZE + 1] = "e";

    add_line(l, line, 1 + metrics_format_start(line + 1, start));
}

void run_metrics_saved(struct run *run, uint64_t step, double seconds)
{
    char line[METRICS_LINE_SIZE + 1] = "e";

    if (run->metrics)
        add_line(run->metrics, line, 1 + metrics_format_saved(line + 1, (long)step, seconds));
}

/* MUSTER_RESTART: three times, the nodes (or "-") and the cause. */
static void take_restart(struct run *run, const char *text, struct metrics_start *start)
{
    int at = 0, length;

    if (sscanf(text, "%lf %lf %lf %n", &start->fault, &start->ended, &start->checked, &at) < 3) {
        run_log(run, "warning: MUSTER_RESTART is not as muster-supervise sets it, and is ignored: %s", text);
        start->fault = 0;
        return;
    }
    length = (int)strcspn(text + at, " ");
    if (text[at] != '-')
        snprintf(start->nodes, sizeof start->nodes, "%.*s", length, text + at);
    snprintf(start->cause, sizeof start->cause, "%s", text + at + length + (text[at + length] == ' '));
    error_tame(start->nodes);
    error_tame(start->cause);
    start->cause[text_utf8_end(start->cause, strlen(start->cause))] = '\0';
}

static void add_start(struct run *run)
{
    const char *job = getenv("SLURM_JOB_ID"), *requeues = getenv("SLURM_RESTART_COUNT");
    const char *began = getenv("SLURM_JOB_START_TIME"), *restart = getenv("MUSTER_RESTART");
    struct metrics_start start = {.step = (long)run->engine->step,
                                  .job_began = began ? strtod(began, NULL) : run->began,
                                  .drain_seconds = run->drain_seconds,
                                  .ready = clock_realtime(),
                                  .hang = run->hang[0] ? run->hang : NULL};

    if (job)
        snprintf(start.job, sizeof start.job, requeues ? "%s.%s" : "%s", job, requeues);
    if (restart)
        take_restart(run, restart, &start);
    add_event(run->metrics, &start);
}

int run_metrics_start(struct run *run, struct error *err)
{
    const char *job = getenv("SLURM_JOB_ID"), *site = getenv(PROMETHEUS_VARIABLE);
    struct metrics_link *l;

    if (run->leader && !run->job->report.metrics[0] && site)
        run_log(run, "there is no file for Prometheus in %s: report.metrics is not set", site);
    if (!run->leader || !run->job->report.metrics[0])
        return 0;
    l = run->metrics = error_calloc(1, sizeof *l, err);
    if (!l)
        return -1;
    l->socket = -1;
    l->consumed_before = (long)run->engine->consumed_samples;
    l->prometheus = site ? site : run->job->report.prometheus;
    snprintf(l->job, sizeof l->job, job ? "%.0d%s" : "%d", job ? 0 : (int)getpid(), job);
    l->fresh = !run->resumed || run->engine->step == 0;
    l->starting = true;
    exchange_lines(run, WAIT_SECONDS, has_opened);
    l->starting = false;
    if (l->refused)
        return error_set(err, CODE_CONFIG, "%s", l->reason);
    if (!has_opened(l))
        run_log(run, "the metrics %s are not open yet: training does not wait for them", run->job->report.metrics);
    add_start(run);
    return 0;
}

static void tell_prometheus(struct run *run, const struct metrics_step *m)
{
    struct metrics_link *l = run->metrics;
    char line[METRICS_LINE_SIZE] = "p";
    struct prometheus values = {
        .step = (double)m->step,
        .tokens = (double)(m->consumed_samples - l->consumed_before) * run->job->model.seq_length,
        .skipped = (double)l->skipped,
        .loss = m->loss,
        .mfu = m->mfu,
    };

    if (!l->prometheus[0] || clock_monotonic() - l->told_prometheus < PROMETHEUS_SECONDS)
        return;
    l->told_prometheus = clock_monotonic();
    saver_describe(run->saver, &values);
    prometheus_format(line + 1, sizeof line - 2, &values, l->job);
    strcat(line, "\n");
    add_line(l, line, strlen(line));
}

void run_metrics_step(struct run *run, const struct metrics_step *m)
{
    struct metrics_link *l = run->metrics;
    char line[METRICS_LINE_SIZE];
    bool idle; /* a file that does not answer gets no texts for Prometheus in addition */

    if (!l)
        return;
    exchange_lines(run, 0, is_done);
    idle = is_done(l);
    l->skipped += m->skipped;
    if (!l->stepped)
        add_event(l, &(struct metrics_start){.first_step = m->time});
    l->stepped = true;
    if (l->gap_first == 0 && add_line(l, line, metrics_format(line, m))) {
        if (idle)
            tell_prometheus(run, m);
        exchange_lines(run, 0, is_done);
        return;
    }
    if (!l->failing)
        report_failure(run, why_not(l));
    l->gap_first = l->gap_first ? l->gap_first : m->step;
    l->gap_last = m->step;
}

void run_metrics_where(struct run *run, const struct metrics_where *where)
{
    char line[METRICS_LINE_SIZE + 1] = "e";

    if (run->metrics)
        add_line(run->metrics, line, 1 + metrics_format_where(line + 1, where));
}

bool run_metrics_has_validation(const struct run *run)
{
    const struct metrics_link *l = run->metrics;

    return l && l->opened && l->validated && l->last_step == (long)run->engine->step;
}

void run_metrics_validation(struct run *run, const struct metrics_step *m)
{
    char line[METRICS_LINE_SIZE];
    size_t length = (size_t)snprintf(line, sizeof line, "v%ld ", m->step);

    if (!run->metrics)
        return;
    add_line(run->metrics, line, length + metrics_format_end(line + length, sizeof line - length, m));
    exchange_lines(run, 0, is_done);
}

void run_metrics_sync(struct run *run)
{
    struct metrics_link *l = run->metrics;
    bool late = l && l->late;

    if (!l)
        return;
    add_line(l, "s\n", 2);
    exchange_lines(run, late || l->failing ? 0 : WAIT_SECONDS, is_done);
    l->late = !is_done(l);
    if (l->late && !late)
        run_log(run, "metrics may lack steps up to this checkpoint: %s", why_not(l));
}

void run_metrics_stop(struct run *run)
{
    struct metrics_link *l = run->metrics;
    long step;

    if (!l)
        return;
    l->ending = true;
    l->failing &= l->socket >= 0; /* a writer that is started now has not failed yet: it gets all lines */
    do {                          /* as long as a step is written in that time */
        step = find_step(run);
        exchange_lines(run, WAIT_SECONDS, has_ended);
    } while (l->socket >= 0 && find_step(run) > step);
    if (!is_done(l) && find_step(run) < (long)run->engine->step)
        run_log(run, "metrics of steps %ld to %" PRIu64 " may be missing: %s", find_step(run) + 1, run->engine->step,
                why_not(l));
    if (l->socket >= 0)
        close(l->socket);
    free(l);
}
