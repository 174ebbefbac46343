#include "trainer/data/feed.h"

#include <stdlib.h>
#include <string.h>

enum { ARRAYS = 5 }; /* of a batch: tokens, targets, types, lengths, order */

struct feed {
    struct device *dev;
    bool discrete, pairs;
    size_t seq, most;
    char *host, *device;
    struct batch there; /* as the device sees it */
};

/* Elements of each array for so many samples. */
static void count_elements(size_t elements[ARRAYS], size_t samples, size_t seq, bool pairs)
{
    elements[0] = elements[1] = samples * seq;
    elements[2] = pairs ? samples * seq : 0;
    elements[3] = elements[4] = pairs ? samples : 0;
}

static size_t batch_bytes(size_t samples, size_t seq, bool pairs)
{
    size_t elements[ARRAYS], all = 0;

    count_elements(elements, samples, seq, pairs);
    for (int i = 0; i < ARRAYS; i++)
        all += elements[i] * sizeof(int32_t);
    return all;
}

void feed_footprint(const struct model_shape *shape, long most, struct footprint *bytes)
{
    size_t all = batch_bytes((size_t)most, (size_t)shape->seq_length, shape->kind == MODEL_BERT);

    bytes->workspace += all;
    bytes->host_staging += all;
}

struct feed *feed_create(struct device *dev, const struct model_shape *shape, long most, struct error *err)
{
    struct feed *feed = calloc(1, sizeof *feed);
    size_t all;

    if (!feed) {
        error_set(err, CODE_IO, "out of memory");
        return NULL;
    }
    feed->dev = dev;
    feed->discrete = !device_is_host(dev);
    feed->pairs = shape->kind == MODEL_BERT;
    feed->seq = (size_t)shape->seq_length;
    feed->most = (size_t)most;
    if (!feed->discrete)
        return feed;
    all = batch_bytes(feed->most, feed->seq, feed->pairs);
    feed->host = device_alloc(dev, MEMORY_HOST, all, err);
    feed->device = feed->host ? device_alloc(dev, MEMORY_DEVICE, all, err) : NULL;
    if (feed->device)
        return feed;
    error_prefix(err, "samples of a step");
    feed_destroy(feed);
    return NULL;
}

void feed_destroy(struct feed *feed)
{
    if (!feed)
        return;
    device_wait(feed->dev);
    device_free(feed->dev, MEMORY_HOST, feed->host);
    device_free(feed->dev, MEMORY_DEVICE, feed->device);
    free(feed);
}

const struct batch *feed_batch(struct feed *feed, const struct batch *batch)
{
    const int32_t *arrays[ARRAYS] = {batch->tokens, batch->targets, batch->types, batch->lengths, batch->order};
    int32_t **there[ARRAYS] = {&feed->there.tokens, &feed->there.targets, &feed->there.types, &feed->there.lengths,
                               &feed->there.order};
    size_t elements[ARRAYS], at = 0;

    if (!feed->discrete)
        return batch;
    device_wait(feed->dev); /* the previous batch was copied */
    feed->there = *batch;
    count_elements(elements, (size_t)batch->samples, feed->seq, feed->pairs);
    for (int i = 0; i < ARRAYS; i++) {
        size_t bytes = elements[i] * sizeof(int32_t);

        if (bytes)
            memcpy(feed->host + at, arrays[i], bytes);
        *there[i] = bytes ? (int32_t *)(feed->device + at) : NULL;
        at += bytes;
    }
    /* In the queue of operations: a transfer would have to wait for a capture (zero_capture) that is going on. */
    device_kernels(feed->dev)->copy(feed->dev, feed->device, feed->host, at);
    return &feed->there;
}
