/*
 * decoder.h - the forward pass of a GPT for text that grows: keys and values of earlier tokens are kept in a cache, so
 * that a new token costs one row of each product, and not one for each token before it.
 *
 * The cache has `slots`, each with room for one sequence. A pass takes rows; each is a token with its slot and its
 * position there. It stores their keys and values and computes their activations, from which decoder_logits and
 * decoder_scores compute outputs. To begin another sequence in a slot, give its first token position 0.
 *
 *     struct decoder_rows rows = {.count = 3, .tokens = ids, .slots = zeros, .positions = zero_to_two};
 *     decoder_run(decoder, &rows);
 *     decoder_logits(decoder, (int32_t[]){2}, 1, logits, &err);   // of what follows the third token
 *
 * On a CPU, a row's outputs do not depend on rows of other slots, bit by bit, as long as a pass of more than
 * DECODER_STEP rows has rows of one slot only: up to that number, products are computed few_rows (kernels.h).
 *
 * The formulas are those of block.h, without dropout.
 */
#ifndef MUSTER_TRAINER_MODEL_DECODER_H
#define MUSTER_TRAINER_MODEL_DECODER_H

#include "trainer/model/context.h"

enum { DECODER_STEP = 16 };

struct decoder_sizes {
    int slots;
    int room;    /* positions of a slot, rounded up to a multiple of CACHE_GROUP; seq_length is enough */
    int rows;    /* most of a pass */
    int outputs; /* most rows whose logits are computed at once; at most rows */
};

struct decoder;

/* Everything is borrowed. params[unit] is a unit's flat buffer, in the context's type. The context needs no tp group.
 * CODE_IO when the device has no memory. */
struct decoder *decoder_create(const struct context *context, const struct units *units, void *const *params,
                               const struct decoder_sizes *sizes, struct error *err);
void decoder_destroy(struct decoder *decoder);

/* The bytes that decoder_create allocates, and the kernels' workspace for its passes. Pure, but for the device's
 * traits. */
struct decoder_bytes {
    size_t cache, workspace; /* device memory */
    size_t host;             /* staging, only of a discrete device */
};

struct decoder_bytes decoder_predict(const struct context *context, const struct units *units,
                                     const struct decoder_sizes *sizes, const struct device_traits *traits);

/* Host memory, borrowed for the call. */
struct decoder_rows {
    int count;
    const int32_t *tokens, *slots, *positions; /* [count] */
};

void decoder_run(struct decoder *decoder, const struct decoder_rows *rows);

/* The logits [count, vocab] of what follows these rows of the last pass. Waits. count is at most sizes.outputs. */
int decoder_logits(struct decoder *decoder, const int32_t *rows, int count, float *logits, struct error *err);

struct token_score {
    double loss; /* -log of the target's probability, in nats */
    bool greedy; /* no other token is likelier */
};

/* What the model thinks of targets[i] after row rows[i] of the last pass, for any number of rows. Waits. */
int decoder_scores(struct decoder *decoder, const int32_t *rows, const int32_t *targets, int count,
                   struct token_score *scores, struct error *err);

#endif
