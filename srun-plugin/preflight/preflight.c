#include "srun-plugin/preflight/preflight.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/clock.h"
#include "srun-plugin/preflight/child.h"
#include "srun-plugin/preflight/judge.h"
#include "srun-plugin/preflight/replace.h"

enum { SECONDS = 20, NODES_A_SECOND = 64, SPARE = 4, BUFFER = 64 * 1024, NOTES = 8, BYTES_A_PARAMETER = 12 };

struct inbox {
    struct answer *answers;
    size_t count;
    char buffer[BUFFER]; /* the incomplete line at the end */
    size_t held;
    char other[4][512]; /* the first lines of srun's own */
    size_t others;
};

/* A line to the user. */
static void log_line(const struct preflight *preflight, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void log_line(const struct preflight *preflight, const char *format, ...)
{
    char line[3 * ANSWER_LINE_SIZE];
    int length = snprintf(line, sizeof line, "muster: preflight: ");
    va_list args;

    va_start(args, format);
    vsnprintf(line + length, sizeof line - (size_t)length, format, args);
    va_end(args);
    preflight->log(line);
}

/* ---- the command line -------------------------------------------------------------------------------------------- */

enum { ARGUMENTS = 32, ARGUMENT_SIZE = 64 + JOB_PATH_SIZE };

struct command {
    char *argv[ARGUMENTS + 1];
    size_t count;
    bool failed;
};

static void add_argument(struct command *command, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void add_argument(struct command *command, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    if (command->count == ARGUMENTS || vasprintf(&command->argv[command->count], format, args) < 0)
        command->failed = true;
    else
        command->argv[++command->count] = NULL;
    va_end(args);
}

static char *all_names(const struct step_layout *layout)
{
    size_t size = 1;
    char *names, *end;

    for (size_t i = 0; i < layout->count; i++)
        size += strlen(layout->nodes[i].name) + 1;
    names = malloc(size);
    end = names;
    for (size_t i = 0; names && i < layout->count; i++)
        end += sprintf(end, "%s%s", i ? "," : "", layout->nodes[i].name);
    return names;
}

/* Of a parameter, the master weight, exp_avg and exp_avg_sq are saved in fp32. */
static void add_job(struct command *command, const struct job *job, size_t nodes)
{
    uint64_t bytes = model_parameters(&job->model) * BYTES_A_PARAMETER;

    if (job->checkpoint.dir[0]) {
        add_argument(command, "--checkpoint=%s", job->checkpoint.dir);
        add_argument(command, "--checkpoint-bytes=%" PRIu64, bytes);
    }
    if (job->checkpoint.dir[0] && job->checkpoint.stage[0]) {
        add_argument(command, "--stage=%s", job->checkpoint.stage);
        add_argument(command, "--stage-bytes=%" PRIu64,
                     bytes / nodes * (uint64_t)(job->checkpoint.staged > 0 ? job->checkpoint.staged : 1) *
                         (job->checkpoint.partner ? 2 : 1));
    }
}

static void build_command(struct command *command, const struct preflight *preflight, int seconds)
{
    const struct step_layout *layout = preflight->layout;

    *command = (struct command){.failed = false};
    add_argument(command, "srun");
    add_argument(command, "--jobid=%" PRIu32, layout->job_id);
    add_argument(command, "--job-name=muster-preflight");
    add_argument(command, "--overlap");
    add_argument(command, "--nodes=%zu", layout->count);
    add_argument(command, "--nodelist=%s", layout->list);
    add_argument(command, "--ntasks=%zu", layout->count);
    add_argument(command, "--ntasks-per-node=1");
    add_argument(command, "--cpus-per-task=1");
    add_argument(command, "--mem=0");
    add_argument(command, "--mpi=pmi2");
    add_argument(command, "--kill-on-bad-exit=0");
    add_argument(command, "--wait=0");
    add_argument(command, "--quiet");
    add_argument(command, "--muster"); /* for check_plugin */
    add_argument(command, "%s", preflight->program);
    add_argument(command, "--seconds=%d", seconds);
    if (preflight->job)
        add_job(command, preflight->job, layout->count);
}

static void command_free(struct command *command)
{
    for (size_t i = 0; i < command->count; i++)
        free(command->argv[i]);
}

/* ---- answers ----------------------------------------------------------------------------------------------------- */

/* The plugin's own lines: the user's step has the same. */
static bool is_from_plugin(const char *line)
{
    return strncmp(line, "muster: ", strlen("muster: ")) == 0;
}

static void take_line(struct inbox *inbox, const char *line)
{
    if (is_from_plugin(line) || answer_take(inbox->answers, inbox->count, line, clock_realtime()) || !line[0] ||
        answer_take_srun(inbox->answers, inbox->count, line))
        return;
    if (inbox->others < sizeof inbox->other / sizeof *inbox->other)
        snprintf(inbox->other[inbox->others++], sizeof *inbox->other, "%.*s", (int)sizeof *inbox->other - 1, line);
}

static void take_lines(struct inbox *inbox)
{
    char *begin = inbox->buffer, *end;

    inbox->buffer[inbox->held] = '\0';
    while ((end = strchr(begin, '\n'))) {
        *end = '\0';
        take_line(inbox, begin);
        begin = end + 1;
    }
    inbox->held -= (size_t)(begin - inbox->buffer);
    if (inbox->held == BUFFER - 1) /* no answer has a line of 64 KiB */
        inbox->held = 0;
    memmove(inbox->buffer, begin, inbox->held);
}

static bool all_ended(const struct inbox *inbox)
{
    for (size_t i = 0; i < inbox->count; i++)
        if (!inbox->answers[i].ended)
            return false;
    return true;
}

/* Until all nodes have ended, or the child has. True if time was over first. */
static bool listen_to(struct inbox *inbox, int fd, double deadline)
{
    while (!all_ended(inbox)) {
        double left = deadline - clock_monotonic();
        struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
        ssize_t got;

        if (left <= 0)
            return true;
        if (poll(&poll_fd, 1, (int)(left * 1000) + 1) <= 0)
            continue;
        got = read(fd, inbox->buffer + inbox->held, BUFFER - 1 - inbox->held);
        if (got == 0 || (got < 0 && errno != EINTR))
            return false;
        inbox->held += got > 0 ? (size_t)got : 0;
        take_lines(inbox);
    }
    return false;
}

static struct inbox *inbox_create(const struct step_layout *layout)
{
    struct inbox *inbox = calloc(1, sizeof *inbox);

    if (!inbox || !(inbox->answers = calloc(layout->count, sizeof *inbox->answers))) {
        free(inbox);
        return NULL;
    }
    inbox->count = layout->count;
    for (size_t i = 0; i < layout->count; i++)
        answer_start(&inbox->answers[i], layout->nodes[i].name);
    return inbox;
}

static void inbox_destroy(struct inbox *inbox)
{
    if (!inbox)
        return;
    for (size_t i = 0; i < inbox->count; i++)
        answer_clear(&inbox->answers[i]);
    free(inbox->answers);
    free(inbox);
}

/* ---- the log ----------------------------------------------------------------------------------------------------- */

/* The names of the bad nodes, separated by commas, to be freed. NULL without memory. */
static char *list_bad(const struct step_layout *layout, const struct verdict *verdict)
{
    struct step_layout bad = {.nodes = calloc(layout->count, sizeof *bad.nodes)};
    char *names;

    if (!bad.nodes)
        return NULL;
    for (size_t i = 0; i < layout->count; i++)
        if (verdict->reasons[i])
            bad.nodes[bad.count++] = layout->nodes[i];
    names = all_names(&bad);
    free(bad.nodes);
    return names;
}

static void log_others(const struct preflight *preflight, const struct inbox *inbox)
{
    for (size_t i = 0; i < inbox->others; i++)
        log_line(preflight, "%s", inbox->other[i]);
}

static void log_verdict(const struct preflight *preflight, const struct verdict *verdict, const struct inbox *inbox,
                        double took)
{
    size_t count = verdict->count;
    char *names = list_bad(preflight->layout, verdict);

    for (size_t i = 0; i < verdict->note_count && i < NOTES; i++)
        log_line(preflight, "note: %s", verdict->notes[i]);
    if (verdict->bad)
        log_others(preflight, inbox);
    if (verdict->everywhere)
        log_line(preflight, "all %zu nodes: %s", count, verdict->reasons[0]);
    for (size_t i = 0; !verdict->everywhere && i < count; i++)
        if (verdict->reasons[i])
            log_line(preflight, "%s is bad: %s", preflight->layout->nodes[i].name, verdict->reasons[i]);
    if (!verdict->bad)
        log_line(preflight, "%s%zu node%s good (%.1f s)", count > 1 ? "all " : "the ", count,
                 count > 1 ? "s are" : " is", took);
    else if (!verdict->everywhere)
        log_line(preflight, "%zu of %zu nodes are good; %s %s not (%.1f s); no task was started", count - verdict->bad,
                 count, names ? names : "the others", verdict->bad > 1 ? "are" : "is", took);
    free(names);
}

static bool has_no_answer(const struct inbox *inbox)
{
    for (size_t i = 0; i < inbox->count; i++)
        if (inbox->answers[i].begun || inbox->answers[i].unstarted)
            return false;
    return true;
}

/*
 * Logs a line for each bad node, and one at the end. 0 and *verdict, to be destroyed by the caller, when the nodes were
 * asked; -1 and *err (CODE_IO) when no srun could be started, or it ended before any node had answered: then the nodes
 * are not the cause. When all of them are silent until time is over, all are bad.
 */
static int ask_nodes(const struct preflight *preflight, struct verdict **verdict, struct error *err)
{
    int seconds = SECONDS + (int)(preflight->layout->count / NODES_A_SECOND), status = -1;
    double begun = clock_monotonic();
    struct inbox *inbox = inbox_create(preflight->layout);
    struct command command;
    struct child child;
    bool late;

    *verdict = NULL;
    build_command(&command, preflight, seconds - SPARE);
    if (!inbox || command.failed) {
        error_set(err, CODE_IO, "no memory to ask %zu nodes", preflight->layout->count);
        goto done;
    }
    if (child_start(&child, command.argv, err) < 0)
        goto done;
    late = listen_to(inbox, child.fd, begun + seconds);
    child_end(&child);
    /* If srun ended at once, it or the program is the cause, not the nodes. */
    if (!late && has_no_answer(inbox)) {
        log_others(preflight, inbox);
        error_set(err, CODE_IO, "no node answered: %s did not run there", preflight->program);
        goto done;
    }
    *verdict = verdict_create(inbox->answers, inbox->count, clock_monotonic() - begun);
    if (!*verdict) {
        error_set(err, CODE_IO, "no memory to judge %zu nodes", inbox->count);
        goto done;
    }
    log_verdict(preflight, *verdict, inbox, clock_monotonic() - begun);
    status = 0;
done:
    command_free(&command);
    inbox_destroy(inbox);
    return status;
}

/* ---- what becomes of the step ------------------------------------------------------------------------------------ */

/* True when the job goes back to the queue. */
static bool requeue_job(const struct preflight *preflight, const char *bad)
{
    unsigned job_id = (unsigned)preflight->layout->job_id;
    struct error err = {0};
    bool requeued;

    if (replace_nodes(preflight->layout->job_id, bad, &requeued, &err) == 0)
        log_line(preflight, "job %u goes back to the queue, and will not get %s again", job_id, bad);
    else
        log_line(preflight, "%s: %s", requeued ? "requeued, but with the same nodes" : "not requeued", err.text);
    return requeued;
}

static void end_job(const struct preflight *preflight, int code)
{
    struct error err = {0};

    if (replace_end_job(preflight->layout->job_id, &err) < 0)
        log_line(preflight, "warning: %s", err.text);
    exit(code);
}

int preflight_step(const struct preflight *preflight)
{
    struct verdict *verdict = NULL;
    struct error err = {0};
    int code = 0;
    char *bad;

    if (ask_nodes(preflight, &verdict, &err) < 0) {
        log_line(preflight, "warning: the nodes were not checked: %s", err.text);
        return 0;
    }
    if (verdict->bad)
        code = verdict->everywhere ? CODE_IO : CODE_PEER;
    bad = list_bad(preflight->layout, verdict);
    verdict_destroy(verdict);
    if (code == CODE_PEER && preflight->exclude && bad && requeue_job(preflight, bad))
        exit(code);
    free(bad);
    if (code && preflight->own_job)
        end_job(preflight, code);
    return code;
}
