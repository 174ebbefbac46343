/*
 * handoff.h - helper of srun and slurmstepd: what srun decides about a step, but for the rank order. It reaches
 * slurmstepd in the variable SLURM_MUSTER_STEP: a format number and then KEY=VALUE, with a blank before each:
 *
 *     1 complete=1 head=10.0.0.1 peer=n2 head_node=0 port=17499 user_binds=1 job_file=/u/gpt.cfg env=12:NCCL_DEBUG=INFO
 *
 * The rank order is not in it: Slurm has it from the host file, or srun hands a map to the nodes (srun_order.c). A map
 * can be as long as a variable may be, so it has one of its own, RANK_MAP_NAME (order/slurmctld.h). Tasks get it as
 * MUSTER_RANK_MAP (slurmstepd.c), which trainer/comm/comm_mpi.c reads.
 *
 * srun copies its environment for the tasks, then calls slurm_spank_local_user_init (our srun_step), then adds its
 * environment to the copy. So a variable that is set in this callback reaches the tasks: the handoff and the map. A
 * variable that is unset there stays in the copy; step_task removes it on the node.
 *
 * A key is the name of a field of struct handoff, or the one in the field's comment. In values, control characters,
 * blanks, DEL and "%" are written as %XX. Unknown keys are ignored, so that a newer srun can add some. It has no list
 * of nodes: 8,192 names would not fit into a variable.
 *
 * In a heterogeneous step, slurm_spank_local_user_init can change the environment of one component only. The others get
 * the handoff that srun_check wrote in slurm_spank_init_post_opt, in which `step_known` is false.
 */
#ifndef MUSTER_SRUN_PLUGIN_SPANK_HANDOFF_H
#define MUSTER_SRUN_PLUGIN_SPANK_HANDOFF_H

#include <limits.h>
#include <stdbool.h>

#include "common/error.h"
#include "plan/auto.h"
#include "srun-plugin/fabric/fabric.h"
#include "srun-plugin/order/slurmctld.h"

#define HANDOFF_FORMAT       1
#define HANDOFF_MOST         (96 * 1024) /* bytes of the text; Linux starts no program with a variable of 128 KiB */
#define HANDOFF_ADDRESS_SIZE 256

struct handoff {
    bool step_known; /* key "complete": written by srun_step, when the step existed, even if slurmctld gave no layout */
    char master_address[HANDOFF_ADDRESS_SIZE]; /* key "head": address of rank 0's node; "" if not known */
    char peer[HANDOFF_ADDRESS_SIZE];           /* address of another node of the step; "" if there is none */
    unsigned rank0_node;                       /* key "head_node": index of rank 0's node in the step */
    unsigned port;           /* for MASTER_PORT: was free on rank 0's node; 0 if srun could not test it */
    unsigned exit_code;      /* key "refused": exit code for all tasks, since preflight found a bad node; 0 to run */
    bool cpus_inherited;     /* SLURM_CPUS_PER_TASK was set by sbatch or salloc, not by this srun */
    bool user_binds;         /* the user asked Slurm for a binding */
    bool by_hostfile;        /* muster set SLURM_HOSTFILE and SLURM_DISTRIBUTION */
    bool by_map;             /* muster set MUSTER_RANK_MAP */
    bool cpus_are_cores;     /* Slurm counts cores as CPUs on rank 0's node, which has hardware threads */
    char job_file[PATH_MAX]; /* absolute; "" for none */
    char mesh[AUTO_SIZE];    /* for MUSTER_MESH (plan/auto.h); "" unless parallel.mesh is "auto" */
    struct file_variables variables; /* group "environment" of the job file */
};

/* The text of SLURM_MUSTER_STEP, to be freed. NULL and *err: CODE_CONFIG if longer than HANDOFF_MOST, CODE_IO. */
char *handoff_text(const struct handoff *handoff, struct error *err);

/* Read such a text. On failure *handoff is empty: CODE_DATA if the text has another format number, CODE_IO. */
int handoff_read(const char *text, struct handoff *handoff, struct error *err);

/* Remove the job file and its variables from the handoff, and free them. */
void handoff_clear(struct handoff *handoff);

#endif
