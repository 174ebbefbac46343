/*
 * bind.h - which GPU, NICs and cores each rank of a node gets: a pure function of the node.
 *
 * GPU: local rank r gets the r-th GPU that the ranks see, which is what every trainer expects of LOCAL_RANK. With more
 * ranks than GPUs, rank r gets GPU r modulo their number.
 *
 * NICs: of the ports of the fabric's kind (node_fabric) that are up and have at least half the rate of the fastest,
 * those nearest to the GPU. GPUs with the same nearest NICs share them: NIC j goes to GPU j modulo GPUs; with fewer
 * NICs than GPUs, GPU i gets NIC i modulo NICs. A GPU that has no NIC below its switch although its neighbours do (a
 * dead port) shares one that is in use, not an idle one, which may be of another network. Ranks on one GPU get the same
 * NICs. For a rank without a GPU, its cores count.
 *
 * Cores: ranks whose GPUs are at one NUMA node share those of its cores that Slurm gave, in contiguous runs whose
 * lengths differ by at most one. A rank whose GPU has no known place, or no core beside it, gets a share of the cores
 * that are left, else of all. A rank that is alone and sees several GPUs will start a process for each (torchrun): it
 * gets all cores. On CPU nodes: all cores, in NUMA order, in contiguous runs. If the number of ranks is a multiple of
 * the number of NUMA nodes, the cores of each rank are of one NUMA node. If it is the reverse, each rank gets whole
 * NUMA nodes. Neither holds if Slurm gave more than twice as many cores of one NUMA node as of another.
 *
 * Memory is not bound: by first touch it is local to the cores. The report shows the NUMA nodes of the cores (mems).
 *
 * A binding that the user requested from Slurm is kept: then cpus and threads describe it, and notes report where it is
 * far from the GPU.
 */
#ifndef MUSTER_SRUN_PLUGIN_NODE_BIND_H
#define MUSTER_SRUN_PLUGIN_NODE_BIND_H

#include <stdio.h>

#include "srun-plugin/node/node.h"

struct bind_request {
    unsigned local_ranks;     /* at least 1 */
    const struct cpus *given; /* [local_ranks] CPUs that the ranks keep, since Slurm binds them already or for another
                                 reason; NULL: bind them */
    const size_t *gpus;       /* [gpu_count] that the ranks see, in their order (visible.h); NULL: all usable ones */
    size_t gpu_count;
};

struct bind_rank {
    int gpu;             /* index into node->gpus; -1 for none */
    size_t *nics;        /* indices into node->nics, the first is the one to prefer */
    size_t nic_count;    /* 0 when no port is up */
    enum node_path path; /* to them, from the GPU, else from its cores; PATH_SYSTEM without a NIC */
    struct cpus cpus;    /* that it is bound to; empty if the cores are not known */
    struct cpus mems;    /* kernel's numbers of the NUMA nodes of those cores */
    unsigned threads;    /* its cores, at least 1, for OMP_NUM_THREADS; for a rank alone with several GPUs, the share of
                          * each of its processes */
    bool shares_cores;   /* with other ranks: there are more ranks than cores */
};

struct bind_plan {
    struct bind_rank *ranks; /* [count] */
    size_t count;
    size_t gpu_count; /* that the ranks see */
    bool keeps_given; /* the ranks keep the CPUs given in the request: apply nothing */
    char **notes;     /* a line each: shortcomings of the binding */
    size_t note_count;
};

/* NULL and *err for 0 ranks (CODE_USAGE) or no memory. */
struct bind_plan *bind_plan_create(const struct node *node, const struct bind_request *request, struct error *err);

/* True if a rank uses the NIC. A NIC that none uses (the storage network's) is not for NCCL_IB_HCA. */
bool bind_plan_uses(const struct bind_plan *plan, size_t nic);

void bind_plan_destroy(struct bind_plan *plan);

/*
 * True if `all` are the CPUs that Slurm gave the step, without those of other jobs: without cgroups, nothing confines a
 * step. They are if they are no more than the CPUs of the step on the node according to Slurm (slurm_cpus). Slurm may
 * count cores (cpus_are_cores) where the kernel counts hardware threads. Pure.
 */
bool affinity_is_of_step(const struct cpus *all, const struct node *node, uint32_t slurm_cpus, bool cpus_are_cores);

/* ---- tables (node_report.c) -------------------------------------------------------------------------------------- */

/* The machine, its memory, GPUs and NICs, and its problems. */
void node_report(const struct node *node, FILE *out);

/* Rank, GPU, NICs, cores and threads, and the notes of the binding. */
void bind_report(const struct node *node, const struct bind_plan *plan, FILE *out);

#endif
