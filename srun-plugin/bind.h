/*
 * bind.h - which GPU, NICs, cores and memory each rank of a node gets: a pure function of what the node is.
 *
 * GPU: local rank r gets the r-th GPU that the ranks see, which is what every trainer expects of LOCAL_RANK. With more
 * ranks than GPUs, rank r gets GPU r modulo their number.
 *
 * NICs: of the fabric's kind (node_fabric), up, and of at least half the rate of the fastest: those nearest to the GPU.
 * GPUs with the same nearest NICs share them out: NIC j goes to the (j modulo GPUs)-th of them, and where there are
 * fewer NICs than GPUs, GPU i gets NIC i modulo NICs. A GPU that has none beneath its switch while its neighbours have
 * (a dead port) joins one that is in use, not an idle one, which may be of another network. Ranks on one GPU get the
 * same. For a rank without GPU, its cores count.
 *
 * Cores: the ranks whose GPUs are on one NUMA node share its cores, those that Slurm gave, in contiguous runs whose
 * lengths differ by at most one. A rank whose GPU says nothing of its place, or has no core beside it, gets a share of
 * what nobody else took, else of everything. One rank alone that sees several GPUs will start a process for each
 * (torchrun) and gets all cores. CPU nodes: all cores, in NUMA order, in contiguous runs; where the ranks
 * are a multiple of the NUMA nodes (or the NUMA nodes of the ranks), no run crosses a border, unless Slurm gave more
 * than twice as many cores of one NUMA node as of another.
 *
 * Memory: the NUMA nodes of the rank's cores.
 *
 * A binding that the user asked Slurm for stands: then cpus and threads tell what it is, and notes where it is far from
 * the GPU.
 */
#ifndef MUSTER_SRUN_PLUGIN_BIND_H
#define MUSTER_SRUN_PLUGIN_BIND_H

#include "srun-plugin/node.h"

struct bind_request {
    unsigned local_ranks; /* at least 1 */
    /* [local_ranks] what the user's own binding left to each; NULL when Slurm does not bind. */
    const struct cpus *given;
    const size_t
        *gpus; /* [gpu_count] those that the ranks see, in their order (visible.h); NULL: all that are usable */
    size_t gpu_count;
};

struct bind_rank {
    int gpu;             /* index into node->gpus; -1 for none */
    size_t *nics;        /* indices into node->nics, the first is the one to prefer */
    size_t nic_count;    /* 0 when no port is up */
    enum node_path path; /* to them, from the GPU, else from its cores; PATH_SYSTEM without a NIC */
    struct cpus cpus;    /* where it may run; empty when nothing is known of cores */
    struct cpus mems;    /* kernel's numbers of the NUMA nodes of those cores */
    unsigned threads;    /* cores that it really has, at least 1: what OMP_NUM_THREADS should say; of one rank that
                          * sees several GPUs, each process's share */
    bool shares_cores;   /* more ranks than cores: others run on the same */
};

struct bind_plan {
    struct bind_rank *ranks; /* [count] */
    size_t count;
    size_t gpu_count; /* that the ranks see */
    bool by_user;     /* Slurm binds already: apply nothing */
    char **notes;     /* a line each: what is not as good as it could be */
    size_t note_count;
};

/* NULL and *err for 0 ranks (CODE_USAGE) or no memory. */
struct bind_plan *bind_plan_create(const struct node *node, const struct bind_request *request, struct error *err);

/* Does a rank talk through that NIC? Those that none uses (the storage's) are no part of the fabric: not for
 * NCCL_IB_HCA. */
bool bind_plan_uses(const struct bind_plan *plan, size_t nic);

void bind_plan_destroy(struct bind_plan *plan);

#endif
