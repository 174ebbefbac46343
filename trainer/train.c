#include "trainer/train.h"

#include <inttypes.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"
#include "trainer/programs.h"
#include "trainer/report/progress.h"
#include "trainer/run.h"
#include "trainer/watch/recorder.h"

/* ---- requests to stop ---- */

static sigset_t asking; /* the signals that ask to stop */

void train_block_signals(void)
{
    static const int signals[] = {SIGTERM, SIGINT, SIGUSR1, SIGUSR2};
    struct sigaction hangup;

    sigemptyset(&asking);
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        signal(signals[i], SIG_DFL); /* a shell starts background jobs with INT ignored */
        sigaddset(&asking, signals[i]);
    }
    sigaddset(&asking, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &asking, NULL);
    if (sigaction(SIGHUP, NULL, &hangup) == 0 && hangup.sa_handler == SIG_IGN)
        sigdelset(&asking, SIGHUP); /* it stays blocked, since UCX installs a handler for it */
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* a limit on file sizes is then an error of write, like a full disk */
}

int run_signal(void)
{
    static int caught;
    const struct timespec at_once = {0};
    int number;

    while ((number = sigtimedwait(&asking, NULL, &at_once)) > 0)
        caught = number;
    return caught;
}

/* ---- the kill-switch file ---- */

enum { KILL_FILE_SECONDS = 2, WATCHER_SECONDS = 5 }; /* at most for its first look; between two starts of a watcher */

/* Whether the file is there, as its watcher has found (muster-report --watch): a look at it may never end. */
static bool has_kill_file(struct run *run)
{
    struct kill_watch *watch = &run->kill_watch;
    const char *name = run->job->report.kill_file, *arguments[] = {"--watch", name, NULL};
    double now = clock_monotonic();
    char answer;
    ssize_t got = -1;
    pid_t pid;

    if (!run->leader || !name[0] || watch->there)
        return watch->there;
    if (watch->socket <= 0 && (watch->started == 0 || now - watch->started >= WATCHER_SECONDS)) {
        watch->started = now;
        watch->socket = program_start(&pid, REPORT, arguments, -1, NULL);
    }
    while (watch->socket > 0 && (got = recv(watch->socket, &answer, 1, 0)) > 0) {
        watch->answered = true;
        watch->there = answer == KILL_FILE_THERE;
    }
    if (got == 0) {
        close(watch->socket);
        watch->socket = 0;
    }
    return watch->there;
}

int run_kill_file_start(struct run *run, struct error *err)
{
    const char *name = run->job->report.kill_file;
    struct kill_watch *watch = &run->kill_watch;

    has_kill_file(run);
    if (watch->socket > 0 && !watch->answered)
        poll(&(struct pollfd){.fd = watch->socket, .events = POLLIN}, 1, KILL_FILE_SECONDS * 1000);
    if (has_kill_file(run)) /* if it is not removed, it would stop the run after every requeue */
        return error_set(err, CODE_CONFIG, "the kill-switch file %s exists: remove it to train", name);
    if (watch->started > 0 && !watch->answered)
        run_log(run, "nothing is known yet of the kill-switch file %s: training does not wait for that", name);
    return 0;
}

static enum stop_reason own_reason(struct run *run, int caught)
{
    const struct job *job = run->job;

    if (run_claim_is_lost(run))
        return STOP_LOST;
    if (caught)
        return STOP_SIGNAL;
    if (!run->leader)
        return STOP_NONE;
    if (has_kill_file(run))
        return STOP_FILE;
    if (job->report.minutes > 0 && clock_monotonic() - run->started >= 60.0 * job->report.minutes)
        return STOP_MINUTES;
    return STOP_NONE;
}

/* The strongest reason that any rank has. */
static int check_stop(struct run *run, struct error *err)
{
    int caught = run_signal();
    double values[2] = {own_reason(run, caught), caught};

    comm_purpose(run->world, "reasons to stop", NULL);
    if (comm_max_f64(run->world, values, 2, err) < 0)
        return -1;
    run->stop = (enum stop_reason)values[0];
    run->stop_signal = (int)values[1];
    return 0;
}

/* "signal 15 (Terminated)", "the file kill.me", "the limit of 30 minutes" */
static void describe_stop(const struct run *run, char *text, size_t size)
{
    if (run->stop == STOP_SIGNAL)
        snprintf(text, size, "signal %d (%s)", run->stop_signal, strsignal(run->stop_signal));
    else if (run->stop == STOP_FILE)
        snprintf(text, size, "the file %s", run->job->report.kill_file);
    else
        snprintf(text, size, "the limit of %g minutes", run->job->report.minutes);
}

/* ---- after a step ---- */

/* A stop request interrupts a validation, since there may be only seconds left to save. The validation stays due. */
static int run_validation(struct run *run, struct metrics_step *m, struct error *err)
{
    const struct job *job = run->job;
    struct loss_sums sums = {0};
    struct mean_loss loss;
    int size = job->batch.global_batch;

    if (!run->validation_due)
        return 0;
    recorder_base("validating");
    for (int batch = 0; batch < job->report.eval_batches; batch++) {
        if (engine_evaluate(run->engine, (uint64_t)batch * (uint64_t)size, size, &sums, err) < 0 ||
            check_stop(run, err) < 0)
            return -1;
        if (run->stop != STOP_NONE && batch + 1 < job->report.eval_batches) {
            run_log(run, "the validation at iteration %ld is interrupted: the next start of the run repeats it",
                    m->step);
            return 0;
        }
    }
    run->validation_due = false;
    loss = loss_mean(&sums);
    m->validated = true;
    m->valid_loss = loss.all;
    if (job->model.objective == OBJECTIVE_MASKED)
        m->valid_order_loss = loss.order;
    if (sums.predictions == 0)
        run_log(run, "warning: the validation at iteration %ld predicts nothing: all its documents have one token",
                m->step);
    else
        run_log_validation(run, m);
    return run_data_validation(run, m, err);
}

/* Ends the run after optimizer.most_skipped skipped steps in a row (count_in_a_row in step.c). */
static int check_skipped(struct run *run, const struct step_result *result, struct error *err)
{
    const struct engine *e = run->engine;
    const char *why = result->skip == SKIP_SPIKE ? "the loss spiked" : "the gradient was not finite";
    char last_good[JOB_PATH_SIZE + 64] = "no checkpoint was written yet";
    uint64_t last;

    if (result->skip == SKIP_SPIKE)
        run_log(run, " iteration %" PRIu64 " is skipped: its loss %.4f is a spike above the mean %.4f", e->step,
                result->loss.all, e->spike.mean);
    if (result->skip == SKIP_NONE || e->skipped_in_a_row < (uint64_t)run->job->optimizer.most_skipped)
        return 0;
    if (saver_settle(run->saver, err) < 0 && err->code == CODE_PEER)
        return -1;
    last = saver_committed(run->saver);
    if (last != UINT64_MAX)
        snprintf(last_good, sizeof last_good, "the last good checkpoint is step %" PRIu64 " in %s", last,
                 run->job->checkpoint.dir);
    return error_set(err, CODE_DATA,
                     "%s in %" PRIu64 " steps in a row, up to step %" PRIu64
                     "; %s: lower optimizer.lr or check the data",
                     why, e->skipped_in_a_row, e->step, last_good);
}

/* ---- the loop ---- */

static int one_step(struct run *run, struct error *err)
{
    struct step_result result;
    struct metrics_step m;
    double started = clock_monotonic(), waited = recorder_waited_seconds();
    size_t allocations = device_allocations(run->engine->dev);

    recorder_base(NULL);
    recorder_step((int64_t)run->engine->step + 1);
    if (engine_step(run->engine, &result, err) < 0)
        return -1;
    recorder_base("reporting");
    if (run->global_batch > 0) /* in the first step operations allocate their workspace */
        run->allocations += device_allocations(run->engine->dev) - allocations;
    run->global_batch = result.global_batch;
    if (result.sums.predictions == 0 && !run->was_unpredicted)
        run_log(run,
                "warning: nothing is learned in step %" PRIu64 ": data.reset = \"document\", and all its documents "
                "have one token (later steps like it are not reported)",
                run->engine->step);
    run->was_unpredicted |= result.sums.predictions == 0;
    run->validation_due = run_validates_step(run);
    m = run_measure(run, &result, clock_monotonic() - started);
    run_report(run, &m, &result.sums);
    if (run_data_step(run, &m, err) < 0 ||
        run_stragglers(run, m.step_seconds - (recorder_waited_seconds() - waited), err) < 0 ||
        run_validation(run, &m, err) < 0)
        return -1;
    recorder_base("reporting");
    run_metrics_step(run, &m);
    return check_skipped(run, &result, err) < 0 ? -1 : saver_step(run->saver, err);
}

/* Repeats the validation of the step that the run resumed from. report.minutes count from the end of this validation:
 * otherwise a validation that takes longer than the limit would never be completed. */
static int repeat_validation(struct run *run, struct error *err)
{
    struct metrics_step m = {.step = (long)run->engine->step, .valid_order_loss = NAN};

    recorder_step((int64_t)m.step);
    if (run_validation(run, &m, err) < 0)
        return -1;
    if (m.validated)
        run_metrics_validation(run, &m);
    run->started = clock_monotonic();
    return 0;
}

static int stop_run(struct run *run, struct error *err)
{
    char why[JOB_PATH_SIZE + 64];
    int result;

    if (run->stop == STOP_LOST)
        return comm_agree(run->world, run_claim_check(run, err), err);
    describe_stop(run, why, sizeof why);
    run_log(run, "stopping after step %" PRIu64 ": %s", run->engine->step, why);
    if (!run->job->checkpoint.dir[0])
        return error_set(err, CODE_CONFIG, "stopped by %s, and checkpoint.dir is not set: nothing was saved", why);
    result = saver_finish(run->saver, true, err);
    run->all_saved = result == 0;
    if (result > 0) /* the epilog or the next start of the job commits it: a requeue is right */
        run_log(run, "%s", err->text);
    return result < 0 ? -1 : CODE_STOPPED;
}

static int run_steps(struct run *run, struct error *err)
{
    run->started = run->validation_due ? INFINITY : clock_monotonic();
    run_where_start(run);
    while (run->validation_due || run->engine->step < (uint64_t)run->job->batch.steps) {
        if (run->stop == STOP_NONE && check_stop(run, err) < 0) /* a validation may have found a reason */
            return -1;
        if (run->stop != STOP_NONE)
            return stop_run(run, err);
        if ((run->validation_due ? repeat_validation(run, err) : one_step(run, err)) < 0)
            return -1;
    }
    /* All steps are done. If the last checkpoint cannot be drained (a full disk), a requeue would not help: exit 74. */
    run->all_saved = saver_finish(run->saver, false, err) == 0;
    return !run->all_saved || run_report_memory(run, err) < 0 ? -1 : CODE_OK;
}

/* Rank 0 prints the error before comm_world_fail: after it, a rank may end at once, and then the launcher may kill the
 * others. */
void train_fail(struct comm *world, struct error *err)
{
    bool leader = comm_rank(world) == 0;

    if (leader)
        error_report(err);
    if (!comm_world_fail(world, err) && !leader)
        error_report(err);
}

int train(const struct job *job, struct comm *world, struct error *err)
{
    struct run run = {.job = job, .world = world, .leader = comm_rank(world) == 0};
    bool started;
    int result;

    run.terminal = run.leader && terminal_inspect(STDOUT_FILENO).live;
    started = run_start(&run, err) == 0;
    result = started ? run_steps(&run, err) : -1;
    run_where_stop(&run, result < 0 ? err : NULL);
    run_announce_end(&run);
    if (result >= 0) {
        run_log(&run, "%s at step %" PRIu64, result == CODE_OK ? "done" : "stopped", run.engine->step);
    } else {
        train_fail(world, err); /* before memory is freed that other ranks, or MPI, may still use */
        comm_fabric_abandon(run.engine ? run.engine->fabric : NULL, err);
    }
    run_metrics_stop(&run);
    if (run.kill_watch.socket > 0)
        close(run.kill_watch.socket);
    run_data_finish(&run);
    saver_destroy(run.saver);
    run_claim_stop(&run, !started || run.all_saved);
    engine_destroy(run.engine);
    run_watch_stop(&run);
    return result;
}
