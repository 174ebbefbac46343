/*
 * report.h - the tables of --muster-report, a line at a time. Pure but for `print`, which gets each line without
 * newline.
 */
#ifndef MUSTER_SRUN_PLUGIN_REPORT_H
#define MUSTER_SRUN_PLUGIN_REPORT_H

#include <stddef.h>
#include <stdint.h>

#include "srun-plugin/spank/rank_plan.h"

typedef void report_print(const char *line);

/* Every variable of a rank, with its value and where it comes from, and what the fabric's profiles have to say. */
void report_variables(const struct rank_plan *plan, report_print *print);

/* The same as a line of JSON each, of less than 1,000 bytes but where a value is full of control characters. */
void report_variables_json(const struct rank_plan *plan, report_print *print);

/* "0-3,8,10-11" into text. What does not fit ends in "...". Returns text. */
char *report_ranks(const uint32_t *ranks, size_t count, char *text, size_t size);

#endif
