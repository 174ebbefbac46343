/*
 * step_plan.h - what srun finds out about a step, once, for all its nodes and ranks.
 *
 *     srun   reads its command line, the job file and slurmctld's answers into the plan (spank_srun.c)
 *     node   gets the plan in the variable SLURM_MUSTER_STEP and adds what only a node can see (view.h)
 *     rank   applies the result to itself (spank_step.c)
 *
 * The variable is a format number and then KEY=VALUE, with a blank before each:
 *
 *     1 head=10.0.0.1 peer=n2 head_node=0 port=17499 user_binds=1 job_file=/u/gpt.cfg env=12:NCCL_DEBUG=INFO
 *
 * In values, bytes up to the blank, DEL and "%" are written as %XX. Unknown keys are ignored, so that a newer srun can
 * add some. There is no list of nodes in it: 8,192 names would not fit into a variable. Slurm passes variables that
 * begin with SLURM_ even with srun --export=NONE. Tasks do not see the variable.
 *
 * Slurm lets the plugin finish the plan of one component of a heterogeneous step. The others get what srun knew before
 * the step existed: then `complete` is false.
 */
#ifndef MUSTER_SRUN_PLUGIN_SPANK_STEP_PLAN_H
#define MUSTER_SRUN_PLUGIN_SPANK_STEP_PLAN_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

#include "common/error.h"

#define STEP_PLAN_NAME         "SLURM_MUSTER_STEP"
#define STEP_PLAN_FORMAT       1
#define STEP_PLAN_MOST         (96 * 1024) /* bytes of the text; Linux starts no program with a variable of 128 KiB */
#define STEP_PLAN_ADDRESS_SIZE 256

struct step_variable {
    char *name, *value;
    int line; /* of the job file */
};

struct step_plan {
    bool complete;                     /* srun wrote it once the step existed */
    char head[STEP_PLAN_ADDRESS_SIZE]; /* address of rank 0's node; "" if not known */
    char peer[STEP_PLAN_ADDRESS_SIZE]; /* address of another node of the step; "" if there is none */
    unsigned head_node;                /* index of rank 0's node in the step */
    unsigned port;                     /* for MASTER_PORT: was free on rank 0's node; 0 if srun could not test it */
    unsigned refused;                  /* exit code for all tasks, since preflight found a bad node; 0 to run */
    bool cpus_inherited;               /* SLURM_CPUS_PER_TASK was set by sbatch or salloc, not by this srun */
    bool user_binds;                   /* the user asked Slurm for a binding */
    bool by_hostfile;                  /* muster set SLURM_HOSTFILE and SLURM_DISTRIBUTION */
    bool by_map;                       /* muster set MUSTER_RANK_MAP */
    bool cpus_are_cores;               /* Slurm counts cores as CPUs on rank 0's node, which has hardware threads */
    char job_file[PATH_MAX];           /* absolute; "" for none */
    struct step_variable *variables;   /* group "environment" of the job file */
    size_t variable_count;
};

/* Append a variable. -1 and *err (CODE_IO) without memory. */
int step_plan_add(struct step_plan *plan, const char *name, const char *value, int line, struct error *err);

/* The text of SLURM_MUSTER_STEP, to be freed. NULL and *err: CODE_CONFIG if longer than STEP_PLAN_MOST, CODE_IO. */
char *step_plan_text(const struct step_plan *plan, struct error *err);

/* Read such a text. On failure *plan is empty: CODE_DATA if the text has another format number, CODE_IO. */
int step_plan_read(const char *text, struct step_plan *plan, struct error *err);

/* Remove the job file and its variables from the plan. */
void step_plan_clear(struct step_plan *plan);

#endif
