/*
 * job_check.h - what no single key can say: which keys must be there, and which values do not go together; private to
 * job.c.
 */
#ifndef MUSTER_COMMON_JOB_CHECK_H
#define MUSTER_COMMON_JOB_CHECK_H

#include "common/job_reader.h"

/*
 * Fills what the file leaves to other keys (sizes from the preset, BERT's tokens from the vocabulary, "auto" and
 * "compute" from what they stand for) and checks the job as a whole. Returns 0 or -1.
 */
int job_check(const struct job_reader *reader);

#endif
