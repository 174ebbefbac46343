/*
 * order.h - the rank order of a step: calls place.h with the job file's mesh, Slurm's nodes and counts, and the
 * switches. Pure.
 *
 * Without a job file the mesh is not known. Then the ranks of a node count as a tensor-parallel group, and the nodes as
 * a data-parallel ring: node after node, switch by switch. Any program gains whose neighbouring ranks talk most.
 *
 * Rank 0 stays on Slurm's first node if that moves no byte more over any switch (a ring can be turned, a pipeline
 * reversed), since scripts use the first node of the job as MASTER_ADDR.
 */
#ifndef MUSTER_SRUN_PLUGIN_ORDER_H
#define MUSTER_SRUN_PLUGIN_ORDER_H

#include <stdbool.h>

#include "common/job.h"
#include "srun-plugin/place/place.h"

struct order_request {
    const struct job *job; /* NULL: none */
    const char *nodes;     /* of the step, in Slurm's order: "n[1-4]" */
    const char *tasks;     /* of the step on each: "8(x4)" */
    const char *topology;  /* the switches (cluster.h) */
    const char *where;     /* names their source in errors */
};

struct order {
    struct cluster *cluster;
    struct mesh mesh;
    bool guessed; /* no job file told the mesh */
    uint64_t bytes[PLACE_AXES];
    int *slots; /* [nodes] ranks of each */
    int *nodes; /* [world] the node of each rank of the mesh */
    struct place_report report;
    bool as_slurm; /* it is Slurm's own order (block distribution) */
};

/* NULL and *err if the switches are inconsistent or the mesh does not fit the ranks. */
struct order *order_create(const struct order_request *ask, struct error *err);
void order_destroy(struct order *order);

/* Replace the order by nodes[world], to report what a step really has. */
void order_replace(struct order *order, const int *nodes);

/*
 * Predict how many ranks Slurm will start on each of `nodes` nodes, as "8(x4)" or "8(x3),4" in text, from `tasks` (-n, or
 * sbatch's), `tasks_per_node` (--ntasks-per-node) and `counts` (SLURM_TASKS_PER_NODE); each may be NULL. -1 if they do
 * not determine it: then only the step's layout tells.
 */
int order_counts(int nodes, const char *tasks, const char *tasks_per_node, const char *counts, char *text, size_t size);

#endif
