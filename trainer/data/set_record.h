/*
 * set_record.h - which data sets a checkpoint was trained with: a line in its job text for each.
 *
 *     #! data: 337261 tokens, 2426 documents, index 1a2b3c4d, corpus/web
 *
 * Sample n is another one if a set was replaced under its prefix. A set that was moved has another prefix, which the job
 * file shows. In a job file (common/job.h) such lines are comments, for every release.
 */
#ifndef MUSTER_TRAINER_DATA_SET_RECORD_H
#define MUSTER_TRAINER_DATA_SET_RECORD_H

#include "trainer/data/blend.h"

/* The job text with a line for each set of both blends; `valid` may be NULL. malloc'ed. */
char *set_record_append(const char *job_text, const struct blend *train, const struct blend *valid, struct error *err);

/*
 * Compares the sets of a blend, which may be NULL, with the lines of the same prefixes. A prefix without a line is not
 * compared. -1 with CODE_CONFIG and "data set corpus/web has ... tokens ..., it had ..." for the first that differs.
 */
int set_record_compare(const char *job_text, const struct blend *blend, struct error *err);

#endif
