/*
 * report.h - the tables of --muster-report, a line at a time. Pure but for `print`, which gets each line without
 * newline.
 */
#ifndef MUSTER_SRUN_PLUGIN_REPORT_H
#define MUSTER_SRUN_PLUGIN_REPORT_H

#include <stddef.h>
#include <stdint.h>

#include "srun-plugin/env.h"
#include "srun-plugin/layout.h"

typedef void report_print(const char *line);

/* The nodes of the step with their ranks and rank 0's address. */
void report_layout(const struct layout *layout, report_print *print);

/* Every variable of a rank, with its value and where it comes from. */
void report_env(const struct task *task, const struct env_entry *entries, size_t count, report_print *print);

/* "0-3,8,10-11" into text. What does not fit ends in "...". Returns text. */
char *report_ranks(const uint32_t *ranks, size_t count, char *text, size_t size);

#endif
