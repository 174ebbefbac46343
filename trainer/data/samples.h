/*
 * samples.h - the samples of one data set, for causal models and BERT. blend.h draws a run's samples from one or
 * several sets.
 *
 * Sample n of a set is a function of (data, seed, n) only. So any rank reads any sample at any time, a run resumes from
 * n alone, and the number of ranks changes nothing. Sample n belongs to epoch n / samples_per_epoch, and each epoch
 * takes every sample once, in its own order (draws.h).
 */
#ifndef MUSTER_TRAINER_DATA_SAMPLES_H
#define MUSTER_TRAINER_DATA_SAMPLES_H

#include <stdint.h>

#include "common/error.h"
#include "common/job.h"
#include "trainer/data/indexed.h"

struct samples;

/* Arrays to be filled with one sample; s is model.seq_length. */
struct sample {
    int32_t *tokens;  /* [s] */
    int32_t *targets; /* [s] the token to be predicted there, or -1 for none */

    /* for BERT only */
    int32_t *types;  /* [s] 0 and 1: segment A and B */
    int32_t *length; /* [1] tokens before the padding */
    int32_t *order;  /* [1] 1 if the segments are swapped, else 0 */

    /* for a GPT with data.reset only */
    int32_t *document_start; /* [s] position in the sample of the first token of this token's document */
};

/*
 * The samples of the data set `prefix` for the job's kind of model. For training they are shuffled: each epoch has an
 * order drawn from the seed. For validation they have the order of the file, and are the same in every evaluation.
 *
 * For a GPT the data is one stream of T tokens, cut into floor((T - 1) / seq_length) places. Each epoch visits every
 * place once, in its own order (validation: in the order of the file). The sample at place p has the seq_length + 1
 * tokens from p * seq_length on: all but the last are inputs, all but the first are targets. Documents and sentences
 * are not separated, unless data.reset is RESET_DOCUMENT. CODE_DATA if there is no whole sample.
 *
 * RESET_DOCUMENT: the tokens are the same. A document begins at each boundary of the index, and after each token
 * data.eod. Where the target would be the first token of a document, it is -1. document_start says for each token at
 * which position of the sample its document begins: 0 if it began in an earlier sample. Where documents end with
 * data.eod and nowhere else, this is what Megatron-LM's get_ltor_masks_and_position_ids does with eod_mask_loss,
 * reset_attention_mask and reset_position_ids.
 *
 * BERT's samples are made like Megatron-LM's: masked tokens and the order of sentences. The data must have sentences
 * (indexed.h, muster-data --sentences). A sample is
 *
 *   [CLS] A [SEP] B [SEP] [PAD]...
 *   types 0 up to the first [SEP], 1 up to the second, then 0
 *
 * Its text is a run of sentences of one document, at most seq_length - 3 tokens (see below). It is divided after one of
 * its sentences, each with the same probability; part of a single sentence is divided in the middle. In half of the
 * samples A is the first part and `order` is 0; in the others the two are swapped and `order` is 1.
 *
 * max(1, round(mask_probability * tokens of the text)) tokens are chosen, in n-grams (draws.h), and are their own
 * targets. Of these 80% become [MASK], 10% a token drawn evenly from those that are not special, and 10% stay. All
 * other targets are -1.
 *
 * The texts are the same in every epoch. The division, the swap and the masks are drawn from (seed, n), so they differ
 * between epochs. For validation they are drawn from the position in the data.
 *
 * CODE_CONFIG: model.seq_length is below 5, or the special tokens are not four different ones of the vocabulary.
 * CODE_DATA: the data is broken or has no sentences. samples_read fails with CODE_DATA if the text has a special token.
 */
struct samples *samples_create(const struct job *job, const char *prefix, bool shuffled, uint64_t seed,
                               struct error *err);

void samples_destroy(struct samples *samples);

uint64_t samples_per_epoch(const struct samples *samples);

/* Its data set; borrowed. */
const struct indexed *samples_data(const struct samples *samples);

/* Fills *into with sample `n`. Thread-safe. */
int samples_read(const struct samples *samples, uint64_t n, const struct sample *into, struct error *err);

/*
 * ---- for samples.c: divides a data set of sentences (indexed.h) into the texts of a BERT's samples (packing.c) ----
 *
 * A sample is a run of one document's tokens. The first sample of a document begins at its first token, and each other
 * one where the previous one ended. A sample takes whole sentences up to its target length. That is `most` tokens or,
 * with probability `short_probability`, a length drawn evenly from 2 to `most`, so that a model also learns short texts
 * (Devlin et al., arXiv 1810.04805, appendix A.2).
 *
 * The next sentence is cut if fewer than two sentences fit, or if those that fit have less than half of the target
 * length. Then the sample has exactly the target length, and the next sample begins with the rest of the sentence.
 * (BERT and Megatron-LM discard the rest.)
 *
 * A single token that is left at a document's end makes no sample. The last sample takes it if it has fewer than `most`
 * tokens; otherwise that sample gives up its own last token, so that two are left. So every token is in exactly one
 * sample, except for a document of one token and, if most = 2, the last token of a document with an odd number of them.
 *
 * The lengths are drawn by the sample's number, so sample p is a function of (data, most, short_probability, seed, p).
 * Creating a packing walks over all sentences once, and stores where every k-th sample begins. k is 1 at first, and
 * doubles when 2^20 of these landmarks are stored. So memory is at most 32 MiB for data of any size. To read a sample
 * is to walk from the landmark before it.
 */

struct packing;

struct packed {
    uint64_t first; /* the sample has the tokens [first, first + length) */
    int length;     /* 2 to most */
    int breaks;     /* number of places between two of its sentences */
};

/* Samples of at most `most` >= 2 tokens. `data` is borrowed. Fails with CODE_DATA if there is no sample. */
struct packing *packing_create(const struct indexed *data, int most, double short_probability, uint64_t seed,
                               struct error *err);
void packing_destroy(struct packing *packing);

uint64_t packing_samples(const struct packing *packing);

/* Reads sample p. breaks[0 .. packed->breaks), in rising order: a sentence ends after so many of its tokens. breaks has
 * room for `most`. May be called by several threads at once. */
int packing_read(const struct packing *packing, uint64_t p, struct packed *packed, int *breaks, struct error *err);

#endif
