/*
 * sampler.h - which tokens are sample n of a run: a function of (data, seed, n) and of nothing else.
 *
 * A data set of T tokens is cut into floor((T - 1) / seq_length) samples; sample p has the tokens
 * [p * seq_length, (p + 1) * seq_length], of which all but the last are inputs and all but the first are targets.
 * Documents are not told apart. Sample n of the run belongs to epoch n / samples_per_epoch, and each epoch takes every
 * sample once, in an order of its own (permute.h). So any rank reads any sample at any time, a run resumes from n
 * alone, and nothing is built or kept.
 */
#ifndef MUSTER_TRAINER_DATA_SAMPLER_H
#define MUSTER_TRAINER_DATA_SAMPLER_H

#include <stdint.h>

#include "common/error.h"
#include "common/job.h"

struct sampler;

/* The data set PREFIX.bin and PREFIX.idx, in shuffled order: for training. Fails with CODE_DATA if it has no whole
 * sample. */
struct sampler *sampler_create(const char *prefix, const struct model_shape *shape, uint64_t seed, struct error *err);

/* The same in the order of the file, every epoch: for validation. */
struct sampler *sampler_create_sequential(const char *prefix, const struct model_shape *shape, struct error *err);

void sampler_destroy(struct sampler *sampler);

uint64_t sampler_samples_per_epoch(const struct sampler *sampler);

/* Fills tokens[seq_length] and targets[seq_length] with sample `sample` of the run. Safe to call from several threads.
 */
int sampler_read(const struct sampler *sampler, uint64_t sample, int32_t *tokens, int32_t *targets, struct error *err);

#endif
