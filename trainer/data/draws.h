/*
 * draws.h - the random choices for one item, such as one sample: a sequence of random words that is a function of
 * (seed, site, number of the item).
 *
 * Word i is word i % 4 of the Philox block with the counter {number, site, i / 4} and the key `seed`. All choices are
 * made with integers, so they are the same on every machine.
 */
#ifndef MUSTER_TRAINER_DATA_DRAWS_H
#define MUSTER_TRAINER_DATA_DRAWS_H

#include <stdbool.h>
#include <stdint.h>

struct draws {
    uint64_t seed, number;
    uint32_t site, next; /* next word */
    uint32_t block[4];   /* the block of word next - 1 */
};

/* `site` identifies the use of the choices: philox_site("data.bert.sample"). */
struct draws draws_start(uint64_t seed, uint32_t site, uint64_t number);

/* One of 0 to bound - 1; the probability of each is 1 / bound to within 2^-32. bound is at least 1. */
uint32_t draws_below(struct draws *draws, uint32_t bound);

/* True with this probability, from 0 (never) to 1 (always), to within 2^-32. */
bool draws_chance(struct draws *draws, double probability);

/*
 * A shuffled order without a list: for each (count, seed, epoch) a bijection of [0, count); index < count. Pure.
 *
 * A Feistel network over the smallest 2^(2k) >= count is a bijection with any round function; the round function is
 * Philox 4x32-10, keyed by the seed. A result outside [0, count) goes through the network again until it is inside
 * ("cycle walking", Black and Rogaway, "Ciphers with arbitrary finite domains", CT-RSA 2002), less than 4 times on
 * average.
 */
uint64_t permute(uint64_t index, uint64_t count, uint64_t seed, uint32_t epoch);

/*
 * Chooses the tokens of a sample that a masked language model predicts.
 *
 * They are chosen in n-grams of 1 to 3 consecutive tokens, like Megatron-LM's: the text's tokens are visited in random
 * order, and at each that is not chosen yet, a length n is drawn with a probability proportional to 1/n (6/11, 3/11,
 * 2/11). An n-gram that would exceed its segment, overlap one chosen before, or exceed the requested number, is
 * shortened. So exactly the requested number is chosen.
 */

struct mask_span {
    int first, length;
};

/* The number of `tokens` to be predicted: max(1, probability * tokens), rounded to the nearest. */
int mask_count(double probability, int tokens);

/*
 * Chooses `count` of the tokens 0 to a + b - 1, of which the first `a` are one segment and the other `b` the other;
 * 0 <= count <= a + b. Fills spans[count] in the order of their choice and returns their number, at most count.
 * order [a + b] is scratch; chosen [a + b] is set to true for the chosen tokens.
 */
int mask_choose(struct draws *draws, int a, int b, int count, int *order, bool *chosen, struct mask_span *spans);

#endif
