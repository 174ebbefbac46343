/*
 * blend.h - the data of a run: data.train or data.valid, one data set or several with weights (common/job_data.h).
 *
 * apportion.h chooses the set i of sample n of the run by the weights. The sample is sample c of that set, where c is
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
 *     #! data: 337261 tokens, 2426 documents, index 1a2b3c4d, corpus/web
 *
 * Sample n is another one if a set was replaced under its prefix. A set that was moved has another prefix, which the job
 * file shows. In a job file (common/job.h) such lines are comments, for every release.
 */

/* The job text with a line for each set of both blends; `valid` may be NULL. malloc'ed. */
char *set_record_append(const char *job_text, const struct blend *train, const struct blend *valid, struct error *err);

/*
 * Compares the sets of a blend, which may be NULL, with the lines of the same prefixes. A prefix without a line is not
 * compared. -1 with CODE_CONFIG and "data set corpus/web has ... tokens ..., it had ..." for the first that differs.
 */
int set_record_compare(const char *job_text, const struct blend *blend, struct error *err);

#endif
