/*
 * score.h - what a model thinks of given tokens: many short pieces, packed into passes without padding.
 *
 * A span is a piece of text as tokens. The model reads tokens[0 .. length - 1), and is asked for the probability of
 * each of tokens[first .. length) after those before it in the span.
 */
#ifndef MUSTER_TRAINER_INFER_SCORE_H
#define MUSTER_TRAINER_INFER_SCORE_H

#include "trainer/infer/inference.h"

struct span {
    const int32_t *tokens; /* [length], borrowed */
    int length;            /* at most seq_length + 1 */
    int first;             /* from 1 to length - 1 */
    double loss;           /* the result: sum of -log p of the tokens asked for, in nats */
    bool greedy;           /* and whether each was the likeliest */
};

/* The decoder for these spans, as many of them at once as make a pass long enough. */
struct decoder_sizes score_sizes(const struct span *spans, size_t count);

/*
 * Computes all results. The inference has been loaded with score_sizes of them. progress, which may be NULL, is called
 * after each pass with the number of spans done.
 */
int score_spans(struct inference *inference, const struct decoder_sizes *sizes, struct span *spans, size_t count,
                void (*progress)(size_t done, void *arg), void *arg, struct error *err);

/*
 * The spans of a text for its perplexity: together they ask for each token once.
 *
 * stride 0: disjoint pieces of seq_length tokens, each with the token before it, and the last one with as many as fit.
 * The text must begin with a token that is not part of it, such as the end of a document: it is read and not asked for.
 * So lm-evaluation-harness scores wikitext (loglikelihood_rolling).
 *
 * stride > 0 (and at most seq_length): windows of seq_length tokens that begin `stride` tokens apart; each asks for its
 * tokens that earlier windows did not have. The first token of the text is read only. So does Hugging Face's guide
 * "Perplexity of fixed-length models". With stride = seq_length, windows would not ask for their first tokens; they
 * begin a token earlier instead, as with stride 0.
 *
 * At least 2 tokens. *spans is malloc'ed. Returns their number; 0 with CODE_IO when out of memory.
 */
size_t score_windows(const int32_t *tokens, size_t count, int seq_length, int stride, struct span **spans,
                     struct error *err);

/* The words of a text, as lm-evaluation-harness counts them for wikitext: len(re.split(r"\s+", text)). So white space
 * at the beginning or the end counts as one word more. UTF-8; other bytes are no white space. */
size_t score_words(const char *text, size_t bytes);

#endif
