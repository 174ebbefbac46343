/*
 * feed.h - a step's samples on their way to the device. On a CPU they are where they are; for a device whose memory is
 * no host memory they are copied there, by way of host memory that it can read.
 */
#ifndef MUSTER_TRAINER_FEED_H
#define MUSTER_TRAINER_FEED_H

#include "kernels/kernels.h"
#include "trainer/data/batch.h"
#include "plan/footprint.h"

struct feed;

/* For batches of `most` samples. The device is borrowed. */
struct feed *feed_create(struct device *dev, const struct model_shape *shape, long most, struct error *err);
void feed_destroy(struct feed *feed);

/* What feed_create allocates where the device's memory is no host memory; nothing elsewhere. Pure. */
void feed_footprint(const struct model_shape *shape, long most, struct footprint *bytes);

/*
 * The same batch with arrays that operations enqueued from now on can read, until the next call. `batch` may be filled
 * anew as soon as this returns, if the device's memory is no host memory; else what is returned is it.
 */
const struct batch *feed_batch(struct feed *feed, const struct batch *batch);

#endif
