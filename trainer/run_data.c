/* run_data.c - the data sets of a run: what the log and the metrics say of each. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/job_data.h"
#include "trainer/run.h"

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
