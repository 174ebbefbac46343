/*
 * plugin.h - what Slurm's callbacks share, and the way of the data:
 *
 *     srun    srun_begin, srun_check and srun_step fill one struct step_plan (step_plan.h), which goes to the nodes
 *     node    step_node reads the plan and the node, before Slurm forks the tasks, which inherit both
 *     rank    step_task applies them to its task
 *
 * spank_muster.c has the options and the callbacks, which only choose; spank_srun.c what happens in srun, sbatch and
 * salloc; spank_step.c what happens in slurmstepd.
 */
#ifndef MUSTER_SRUN_PLUGIN_SPANK_PLUGIN_H
#define MUSTER_SRUN_PLUGIN_SPANK_PLUGIN_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

#include <slurm/spank.h>

#include "common/job.h"
#include "srun-plugin/spank/node_view.h"
#include "srun-plugin/spank/srun_order.h"
#include "srun-plugin/spank/step_plan.h"

/* The options of the user. Slurm passes them on to the nodes. */
struct request {
    bool on, report, json, preflight, exclude;
    char file[PATH_MAX]; /* --muster=FILE, as given; "" for none */
};

/* The arguments of the plugin in plugstack.conf. Slurm keeps their strings. */
struct site {
    const char *stage, *ckptd; /* for the epilog (epilog.h); ckptd NULL for the installed one */
    int epilog_seconds;
    const char *topology;  /* a file with the switches (cluster.h); NULL asks slurmctld */
    const char *profiles;  /* a directory that replaces the fabric profiles of muster; NULL for these */
    const char *fabric;    /* the directory of the site's profiles */
    const char *preflight; /* the program muster-preflight; NULL for the installed one */
};

/* The job file, which srun reads once. */
struct job_once {
    bool read, good;
    char path[PATH_MAX]; /* as given */
    struct job job;      /* where good */
    struct error err;    /* where read and not good */
};

/* What one callback leaves for the next one in the same process. */
struct plugin {
    struct request request;
    struct site site;
    struct step_plan plan;
    struct { /* in srun */
        struct srun_line line;
        struct job_once job;
        struct srun_order order;
        char outer_cpus[32]; /* the SLURM_CPUS_PER_TASK around srun; "" for none */
        bool own_job;        /* srun allocates the job itself, and ends it when it ends */
    } srun;
    struct { /* in slurmstepd */
        struct node_view view;
        struct fabric_givens job, conf; /* variables of the job file, and of nccl.conf */
    } node;
};

/* A line to the user: from srun at once, from a node through srun. */
void plugin_print(const char *line);

/* ---- spank_srun.c ------------------------------------------------------------------------------------------------ */

/* Before srun reads its options and its environment: the last moment at which a host file can order the ranks. */
void srun_begin(struct plugin *plugin);

/* The options are known. Ends srun with 78 if the job file is wrong. */
void srun_check(struct plugin *plugin);
void sbatch_check(struct plugin *plugin);

/* The step exists, nothing runs yet. */
void srun_step(struct plugin *plugin, spank_t spank);

/* srun ends; with plan.refused as exit code if that is set. */
void srun_end(const struct plugin *plugin);

/* ---- spank_step.c ------------------------------------------------------------------------------------------------ */

/* Once a node, as the user, before the tasks are forked. */
void step_node(struct plugin *plugin, spank_t spank);

/* In each task. */
void step_task(struct plugin *plugin, spank_t spank);

#endif
