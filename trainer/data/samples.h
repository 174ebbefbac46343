/*
 * samples.h - the samples of a run: one interface to GPT's (sampler.c) and BERT's (bert_sampler.c).
 *
 * Sample n of a run is a function of (data, seed, n) only. So any rank reads any sample at any time, a run resumes from
 * n alone, and the number of ranks changes nothing. Sample n belongs to epoch n / samples_per_epoch, and each epoch
 * takes every sample once, in its own order (draws.h).
 */
#ifndef MUSTER_TRAINER_DATA_SAMPLES_H
#define MUSTER_TRAINER_DATA_SAMPLES_H

#include <stdbool.h>
#include <stdint.h>

#include "common/error.h"
#include "common/job.h"

struct samples;

/* Arrays to be filled with one sample; s is model.seq_length. */
struct sample {
    int32_t *tokens;  /* [s] */
    int32_t *targets; /* [s] the token to be predicted there, or -1 for none */

    /* for BERT only */
    int32_t *types;  /* [s] 0 and 1: segment A and B */
    int32_t *length; /* [1] tokens before the padding */
    int32_t *order;  /* [1] 1 if the segments are swapped, else 0 */
};

/* The samples of data.train, and of data.valid, for the job's kind of model. The latter do not depend on the seed, and
 * are the same in every evaluation. */
struct samples *samples_create_train(const struct job *job, struct error *err);
struct samples *samples_create_valid(const struct job *job, struct error *err);

void samples_destroy(struct samples *samples);

uint64_t samples_per_epoch(const struct samples *samples);

/* Fills *into with sample `n` of the run. May be called by several threads at once. */
int samples_read(const struct samples *samples, uint64_t n, const struct sample *into, struct error *err);

/*
 * GPT's samples: the data set PREFIX.bin and PREFIX.idx as one sequence of T tokens, cut into floor((T - 1) /
 * seq_length) samples. Sample p has the tokens [p * seq_length, (p + 1) * seq_length], of which all but the last are
 * inputs and all but the first are targets. Documents and sentences are not separated. shuffled: for training, else in
 * the order of the file, for validation. CODE_DATA if there is no whole sample.
 */
struct samples *sampler_create(const char *prefix, const struct model_shape *shape, bool shuffled, uint64_t seed,
                               struct error *err);

/* Four different tokens below shape->vocab, which the data must not contain. */
struct bert_tokens {
    int32_t cls, sep, mask, pad;
};

struct bert_options {
    struct bert_tokens special;
    double mask_probability;  /* of a token to be predicted; 0 to 1 */
    double short_probability; /* of a sample to have a random shorter length; 0 to 1 */
};

/*
 * BERT's samples, made like Megatron-LM's: masked tokens and the order of sentences. The data must have sentences
 * (indexed.h, muster-data --sentences). A sample is
 *
 *   [CLS] A [SEP] B [SEP] [PAD]...
 *   types 0 up to the first [SEP], 1 up to the second, then 0
 *
 * Its text is a run of sentences of one document, at most seq_length - 3 tokens (packing.h). It is divided at the end
 * of one of its sentences, each with the same probability; a part of a single sentence is divided in the middle. In
 * half of the samples A is the first part and `order` is 0; in the others the two are swapped and `order` is 1.
 *
 * max(1, round(mask_probability * text)) tokens of the text, in n-grams (draws.h), have themselves as target. Of these
 * 80% become [MASK], 10% a token drawn evenly from those that are not special, and 10% stay. All other targets are -1.
 *
 * The texts are the same in every epoch. The division, the swap and the masks are drawn by (seed, n) and so differ
 * between epochs. If not shuffled, they are drawn by the place in the data, so that every evaluation of every run has
 * the same samples.
 *
 * shape->seq_length must be at least 5. CODE_CONFIG: the special tokens are not four different ones of the vocabulary.
 * CODE_DATA: the data is broken or has no sentences. A special token in the text is found by samples_read, CODE_DATA.
 */
struct samples *bert_sampler_create(const char *prefix, const struct model_shape *shape,
                                    const struct bert_options *options, bool shuffled, uint64_t seed,
                                    struct error *err);

/* For the implementations. */
struct samples_ops {
    int (*read)(const struct samples *samples, uint64_t n, const struct sample *into, struct error *err);
    void (*destroy)(struct samples *samples);
};

/* The first member of an implementation's struct. */
struct samples {
    const struct samples_ops *ops;
    uint64_t per_epoch;
};

#endif
