/*
 * sampling.h - the choice of the next token from its logits.
 *
 * The distribution is softmax(logits / temperature). top_k keeps the k likeliest tokens; top_p then the fewest of
 * these, from the likeliest on, whose sum is at least top_p of theirs (nucleus sampling; Holtzman et al., arXiv
 * 1904.09751). Of equal tokens, the one with the lower id counts as the likelier. These are the definitions of Hugging
 * Face's transformers.
 */
#ifndef MUSTER_TRAINER_INFER_SAMPLING_H
#define MUSTER_TRAINER_INFER_SAMPLING_H

#include <stdbool.h>
#include <stdint.h>

struct sampling {
    double temperature; /* 0: the likeliest token */
    int top_k;          /* 0: all */
    double top_p;       /* 1: all */
};

/*
 * The token for a uniform number in [0, 1). Tokens where allowed is false do not count. Overwrites logits [count].
 * order [count] is scratch memory. Logits that are not finite are never chosen, unless there are no others: then -1.
 */
int32_t sample_next(const struct sampling *sampling, float *logits, const bool *allowed, int count, double uniform,
                    int32_t *order);

#endif
