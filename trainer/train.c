#include "trainer/train.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "config.h"
#include "common/flops.h"
#include "trainer/engine.h"
#include "trainer/report/log_line.h"
#include "trainer/report/metrics.h"
#include "trainer/report/progress.h"
#include "trainer/stop.h"

enum { MOST_SKIPPED = 10 }; /* steps in a row without a finite gradient before the run is given up */

struct run {
    const struct job *job;
    struct comm *world;
    struct engine *engine;
    struct metrics_writer *metrics; /* rank 0's; NULL elsewhere and where none are wanted */
    bool leader, terminal;
    double peak_flops;   /* of all ranks together */
    uint64_t saved_step; /* UINT64_MAX: none yet */
    enum stop_reason stop; /* as last agreed */
    int stop_signal;
    int skipped_in_a_row;
    /* since the last log line */
    long logged_steps;
    double logged_seconds, logged_loss; /* the loss of the steps that had a finite one */
    int logged_skipped, logged_nans;
};

static double seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* One line on rank 0's standard output; on a terminal it replaces the progress line. */
__attribute__((format(printf, 2, 3))) static void say(const struct run *run, const char *format, ...)
{
    va_list args;

    if (!run->leader)
        return;
    va_start(args, format);
    if (run->terminal)
        fputs("\r\033[K", stdout);
    vprintf(format, args);
    putchar('\n');
    fflush(stdout);
    va_end(args);
}

static void say_skipped_checkpoint(const char *why)
{
    const char *rank = getenv("PMI_RANK");

    if (!rank || atoi(rank) == 0)
        printf("skipped a checkpoint: %s\n", why);
}

/* ---- the beginning ---- */

static void describe(const struct run *run)
{
    const struct job *job = run->job;
    const struct engine *e = run->engine;
    double gib = 1.0 / (1 << 30);

    say(run, "muster %s: %s on %s", VERSION, job->preset[0] ? job->preset : "gpt", device_describe(e->dev));
    say(run, "model: %d layers, hidden %d, %d heads, sequence %d, vocabulary %d: %" PRIu64 " parameters", job->model.layers,
        job->model.hidden, job->model.heads, job->model.seq_length, job->model.vocab, model_parameters(&job->model));
    say(run, "mesh: dp %d x tp %d x pp %d, ZeRO-%d, %s", e->mesh.dp, e->mesh.tp, e->mesh.pp, job->parallel.zero,
        comm_describe(run->world));
    say(run, "batch: %d samples a step, micro-batches of %d; memory a rank: %.2f GiB; peak %.1f GFLOP/s in all",
        job->batch.global_batch, job->batch.micro_batch, (double)device_bytes_used(e->dev, MEMORY_DEVICE) * gib,
        run->peak_flops * 1e-9);
}

static int measure_peak(struct run *run, struct error *err)
{
    if (run->job->report.peak_tflops > 0) {
        run->peak_flops = run->job->report.peak_tflops * 1e12 * comm_size(run->world);
        return 0;
    }
    /* All at once, as they will compute: ranks that share a machine share its rate. */
    if (comm_barrier(run->world, err) < 0)
        return -1;
    run->peak_flops = device_measure_peak(run->engine->dev);
    return comm_sum_f64(run->world, &run->peak_flops, 1, err);
}

/* From checkpoint.dir, else from checkpoint.load, else from initial weights. */
static int restore_or_initialize(struct run *run, struct error *err)
{
    const char *const dirs[] = {run->job->checkpoint.dir, run->job->checkpoint.load};
    struct engine *e = run->engine;

    run->saved_step = UINT64_MAX;
    for (int i = 0; i < 2; i++) {
        int restored = dirs[i][0] ? engine_restore(e, dirs[i], i == 0, say_skipped_checkpoint, err) : 0;

        if (restored < 0)
            return -1;
        if (!restored)
            continue;
        if (dirs[i] == run->job->checkpoint.dir)
            run->saved_step = e->step;
        say(run, "resumed from %s at step %" PRIu64 " (%" PRIu64 " samples)", dirs[i], e->step, e->consumed_samples);
        return 0;
    }
    engine_initialize(e);
    say(run, "starting from initial weights, seed %" PRIu64, run->job->batch.seed);
    return 0;
}

/* A kill switch that is still there would stop the run after every requeue, for ever. */
static int refuse_kill_file(const struct job *job, struct error *err)
{
    if (job->report.kill_file[0] && access(job->report.kill_file, F_OK) == 0)
        return error_set(err, CODE_CONFIG, "the kill-switch file %s is there: remove it to train", job->report.kill_file);
    return 0;
}

/* A run that starts anew does not write over the metrics of another: they move to NAME.old, or .old-2 and so on. */
static void set_metrics_aside(const struct run *run)
{
    const char *path = run->job->report.metrics;
    char aside[JOB_PATH_SIZE + 32];
    struct stat status;

    if (stat(path, &status) < 0 || !S_ISREG(status.st_mode) || status.st_size == 0)
        return;
    snprintf(aside, sizeof aside, "%s.old", path);
    for (int k = 2; k < 1000 && access(aside, F_OK) == 0; k++)
        snprintf(aside, sizeof aside, "%s.old-%d", path, k);
    if (rename(path, aside) == 0)
        say(run, "the metrics of an earlier run are now %s", aside);
}

static int open_metrics(struct run *run, struct error *err)
{
    int result = 0;

    if (run->leader && run->job->report.metrics[0]) {
        if (run->engine->step == 0)
            set_metrics_aside(run);
        run->metrics = metrics_open(run->job->report.metrics, (long)run->engine->step, err);
        result = run->metrics ? 0 : -1;
    }
    return comm_agree(run->world, result, err);
}

/* Days of training that cannot be saved are worse than a run that does not start. */
static int probe_checkpoint_dir(struct run *run, struct error *err)
{
    bool look = run->leader && run->job->checkpoint.dir[0];

    return comm_agree(run->world, look ? ckpt_probe(run->job->checkpoint.dir, err) : 0, err);
}

/* ---- after each step ---- */

static struct metrics_step measure(const struct run *run, const struct step_result *result, double step_seconds)
{
    const struct job *job = run->job;
    const struct engine *e = run->engine;
    double tokens = (double)job->batch.global_batch * job->model.seq_length;
    int world = comm_size(run->world);

    return (struct metrics_step){
        .step = (long)e->step,
        .consumed_samples = (long)e->consumed_samples,
        .loss = result->loss,
        .lr = result->lr,
        .grad_norm = result->grad_norm,
        .loss_scale = 1.0,
        .skipped = result->skipped,
        .step_seconds = step_seconds,
        .tokens_per_second = tokens / step_seconds,
        .tflops = flops_megatron(&job->model, tokens, false) / step_seconds / world * 1e-12,
        .mfu = flops_model(&job->model, tokens) / step_seconds / run->peak_flops,
        .hfu = flops_hardware(&job->model, tokens, false) / step_seconds / run->peak_flops,
        .world = world,
        .dp = e->mesh.dp,
        .tp = e->mesh.tp,
        .pp = e->mesh.pp,
        .valid_loss = NAN,
    };
}

static void print_log_line(struct run *run, const struct metrics_step *m)
{
    const struct job *job = run->job;
    double mean_seconds = run->logged_seconds / (double)run->logged_steps;
    double rescale = m->step_seconds / mean_seconds; /* from this step's rates to the mean since the last line */
    struct log_line line = {
        .step = m->step,
        .steps = job->batch.steps,
        .consumed_samples = m->consumed_samples,
        .consumed_tokens = m->consumed_samples * job->model.seq_length,
        .step_seconds = mean_seconds,
        .lr = m->lr,
        .global_batch = job->batch.global_batch,
        .loss = run->logged_loss / (double)(run->logged_steps - run->logged_nans),
        .loss_scale = m->loss_scale,
        .grad_norm = m->grad_norm,
        .skipped = run->logged_skipped,
        .nans = run->logged_nans,
        .samples_per_second = job->batch.global_batch / mean_seconds,
        .tflops = m->tflops * rescale,
        .mfu = m->mfu * rescale,
        .hfu = m->hfu * rescale,
    };
    char text[LOG_LINE_SIZE];

    log_line_format(text, sizeof text, &line);
    say(run, "%s", text);
    run->logged_steps = 0;
    run->logged_skipped = run->logged_nans = 0;
    run->logged_seconds = run->logged_loss = 0;
}

static void print_progress(const struct run *run, const struct metrics_step *m)
{
    struct progress progress = {
        .step = m->step,
        .steps = run->job->batch.steps,
        .loss = m->loss,
        .tokens_per_second = m->tokens_per_second,
        .mfu = m->mfu,
        .eta_seconds = (double)(run->job->batch.steps - m->step) * m->step_seconds,
        .ranks = m->world,
    };
    struct winsize size = {0};
    char text[PROGRESS_SIZE];

    ioctl(STDOUT_FILENO, TIOCGWINSZ, &size);
    progress_line(text, sizeof text, size.ws_col > 20 ? size.ws_col - 1 : 79, PROGRESS_UTF8 | PROGRESS_COLOUR, &progress);
    printf("\r\033[K%s", text);
    fflush(stdout);
}

static void report_step(struct run *run, const struct metrics_step *m)
{
    run->logged_steps++;
    run->logged_seconds += m->step_seconds;
    if (isfinite(m->loss))
        run->logged_loss += m->loss;
    else
        run->logged_nans++;
    run->logged_skipped += m->skipped;
    if (!run->leader)
        return;
    if (run->terminal)
        print_progress(run, m);
    else if (m->step % run->job->report.log_every == 0 || m->step == run->job->batch.steps)
        print_log_line(run, m);
}

static int look_for_stop(struct run *run, struct error *err)
{
    return stop_agreed(run->world, run->job, &run->stop, &run->stop_signal, err);
}

/* A stop does not wait for the end of a validation: there may be only seconds left to save. */
static int validate(struct run *run, struct metrics_step *m, struct error *err)
{
    const struct job *job = run->job;
    bool last = m->step == job->batch.steps;
    double sum = 0;

    if (!run->engine->valid || job->report.eval_every == 0 || (m->step % job->report.eval_every != 0 && !last))
        return 0;
    for (int batch = 0; batch < job->report.eval_batches; batch++) {
        double loss;

        if (engine_evaluate(run->engine, batch, &loss, err) < 0 || look_for_stop(run, err) < 0)
            return -1;
        if (run->stop != STOP_NONE && batch + 1 < job->report.eval_batches)
            return 0;
        sum += loss;
    }
    m->valid_loss = sum / job->report.eval_batches;
    say(run, " validation loss at iteration %ld: %.6E | perplexity: %.4f", m->step, m->valid_loss, exp(m->valid_loss));
    return 0;
}

/* Metrics are for people: a full disk under them is said once, and does not end the training. */
static void write_metrics(struct run *run, const struct metrics_step *m)
{
    struct error err;

    if (!run->metrics || metrics_write(run->metrics, m, &err) == 0)
        return;
    say(run, "no more metrics are written, training goes on: %s", err.text);
    metrics_close(run->metrics);
    run->metrics = NULL;
}

static int check_finite(struct run *run, const struct step_result *result, struct error *err)
{
    run->skipped_in_a_row = result->skipped ? run->skipped_in_a_row + 1 : 0;
    if (run->skipped_in_a_row < MOST_SKIPPED)
        return 0;
    if (run->saved_step == UINT64_MAX)
        return error_set(err, CODE_DATA, "the gradient was not finite in %d steps in a row, up to step %" PRIu64
                         "; no checkpoint was written yet: lower optimizer.lr or look at the data",
                         MOST_SKIPPED, run->engine->step);
    return error_set(err, CODE_DATA, "the gradient was not finite in %d steps in a row, up to step %" PRIu64
                     "; the last good checkpoint is step %" PRIu64 " in %s: lower optimizer.lr or look at the data",
                     MOST_SKIPPED, run->engine->step, run->saved_step, run->job->checkpoint.dir);
}

/* ---- saving ---- */

/* *err tells the caller why, should this checkpoint have been needed. */
static int save(struct run *run, struct error *err)
{
    double started = seconds();
    struct error sync_error;

    if (!run->job->checkpoint.dir[0] || run->saved_step == run->engine->step)
        return 0;
    if (run->metrics && metrics_sync(run->metrics, &sync_error) < 0)
        say(run, "metrics may lack steps up to this checkpoint: %s", sync_error.text);
    if (engine_save(run->engine, err) < 0)
        return error_prefix(err, "checkpoint of step %" PRIu64 " failed", run->engine->step);
    run->saved_step = run->engine->step;
    say(run, "checkpoint of step %" PRIu64 " saved in %.2f s", run->engine->step, seconds() - started);
    return 0;
}

/* A failed save on the way is reported and training goes on: earlier checkpoints stand, and the next save tries again. */
static int save_on_the_way(struct run *run, struct error *err)
{
    if (save(run, err) == 0)
        return 0;
    if (err->code != CODE_IO && err->code != CODE_DATA)
        return -1;
    say(run, "%s; training goes on", err->text);
    return 0;
}

static bool save_is_due(const struct run *run)
{
    long every = run->job->checkpoint.every;
    bool last = run->engine->step == (uint64_t)run->job->batch.steps; /* saved at the end anyway */

    return every > 0 && !last && run->engine->step % (uint64_t)every == 0;
}

/* ---- the loop ---- */

static int one_step(struct run *run, struct error *err)
{
    struct step_result result;
    struct metrics_step m;
    double started = seconds();

    if (engine_step(run->engine, &result, err) < 0)
        return -1;
    m = measure(run, &result, seconds() - started);
    report_step(run, &m);
    if (validate(run, &m, err) < 0)
        return -1;
    write_metrics(run, &m);
    if (check_finite(run, &result, err) < 0)
        return -1;
    return save_is_due(run) ? save_on_the_way(run, err) : 0;
}

static int stop(struct run *run, struct error *err)
{
    char why[JOB_PATH_SIZE + 64];

    stop_describe(why, sizeof why, run->job, run->stop, run->stop_signal);
    say(run, "stopping after step %" PRIu64 ": %s", run->engine->step, why);
    if (!run->job->checkpoint.dir[0])
        return error_set(err, CODE_CONFIG, "stopped by %s, and checkpoint.dir is not set: nothing was saved", why);
    return save(run, err) < 0 ? -1 : CODE_STOPPED;
}

static int loop(struct run *run, struct error *err)
{
    stop_start_clock();
    while (run->engine->step < (uint64_t)run->job->batch.steps) {
        if (look_for_stop(run, err) < 0)
            return -1;
        if (run->stop != STOP_NONE)
            return stop(run, err);
        if (one_step(run, err) < 0)
            return -1;
    }
    return save(run, err) < 0 ? -1 : CODE_OK;
}

int train(const struct job *job, struct comm *world, struct error *err)
{
    struct run run = {.job = job, .world = world, .leader = comm_rank(world) == 0};
    int result = -1;

    run.terminal = run.leader && isatty(STDOUT_FILENO);
    if (refuse_kill_file(job, err) < 0)
        return -1;
    run.engine = engine_create(job, world, err);
    if (!run.engine)
        return -1;
    if (engine_compare_ranks(run.engine, err) < 0 || probe_checkpoint_dir(&run, err) < 0 || measure_peak(&run, err) < 0)
        goto out;
    describe(&run);
    if (restore_or_initialize(&run, err) < 0 || open_metrics(&run, err) < 0)
        goto out;
    result = loop(&run, err);
    say(&run, "%s at step %" PRIu64, result == CODE_OK ? "done" : result == CODE_STOPPED ? "stopped" : "failed",
        run.engine->step);
out:
    if (result < 0)
        comm_world_fail(world, err); /* before anything is freed that the other ranks, or MPI, may still use */
    metrics_close(run.metrics);
    engine_destroy(run.engine);
    return result;
}
