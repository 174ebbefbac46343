/*
 * batch.h - one rank's samples of one step in host memory, and their copy in the device's memory.
 * trainer/step.c reads the share of the rank's dp index (rank_config_share) and cuts it into micro-batches. So all tp
 * ranks and all pipeline stages of a dp index read the same samples.
 *
 * The engine reads all samples of a step before it computes: to scale the loss it needs the number of predicted tokens,
 * and bad data is found early. A micro-batch (struct micro_batch, trainer/model/context.h) points to a run of a batch's
 * samples: sample i has tokens[i * seq_length], and so on.
 */
#ifndef MUSTER_TRAINER_DATA_BATCH_H
#define MUSTER_TRAINER_DATA_BATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "common/error.h"
#include "common/job.h"
#include "kernels/kernels.h"
#include "plan/activations.h"
#include "trainer/data/blend.h"

struct batch {
    long samples; /* in the batch */
    long most;    /* its capacity, in samples */
    int seq_length;
    int32_t *tokens, *targets; /* [most, seq_length]; a target is -1 where nothing is to be predicted */
    int32_t *document_start;   /* [most, seq_length] as in samples.h; NULL: a sample is one document */

    /* NULL for a GPT */
    int32_t *types;   /* [most, seq_length] 0 and 1: segment A and B */
    int32_t *lengths; /* [most] tokens before the padding */
    int32_t *order;   /* [most] label of sentence order prediction: 1 if A and B are swapped, 0 if not, -1: no loss */

    long predicted; /* number of targets >= 0, in all samples */

    /* of the samples that were read, not of empty ones; NULL in the device's copy */
    struct drawn_sample *drawn; /* [most] */
    int *predictions;           /* [most] number of targets >= 0 */
};

/* documents: allocate document_start too, for a GPT with data.reset. */
struct batch *batch_create(const struct model_shape *shape, bool documents, long most_samples, struct error *err);
void batch_destroy(struct batch *batch);

/*
 * Reads samples first to first + count - 1 of the run, with OpenMP's threads; count is at most `most`, and may be 0.
 * `blend` must be for the model that the batch was created for. On failure the error is that of the first sample that
 * cannot be read, and the batch is empty.
 */
int batch_read(struct batch *batch, struct blend *blend, uint64_t first, long count, struct error *err);

/*
 * Overwrites sample `index` with an empty one, which does not affect training: one document of tokens 0, no padding,
 * targets and order -1. A rank with fewer samples than others adds one, so that it runs as many micro-batches as they
 * do. index <= samples and index < most. If index == samples, the batch grows by one.
 */
void batch_fill_empty(struct batch *batch, long index);

/*
 * ---- the device's copy ----------------------------------------------------------------------------------------------
 *
 * A device with discrete memory gets a step's samples through pinned host memory. On a CPU they are used in place.
 */

struct feed;

/* For batches of `most` samples, created with the same `documents`. The device is borrowed. */
struct feed *feed_create(struct device *dev, const struct model_shape *shape, bool documents, long most,
                         struct error *err);
void feed_destroy(struct feed *feed);

/*
 * The same batch, which has the feed's `most`, with arrays in the device's memory, valid until the next call. With
 * discrete memory `batch` may be filled again as soon as this returns; otherwise `batch` itself is returned.
 */
const struct batch *feed_batch(struct feed *feed, const struct batch *batch);

#endif
