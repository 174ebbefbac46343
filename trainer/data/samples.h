/*
 * samples.h - where the samples of a run come from: one small interface to GPT's (sampler.h) and BERT's
 * (bert_sampler.h).
 *
 * Sample n of a run is a function of (data, seed, n) and of nothing else. So any rank reads any sample at any time, a
 * run resumes from n alone, and how many ranks share the work changes nothing. Sample n belongs to epoch
 * n / samples_per_epoch, and each epoch takes every sample once, in an order of its own (draws.h).
 */
#ifndef MUSTER_TRAINER_DATA_SAMPLES_H
#define MUSTER_TRAINER_DATA_SAMPLES_H

#include <stdint.h>

#include "common/error.h"
#include "common/job.h"

struct samples;

/* Where one sample goes; s is model.seq_length. */
struct sample {
    int32_t *tokens;  /* [s] */
    int32_t *targets; /* [s] the token to be predicted there, or -1 for none */

    /* BERT's only; a GPT does not look at them */
    int32_t *types;  /* [s] 0 and 1: segment A and B */
    int32_t *length; /* [1] tokens before the padding */
    int32_t *order;  /* [1] 1 if the segments are swapped, else 0 */
};

/* Those of data.train and of data.valid, for the kind of model that the job has. The latter are the same at every
 * evaluation, and whatever the seed. */
struct samples *samples_create_train(const struct job *job, struct error *err);
struct samples *samples_create_valid(const struct job *job, struct error *err);

void samples_destroy(struct samples *samples);

uint64_t samples_per_epoch(const struct samples *samples);

/* Fills all of *into with sample `n` of the run. Safe to call from several threads. */
int samples_read(const struct samples *samples, uint64_t n, const struct sample *into, struct error *err);

#endif
