/*
 * report.h - the tables of --muster-report: srun's (report_step) and rank 0's (report_variables); the nodes' are in
 * report_node.h. Pure except for `print`, which gets one line at a time, without newline.
 */
#ifndef MUSTER_SRUN_PLUGIN_REPORT_H
#define MUSTER_SRUN_PLUGIN_REPORT_H

#include <stddef.h>
#include <stdint.h>

#include "srun-plugin/place/order.h"
#include "srun-plugin/spank/rank_plan.h"
#include "srun-plugin/place/step_layout.h"

typedef void report_print(const char *line);

/* Every variable of a rank with its value and its source, and the notes of fabric profiles. */
void report_variables(const struct rank_plan *plan, report_print *print);

/* The same, a line of JSON for each; less than 1,000 bytes unless a value is full of control characters. */
void report_variables_json(const struct rank_plan *plan, report_print *print);

struct report_step {
    const struct step_layout *layout;
    const struct order *order; /* of the step; NULL if not known */
    bool by_hostfile, by_map;  /* who made it; neither: Slurm or the user */
};

/* srun's part: nodes by switch, the ranks of each, and their place in the mesh. */
void report_step(const struct report_step *step, report_print *print);

/* The same as one line of JSON; srun(muster) in doc/spank_muster.8.scd has the keys. */
void report_step_json(const struct report_step *step, report_print *print);

/* "0-3,8,10-11" into text. What does not fit ends in "...". Returns text. */
char *report_ranks(const uint32_t *ranks, size_t count, char *text, size_t size);

#endif
