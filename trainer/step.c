/* step.c - one training step, and one validation, of engine.h. */
#include <math.h>

#include "trainer/engine.h"
#include "trainer/optim/lr.h"
#include "trainer/parallel/schedule.h"

/* This rank's samples of a global batch are a contiguous run; its micro-batches cut that run, the last may be short. */
struct share {
    uint64_t first; /* global sample number */
    long count;
    int micro_batches;
};

static struct share share_of(const struct engine *e, uint64_t batch_first)
{
    struct share share;
    long first, size = e->job->batch.micro_batch;

    share.count = even_split(e->job->batch.global_batch, e->mesh.dp, e->place.dp, &first);
    share.first = batch_first + (uint64_t)first;
    share.micro_batches = (int)((share.count + size - 1) / size);
    return share;
}

static int read_micro_batch(struct engine *e, struct sampler *sampler, const struct share *share, int index,
                            struct micro_batch *mb, struct error *err)
{
    long size = e->job->batch.micro_batch, begin = index * size;
    size_t seq = (size_t)e->job->model.seq_length;

    mb->samples = (int)(share->count - begin < size ? share->count - begin : size);
    mb->tokens = e->tokens;
    mb->targets = e->targets;
    for (int i = 0; i < mb->samples; i++)
        if (sampler_read(sampler, share->first + (uint64_t)(begin + i), e->tokens + (size_t)i * seq,
                         e->targets + (size_t)i * seq, err) < 0)
            return -1;
    return 0;
}

/* Forward and backward of all of this rank's micro-batches; *loss is the sum over its tokens. */
static int run_micro_batches(struct engine *e, float scale, double *loss, struct error *err)
{
    struct share share = share_of(e, e->consumed_samples);
    size_t n = schedule_build(e->schedule, e->place.pp, e->mesh.pp, share.micro_batches, 1);
    struct micro_batch mb = {0};

    *loss = 0;
    for (size_t i = 0; i < n; i++) {
        int index = e->schedule[i].micro_batch;

        if (e->schedule[i].kind == SCHEDULE_FORWARD) {
            if (read_micro_batch(e, e->train, &share, index, &mb, err) < 0)
                return -1;
            zero_micro_batch(e->zero, index == 0, index == share.micro_batches - 1);
            gpt_forward(e->gpt, &mb);
        } else {
            *loss += gpt_backward(e->gpt, &mb, scale);
        }
    }
    return zero_finish_gradients(e->zero, err);
}

static double clip_coefficient(const struct job *job, double norm)
{
    double clip = job->optimizer.clip;

    return clip > 0 && norm > clip ? clip / (norm + 1e-6) : 1.0;
}

static int update(struct engine *e, struct step_result *result, struct error *err)
{
    const struct job *job = e->job;
    struct zero_step step = {
        .lr = result->lr,
        .beta1 = job->optimizer.beta1,
        .beta2 = job->optimizer.beta2,
        .eps = job->optimizer.eps,
        .weight_decay = job->optimizer.weight_decay,
        .grad_scale = clip_coefficient(job, result->grad_norm),
        .step = e->step + 1 - e->skipped_steps,
    };

    return zero_step(e->zero, &step, err);
}

int engine_step(struct engine *e, struct step_result *result, struct error *err)
{
    double tokens = (double)e->job->batch.global_batch * e->job->model.seq_length;
    double loss, norm_squared;

    if (run_micro_batches(e, (float)(1.0 / tokens), &loss, err) < 0 || comm_sum_f64(e->dp, &loss, 1, err) < 0 ||
        zero_grad_norm_squared(e->zero, &norm_squared, err) < 0)
        return -1;
    result->loss = loss / tokens;
    result->grad_norm = sqrt(norm_squared);
    result->lr = learning_rate(e->job, (long)e->step + 1);
    result->skipped = !isfinite(result->loss) || !isfinite(result->grad_norm);
    if (result->skipped)
        e->skipped_steps++;
    else if (update(e, result, err) < 0)
        return -1;
    e->step++;
    e->consumed_samples += (uint64_t)e->job->batch.global_batch;
    return 0;
}

int engine_evaluate(struct engine *e, int batch, double *loss, struct error *err)
{
    struct share share = share_of(e, (uint64_t)batch * (uint64_t)e->job->batch.global_batch);
    struct micro_batch mb;

    *loss = 0;
    for (int i = 0; i < share.micro_batches; i++) {
        if (read_micro_batch(e, e->valid, &share, i, &mb, err) < 0)
            return -1;
        gpt_forward(e->gpt, &mb);
        *loss += gpt_loss(e->gpt, &mb);
    }
    if (comm_sum_f64(e->dp, loss, 1, err) < 0)
        return -1;
    *loss /= (double)e->job->batch.global_batch * e->job->model.seq_length;
    return device_status(e->dev, err);
}
