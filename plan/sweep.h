/*
 * sweep.h - muster-plan sweep: measures a table of settings. muster-plan writes the rows into a directory, a job array
 * of etc/sweep.sbatch runs them, and muster-plan makes tables of their results. The directory has:
 *
 *     job.cfg     the job, without checkpoints, validations and schedules, which a few steps need not have
 *     rows        one line a row: "path=value" for each key that it sets, with blanks between. nodes=N and ranks=N are
 *                 the nodes and ranks of its step; batch.micro_batch=max is the largest one that fits
 *     row-N       the result of the N-th row, from 1, by sweep.sbatch: lines "key=value" with micro_batch (of max),
 *                 nodes, ranks, device, memory_mib, step (the one of median time, as metrics.jsonl has it) and note,
 *                 which is empty for a row that ran. A row without this file has not been run
 *     table.csv
 */
#ifndef MUSTER_PLAN_SWEEP_H
#define MUSTER_PLAN_SWEEP_H

#include <stdbool.h>
#include <stdio.h>

#include "plan/plan_machine.h"

enum {
    SWEEP_MOST_ROWS = 1000, /* Slurm's default MaxArraySize is 1001 */
    SWEEP_ROW_SIZE = 4096,
};

struct sweep_lines {
    char **text; /* text_add_line's */
    size_t count;
};

/* Of an option that may occur several times (option.h): appends its value to the lines at `to`. */
int sweep_take_line(const char *text, void *to);

/* Appends all combinations of the axes "path=value,value..."; the last axis varies fastest. */
int sweep_rows(const struct sweep_lines *axes, struct sweep_lines *rows, struct error *err);

/* A row's keys, as job_parse takes them. */
struct sweep_row {
    char text[SWEEP_ROW_SIZE], micro_batch[64];
    char *sets[SWEEP_ROW_SIZE / 2];
    int nsets, nodes, ranks; /* 0: as the batch job has them */
    bool largest;            /* batch.micro_batch=max */
};
void sweep_row_read(struct sweep_row *row, const char *line, double largest); /* in the place of "max" */

/*
 * Writes the tables of DIR: CSV in the columns of the published tables, which predict_table reads too, and Markdown of
 * the settings that differ between rows and the results, with a prediction beside unless `machine` is NULL.
 */
int sweep_tables(const char *dir, const struct plan_machine *machine, FILE *csv, FILE *markdown, struct error *err);

/* The subcommand; argv[0] is "sweep". Returns the exit code. */
int sweep_main(int argc, char **argv);

#endif
