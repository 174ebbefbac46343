/*
 * packing.h - divides a data set of sentences (indexed.h) into the texts of a BERT's samples.
 *
 * A sample is a run of one document's tokens. From the document's first token on, each sample begins where the previous
 * one ended and takes whole sentences up to a target length: `most` tokens, or, with probability `short_probability`, a
 * length drawn evenly from 2 to `most`, so that a model also learns short texts (Devlin et al., arXiv 1810.04805,
 * appendix A.2). If fewer than two sentences fit, or those that fit have less than half of the target length, the next
 * sentence is cut: the sample has exactly the target length, and the next sample begins with the rest. Every token is
 * in exactly one sample, whereas BERT and Megatron-LM discard the surplus of too long samples. A single token at a
 * document's end makes no sample: the sample before takes it, or leaves it one more token. (Not used: documents of one
 * token; and with most = 2, one token of a document with an odd number.)
 *
 * The lengths are drawn by the sample's number, so sample p is a function of (data, most, short_probability, seed, p).
 * Creating a packing walks over all sentences once, and stores the place where every k-th sample begins: k is 1 at
 * first, and doubles when there are 2^20 of these landmarks. So memory is at most 32 MiB for data of any size; reading
 * a sample walks on from the landmark before it.
 */
#ifndef MUSTER_TRAINER_DATA_PACKING_H
#define MUSTER_TRAINER_DATA_PACKING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"
#include "trainer/data/indexed.h"

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

/*
 * Divides a text into sentences, by a rule without knowledge of languages.
 *
 * A sentence ends after one of . ! ? and the quotes and brackets " ' ) ] that close it, if white space follows, and at
 * a blank line. The white space after it belongs to it, so every byte of a text is in exactly one sentence. White space
 * is ASCII's, and a blank line may contain some. The rule divides after "Dr." and does not know full stops outside
 * ASCII. A better tool can divide the text by a blank line after each sentence.
 */

/* The state of the current sentence: {0} at the beginning of a text. */
struct sentences {
    enum { SENTENCE_EMPTY, SENTENCE_TEXT, SENTENCE_STOP, SENTENCE_LINE_END, SENTENCE_OVER } state;
};

/*
 * Returns how many of the next `count` bytes of the text, in chunks of any size, belong to the current sentence. If
 * *ended, it ends after them, and the next sentence begins with the rest, which is not empty.
 */
size_t sentences_next(struct sentences *sentences, const char *bytes, size_t count, bool *ended);

#endif
