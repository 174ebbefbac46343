/*
 * isolation.h - whether the ranks of a node can see each other's GPUs.
 *
 * NCCL moves data between GPUs of a node by CUDA's peer access and IPC, which need the neighbour's GPU to be visible.
 * --gpus-per-task (which implies --gpu-bind=per_task), --gpu-bind and --tres-bind hide it, and NCCL falls back to
 * shared memory or the network without a word (NVIDIA/nccl#1066, nccl-tests#300, open-mpi/ompi#11949). Such a rank also
 * has no GPU numbered LOCAL_RANK. Pure: what Slurm set comes in as an argument.
 */
#ifndef MUSTER_SRUN_PLUGIN_ISOLATION_H
#define MUSTER_SRUN_PLUGIN_ISOLATION_H

#include <stddef.h>

#define ISOLATION_LINE_SIZE 512

/* What is known of one rank. Strings are the variables' values, borrowed; NULL where one is not set. */
struct isolation {
    unsigned rank;
    unsigned local_ranks;      /* ranks of the step on this node */
    int node_gpus;             /* GPUs that the step has on this node (SLURM_GPUS_ON_NODE); -1 if not known */
    int openable;              /* GPUs whose device files this rank may open, past its cgroup; -1 if not known */
    const char *visible;       /* CUDA_VISIBLE_DEVICES, or ROCR_VISIBLE_DEVICES */
    const char *gpus_per_task; /* SLURM_GPUS_PER_TASK */
    const char *tres_per_task; /* SLURM_TRES_PER_TASK (23.11 and later): "cpu:4,gres/gpu:1" */
    const char *gpu_bind;      /* SLURM_GPU_BIND, or SLURM_TRES_BIND: "per_task:1", "gres/gpu:single:1" */
};

enum isolation_state {
    ISOLATION_NONE,   /* all GPUs of the step's on the node can be seen, or there are no neighbours, or nothing is known
                       */
    ISOLATION_MASKED, /* the neighbours' are hidden by the variable alone */
    ISOLATION_HIDDEN, /* and their device files are closed to the rank */
};

/*
 * Judges, and for anything but ISOLATION_NONE writes one line that names the cause and the flag that mends it. In
 * `line` (size ISOLATION_LINE_SIZE) is "" otherwise.
 */
enum isolation_state isolation_judge(const struct isolation *isolation, char line[ISOLATION_LINE_SIZE]);

/* How many devices a value of CUDA_VISIBLE_DEVICES names; it ends at the first -1, as CUDA reads it. -1 for NULL. */
int isolation_count(const char *visible);

#endif
