/*
 * packing.h - which tokens of a data set of sentences (indexed.h) make up a sample of a BERT.
 *
 * A sample is a run of one document's tokens. From the document's first token on, each sample begins where the one
 * before it ended and takes whole sentences up to a target length: `most` tokens, or, with probability
 * `short_probability`, a length drawn evenly from 2 to `most`, so that a model also learns short texts (Devlin et al.,
 * arXiv 1810.04805, appendix A.2). Where fewer than two sentences fit, or what fits is less than half of the target,
 * the next sentence is cut: the sample has exactly the target length, and the sample after it begins with the rest.
 * Nothing is thrown away, where BERT and Megatron-LM overshoot and cut the surplus off: every token is in exactly one
 * sample. One token alone at a document's end makes no sample; it goes with the sample before, or that one leaves it
 * one more. (What is lost: documents of one token; and with most = 2, one token of a document with an odd number.)
 *
 * The lengths are drawn by the sample's number, so what sample p holds is a function of (data, most, short_probability,
 * seed, p). Creating a packing walks over all sentences once, and keeps the place where every k-th sample begins: k is
 * 1 at first, and doubles when there are 2^20 of these landmarks. So memory is at most 32 MiB however large the data
 * is; reading a sample walks on from the landmark before it.
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
    uint64_t first; /* the sample has the tokens [first, first + length) of the row */
    int length;     /* 2 to most */
    int breaks;     /* places between two sentences of it */
};

/* Samples of at most `most` tokens, which is at least 2. `data` is borrowed. Fails with CODE_DATA if there is none. */
struct packing *packing_create(const struct indexed *data, int most, double short_probability, uint64_t seed,
                               struct error *err);
void packing_destroy(struct packing *packing);

uint64_t packing_samples(const struct packing *packing);

/* Sample p. breaks[0 .. packed->breaks) rise between 0 and length: a sentence ends after so many of its tokens. breaks
 * has room for `most`. Safe to call from several threads. */
int packing_read(const struct packing *packing, uint64_t p, struct packed *packed, int *breaks, struct error *err);

/*
 * Where the sentences of a text end, by a rule that knows no language.
 *
 * A sentence ends after one of . ! ? and the quotes and brackets " ' ) ] that close it, if white space follows, and at
 * a blank line. The white space after it belongs to it: the next begins with the next byte that is none. So every byte
 * of a text is in exactly one sentence. White space is ASCII's, and a blank line may hold some. The rule divides after
 * "Dr." and knows nothing of full stops outside ASCII; text that a better tool has divided, with a blank line after
 * each sentence, is divided there too.
 */

/* What is known of the sentence under way: {0} at the beginning of a text. */
struct sentences {
    enum { SENTENCE_EMPTY, SENTENCE_TEXT, SENTENCE_STOP, SENTENCE_LINE_END, SENTENCE_OVER } state;
};

/*
 * Of the next `count` bytes of the text, in chunks of any size: how many still belong to the sentence under way. If
 * *ended, it ends after them, and the next begins with what is left, which is not nothing.
 */
size_t sentences_next(struct sentences *sentences, const char *bytes, size_t count, bool *ended);

#endif
