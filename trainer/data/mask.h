/*
 * mask.h - which tokens of a sample a masked language model has to predict.
 *
 * They are chosen in n-grams of 1 to 3 tokens in a row, as Megatron-LM does: the text's tokens are visited in random
 * order, and where one is not chosen yet, a length n is drawn with a probability proportional to 1/n (6/11, 3/11,
 * 2/11). An n-gram that would reach beyond its segment, into one chosen before, or over the wanted number, is
 * shortened to what there is room for. So exactly the wanted number is chosen, whatever it is.
 */
#ifndef MUSTER_TRAINER_DATA_MASK_H
#define MUSTER_TRAINER_DATA_MASK_H

#include <stdbool.h>

#include "trainer/data/draws.h"

struct mask_span {
    int first, length;
};

/* How many of `tokens` are to be predicted: max(1, probability * tokens), rounded to the nearest. */
int mask_count(double probability, int tokens);

/*
 * Chooses `count` of the tokens 0 to a + b - 1, of which the first `a` are one segment and the other `b` the other;
 * 0 <= count <= a + b. Fills spans[count] in the order of their choice and returns their number, at most count.
 * order [a + b] and chosen [a + b] are room to work in; chosen ends as true for the chosen ones.
 */
int mask_choose(struct draws *draws, int a, int b, int count, int *order, bool *chosen, struct mask_span *spans);

#endif
