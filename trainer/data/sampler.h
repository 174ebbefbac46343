/*
 * sampler.h - GPT's samples: the data set as one row of tokens, cut into equal pieces.
 *
 * A data set of T tokens is cut into floor((T - 1) / seq_length) samples; sample p has the tokens
 * [p * seq_length, (p + 1) * seq_length], of which all but the last are inputs and all but the first are targets.
 * Documents and sentences are not told apart. samples.h says which p is sample n of a run.
 */
#ifndef MUSTER_TRAINER_DATA_SAMPLER_H
#define MUSTER_TRAINER_DATA_SAMPLER_H

#include "trainer/data/samples.h"

/* The data set PREFIX.bin and PREFIX.idx, in shuffled order: for training. Fails with CODE_DATA if it has no whole
 * sample. */
struct samples *sampler_create(const char *prefix, const struct model_shape *shape, uint64_t seed, struct error *err);

/* The same in the order of the file, every epoch: for validation. */
struct samples *sampler_create_sequential(const char *prefix, const struct model_shape *shape, struct error *err);

#endif
