/* step.c - one training step, and one validation, of engine.h. */
#include <math.h>

#include "trainer/engine.h"
#include "trainer/optim/optim.h"
#include "trainer/watch/recorder.h"

/*
 * This rank's micro-batches of a global batch, and the numbers that the batch's mean losses are divided by.
 */
struct step_work {
    int micro_batches;
    double tokens, samples; /* predictions in the global batch */
};

/* Samples [begin, begin + count) of the batch; its sample 0 is sample `first` of the run. */
static struct micro_batch cut_batch(const struct batch *b, long begin, long count, uint64_t first, bool training)
{
    size_t at = (size_t)begin * (size_t)b->seq_length;

    return (struct micro_batch){
        .samples = (int)count,
        .first_sample = first + (uint64_t)begin,
        .training = training,
        .tokens = b->tokens + at,
        .targets = b->targets + at,
        .types = b->types ? b->types + at : NULL,
        .lengths = b->lengths ? b->lengths + begin : NULL,
        .order = b->order ? b->order + begin : NULL,
    };
}

/* The global batch is the run's samples [first, first + size). Ranks with too few samples add empty ones. */
static int read_batch(struct engine *e, const struct samples *samples, uint64_t first, int size, bool training,
                      struct step_work *work, struct error *err)
{
    struct share share = batch_share(e->job, &e->mesh, e->place.dp, size);
    long micro = e->job->batch.micro_batch;
    const struct batch *batch;

    first += (uint64_t)share.first;
    recorder_phase("reading data");
    if (batch_read(e->batch, samples, first, share.count, err) < 0)
        return -1;
    recorder_phase(NULL);
    if ((share.micro_batches - 1) * micro >= share.count)
        batch_fill_empty(e->batch, share.count);
    batch = feed_batch(e->feed, e->batch);
    for (int i = 0; i < share.micro_batches; i++) {
        long begin = i * micro, left = share.count - begin;

        if (left <= 0)
            e->micro_batches[i] = cut_batch(batch, share.count, 1, first, training);
        else
            e->micro_batches[i] = cut_batch(batch, begin, left < micro ? left : micro, first, training);
    }
    work->micro_batches = share.micro_batches;
    work->samples = size;
    work->tokens = (double)e->batch->predicted;
    comm_purpose(e->dp, "predictions", "count");
    return comm_sum_f64(e->dp, &work->tokens, 1, err);
}

/* The mean losses, on every rank. Only the last stage has them, and all its tp ranks have the same tokens' loss. */
static int mean_loss(struct engine *e, const struct step_work *work, struct losses losses, struct mean_loss *loss,
                     struct error *err)
{
    double sums[] = {e->place.tp == 0 ? losses.tokens : 0, losses.order};

    comm_purpose(e->world, "loss", "");
    if (comm_sum_f64(e->world, sums, 2, err) < 0)
        return -1;
    loss->order = sums[1] / work->samples;
    loss->all = (work->tokens > 0 ? sums[0] / work->tokens : 0) + loss->order;
    return 0;
}

/* Failures of the tp group and the device are kept until they are read here. */
static int engine_status(struct engine *e, struct error *err)
{
    return tensor_status(&e->tensor, err) < 0 ? -1 : device_status(e->dev, err);
}

static double clip_coefficient(const struct job *job, double norm)
{
    double clip = job->optimizer.clip;

    return clip > 0 && norm > clip ? clip / (norm + 1e-6) : 1.0;
}

static int update_parameters(struct engine *e, const struct step_result *result, struct error *err)
{
    const struct job *job = e->job;
    struct zero_step step = {
        .lr = result->lr,
        .beta1 = job->optimizer.beta1,
        .beta2 = job->optimizer.beta2,
        .eps = job->optimizer.eps,
        .weight_decay = job->optimizer.weight_decay,
        .grad_scale = clip_coefficient(job, result->grad_norm) / result->loss_scale,
        .step = e->step + 1 - e->skipped_steps,
    };

    return zero_step(e->zero, &step, err);
}

/* Decides whether the step is skipped. All ranks have the same loss and norm, so they decide the same. */
static enum skip judge_step(struct engine *e, struct step_result *result)
{
    bool finite = isfinite(result->loss.all) && isfinite(result->grad_norm);

    result->gives_up = !finite && !loss_scale_can_fall(&e->loss_scale, e->job);
    loss_scale_update(&e->loss_scale, e->job, !finite);
    if (!finite)
        return SKIP_NOT_FINITE;
    if (spike_check(&e->spike, e->job, result->loss.all))
        return SKIP_SPIKE;
    spike_update(&e->spike, result->loss.all);
    return SKIP_NONE;
}

/* Forward and backward of the global batch: its loss, and the norm of its gradient. */
static int compute_gradient(struct engine *e, struct step_result *result, struct error *err)
{
    struct step_work work;
    struct losses losses;
    struct loss_scales scales;
    double norm_squared;

    if (read_batch(e, e->train, e->consumed_samples, result->global_batch, true, &work, err) < 0)
        return -1;
    scales.tokens = work.tokens > 0 ? result->loss_scale / work.tokens : 0;
    scales.order = result->loss_scale / work.samples;
    if (pipeline_train(e->pipeline, e->micro_batches, work.micro_batches, &scales, &losses, err) < 0 ||
        zero_finish_gradients(e->zero, err) < 0 || engine_status(e, err) < 0 ||
        mean_loss(e, &work, losses, &result->loss, err) < 0 || zero_grad_norm_squared(e->zero, &norm_squared, err) < 0)
        return -1;
    result->grad_norm = sqrt(norm_squared) / result->loss_scale;
    return 0;
}

/* Overflows that a smaller loss scale may fix are not counted: they do not mean that the run has diverged. */
static void count_in_a_row(struct engine *e, const struct step_result *result)
{
    if (result->skip == SKIP_NONE)
        e->skipped_in_a_row = 0;
    else if (result->skip == SKIP_SPIKE || result->gives_up)
        e->skipped_in_a_row++;
}

int engine_step(struct engine *e, struct step_result *result, struct error *err)
{
    *result = (struct step_result){
        .lr = learning_rate(e->job, (long)e->step + 1),
        .loss_scale = e->loss_scale.scale,
        .global_batch = batch_size_at(e->job, e->consumed_samples),
    };
    if (compute_gradient(e, result, err) < 0)
        return -1;
    result->skip = judge_step(e, result);
    if (result->skip == SKIP_NONE && update_parameters(e, result, err) < 0)
        return -1;
    e->skipped_steps += result->skip != SKIP_NONE;
    count_in_a_row(e, result);
    e->step++;
    e->consumed_samples += (uint64_t)result->global_batch;
    return 0;
}

int engine_evaluate(struct engine *e, int batch, struct mean_loss *loss, struct error *err)
{
    int size = e->job->batch.global_batch;
    struct step_work work;
    struct losses losses;

    if (read_batch(e, e->valid, (uint64_t)batch * (uint64_t)size, size, false, &work, err) < 0 ||
        pipeline_evaluate(e->pipeline, e->micro_batches, work.micro_batches, &losses, err) < 0 ||
        engine_status(e, err) < 0)
        return -1;
    return mean_loss(e, &work, losses, loss, err);
}
