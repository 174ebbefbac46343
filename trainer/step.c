/* step.c - one training step, and one validation, of engine.h. */
#include <math.h>
#include <string.h>

#include "trainer/engine.h"
#include "trainer/watch/recorder.h"

struct mean_loss loss_mean(const struct loss_sums *sums)
{
    double order = sums->order / sums->samples;

    return (struct mean_loss){sums->predictions > 0 ? sums->token_loss / sums->predictions + order : NAN, order};
}

void loss_add(struct loss_sums *to, const struct loss_sums *sums)
{
    to->token_loss += sums->token_loss;
    to->predictions += sums->predictions;
    to->order += sums->order;
    to->samples += sums->samples;
}

/* The micro-batch with samples [begin, begin + count) of batch b, whose losses go to `losses`. Sample 0 of b is sample
 * `first` of the run. */
static struct micro_batch cut_batch(const struct batch *b, long begin, long count, uint64_t first, bool training,
                                    const struct losses *losses)
{
    size_t at = (size_t)begin * (size_t)b->seq_length;

    return (struct micro_batch){
        .samples = (int)count,
        .first_sample = first + (uint64_t)begin,
        .training = training,
        .tokens = b->tokens + at,
        .targets = b->targets + at,
        .document_start = b->document_start ? b->document_start + at : NULL,
        .types = b->types ? b->types + at : NULL,
        .lengths = b->lengths ? b->lengths + begin : NULL,
        .order = b->order ? b->order + begin : NULL,
        .losses = {losses->tokens + at, losses->orders + begin},
    };
}

/* Reads this rank's share of the run's samples [first, first + size), and cuts it into micro-batches. Those that the
 * share does not fill have one empty sample, the same for all. *sums gets what the losses will be divided by. */
static int read_batch(struct engine *e, struct blend *blend, uint64_t first, int size, bool training,
                      struct share *share, struct loss_sums *sums, struct error *err)
{
    long micro = e->job->batch.micro_batch;
    const struct batch *batch;

    *share = rank_config_share(e->job, &e->config.mesh, e->config.coords.dp, size);
    first += (uint64_t)share->first; /* from here on, this rank's first sample */
    recorder_phase("reading data");
    if (batch_read(e->batch, blend, first, share->count, err) < 0)
        return -1;
    recorder_phase(NULL);
    if ((share->micro_batches - 1) * micro >= share->count)
        batch_fill_empty(e->batch, share->count);
    batch = feed_batch(e->feed, e->batch);
    for (int i = 0; i < share->micro_batches; i++) {
        long begin = i * micro < share->count ? i * micro : share->count, left = share->count - begin;
        long samples = left == 0 ? 1 : left < micro ? left : micro;

        e->micro_batches[i] = cut_batch(batch, begin, samples, first, training, &e->losses);
    }
    memset(e->losses.tokens, 0, losses_bytes(&e->job->model, e->batch->most));
    *sums = (struct loss_sums){.predictions = (double)e->batch->predicted, .samples = size};
    comm_purpose(e->dp, "predictions", "count");
    return comm_sum_f64(e->dp, &sums->predictions, 1, err);
}

static double sum_of(const float *losses, int count)
{
    double sum = 0;

    for (int i = 0; i < count; i++)
        sum += losses[i];
    return sum;
}

/* After engine_status: the losses of all ranks, on every rank. Only the last stage has some. All its tp
 * ranks have the same tokens' losses, so only tp rank 0 adds them; the orders' are each rank's share. */
static int sum_losses(struct engine *e, int micro_batches, struct loss_sums *sums, struct error *err)
{
    double all[2] = {0};

    for (int i = 0; i < micro_batches; i++) {
        const struct micro_batch *mb = &e->micro_batches[i];

        if (e->config.coords.tp == 0)
            all[0] += sum_of(mb->losses.tokens, context_rows(&e->context, mb->samples));
        all[1] += sum_of(mb->losses.orders, mb->samples);
    }
    comm_purpose(e->world, "loss", NULL);
    if (comm_sum_f64(e->world, all, 2, err) < 0)
        return -1;
    sums->token_loss = all[0];
    sums->order = all[1];
    return 0;
}

/* All tp ranks of the last stage have the losses of its samples: the first one counts them. */
static void add_to_sets(struct engine *e, const struct share *share, struct set_sums *sums)
{
    const struct mesh_coords *at = &e->config.coords;

    if (at->pp != e->config.mesh.pp - 1 || at->tp != 0)
        return;
    for (long i = 0; i < share->count; i++) {
        int set = e->batch->drawn[i].set, tokens = e->batch->seq_length;

        sums->losses[set] += sum_of(e->losses.tokens + i * tokens, tokens);
        sums->predictions[set] += e->batch->predictions[i];
    }
}

int engine_set_losses(struct engine *e, struct set_sums *sums, double *losses, struct error *err)
{
    int result;

    comm_purpose(e->world, "losses of data sets", NULL);
    result = comm_sum_f64(e->world, sums->losses, 2 * (size_t)sums->sets, err);
    for (int i = 0; i < sums->sets; i++) {
        losses[i] = sums->predictions[i] > 0 ? sums->losses[i] / sums->predictions[i] : NAN;
        sums->losses[i] = sums->predictions[i] = 0;
    }
    return result;
}

/* Waits until the device has computed all of a step's micro-batches. Failures of the tp group and the device are kept
 * until they are read here. */
static int engine_status(struct engine *e, struct error *err)
{
    device_wait(e->dev);
    return error_take(&e->tp_group.error, err) < 0 ? -1 : device_status(e->dev, err);
}

static double clip_coefficient(const struct job *job, double norm)
{
    double clip = job->optimizer.clip;

    return clip > 0 && norm > clip ? clip / (norm + 1e-6) : 1.0;
}

static int update_parameters(struct engine *e, const struct step_result *result, struct error *err)
{
    const struct job *job = e->job;
    double step = (double)(e->step + 1 - e->skipped_steps);
    struct adamw adamw = {
        .grad_scale = (float)(clip_coefficient(job, result->grad_norm) / result->loss_scale),
        .lr = (float)result->lr,
        .beta1 = (float)job->optimizer.beta1,
        .beta2 = (float)job->optimizer.beta2,
        .eps = (float)job->optimizer.eps,
        .weight_decay = (float)job->optimizer.weight_decay,
        .bias1 = (float)(1.0 - pow(job->optimizer.beta1, step)),
        .bias2 = (float)(1.0 - pow(job->optimizer.beta2, step)),
    };

    return zero_step(e->zero, &adamw, err);
}

/* Updates the loss scale and the mean of the loss, and decides whether the step is skipped. All ranks have the same
 * loss and norm, so they decide the same. */
static enum skip judge_step(struct engine *e, struct step_result *result)
{
    bool finite = isfinite(result->sums.token_loss + result->sums.order) && isfinite(result->grad_norm);

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
    struct loss_sums *sums = &result->sums;
    struct share share;
    struct loss_factors scales;
    double norm_squared;

    if (read_batch(e, e->train, e->consumed_samples, result->global_batch, true, &share, sums, err) < 0)
        return -1;
    scales.tokens = sums->predictions > 0 ? result->loss_scale / sums->predictions : 0;
    scales.order = result->loss_scale / sums->samples;
    if (pipeline_run(e->pipeline, e->micro_batches, share.micro_batches, &scales, err) < 0 ||
        zero_finish_gradients(e->zero, err) < 0 || engine_status(e, err) < 0 ||
        sum_losses(e, share.micro_batches, sums, err) < 0 || zero_grad_norm_squared(e->zero, &norm_squared, err) < 0)
        return -1;
    result->loss = loss_mean(sums);
    result->grad_norm = sqrt(norm_squared) / result->loss_scale;
    if (isfinite(result->loss.all))
        add_to_sets(e, &share, &e->train_sums);
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

int engine_evaluate(struct engine *e, uint64_t first, int size, struct loss_sums *sums, struct error *err)
{
    struct share share;
    struct loss_sums own;

    if (read_batch(e, e->valid, first, size, false, &share, &own, err) < 0 ||
        pipeline_run(e->pipeline, e->micro_batches, share.micro_batches, NULL, err) < 0 || engine_status(e, err) < 0 ||
        sum_losses(e, share.micro_batches, &own, err) < 0)
        return -1;
    add_to_sets(e, &share, &e->valid_sums);
    loss_add(sums, &own);
    return 0;
}
