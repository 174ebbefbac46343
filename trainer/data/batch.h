/*
 * batch.h - samples in memory: those that one rank takes of one step, for both models.
 *
 * An engine reads them all before the step begins: then it knows how many tokens are to be predicted, by which it
 * scales the loss, and bad data is found before anything was computed. A micro-batch is a run of a batch's samples:
 * sample i has tokens[i * seq_length], and so on.
 */
#ifndef MUSTER_TRAINER_DATA_BATCH_H
#define MUSTER_TRAINER_DATA_BATCH_H

#include <stdint.h>

#include "common/error.h"
#include "common/job.h"
#include "trainer/data/samples.h"

struct batch {
    long samples, most; /* there are, and there is room for */
    int seq_length;
    int32_t *tokens, *targets; /* [most, seq_length]; a target is -1 where nothing is to be predicted */

    /* NULL for a GPT */
    int32_t *types;           /* [most, seq_length] 0 and 1: segment A and B */
    int32_t *lengths, *order; /* [most] tokens before the padding; 1 if A and B are swapped, 0 if not, -1 for unknown */

    long predicted; /* tokens with a target, in all samples */
};

struct batch *batch_create(const struct model_shape *shape, long most_samples, struct error *err);
void batch_destroy(struct batch *batch);

/*
 * The batch becomes samples first to first + count - 1 of the run; count is at most `most`, and may be 0. Reads with
 * OpenMP's threads. `source` is for the model that the batch was created for. On failure the error is that of the first
 * sample that cannot be read, and the batch is empty.
 */
int batch_read(struct batch *batch, const struct samples *source, uint64_t first, long count, struct error *err);

/*
 * Makes sample `index` one that teaches nothing: tokens 0, none of them padding, all targets and the order -1. So a
 * rank with fewer samples than its neighbours takes part in as many micro-batches as they do. index is at most
 * `samples`, which grows by one if they are the same, and below `most`.
 */
void batch_fill_empty(struct batch *batch, long index);

#endif
