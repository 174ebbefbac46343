/*
 * blend.h - the data of a run: data.train or data.valid, one data set or several with weights (common/job_data.h).
 *
 * The weights choose the set i of sample n of the run (apportion_next). The sample is sample c of that set, where c is
 * the number of samples of the run before n that came from set i. Each set has its own order and its own epochs
 * (samples.h). So sample n of the run is a function of (data, seed, n) only, whatever the ranks, and memory does not
 * grow with the samples.
 *
 * The first set uses the run's seed. So a run with one set has exactly the samples that samples.h gives for that seed.
 * The others have seeds of their own, so that two sets of the same size have different orders.
 */
#ifndef MUSTER_TRAINER_DATA_BLEND_H
#define MUSTER_TRAINER_DATA_BLEND_H

#include <stdbool.h>
#include <stdint.h>

#include "common/error.h"
#include "common/job.h"
#include "trainer/data/samples.h"

struct blend;

/* The data sets of data.train, or of data.valid, which the job must have set. Errors are those of samples.h. */
struct blend *blend_create(const struct job *job, bool train, struct error *err);
void blend_destroy(struct blend *blend);

/* A set of the blend. */
struct blend_set {
    const char *prefix;
    double part;      /* fraction of the samples, 0 to 1 */
    uint64_t samples; /* of an epoch */
    struct indexed_facts facts;
};

int blend_sets(const struct blend *blend);
struct blend_set blend_set(const struct blend *blend, int set);

/* A sample of the run: sample `number` of set `set`, as samples_read counts. */
struct drawn_sample {
    int set;
    uint64_t number;
};

/* Fills drawn[count] for the run's samples from `first` on. Not thread-safe. Fast if `first` lies shortly after the
 * last sample of the previous call (apportion_seek). */
void blend_locate(struct blend *blend, uint64_t first, long count, struct drawn_sample *drawn);

/* [sets] how many of the run's first n samples come from each set. Valid until the next call. Not thread-safe. */
const uint64_t *blend_counts(struct blend *blend, uint64_t n);

/* Fills *into with this sample. Thread-safe. */
int blend_read(const struct blend *blend, struct drawn_sample drawn, const struct sample *into, struct error *err);

/* ---- set records -------------------------------------------------------------------------------------------------- */

/*
 * Which data sets a checkpoint was trained with: a line in its job text for each.
 *
 *     #! data 2: 337261 tokens, 2426 documents, index 1a2b3c4d, blocks 5e6f7a8b, corpus/web
 *
 * "index" is indexed_facts.checksum, "blocks" is that of indexed_blocks. The first releases wrote "#! data: " and no
 * blocks. A line with another number than 2 is of a later release, and is not compared.
 *
 * Sample n is another one if a set was replaced under its prefix. A set that was moved has another prefix, which the job
 * file shows. In a job file (common/job.h) such lines are comments, for every release.
 */

/* The job text with a line for each set of both blends, malloc'ed; `valid` may be NULL. Reads blocks of all sets. */
char *set_record_append(const char *job_text, const struct blend *train, const struct blend *valid, struct error *err);

/*
 * Compares the lines in `before`, a checkpoint's job text, with those in `now`, for each set of a blend, which may be
 * NULL. A prefix without a line is not compared. -1 with CODE_CONFIG and "data set corpus/web was replaced: it has ...
 * tokens ..., and had ..." for the first that differs. -1 with CODE_OK and a text to log if no set differs, but a line
 * of the first releases has no blocks to compare.
 */
int set_record_compare(const char *before, const char *now, const struct blend *blend, struct error *err);

/*
 * ---- for blend.c: which set each sample comes from (apportion.c) ----
 *
 * After every n samples each set has given n times its share, within one sample. Pure integer arithmetic.
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
 * of sets, whose matrix is totally unimodular (Edmonds, 1970). To find it, go through the sets in the order in which
 * their windows end, and add up f: whenever the sum reaches a whole number, take, of those passed and not yet taken, the
 * one whose window began first. Blocks are independent because H w[i] >= 1: no window contains two beginnings.
 *
 * So any position is reached in at most H steps of O(sets), without memory of those before it: the state is one number.
 * Exact integers make it the same on every machine.
 */

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
