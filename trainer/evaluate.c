/* evaluate.c - the loss of a checkpoint over the whole of data.valid: muster-train --evaluate. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "common/clock.h"
#include "common/job_data.h"
#include "common/text.h"
#include "trainer/report/progress.h"
#include "trainer/run.h"
#include "trainer/train.h"

static void report_skipped(const char *why)
{
    fprintf(stderr, "muster-train: skipped a checkpoint: %s\n", why);
}

static int restore_newest(struct run *run, const char **dir, struct error *err)
{
    const struct job *job = run->job;
    bool weights = !job->checkpoint.dir[0] && !job->checkpoint.load[0];
    int restored;

    *dir = job->checkpoint.dir[0] ? job->checkpoint.dir : weights ? job->checkpoint.init : job->checkpoint.load;
    if (!**dir)
        return error_set(err, CODE_CONFIG,
                         "--evaluate needs a checkpoint: give --checkpoint, or set checkpoint.dir, load or init");
    if (run_tokenizer_start(run, *dir, false, err) < 0)
        return -1;
    restored = engine_restore(run->engine, *dir, weights ? RESTORE_WEIGHTS : RESTORE_OTHER, report_skipped, err);
    if (restored == 0)
        return error_set(err, CODE_DATA, "%s: there is no checkpoint to evaluate", *dir);
    return restored < 0 ? -1 : 0;
}

/* The samples of data.valid; of several sets, up to the sample that would repeat one of them. */
static uint64_t count_samples(const struct blend *data)
{
    double least = INFINITY;

    for (int i = 0; i < blend_sets(data); i++) {
        struct blend_set set = blend_set(data, i);

        least = fmin(least, floor((double)set.samples / set.part));
    }
    return (uint64_t)least;
}

/* On standard error: standard output has the result alone. After the last batch the line is erased. */
static void show_progress(const struct run *run, long batch, long batches, const struct loss_sums *sums, double seconds)
{
    struct metrics_step step = {
        .step = batch,
        .loss = loss_mean(sums).all,
        .mfu = NAN,
        .tokens_per_second = sums->predictions / seconds,
        .world = comm_size(run->world),
    };

    if (run->leader)
        progress_show(stderr, batch < batches ? &step : NULL, batches,
                      seconds / (double)batch * (double)(batches - batch));
}

/* Up to `most` global batches; 0: all. */
static int add_samples(struct run *run, uint64_t samples, long most, struct loss_sums *sums, struct error *err)
{
    uint64_t global = (uint64_t)run->job->batch.global_batch, left = samples;
    long batches = (long)((samples + global - 1) / global);
    double started = clock_monotonic();

    batches = most > 0 && most < batches ? most : batches;
    for (long batch = 0; batch < batches; batch++, left -= global) {
        if (engine_evaluate(run->engine, (uint64_t)batch * global, (int)(left < global ? left : global), sums, err) < 0)
            return -1;
        show_progress(run, batch + 1, batches, sums, clock_monotonic() - started);
    }
    return 0;
}

static void print_sets(const struct run *run, const double *losses)
{
    const struct blend *data = run->engine->valid;

    fputs(",\"sets\":[", stdout);
    for (int i = 0; i < blend_sets(data); i++) {
        fputs(i ? ",{\"prefix\":" : "{\"prefix\":", stdout);
        json_quote(stdout, blend_set(data, i).prefix);
        json_real_member(stdout, "loss", losses[i]);
        putchar('}');
    }
    putchar(']');
}

static int print_result(struct run *run, const char *dir, const struct loss_sums *sums, struct error *err)
{
    struct mean_loss loss = loss_mean(sums);
    double losses[JOB_SETS_MOST];

    if (engine_set_losses(run->engine, &run->engine->valid_sums, losses, err) < 0)
        return -1;
    if (!run->leader)
        return 0;
    fputs("{\"checkpoint\":", stdout);
    json_quote(stdout, dir);
    printf(",\"step\":%" PRIu64 ",\"samples\":%.0f,\"tokens\":%.0f", run->engine->step, sums->samples,
           sums->predictions);
    json_real_member(stdout, "loss", loss.all);
    if (run->job->model.objective == OBJECTIVE_MASKED)
        json_real_member(stdout, "order_loss", loss.order);
    json_real_member(stdout, "perplexity", exp(loss.all - loss.order));
    if (blend_sets(run->engine->valid) > 1)
        print_sets(run, losses);
    puts("}");
    return fflush(stdout) == 0 ? 0 : error_errno(err, CODE_IO, "cannot write to standard output");
}

static int run_evaluation(struct run *run, long batches, struct error *err)
{
    struct loss_sums sums = {0};
    const char *dir;

    if (!run->job->data.valid[0])
        return error_set(err, CODE_CONFIG, "--evaluate needs data.valid");
    if (run_create_engine(run, err) < 0 || restore_newest(run, &dir, err) < 0 ||
        add_samples(run, count_samples(run->engine->valid), batches, &sums, err) < 0)
        return -1;
    return print_result(run, dir, &sums, err);
}

int evaluate(const struct job *job, struct comm *world, long batches, struct error *err)
{
    struct run run = {.job = job, .world = world, .leader = comm_rank(world) == 0};
    int result = run_evaluation(&run, batches, err);

    run_announce_end(&run);
    if (result < 0) {
        train_fail(world, err);
        comm_fabric_abandon(run.engine ? run.engine->fabric : NULL, err);
    }
    engine_destroy(run.engine);
    run_watch_stop(&run);
    return result;
}
