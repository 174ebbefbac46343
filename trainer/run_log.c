/* run_log.c - a run's output: plain lines, log lines, a progress line; and of each data set, epochs and losses. */
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/job_data.h"
#include "plan/cost.h"
#include "trainer/report/progress.h"
#include "trainer/run.h"

void run_log(const struct run *run, const char *format, ...)
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

/* What a step reaches is no more than the peak: if it is more, the peak was measured while the machine was busy. */
static void raise_peak(struct run *run, double share)
{
    if (share <= 1 || run->job->report.peak_tflops > 0)
        return;
    if (!run->peak_raised)
        run_log(run,
                "the peak of %.1f GFLOP/s in all, measured at the start, was too low: a step reached %.0f%% of it. The "
                "fastest step is the peak from now on; report.peak_tflops sets it",
                run->peak_flops * 1e-9, 100 * share);
    run->peak_raised = true;
    run->peak_flops *= share;
}

struct metrics_step run_measure(struct run *run, const struct step_result *result, double step_seconds)
{
    const struct job *job = run->job;
    const struct engine *e = run->engine;
    int world = comm_size(run->world);
    struct plan_rates rates = plan_rates(job, result->global_batch, world, run->peak_flops / world, step_seconds);

    raise_peak(run, rates.hfu);
    rates = plan_rates(job, result->global_batch, world, run->peak_flops / world, step_seconds);
    return (struct metrics_step){
        .step = (long)e->step,
        .consumed_samples = (long)e->consumed_samples,
        .loss = result->loss.all,
        .order_loss = job->model.objective == OBJECTIVE_MASKED ? result->loss.order : NAN,
        .lr = result->lr,
        .grad_norm = result->grad_norm,
        .loss_scale = result->loss_scale,
        .skipped = result->skip != SKIP_NONE,
        .step_seconds = step_seconds,
        .time = clock_realtime(),
        .tokens_per_second = rates.tokens,
        .tflops = rates.tflops,
        .mfu = rates.mfu,
        .hfu = rates.hfu,
        .tflops_before_2022 = rates.tflops_before,
        .mosaicml_mfu = rates.mosaic_mfu,
        .mosaicml_hfu = rates.mosaic_hfu,
        .mosaicml_mfu_params = rates.mosaic_mfu_params,
        .mosaicml_hfu_params = rates.mosaic_hfu_params,
        .world = world,
        .dp = e->config.mesh.dp,
        .tp = e->config.mesh.tp,
        .pp = e->config.mesh.pp,
        .valid_loss = NAN,
        .valid_order_loss = NAN,
    };
}

/* In Megatron's form; on a terminal a short one, above the progress line. */
static void print_log_line(struct run *run, const struct metrics_step *m)
{
    struct mean_loss loss = loss_mean(&run->logged);
    struct log_line line = {
        .mean = *m,
        .steps = run->job->batch.steps,
        .consumed_tokens = m->consumed_samples * run->job->model.seq_length,
        .global_batch = run->global_batch,
        .bert = run->job->model.objective == OBJECTIVE_MASKED,
        .skipped = run->logged_skipped,
        .nans = run->logged_nans,
    };
    struct terminal terminal = {.columns = terminal_inspect(STDOUT_FILENO).columns}; /* not live: without a bar */
    double rescale; /* from this step's rates to the mean since the last line */
    char text[PROGRESS_SIZE];

    line.mean.step_seconds = run->logged_seconds / (double)run->logged_steps;
    rescale = m->step_seconds / line.mean.step_seconds;
    line.mean.loss = loss.all - (run->terminal ? 0 : loss.order);
    line.mean.order_loss = loss.order;
    line.mean.tokens_per_second *= rescale;
    line.mean.tflops *= rescale;
    line.mean.mfu *= rescale;
    line.mean.hfu *= rescale;
    if (run->terminal)
        progress_line(text, terminal.columns - 1, &terminal, &line.mean, line.steps, NAN);
    else
        log_line_format(text, &line);
    run_log(run, "%s", text);
    run->logged_steps = 0;
    run->logged_skipped = run->logged_nans = 0;
    run->logged_seconds = 0;
    run->logged = (struct loss_sums){0};
}

/* The perplexity is that of the tokens, without the loss of the sentences' order. */
void run_log_validation(const struct run *run, const struct metrics_step *m)
{
    bool bert = run->job->model.objective == OBJECTIVE_MASKED;
    double tokens = unsigned_nan(bert ? m->valid_loss - m->valid_order_loss : m->valid_loss);
    char parts[80] = "";

    if (bert)
        snprintf(parts, sizeof parts, " | lm loss: %.6E | sop loss: %.6E", tokens, unsigned_nan(m->valid_order_loss));
    run_log(run, " validation loss at iteration %ld: %.6E%s | perplexity: %.4f", m->step, unsigned_nan(m->valid_loss),
            parts, exp(tokens));
}

int run_report_memory(const struct run *run, struct error *err)
{
    const struct engine *e = run->engine;
    const double mib = 1.0 / (1 << 20);
    struct footprint bytes = rank_config_bytes(&e->config);
    double peak = (double)device_bytes_peak(e->dev, MEMORY_DEVICE), predicted = (double)footprint_device(&bytes);
    double worst = fabs(peak / predicted - 1.0);
    struct rusage usage;

    if (run->global_batch == 0) /* without a step there is no peak */
        return 0;
    if (comm_max_f64(run->world, &worst, 1, err) < 0)
        return -1;
    getrusage(RUSAGE_SELF, &usage);
    run_log(run,
            "memory of rank 0: predicted %.1f MiB, peak %.1f MiB (largest error of any rank: %.1f%%); host: predicted "
            "%.1f MiB, peak %.1f MiB; resident %.1f MiB",
            predicted * mib, peak * mib, 100.0 * worst, (double)footprint_host(&bytes) * mib,
            (double)device_bytes_peak(e->dev, MEMORY_HOST) * mib, (double)usage.ru_maxrss / 1024);
    run_log(run, "allocations in steps after the first, rank 0: %zu", run->allocations);
    return 0;
}

void run_report(struct run *run, const struct metrics_step *m, const struct loss_sums *sums)
{
    run->logged_steps++;
    run->logged_seconds += m->step_seconds;
    if (isfinite(m->loss))
        loss_add(&run->logged, sums);
    run->logged_nans += !isfinite(m->loss) && sums->predictions > 0;
    run->logged_skipped += m->skipped;
    if (!run->leader)
        return;
    if (m->step % run->job->report.log_every == 0 || m->step == run->job->batch.steps)
        print_log_line(run, m);
    progress_show(stdout, m, run->job->batch.steps, (double)(run->job->batch.steps - m->step) * m->step_seconds);
}

/* ---- data sets ----------------------------------------------------------------------------------------------------- */

_Static_assert(JOB_SETS_MOST <= METRICS_SETS_MOST, "raise METRICS_SETS_MOST");

static void describe_sets(const struct run *run)
{
    const struct blend *data = run->engine->train;

    for (int i = 0; i < blend_sets(data) && blend_sets(data) > 1; i++) {
        struct blend_set set = blend_set(data, i);

        run_log(run, "data set %s: %.4g%% of the samples; an epoch has %" PRIu64, set.prefix, 100 * set.part,
                set.samples);
    }
}

int run_data_start(struct run *run, struct error *err)
{
    struct engine *e = run->engine;
    size_t sets = (size_t)e->train_sums.sets;

    run->drawn = error_calloc(sets, sizeof *run->drawn, err);
    run->set_losses = error_calloc(sets + (size_t)e->valid_sums.sets, sizeof *run->set_losses, err);
    if (!run->drawn || !run->set_losses)
        return -1;
    if (run->leader)
        memcpy(run->drawn, blend_counts(e->train, e->consumed_samples), sets * sizeof *run->drawn);
    describe_sets(run);
    return 0;
}

void run_data_finish(struct run *run)
{
    free(run->drawn);
    free(run->set_losses);
}

/* The epoch of the last of `drawn` samples, from 1. */
static uint64_t epoch_of(uint64_t drawn, uint64_t samples)
{
    return drawn == 0 ? 1 : (drawn - 1) / samples + 1;
}

static void log_epochs(struct run *run)
{
    struct engine *e = run->engine;
    const uint64_t *drawn = blend_counts(e->train, e->consumed_samples);

    for (int i = 0; i < blend_sets(e->train); i++) {
        struct blend_set set = blend_set(e->train, i);
        uint64_t epoch = epoch_of(drawn[i], set.samples);

        if (epoch > epoch_of(run->drawn[i], set.samples))
            run_log(run, "epoch %" PRIu64 " of data set %s begins at iteration %" PRIu64, epoch, set.prefix, e->step);
        run->drawn[i] = drawn[i];
    }
}

/* " loss of data sets at iteration 20: web 5.123400E+00 | code 4.567800E+00" */
static void log_losses(const struct run *run, const char *name, const struct blend *data, const double *losses)
{
    char *text = NULL;
    size_t size;
    FILE *line = open_memstream(&text, &size);

    if (!line)
        return;
    for (int i = 0; i < blend_sets(data); i++) {
        fprintf(line, "%s%s ", i ? " | " : "", blend_set(data, i).prefix);
        if (isnan(losses[i]))
            fputs("nothing predicted", line);
        else
            fprintf(line, "%.6E", losses[i]);
    }
    if (fclose(line) == 0)
        run_log(run, " %s of data sets at iteration %" PRIu64 ": %s", name, run->engine->step, text);
    free(text);
}

int run_data_step(struct run *run, struct metrics_step *m, struct error *err)
{
    struct engine *e = run->engine;

    if (run->leader)
        log_epochs(run);
    if (e->train_sums.sets < 2 || (m->step % run->job->report.log_every != 0 && m->step != run->job->batch.steps))
        return 0;
    if (engine_set_losses(e, &e->train_sums, run->set_losses, err) < 0)
        return -1;
    m->sets = e->train_sums.sets;
    m->set_losses = run->set_losses;
    if (run->leader && !run->terminal)
        log_losses(run, "loss", e->train, run->set_losses);
    return 0;
}

bool run_validates_step(const struct run *run)
{
    long step = (long)run->engine->step, every = run->job->report.eval_every;

    return run->engine->valid && every > 0 && step > 0 && (step % every == 0 || step == run->job->batch.steps);
}

int run_data_validation(struct run *run, struct metrics_step *m, struct error *err)
{
    struct engine *e = run->engine;
    double *losses = run->set_losses + e->train_sums.sets;

    if (e->valid_sums.sets < 2)
        return 0;
    if (engine_set_losses(e, &e->valid_sums, losses, err) < 0)
        return -1;
    m->valid_sets = e->valid_sums.sets;
    m->valid_set_losses = losses;
    if (run->leader)
        log_losses(run, "validation loss", e->valid, losses);
    return 0;
}
