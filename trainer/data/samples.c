#include "trainer/data/samples_impl.h"

#include "trainer/data/bert_sampler.h"
#include "trainer/data/sampler.h"

static struct bert_options bert_options(const struct job *job)
{
    return (struct bert_options){
        .special = {job->data.cls, job->data.sep, job->data.mask, job->data.pad},
        .mask_probability = job->data.mask_probability,
        .short_probability = job->data.short_probability,
    };
}

struct samples *samples_create_train(const struct job *job, struct error *err)
{
    struct bert_options options = bert_options(job);

    return job->model.kind == MODEL_BERT
               ? bert_sampler_create(job->data.train, &job->model, &options, job->batch.seed, err)
               : sampler_create(job->data.train, &job->model, job->batch.seed, err);
}

struct samples *samples_create_valid(const struct job *job, struct error *err)
{
    struct bert_options options = bert_options(job);

    return job->model.kind == MODEL_BERT ? bert_sampler_create_sequential(job->data.valid, &job->model, &options, err)
                                         : sampler_create_sequential(job->data.valid, &job->model, err);
}

void samples_destroy(struct samples *samples)
{
    if (samples)
        samples->ops->destroy(samples);
}

uint64_t samples_per_epoch(const struct samples *samples)
{
    return samples->per_epoch;
}

int samples_read(const struct samples *samples, uint64_t n, const struct sample *into, struct error *err)
{
    return samples->ops->read(samples, n, into, err);
}
