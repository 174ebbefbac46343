/*
 * generator.h - continues prompts, several at once, until each has ended.
 *
 * A step computes the next token of every sequence that runs, in one pass; a sequence that ends makes room for the
 * next prompt. A prompt is computed in passes of its own. So on a CPU a text depends on its prompt and the options
 * alone, not on the other prompts or on their number: see decoder.h. On a GPU the library's products may round
 * differently with another number of rows.
 *
 * The n-th generated token of each prompt uses element n of one random stream of the seed. So equal prompts get equal
 * texts; another seed gives another text.
 *
 * When a text has more tokens than the context (seq_length), the older half of the context is dropped, and the rest is
 * computed anew at its new positions, which are learned ones; likewise for a prompt that is longer.
 */
#ifndef MUSTER_TRAINER_INFER_GENERATOR_H
#define MUSTER_TRAINER_INFER_GENERATOR_H

#include "trainer/infer/inference.h"
#include "trainer/infer/sampling.h"
#include "trainer/infer/transcript.h"

enum { GENERATOR_MOST = DECODER_STEP }; /* sequences at once */

enum ending { ENDED_LENGTH, ENDED_DOCUMENT, ENDED_STOP };

/* A prompt and what follows it. */
struct continuation {
    struct token_list ids; /* the prompt's, at least one, and then the generated ones, without the one that ended it */
    size_t prompt;         /* how many are the prompt's */
    struct transcript transcript;
    enum ending ending;
};

struct generator_options {
    long tokens; /* most to generate for each prompt */
    struct sampling sampling;
    uint64_t seed;
    const char *const *stops; /* texts that end a text, and are not part of it */
    size_t nstops;
    const int32_t *stop_ids; /* tokens that do, besides the end of a document */
    size_t nstop_ids;
    int (*grown)(const struct continuation *which, void *arg, struct error *err); /* after each token; may be NULL */
    void *arg;
};

/* The decoder for these prompts, `batch` of them at once. */
struct decoder_sizes generator_sizes(const struct inference *inference, const struct generator_options *generation,
                                     const struct continuation *prompts, size_t count, int batch);

/* Continues all prompts. The inference has been loaded with these sizes. */
int generator_run(struct inference *inference, const struct generator_options *generation,
                  const struct decoder_sizes *sizes, struct continuation *prompts, size_t count, struct error *err);

void continuation_free(struct continuation *continuation);

#endif
