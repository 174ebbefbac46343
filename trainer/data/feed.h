/*
 * feed.h - copies a step's samples to a device with discrete memory, by way of host memory that it can read. On a CPU
 * they are used in place.
 */
#ifndef MUSTER_TRAINER_DATA_FEED_H
#define MUSTER_TRAINER_DATA_FEED_H

#include "kernels/kernels.h"
#include "plan/footprint.h"
#include "trainer/data/batch.h"

struct feed;

/* For batches of `most` samples. The device is borrowed. */
struct feed *feed_create(struct device *dev, const struct model_shape *shape, long most, struct error *err);
void feed_destroy(struct feed *feed);

/* The bytes that feed_create allocates for a device with discrete memory; for others it allocates nothing. Pure. */
void feed_footprint(const struct model_shape *shape, long most, struct footprint *bytes);

/*
 * The same batch with arrays in the device's memory, valid until the next call. With discrete memory `batch` may be
 * filled again as soon as this returns; otherwise `batch` itself is returned.
 */
const struct batch *feed_batch(struct feed *feed, const struct batch *batch);

#endif
