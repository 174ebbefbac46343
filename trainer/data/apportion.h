/*
 * apportion.h - which of several data sets each sample of a run comes from, so that after every n samples each set has
 * given n times its share, within one sample. Pure integer arithmetic.
 *
 * With shares w[i] > 0, which sum to 1, and c[i](n) samples of set i among the first n:
 *
 *     |c[i](n) - n w[i]| < 1    for every set and every n
 *
 * That is the chairman assignment problem (Tijdeman, "The chairman assignment problem", Discrete Mathematics 32, 1980),
 * which is also fair scheduling of one processor (Baruah, Cohen, Plaxton and Varvel, "Proportionate progress", 1996).
 * Sample j = 1, 2, ... of set i has a window: it is one of the first n samples only if n > (j - 1) / w[i], and always
 * if n >= j / w[i]. Giving each n to the open window that ends first meets all of them. To know c(n), this rule must go
 * through all n samples. But a run must be able to begin at any n.
 *
 * So the samples are divided into blocks of H >= 1 / min w, and the counts at the beginning n of a block are computed
 * directly. Let f[i] be the fraction of n w[i]. Each count is n w[i] rounded up (i is in the set S) or down, and S is
 * chosen so that |S| = sum of f, and
 *
 *   at least floor(sum of f over P) of P are in S, for P = the sets whose windows end first, of any number; and
 *   at most  ceil(sum of f over U)  of U are in S, for U = the sets whose windows began last, of any number.
 *
 * The first is Hall's condition for the windows after n, the second for those before n, so the rule above meets all
 * windows between two such beginnings. S exists: f itself is a fractional solution, and the constraints are two chains
 * of sets, whose matrix is totally unimodular (Edmonds, 1970). Going through P in its order, and taking at each whole
 * number of the sum the set not yet taken whose window began first, finds it. Blocks are independent of each other
 * because H w[i] >= 1: no window contains two beginnings.
 *
 * So any position is reached in at most H steps of O(sets), without memory of those before it: the state is one number.
 * Exact integers make it the same on every machine.
 */
#ifndef MUSTER_TRAINER_DATA_APPORTION_H
#define MUSTER_TRAINER_DATA_APPORTION_H

#include <stdint.h>

#include "common/error.h"

struct apportion;

/*
 * parts[count] are positive, at least JOB_PART_LEAST (common/job_data.h), and their sum is 1. They are rounded to
 * multiples of 2^-60: after 10^12 samples that is less than a millionth of a sample. The position is 0.
 */
struct apportion *apportion_create(const double *parts, int count, struct error *err);
void apportion_destroy(struct apportion *apportion);

/* Moves to position n < 2^62: before sample n. Takes as many steps as n is ahead of the present position or, if n is in
 * another block or behind, of the beginning of its block. */
void apportion_seek(struct apportion *apportion, uint64_t n);

/* The set that the sample at this position comes from. Moves to the next position. */
int apportion_next(struct apportion *apportion);

/* [count] how many of the samples before this position come from each set. */
const uint64_t *apportion_counts(const struct apportion *apportion);

#endif
