/*
 * report_step.h - srun's part of --muster-report: nodes by switch, the ranks of each, and their place in the mesh. Pure
 * but for `print`, which gets each line without newline.
 */
#ifndef MUSTER_SRUN_PLUGIN_REPORT_STEP_H
#define MUSTER_SRUN_PLUGIN_REPORT_STEP_H

#include <stdbool.h>

#include "srun-plugin/spank/step_layout.h"
#include "srun-plugin/place/order.h"
#include "srun-plugin/spank/report.h"

struct report_step {
    const struct step_layout *layout;
    const struct order *order; /* the one that the step has; NULL where it is not known */
    bool by_hostfile, by_map;  /* how it came about; neither: it is Slurm's, or the user's */
};

void report_step(const struct report_step *step, report_print *print);

/* The same as one line of JSON; srun(muster) in doc/spank_muster.8.scd has the keys. */
void report_step_json(const struct report_step *step, report_print *print);

#endif
