/* plan_print.h - what muster-plan prints. */
#ifndef MUSTER_PLAN_PLAN_PRINT_H
#define MUSTER_PLAN_PLAN_PRINT_H

#include <stdio.h>

#include "plan/search.h"

/* What a search was asked, and what it found. */
struct plan_report {
    const struct job *job;
    const struct cluster *cluster;
    const struct stack *stack;
    int nodes, ranks;
    struct plan_results results;
};

/* The table of the best, where the first one's time goes, its rates by every convention, and a line for each obvious
 * other choice: how much slower and why, or what it would need. */
int plan_print_table(FILE *out, const struct plan_report *report, struct error *err);

/* One line: the nodes, and the fastest choice. */
void plan_print_line(FILE *out, const struct plan_report *report);

/* An object with "nodes", "ranks", "tried", "fitting" and "best", a list. */
void plan_print_json(FILE *out, const struct plan_report *report);

/* Writes the job file `path` anew with the choice as "#! --set" lines (common/job.h). */
int plan_write_job(const char *path, const struct job *job, const struct plan_choice *choice, struct error *err);

#endif
