/*
 * job_environment.h - the job file's group "environment": variables for `srun --muster` to set in every rank, where the
 * user's own environment does not. It has no keys of its own, and so no row in job_keys.c.
 */
#ifndef MUSTER_COMMON_JOB_ENVIRONMENT_H
#define MUSTER_COMMON_JOB_ENVIRONMENT_H

#include <libconfig.h>

#include "common/job_reader.h"

/* For job.c: names that can be set, and strings of one line. Returns 0 or -1. */
int job_environment_check(const struct job_reader *reader, const config_setting_t *group);

#endif
