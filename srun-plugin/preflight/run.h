/*
 * run.h - srun --muster-preflight: asks every node of a step that exists but has started no task, judges, and says
 * which nodes are bad.
 *
 * muster-preflight is started by a second srun beside the step (--overlap), in parallel on all nodes. Its time is
 * bounded: 20 s, and 1 s more for each 64 nodes.
 */
#ifndef MUSTER_SRUN_PLUGIN_PREFLIGHT_RUN_H
#define MUSTER_SRUN_PLUGIN_PREFLIGHT_RUN_H

#include <stdbool.h>

#include "common/job.h"
#include "srun-plugin/layout.h"
#include "srun-plugin/preflight/judge.h"

struct preflight {
    const char *program;         /* muster-preflight, as the nodes find it */
    const struct layout *layout; /* of the step */
    const struct job *job;       /* says where checkpoints go, and how large they are; NULL for no job file */
    void (*log)(const char *line);
};

/*
 * Logs a line a bad node, and one at the end. 0 and *verdict when the nodes were asked, to be destroyed by the caller;
 * -1 and *err (CODE_IO) when no srun could be started, or it ended before any node had said a word: then it is not the
 * nodes. When all of them are silent until time is over, they are all bad.
 */
int preflight_run(const struct preflight *preflight, struct verdict **verdict, struct error *err);

/* The names of the bad nodes, comma between; the caller frees it. NULL for want of memory. */
char *preflight_bad_names(const struct layout *layout, const struct verdict *verdict);

#endif
