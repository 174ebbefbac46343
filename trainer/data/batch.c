#include "trainer/data/batch.h"

#include <stdbool.h>
#include <stdlib.h>

struct batch *batch_create(const struct model_shape *shape, long most_samples, struct error *err)
{
    size_t seq = (size_t)shape->seq_length, most = most_samples > 0 ? (size_t)most_samples : 1;
    struct batch *batch = calloc(1, sizeof *batch);
    bool pairs = shape->kind == MODEL_BERT;

    if (!batch)
        goto fail;
    batch->most = most_samples;
    batch->seq_length = shape->seq_length;
    batch->tokens = calloc(most * seq, sizeof *batch->tokens);
    batch->targets = calloc(most * seq, sizeof *batch->targets);
    if (!batch->tokens || !batch->targets)
        goto fail;
    if (pairs) {
        batch->types = calloc(most * seq, sizeof *batch->types);
        batch->lengths = calloc(most, sizeof *batch->lengths);
        batch->order = calloc(most, sizeof *batch->order);
    }
    if (!pairs || (batch->types && batch->lengths && batch->order))
        return batch;

fail:
    batch_destroy(batch);
    error_set(err, CODE_IO, "no memory for %ld samples of %d tokens", most_samples, shape->seq_length);
    return NULL;
}

void batch_destroy(struct batch *batch)
{
    if (!batch)
        return;
    free(batch->tokens);
    free(batch->targets);
    free(batch->types);
    free(batch->lengths);
    free(batch->order);
    free(batch);
}

static struct sample sample_at(const struct batch *batch, long index)
{
    size_t at = (size_t)index * (size_t)batch->seq_length;
    struct sample sample = {.tokens = batch->tokens + at, .targets = batch->targets + at};

    if (batch->types) {
        sample.types = batch->types + at;
        sample.length = batch->lengths + index;
        sample.order = batch->order + index;
    }
    return sample;
}

static long count_predicted(const struct batch *batch, long index)
{
    const int32_t *targets = sample_at(batch, index).targets;
    long count = 0;

    for (int i = 0; i < batch->seq_length; i++)
        count += targets[i] >= 0;
    return count;
}

int batch_read(struct batch *batch, const struct samples *source, uint64_t first, long count, struct error *err)
{
    long failed = count, predicted = 0; /* the first that failed */

    batch->samples = batch->predicted = 0;
    if (count < 0 || count > batch->most)
        return error_set(err, CODE_INTERNAL, "%ld samples do not fit into a batch of %ld", count, batch->most);
#pragma omp parallel for if (count > 1) reduction(+ : predicted)
    for (long i = 0; i < count; i++) {
        struct sample sample = sample_at(batch, i);
        struct error why;

        if (samples_read(source, first + (uint64_t)i, &sample, &why) == 0) {
            predicted += count_predicted(batch, i);
        } else {
#pragma omp critical(batch_read)
            if (i < failed) {
                failed = i;
                if (err)
                    *err = why;
            }
        }
    }
    if (failed < count)
        return -1;
    batch->samples = count;
    batch->predicted = predicted;
    return 0;
}

void batch_fill_empty(struct batch *batch, long index)
{
    struct sample sample = sample_at(batch, index);

    if (index == batch->samples)
        batch->samples++;
    else
        batch->predicted -= count_predicted(batch, index);
    for (int i = 0; i < batch->seq_length; i++) {
        sample.tokens[i] = 0;
        sample.targets[i] = -1;
        if (sample.types)
            sample.types[i] = 0;
    }
    if (sample.types) {
        *sample.length = batch->seq_length;
        *sample.order = -1;
    }
}
