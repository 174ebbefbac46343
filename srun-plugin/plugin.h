/*
 * plugin.h - what the parts of the SPANK plugin share. spank_muster.c has the options and Slurm's callbacks, which do
 * nothing but choose; spank_srun.c what they do in srun, sbatch and salloc; spank_step.c what they do in slurmstepd.
 */
#ifndef MUSTER_SRUN_PLUGIN_PLUGIN_H
#define MUSTER_SRUN_PLUGIN_PLUGIN_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

#include <slurm/spank.h>

#include "srun-plugin/preflight/option.h"

/* What the user asked for. Slurm forks the tasks from the process that filled this in, so they see it too. */
struct wish {
    bool on, report, json;
    char file[PATH_MAX]; /* --muster=FILE, as given; "" for none */
    struct preflight_wish preflight;
};

/* What the site says in plugstack.conf, behind the plugin's name. Strings are Slurm's, and stay. */
struct site {
    const char *stage, *ckptd; /* the epilog's: epilog.h; ckptd NULL for the one that was installed */
    int epilog_seconds;
    const char *topology;  /* a file with the switches (cluster.h); NULL asks slurmctld */
    const char *profiles;  /* a directory of fabric profiles in the place of those that muster ships; NULL for these */
    const char *fabric;    /* the directory of the site's own */
    const char *preflight; /* the program muster-preflight of the nodes; NULL for the one that was installed */
};

extern struct wish wish;
extern struct site site;

/* A line to the user: from srun at once, from a node through srun. */
void plugin_print(const char *line);

/* ---- spank_srun.c ------------------------------------------------------------------------------------------------ */

/* Before srun reads its options, all but its words: the last moment at which a host file can order the ranks. */
void srun_begin(void);

/* The options are known. Ends srun with 78 where the job file is wrong. */
void srun_check(void);
void sbatch_check(void);

/* The step exists, nothing runs yet. */
void srun_step(spank_t spank);

/* srun ends, if with an exit code of muster's then here. */
void srun_end(void);

/* ---- spank_step.c ------------------------------------------------------------------------------------------------ */

/* Once a node, as the user, before the tasks are forked, which inherit what this finds. */
void step_look(spank_t spank);

/* In each task. */
void step_task(spank_t spank);

#endif
