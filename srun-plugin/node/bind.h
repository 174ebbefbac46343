/*
 * bind.h - which GPU, NICs and cores each rank of a node gets: a pure function of the node.
 *
 * GPU: local rank r gets the r-th GPU that the ranks see, which is what every trainer expects of LOCAL_RANK. With more
 * ranks than GPUs, rank r gets GPU r modulo their number.
 *
 * NICs: a rank gets the ports that are nearest to its GPU, or to its cores if it has no GPU. Only ports count that are
 * of the fabric's kind (node_fabric), are up, and have at least half the rate of the fastest.
 *   - GPUs with the same nearest NICs share them: NIC j goes to GPU j modulo GPUs. With fewer NICs than GPUs, GPU i
 *     gets NIC i modulo NICs. Ranks on one GPU get the same NICs.
 *   - If a GPU has no NIC below its switch but its neighbours do, its port is dead. It shares a NIC that is in use. An
 *     idle one may be of another network.
 *
 * Cores, of those that Slurm gave:
 *   - Ranks whose GPUs are at one NUMA node share its cores, in contiguous runs whose lengths differ by at most one.
 *   - A rank whose GPU has no known place, or no core beside it, gets a share of the cores that are left, else of all.
 *   - A single rank that sees several GPUs gets all cores, since it will start a process for each GPU (torchrun).
 *   - On CPU nodes the ranks share all cores, in NUMA order, in contiguous runs. If the number of ranks is a multiple
 *     of the number of NUMA nodes, the cores of each rank are of one NUMA node. If there are a multiple as many NUMA
 *     nodes as ranks, each rank gets whole ones. Neither holds if Slurm gave more than twice as many cores of one NUMA
 *     node as of another.
 *
 * Memory is not bound: by first touch it is local to the cores. The report shows the NUMA nodes of the cores (mems).
 *
 * A binding that the user requested from Slurm is kept. Then cpus and threads describe it, and notes say which ranks it
 * puts far from their GPU.
 */
#ifndef MUSTER_SRUN_PLUGIN_NODE_BIND_H
#define MUSTER_SRUN_PLUGIN_NODE_BIND_H

#include <stdio.h>

#include "srun-plugin/node/node.h"

struct bind_request {
    unsigned local_ranks;     /* at least 1 */
    const struct cpus *given; /* CPUs that each rank keeps, since Slurm binds it already or for another reason; NULL:
                                 bind them */
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

struct binding {
    struct bind_rank *ranks; /* [count] */
    size_t count;
    size_t gpu_count; /* that the ranks see */
    bool keeps_given; /* the ranks keep the CPUs given in the request: apply nothing */
    char **notes;     /* a line each: shortcomings of the binding */
    size_t note_count;
};

/* NULL and *err for 0 ranks (CODE_USAGE) or no memory. */
struct binding *binding_create(const struct node *node, const struct bind_request *request, struct error *err);

/* True if a rank uses the NIC. A NIC that none uses (the storage network's) is not for NCCL_IB_HCA. */
bool binding_uses(const struct binding *binding, size_t nic);

void binding_destroy(struct binding *binding);

/*
 * True if `all` are the CPUs that Slurm gave the step, and none of other jobs: without cgroups, nothing confines a
 * step. It is true if they are no more than slurm_cpus, the step's CPUs on the node according to Slurm. Slurm may count
 * cores (cpus_are_cores) where the kernel counts hardware threads. Pure.
 */
bool affinity_is_of_step(const struct cpus *all, const struct node *node, uint32_t slurm_cpus, bool cpus_are_cores);

/* ---- tables (node_report.c) -------------------------------------------------------------------------------------- */

/* The machine, its memory, GPUs and NICs, and its problems. */
void node_report(const struct node *node, FILE *out);

/* Rank, GPU, NICs, cores and threads, and the notes of the binding. */
void bind_report(const struct node *node, const struct binding *binding, FILE *out);

#endif
