/*
 * batch.h - one rank's samples of one step in memory, for both models.
 *
 * An engine reads them all before the step begins: it needs the number of tokens to be predicted to scale the loss, and
 * bad data is found before anything is computed. A micro-batch is a run of a batch's samples: sample i has
 * tokens[i * seq_length], and so on.
 */
#ifndef MUSTER_TRAINER_DATA_BATCH_H
#define MUSTER_TRAINER_DATA_BATCH_H

#include <stdint.h>

#include "common/error.h"
#include "common/job.h"
#include "trainer/data/samples.h"

struct batch {
    long samples, most; /* present, and room for */
    int seq_length;
    int32_t *tokens, *targets; /* [most, seq_length]; a target is -1 where nothing is to be predicted */

    /* NULL for a GPT */
    int32_t *types;           /* [most, seq_length] 0 and 1: segment A and B */
    int32_t *lengths, *order; /* [most] tokens before the padding; 1 if A and B are swapped, 0 if not, -1 for none */

    long predicted; /* tokens with a target, in all samples */
};

struct batch *batch_create(const struct model_shape *shape, long most_samples, struct error *err);
void batch_destroy(struct batch *batch);

/*
 * Reads samples first to first + count - 1 of the run, with OpenMP's threads; count is at most `most`, and may be 0.
 * `source` must be for the model that the batch was created for. On failure the error is that of the first sample that
 * cannot be read, and the batch is empty.
 */
int batch_read(struct batch *batch, const struct samples *source, uint64_t first, long count, struct error *err);

/*
 * Makes sample `index` one without effect on training: tokens 0, none of them padding, all targets and the order -1. So
 * a rank with fewer samples than others takes part in as many micro-batches. index is at most `samples`, which grows by
 * one if they are equal, and below `most`.
 */
void batch_fill_empty(struct batch *batch, long index);

#endif
