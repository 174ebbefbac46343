/*
 * bert_sampler.h - BERT's samples, as Megatron-LM makes them: masked tokens and the order of sentences.
 *
 * The data is one of sentences (indexed.h, muster-data --sentences). A sample is
 *
 *   [CLS] A [SEP] B [SEP] [PAD]...
 *   types 0 up to the first [SEP], 1 up to the second, then 0
 *
 * Its text is a run of sentences of one document, at most seq_length - 3 tokens (packing.h). It is divided in two at
 * the end of one of its sentences, each with the same probability; if it is a part of one sentence only, in the middle.
 * In half of the samples A is the first part and `order` is 0; in the others the two are swapped and `order` is 1.
 *
 * max(1, round(mask_probability * text)) tokens of the text, in n-grams (draws.h), have themselves as target. Of these
 * 80% become [MASK], 10% a token drawn evenly from those that are not special, and 10% stay. All other targets are -1.
 *
 * The texts are the same in every epoch. Where a text is divided, whether it is swapped, and what is masked, is drawn
 * by (seed, n) and so differs between epochs. A sequential sampler draws by its place in the data and the seed 0: every
 * evaluation, of every run, is of the same samples.
 */
#ifndef MUSTER_TRAINER_DATA_BERT_SAMPLER_H
#define MUSTER_TRAINER_DATA_BERT_SAMPLER_H

#include "trainer/data/samples.h"

/* Four different tokens below shape->vocab, which the data must not contain. */
struct bert_tokens {
    int32_t cls, sep, mask, pad;
};

struct bert_options {
    struct bert_tokens special;
    double mask_probability;  /* of a token to be predicted; 0 to 1 */
    double short_probability; /* of a sample to be of a random shorter length; 0 to 1 */
};

/*
 * The data set PREFIX.bin and PREFIX.idx, in shuffled order: for training. shape->seq_length is at least 5.
 * CODE_CONFIG: the special tokens are not four different ones of the vocabulary. CODE_DATA: the data is broken, or does
 * not tell sentences apart. A special token in the text is found when it is read: samples_read fails with CODE_DATA.
 */
struct samples *bert_sampler_create(const char *prefix, const struct model_shape *shape,
                                    const struct bert_options *options, uint64_t seed, struct error *err);

/* The same in the order of the file, every epoch: for validation. */
struct samples *bert_sampler_create_sequential(const char *prefix, const struct model_shape *shape,
                                               const struct bert_options *options, struct error *err);

#endif
