#include "trainer/data/batch.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* ---- memory ---- */

/* An empty batch whose arrays are in `memory`, of batch_bytes. */
static struct batch place_arrays(const struct model_shape *shape, bool documents, long most, int32_t *memory)
{
    size_t samples = most > 0 ? (size_t)most : 1, tokens = samples * (size_t)shape->seq_length;
    struct batch batch = {.most = most, .seq_length = shape->seq_length, .tokens = memory, .targets = memory + tokens};

    if (shape->kind == MODEL_BERT) {
        batch.types = memory + 2 * tokens;
        batch.lengths = memory + 3 * tokens;
        batch.order = batch.lengths + samples;
    } else if (documents) {
        batch.document_start = memory + 2 * tokens;
    }
    return batch;
}

struct batch *batch_create(const struct model_shape *shape, bool documents, long most_samples, struct error *err)
{
    size_t samples = most_samples > 0 ? (size_t)most_samples : 1;
    struct batch *batch = malloc(sizeof *batch);
    int32_t *memory = calloc(1, batch_bytes(shape, documents, most_samples));
    struct drawn_sample *drawn = calloc(samples, sizeof *drawn);
    int *predictions = calloc(samples, sizeof *predictions);

    if (batch && memory && drawn && predictions) {
        *batch = place_arrays(shape, documents, most_samples, memory);
        batch->drawn = drawn;
        batch->predictions = predictions;
        return batch;
    }
    free(batch);
    free(memory);
    free(drawn);
    free(predictions);
    error_set(err, CODE_IO, "no memory for %ld samples of %d tokens", most_samples, shape->seq_length);
    return NULL;
}

void batch_destroy(struct batch *batch)
{
    if (!batch)
        return;
    free(batch->tokens);
    free(batch->drawn);
    free(batch->predictions);
    free(batch);
}

/* ---- reading ---- */

static struct sample sample_at(const struct batch *batch, long index)
{
    size_t at = (size_t)index * (size_t)batch->seq_length;
    struct sample sample = {.tokens = batch->tokens + at, .targets = batch->targets + at};

    if (batch->document_start)
        sample.document_start = batch->document_start + at;
    if (batch->types) {
        sample.types = batch->types + at;
        sample.length = batch->lengths + index;
        sample.order = batch->order + index;
    }
    return sample;
}

static int count_predicted(const struct batch *batch, long index)
{
    const int32_t *targets = sample_at(batch, index).targets;
    int count = 0;

    for (int i = 0; i < batch->seq_length; i++)
        count += targets[i] >= 0;
    return count;
}

int batch_read(struct batch *batch, struct blend *blend, uint64_t first, long count, struct error *err)
{
    long failed = count; /* the first sample that failed, or count */
    long predicted = 0;

    batch->samples = batch->predicted = 0;
    if (count < 0 || count > batch->most)
        return error_set(err, CODE_INTERNAL, "%ld samples do not fit into a batch of %ld", count, batch->most);
    blend_locate(blend, first, count, batch->drawn);
#pragma omp parallel for if (count > 1) reduction(+ : predicted)
    for (long i = 0; i < count; i++) {
        struct sample sample = sample_at(batch, i);
        struct error why;

        if (blend_read(blend, batch->drawn[i], &sample, &why) == 0) {
            batch->predictions[i] = count_predicted(batch, i);
            predicted += batch->predictions[i];
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
        if (sample.document_start)
            sample.document_start[i] = 0;
        if (sample.types)
            sample.types[i] = 0;
    }
    if (sample.types) {
        *sample.length = batch->seq_length;
        *sample.order = -1;
    }
}

/* ---- the device's copy ---- */

struct feed {
    struct device *dev;
    struct batch host, there; /* `there` is in the device's memory; it has no arrays if that is host memory */
    size_t bytes;             /* of each */
};

struct feed *feed_create(struct device *dev, const struct model_shape *shape, bool documents, long most,
                         struct error *err)
{
    struct feed *feed = error_calloc(1, sizeof *feed, err);
    int32_t *host, *there;

    if (!feed)
        return NULL;
    feed->dev = dev;
    if (device_is_host(dev))
        return feed;
    feed->bytes = batch_bytes(shape, documents, most);
    host = device_alloc(dev, MEMORY_HOST, feed->bytes, err);
    there = host ? device_alloc(dev, MEMORY_DEVICE, feed->bytes, err) : NULL;
    feed->host.tokens = host;
    if (!there) {
        error_prefix(err, "samples of a step");
        feed_destroy(feed);
        return NULL;
    }
    feed->host = place_arrays(shape, documents, most, host);
    feed->there = place_arrays(shape, documents, most, there);
    return feed;
}

void feed_destroy(struct feed *feed)
{
    if (!feed)
        return;
    device_wait(feed->dev);
    device_free(feed->dev, MEMORY_HOST, feed->host.tokens);
    device_free(feed->dev, MEMORY_DEVICE, feed->there.tokens);
    free(feed);
}

static void copy_array(int32_t *to, const int32_t *from, size_t count)
{
    if (to)
        memcpy(to, from, count * sizeof *to);
}

const struct batch *feed_batch(struct feed *feed, const struct batch *batch)
{
    size_t samples = (size_t)batch->samples, tokens = samples * (size_t)batch->seq_length;

    if (!feed->bytes)
        return batch;
    device_wait(feed->dev); /* until the previous batch has been copied from the host memory that is filled below */
    copy_array(feed->host.tokens, batch->tokens, tokens);
    copy_array(feed->host.targets, batch->targets, tokens);
    copy_array(feed->host.document_start, batch->document_start, tokens);
    copy_array(feed->host.types, batch->types, tokens);
    copy_array(feed->host.lengths, batch->lengths, samples);
    copy_array(feed->host.order, batch->order, samples);
    feed->there.samples = batch->samples;
    feed->there.predicted = batch->predicted;
    /* An operation, not device_transfer: transfers run in order, so this one would wait for those of a save. */
    device_kernels(feed->dev)->copy(feed->dev, feed->there.tokens, feed->host.tokens, feed->bytes);
    return &feed->there;
}
