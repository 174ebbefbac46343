#include "srun-plugin/preflight/preflight.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>

#include "common/clock.h"
#include "common/model/model_tensors.h"
#include "common/text.h"
#include "srun-plugin/preflight/judge.h"

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
static void __attribute__((format(printf, 2, 3))) log_line(const struct preflight *preflight, const char *format, ...)
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

struct command {
    char **argv;
    size_t count;
    bool failed;
};

/* Adds an argument, as printf writes it. */
#define add_argument(c, ...) ((c)->failed |= !text_add_line(&(c)->argv, &(c)->count, __VA_ARGS__))

/* Of a parameter, the master weight, exp_avg and exp_avg_sq are saved in fp32. */
static void add_job(struct command *command, const struct preflight *preflight, size_t nodes)
{
    struct job expanded = *preflight->job, *job = &expanded;
    struct error err;
    uint64_t bytes = model_parameters(&job->model) * BYTES_A_PARAMETER;

    if (job_expand_paths(job, &err) < 0) {
        log_line(preflight, "checkpoint.dir is not tested: %s", err.text);
        return;
    }
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
    static const char *const fixed[] = {"srun", "--job-name=muster-preflight", "--overlap", "--ntasks-per-node=1",
                                        "--cpus-per-task=1", "--mem=0", "--mpi=none", "--kill-on-bad-exit=0",
                                        "--wait=0", "--quiet", "--muster" /* for check_plugin */};
    const struct step_layout *layout = preflight->layout;

    *command = (struct command){.failed = false};
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++)
        add_argument(command, "%s", fixed[i]);
    add_argument(command, "--jobid=%" PRIu32, layout->job_id);
    add_argument(command, "--nodes=%zu", layout->node_count);
    add_argument(command, "--nodelist=%s", layout->list);
    add_argument(command, "--ntasks=%zu", layout->node_count);
    add_argument(command, "%s", preflight->program);
    add_argument(command, "--seconds=%d", seconds);
    if (preflight->job)
        add_job(command, preflight, layout->node_count);
    add_argument(command, "the end");
    if (!command->failed) {
        free(command->argv[--command->count]);
        command->argv[command->count] = NULL;
    }
}

/* ---- answers ----------------------------------------------------------------------------------------------------- */

static void take_line(struct inbox *inbox, const char *line)
{
    /* The plugin's own lines: the user's step has the same. */
    if (strncmp(line, "muster: ", strlen("muster: ")) == 0 ||
        answer_take(inbox->answers, inbox->count, line, clock_realtime()) || !line[0] ||
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

    if (!inbox || !(inbox->answers = calloc(layout->node_count, sizeof *inbox->answers))) {
        free(inbox);
        return NULL;
    }
    inbox->count = layout->node_count;
    for (size_t i = 0; i < layout->node_count; i++)
        inbox->answers[i].name = layout->hosts->names[i];
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
    char *names = NULL;
    size_t size;
    FILE *out = open_memstream(&names, &size);
    const char *comma = "";

    for (size_t i = 0; out && i < layout->node_count; i++)
        if (verdict->reasons[i]) {
            fprintf(out, "%s%s", comma, layout->hosts->names[i]);
            comma = ",";
        }
    if (out && fclose(out) == 0)
        return names;
    free(names);
    return NULL;
}

static void log_others(const struct preflight *preflight, const struct inbox *inbox)
{
    for (size_t i = 0; i < inbox->others; i++)
        log_line(preflight, "%s", inbox->other[i]);
}

/* `names`: of the bad nodes; NULL without memory. */
static void log_verdict(const struct preflight *preflight, const struct verdict *verdict, const struct inbox *inbox,
                        const char *names, double took)
{
    size_t count = verdict->count;

    for (size_t i = 0; i < verdict->note_count && i < NOTES; i++)
        log_line(preflight, "note: %s", verdict->notes[i]);
    if (verdict->bad)
        log_others(preflight, inbox);
    if (verdict->everywhere)
        log_line(preflight, "all %zu nodes: %s", count, verdict->reasons[0]);
    for (size_t i = 0; !verdict->everywhere && i < count; i++)
        if (verdict->reasons[i])
            log_line(preflight, "%s is bad: %s", preflight->layout->hosts->names[i], verdict->reasons[i]);
    if (!verdict->bad)
        log_line(preflight, "%s%zu node%s good (%.1f s)", count > 1 ? "all " : "the ", count,
                 count > 1 ? "s are" : " is", took);
    else if (!verdict->everywhere)
        log_line(preflight, "%zu of %zu nodes are good; %s %s not (%.1f s); no task was started", count - verdict->bad,
                 count, names ? names : "the others", verdict->bad > 1 ? "are" : "is", took);
}

static bool has_no_answer(const struct inbox *inbox)
{
    for (size_t i = 0; i < inbox->count; i++)
        if (inbox->answers[i].begun || inbox->answers[i].unstarted)
            return false;
    return true;
}

/*
 * Logs a line for each bad node, and one at the end. Returns the step's exit code, and *bad: the names of the bad nodes,
 * to be freed; -1 and *err (CODE_IO) when no srun could be started, or it ended before any node had answered: then the
 * nodes are not the cause. When all of them are silent until time is over, all are bad.
 */
static int ask_nodes(const struct preflight *preflight, char **bad, struct error *err)
{
    int seconds = SECONDS + (int)(preflight->layout->node_count / NODES_A_SECOND), status = -1;
    double begun = clock_monotonic();
    struct inbox *inbox = inbox_create(preflight->layout);
    struct verdict *verdict = NULL;
    struct command command;
    struct child child;
    bool late;

    build_command(&command, preflight, seconds - SPARE);
    if (!inbox || command.failed) {
        error_set(err, CODE_IO, "no memory to ask %zu nodes", preflight->layout->node_count);
        goto done;
    }
    if (child_start(&child, command.argv, err) < 0)
        goto done;
    late = listen_to(inbox, child.fd, begun + seconds);
    child_end(&child);
    if (!late && has_no_answer(inbox)) {
        log_others(preflight, inbox);
        error_set(err, CODE_IO, "no node answered: %s did not run there", preflight->program);
        goto done;
    }
    verdict = verdict_create(inbox->answers, inbox->count, clock_monotonic() - begun);
    if (!verdict) {
        error_set(err, CODE_IO, "no memory to judge %zu nodes", inbox->count);
        goto done;
    }
    *bad = list_bad(preflight->layout, verdict);
    log_verdict(preflight, verdict, inbox, *bad, clock_monotonic() - begun);
    status = !verdict->bad ? CODE_OK : verdict->everywhere ? CODE_IO : CODE_PEER;
done:
    verdict_destroy(verdict);
    text_free_lines(command.argv, command.count);
    inbox_destroy(inbox);
    return status;
}

/* ---- calls of slurmctld ------------------------------------------------------------------------------------------ */

enum { TRIES = 20 }; /* at a quarter of a second: the requeue has to arrive in slurmctld's tables */

/* Slurm's calls name a job by its number until 25.05, some by a step's id from 25.11 on, and all from 26.05 on. */
#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(25, 11, 0)
static slurm_step_id_t name_job(uint32_t job_id)
{
    slurm_step_id_t id = SLURM_STEP_ID_INITIALIZER;

    id.job_id = job_id;
    return id;
}

static int complete_job(uint32_t job_id, uint32_t code)
{
    slurm_step_id_t id = name_job(job_id);

    return slurm_complete_job(&id, code);
}

#define ADDRESS_JOB(change, job) ((change)->step_id = name_job(job))
#else
#define complete_job             slurm_complete_job
#define ADDRESS_JOB(change, job) ((change)->job_id = (job))
#endif

#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(26, 5, 0)
#define JOB(id) name_job(id)
#else
#define JOB(id) (id)
#endif

static int fail_call(struct error *err, const char *what)
{
    return error_set(err, CODE_INTERNAL, "%s: %s", what, slurm_strerror(errno));
}

/* The job's exclude list and `bad`, to be freed. NULL and *err if the job cannot be requeued. */
static char *list_exclusion(uint32_t job_id, const char *bad, struct error *err)
{
    job_info_msg_t *answer = NULL;
    const slurm_job_info_t *job;
    char *list = NULL;

    if (slurm_load_job(&answer, JOB(job_id), SHOW_ALL) != SLURM_SUCCESS || answer->record_count < 1) {
        fail_call(err, "slurmctld does not answer about the job");
        slurm_free_job_info_msg(answer);
        return NULL;
    }
    job = &answer->job_array[0];
    if (!job->batch_flag)
        error_set(err, CODE_USAGE, "only sbatch's jobs can be requeued: give --exclude=%s to the next job", bad);
    else if (!job->requeue)
        error_set(err, CODE_USAGE, "the job may not be requeued (sbatch --requeue): give --exclude=%s to the next job",
                  bad);
    else if (asprintf(&list, "%s%s%s", job->exc_nodes ? job->exc_nodes : "",
                      job->exc_nodes && job->exc_nodes[0] ? "," : "", bad) < 0) {
        error_set(err, CODE_IO, "no memory for a list of nodes");
        list = NULL;
    }
    slurm_free_job_info_msg(answer);
    return list;
}

static int exclude_nodes(uint32_t job_id, char *list, struct error *err)
{
    job_desc_msg_t change;

    for (int i = 0; i < TRIES; i++) {
        slurm_init_job_desc_msg(&change);
        ADDRESS_JOB(&change, job_id);
        change.exc_nodes = list;
        if (slurm_update_job(&change) == SLURM_SUCCESS)
            return 0;
        clock_sleep(0.25);
    }
    return fail_call(err, "slurmctld does not exclude them");
}

/* ---- what becomes of the step ------------------------------------------------------------------------------------ */

/*
 * Requeues the job, to run without `bad` ("n1,n3") and the nodes that it excludes already; true if it is requeued. Only
 * jobs of sbatch can be. slurmctld accepts an exclude list for pending jobs only, but the requeue also ends this srun.
 * So: requeue, and at once, with TERM and the like blocked, exclude. slurmctld waits KillWait (30 s by default) between
 * TERM and KILL, and a requeued job does not start before it has left its old nodes.
 */
static bool replace_nodes(const struct preflight *preflight, const char *bad)
{
    /* The signals of the requeue would end srun before the exclusion. */
    static const int signals[] = {SIGTERM, SIGCONT, SIGHUP, SIGUSR1, SIGUSR2};
    uint32_t job_id = preflight->layout->job_id;
    struct error err = {0};
    sigset_t set;
    char *list = list_exclusion(job_id, bad, &err);
    bool requeued = false;

    if (list) {
        sigemptyset(&set);
        for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
            sigaddset(&set, signals[i]);
        sigprocmask(SIG_BLOCK, &set, NULL);
        requeued = slurm_requeue(JOB(job_id), 0) == SLURM_SUCCESS;
        if (!requeued)
            fail_call(&err, "slurmctld does not requeue the job");
    }
    if (!requeued)
        log_line(preflight, "not requeued: %s", err.text);
    else if (exclude_nodes(job_id, list, &err) < 0)
        log_line(preflight, "requeued, but with the same nodes: %s", err.text);
    else
        log_line(preflight, "job %u is requeued without %s", (unsigned)job_id, bad);
    free(list);
    return requeued;
}

int preflight_step(const struct preflight *preflight)
{
    char *bad = NULL;
    struct error err = {0};
    int code = ask_nodes(preflight, &bad, &err);

    if (code < 0) {
        log_line(preflight, "warning: the nodes were not checked: %s", err.text);
        return 0;
    }
    if (code == CODE_PEER && preflight->exclude && bad && replace_nodes(preflight, bad))
        exit(code);
    free(bad);
    if (!code || !preflight->own_job)
        return code;
    if (complete_job(preflight->layout->job_id, CODE_PEER << 8) != SLURM_SUCCESS)
        log_line(preflight, "warning: the job cannot be ended: %s", slurm_strerror(errno));
    exit(code);
}
