#include "trainer/data/sampler.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/data/indexed.h"
#include "trainer/data/permute.h"

struct sampler {
    struct indexed *data;
    uint64_t per_epoch, seed;
    int seq_length, vocab;
    bool shuffled;
};

static struct sampler *create(const char *prefix, const struct model_shape *shape, struct error *err)
{
    struct sampler *sampler = calloc(1, sizeof *sampler);
    uint64_t tokens;

    if (!sampler) {
        error_errno(err, CODE_IO, "no memory to sample %s", prefix);
        return NULL;
    }
    sampler->data = indexed_open(prefix, err);
    if (!sampler->data)
        goto fail;
    tokens = indexed_facts(sampler->data).tokens;
    sampler->seq_length = shape->seq_length;
    sampler->vocab = shape->vocab;
    sampler->per_epoch = tokens ? (tokens - 1) / (uint64_t)shape->seq_length : 0;
    if (sampler->per_epoch == 0) {
        error_set(err, CODE_DATA, "%s.bin has %llu tokens; a sample of model.seq_length = %d needs at least %d", prefix,
                  (unsigned long long)tokens, shape->seq_length, shape->seq_length + 1);
        goto fail;
    }
    return sampler;

fail:
    sampler_destroy(sampler);
    return NULL;
}

struct sampler *sampler_create(const char *prefix, const struct model_shape *shape, uint64_t seed, struct error *err)
{
    struct sampler *sampler = create(prefix, shape, err);

    if (sampler) {
        sampler->seed = seed;
        sampler->shuffled = true;
    }
    return sampler;
}

struct sampler *sampler_create_sequential(const char *prefix, const struct model_shape *shape, struct error *err)
{
    return create(prefix, shape, err);
}

void sampler_destroy(struct sampler *sampler)
{
    if (!sampler)
        return;
    indexed_close(sampler->data);
    free(sampler);
}

uint64_t sampler_samples_per_epoch(const struct sampler *sampler)
{
    return sampler->per_epoch;
}

int sampler_read(const struct sampler *sampler, uint64_t sample, int32_t *tokens, int32_t *targets, struct error *err)
{
    size_t length = (size_t)sampler->seq_length;
    uint64_t place = sample % sampler->per_epoch;
    uint64_t epoch = sample / sampler->per_epoch;

    if (sampler->shuffled) /* after 2^32 epochs the orders come round again */
        place = permute(place, sampler->per_epoch, sampler->seed, (uint32_t)epoch);
    if (indexed_read(sampler->data, place * length, 1, sampler->vocab, tokens, err) < 0 ||
        indexed_read(sampler->data, place * length + 1, length, sampler->vocab, targets, err) < 0)
        return -1;
    memcpy(tokens + 1, targets, (length - 1) * sizeof *tokens);
    return 0;
}
