/*
 * plugin.h - the map of the plugin, and what its files share.
 *
 * SPANK has five contexts: local (srun), allocator (sbatch, salloc), slurmd, remote (slurmstepd), job_script (prolog
 * and epilog). spank_muster.c has the options, the site's arguments and Slurm's callbacks, in the order of the
 * contexts. A callback only calls a function of one file, which reads from top to bottom in the order of these calls:
 *
 *     srun.c        srun, sbatch and salloc: fills struct handoff, which goes to the nodes
 *     slurmd.c      slurmd: saves what jobs may not see, and starts the epilog's work for what jobs have left
 *     slurmstepd.c  a step on a node: takes the handoff, reads the node, and sets up each rank
 *     epilog.c      a job has ended: drains what it left on the node
 *
 * A helper calls only helpers below it in this list:
 *
 *     srun_order.c      srun: orders the ranks (order/)
 *     srun_line.h       srun: the options on its command line
 *     report.h          srun, slurmstepd: --muster-report
 *     rank_setup.h      slurmstepd: a rank's CPUs, GPU, NICs and variables; srun: the variables of a step around it
 *     handoff.h         srun, slurmstepd: all that srun decides
 *     plugin.c          all: lines to the user, and the epilog's timeout
 *     trust.h           all: which files of its prefix the plugin may use
 *     as_user.h         slurmstepd, epilog: root starts a program as the job's user
 */
#ifndef MUSTER_SRUN_PLUGIN_SPANK_PLUGIN_H
#define MUSTER_SRUN_PLUGIN_SPANK_PLUGIN_H

#include <slurm/spank.h>

#include "common/job.h"
#include "srun-plugin/order/order.h"
#include "srun-plugin/order/slurmctld.h"
#include "srun-plugin/spank/handoff.h"
#include "srun-plugin/spank/rank_setup.h"
#include "srun-plugin/spank/srun_line.h"

/* The options of the user. Slurm passes them on to the nodes. */
struct request {
    bool on, report, json, preflight, exclude;
    char file[PATH_MAX]; /* --muster=FILE, as given; "" for none */
};

/* The arguments of the plugin in plugstack.conf. Slurm keeps their strings. */
struct site {
    const char *stage, *ckptd; /* for the epilog (epilog.h); ckptd NULL for the installed one */
    const char *stage_keep;    /* for what earlier jobs staged (epilog.h); "0": leave it */
    int epilog_seconds;
    const char *topology;   /* a file with the switches (order.h); NULL asks slurmctld */
    const char *profiles;   /* a directory that replaces the fabric profiles of muster; NULL for these */
    const char *fabric;     /* the directory of the site's profiles */
    const char *preflight;  /* the program muster-preflight; NULL for the installed one */
    const char *machine;    /* for parallel.mesh = "auto" (plan/cluster.h); NULL: not known */
    const char *prometheus; /* a directory in which runs write a file for Prometheus; NULL: none */
};

/*
 * The job file, which srun reads once. If it is wrong, srun_check refuses it, or srun_step if the step may be salloc's
 * interactive one; sbatch_check only warns.
 */
struct job_file {
    char path[PATH_MAX]; /* as given; "" if none was read */
    struct job parsed;
    struct error err; /* if it is wrong */
};

enum { LAUNCHER_NAME_SIZE = 32 };

#define SLURMD_STAGES "stage%s" /* for site.stage: what slurmd_cache_read has about these directories */

/* What one callback leaves for the next one in the same process. */
struct plugin {
    struct request request;
    struct site site;
    struct handoff handoff;
    struct { /* in srun */
        struct srun_line line;
        struct job_file file;
        const struct job *job; /* file.parsed; NULL without a file, or if it is wrong */
        struct job chosen; /* a copy of the job with the mesh that parallel.mesh = "auto" chose; its text NULL: none */
        int ranks, per_node; /* for which it was chosen */
        char *switches;      /* text for switch_tree_create; NULL: not read yet */
        bool user_places;    /* the user chose the nodes of ranks, or may have */
        struct order *order; /* the last one computed; applied only if handoff.by_hostfile or handoff.by_map */
        int hostfile;        /* if handoff.by_hostfile: the host file's descriptor, open until the step exists */
        char outer_cpus[32]; /* the SLURM_CPUS_PER_TASK around srun; "" for none */
        bool own_job;        /* this srun creates the Slurm job, which ends with it */
    } srun;
    struct { /* in slurmstepd */
        struct node_view view;
        struct file_variables conf; /* variables of nccl.conf */
        char *stages; /* the epilog's directories, described by slurmd (job_stage_describe, common/job.h); NULL: none */
        char launcher[LAUNCHER_NAME_SIZE]; /* of the launcher's socket (common/process/launcher.h); "": there is none */
        bool first;                        /* the step's node 0, which prints the warnings that all nodes would */
    } node;
};

/* ---- plugin.c ---------------------------------------------------------------------------------------------------- */

/* A line to the user: from srun at once, from a node through srun. */
void plugin_print(const char *line);
void plugin_warn(const struct error *err);

/* Prints each line of a text, and frees the text. NULL prints nothing. */
void plugin_print_lines(char *text);

/*
 * EpilogTimeout (Slurm 25.05 and later), or else PrologEpilogTimeout, as srun and slurmd have it in memory.
 * EPILOG_NO_TIMEOUT if neither is set, as by default, or this process does not know (slurmd.c).
 */
int plugin_timeout(void);

/* ---- the contexts; spank_muster.c has when each function is called ----------------------------------------------- */

/*
 * srun.c. srun_begin reads srun's command line and the job file, and orders the ranks by a host file. srun_check, or
 * srun_step, ends srun with 78 if the job file is wrong. srun_step asks slurmctld for the layout, and writes the
 * handoff. srun_end ends srun with handoff.exit_code.
 */
void srun_begin(struct plugin *plugin);
void srun_check(struct plugin *plugin);
void sbatch_check(struct plugin *plugin);
void srun_step(struct plugin *plugin, spank_t spank);
void srun_end(const struct plugin *plugin);

/* slurmd.c. slurmd_start saves what jobs may not see, and starts a process that drains what ended jobs left. Slurm
 * calls it again when it has read slurm.conf again (24.05 and later). slurmd_job_ended drains what this job left. */
void slurmd_start(const struct site *site);
void slurmd_job_ended(const struct site *site, spank_t spank);

/* slurmstepd.c. step_start_launcher is called as root. step_node, as the user and once a node, reads the node and the
 * fabric profiles. step_task, in each task, binds the rank and sets its variables, after Slurm bound it to its CPUs. */
void step_start_launcher(struct plugin *plugin, spank_t spank);
void step_node(struct plugin *plugin, spank_t spank);
void step_task(struct plugin *plugin, spank_t spank);

/* ---- srun_order.c ------------------------------------------------------------------------------------------------ */

/*
 * Call before srun reads its environment. If another order is better than Slurm's, writes it to a host file, sets
 * SLURM_HOSTFILE and SLURM_DISTRIBUTION=arbitrary, and sets handoff.by_hostfile.
 *
 * If the user chose, or may have chosen, the nodes of ranks (user_places), neither this nor srun_order_step changes the
 * order. In these cases only MUSTER_RANK_MAP is possible (srun_order_step):
 *
 *  - -N is on the command line. Slurm 23.11.4 and later refuse it with that distribution. (They accept SLURM_NNODES,
 *    which sbatch sets.)
 *  - The user set MASTER_ADDR, and rank 0 would move to another node.
 *  - srun has an option that srun_line.h does not know.
 *  - srun runs outside an allocation of several nodes, or inside a step.
 *  - The number of ranks on each node cannot be predicted (order_counts).
 */
void srun_order_begin(struct plugin *plugin);

/*
 * srun has read the host file: close it, and remove the variables that name it; step_task removes them from each task's
 * environment, which is a copy (handoff.h).
 */
void srun_order_close(struct plugin *plugin);

/*
 * Once the layout is known: set MUSTER_RANK_MAP and handoff.by_map if the user did not choose the nodes of ranks, and
 * the job file's mesh has less traffic in another order than Slurm's. Warns if Slurm did not follow the host file.
 */
void srun_order_step(struct plugin *plugin, const struct step_layout *layout);

/* For --muster-report, after srun_order_step: the nodes by switch, their ranks, and the place of each in the mesh. */
void srun_order_report(struct plugin *plugin, const struct step_layout *layout);

#endif
