/* sampler.c - GPT's samples, and the functions of samples.h that choose between GPT's and BERT's. */
#include "trainer/data/samples.h"

#include <stdlib.h>
#include <string.h>

#include "trainer/data/draws.h"
#include "trainer/data/indexed.h"

struct sampler {
    struct samples base;
    struct indexed *data;
    uint64_t seed;
    int seq_length, vocab;
    bool shuffled;
};

static int sampler_read(const struct samples *samples, uint64_t n, const struct sample *into, struct error *err)
{
    const struct sampler *sampler = (const struct sampler *)samples;
    size_t length = (size_t)sampler->seq_length;
    uint64_t place = n % samples->per_epoch;
    uint64_t epoch = n / samples->per_epoch;

    if (sampler->shuffled) /* after 2^32 epochs the orders repeat */
        place = permute(place, samples->per_epoch, sampler->seed, (uint32_t)epoch);
    if (indexed_read(sampler->data, place * length, 1, sampler->vocab, into->tokens, err) < 0 ||
        indexed_read(sampler->data, place * length + 1, length, sampler->vocab, into->targets, err) < 0)
        return -1;
    memcpy(into->tokens + 1, into->targets, (length - 1) * sizeof *into->tokens);
    return 0;
}

static void sampler_destroy(struct samples *samples)
{
    indexed_close(((struct sampler *)samples)->data);
    free(samples);
}

static const struct samples_ops ops = {sampler_read, sampler_destroy};

struct samples *sampler_create(const char *prefix, const struct model_shape *shape, bool shuffled, uint64_t seed,
                               struct error *err)
{
    struct sampler *sampler = calloc(1, sizeof *sampler);
    uint64_t tokens;

    if (!sampler) {
        error_errno(err, CODE_IO, "no memory to sample %s", prefix);
        return NULL;
    }
    sampler->base.ops = &ops;
    sampler->seq_length = shape->seq_length;
    sampler->vocab = shape->vocab;
    sampler->shuffled = shuffled;
    sampler->seed = seed;
    sampler->data = indexed_open(prefix, err);
    if (!sampler->data)
        goto fail;
    tokens = indexed_facts(sampler->data).tokens;
    sampler->base.per_epoch = tokens ? (tokens - 1) / (uint64_t)shape->seq_length : 0;
    if (sampler->base.per_epoch == 0) {
        error_set(err, CODE_DATA, "%s.bin has %llu tokens; a sample of model.seq_length = %d needs at least %d", prefix,
                  (unsigned long long)tokens, shape->seq_length, shape->seq_length + 1);
        goto fail;
    }
    return &sampler->base;

fail:
    sampler_destroy(&sampler->base);
    return NULL;
}

static struct samples *create_samples(const struct job *job, const char *prefix, bool shuffled, uint64_t seed,
                                      struct error *err)
{
    struct bert_options options = {
        .special = {job->data.cls, job->data.sep, job->data.mask, job->data.pad},
        .mask_probability = job->data.mask_probability,
        .short_probability = job->data.short_probability,
    };

    return job->model.kind == MODEL_BERT ? bert_sampler_create(prefix, &job->model, &options, shuffled, seed, err)
                                         : sampler_create(prefix, &job->model, shuffled, seed, err);
}

struct samples *samples_create_train(const struct job *job, struct error *err)
{
    return create_samples(job, job->data.train, true, job->batch.seed, err);
}

struct samples *samples_create_valid(const struct job *job, struct error *err)
{
    return create_samples(job, job->data.valid, false, 0, err);
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
