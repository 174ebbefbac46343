#include "trainer/data/batch.h"

#include <stdlib.h>
#include <string.h>

/* ---- memory ---- */

/* An empty batch whose arrays are in `memory`, of batch_bytes. */
static struct batch place_arrays(const struct model_shape *shape, bool documents, long most, int32_t *memory)
{
    size_t samples = most > 0 ? (size_t)most : 1, tokens = samples * (size_t)shape->seq_length;
    struct batch batch = {.most = most, .seq_length = shape->seq_length, .tokens = memory, .targets = memory + tokens};

    if (shape->objective == OBJECTIVE_MASKED) {
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
    int32_t *memory = error_calloc(1, batch_bytes(shape, documents, most_samples), err);
    struct batch *batch = memory ? error_calloc(1, sizeof *batch, err) : NULL;

    if (!batch) {
        free(memory);
        return NULL;
    }
    *batch = place_arrays(shape, documents, most_samples, memory);
    batch->drawn = error_calloc(samples, sizeof *batch->drawn, err);
    batch->predictions = batch->drawn ? error_calloc(samples, sizeof *batch->predictions, err) : NULL;
    if (batch->predictions)
        return batch;
    batch_destroy(batch);
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
    size_t bytes = (size_t)batch->seq_length * sizeof *sample.tokens;

    if (index == batch->samples)
        batch->samples++;
    else
        batch->predicted -= count_predicted(batch, index);
    memset(sample.tokens, 0, bytes);
    memset(sample.targets, 0xff, bytes); /* -1 */
    if (sample.document_start)
        memset(sample.document_start, 0, bytes);
    if (sample.types) {
        memset(sample.types, 0, bytes);
        *sample.length = batch->seq_length;
        *sample.order = -1;
    }
}

/* ---- the device's copy ---- */

struct feed {
    struct device *dev;
    int32_t *host;      /* a copy of a batch's memory */
    struct batch there; /* in the device's memory; without arrays if that is host memory */
    size_t bytes;       /* of each */
};

struct feed *feed_create(struct device *dev, const struct model_shape *shape, bool documents, long most,
                         struct error *err)
{
    struct feed *feed = error_calloc(1, sizeof *feed, err);
    int32_t *there;

    if (!feed)
        return NULL;
    feed->dev = dev;
    if (device_is_host(dev))
        return feed;
    feed->bytes = batch_bytes(shape, documents, most);
    feed->host = device_alloc(dev, MEMORY_HOST, feed->bytes, err);
    there = feed->host ? device_alloc(dev, MEMORY_DEVICE, feed->bytes, err) : NULL;
    if (!there) {
        error_prefix(err, "samples of a step");
        feed_destroy(feed);
        return NULL;
    }
    feed->there = place_arrays(shape, documents, most, there);
    return feed;
}

void feed_destroy(struct feed *feed)
{
    if (!feed)
        return;
    device_wait(feed->dev);
    device_free(feed->dev, MEMORY_HOST, feed->host);
    device_free(feed->dev, MEMORY_DEVICE, feed->there.tokens);
    free(feed);
}

const struct batch *feed_batch(struct feed *feed, const struct batch *batch)
{
    if (!feed->bytes)
        return batch;
    device_wait(feed->dev); /* until the previous batch has been copied from the host memory that is filled below */
    memcpy(feed->host, batch->tokens, feed->bytes);
    feed->there.samples = batch->samples;
    feed->there.predicted = batch->predicted;
    /* An operation, not device_transfer: transfers run in order, so this one would wait for those of a save. */
    device_kernels(feed->dev)->copy(feed->dev, feed->there.tokens, feed->host, feed->bytes);
    return &feed->there;
}
