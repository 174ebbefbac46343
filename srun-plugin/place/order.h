/*
 * order.h - which node each rank of a step gets: the mesh of the job file, the nodes and counts that Slurm gave, and
 * the switches above them, put together for place.h. Pure.
 *
 * Without a job file the mesh is not known. Then the ranks of a node count as a tensor-parallel group and the nodes as
 * a ring of data parallelism, which puts the nodes in a row, switch by switch: what any program profits from whose
 * neighbours by rank talk most.
 *
 * Rank 0 stays on the node that Slurm would give it wherever the mesh allows that without a byte more over any switch
 * (rings can be turned, pipelines reversed): scripts take the first node of the job for MASTER_ADDR.
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
    const char *where;     /* what the switches were read from, for errors */
};

struct order {
    struct cluster *cluster;
    struct mesh mesh;
    bool guessed; /* the mesh is not a job file's */
    uint64_t bytes[PLACE_AXES];
    int *slots; /* [nodes] ranks of each */
    int *nodes; /* [world] the node of each rank of the mesh */
    struct place_report report;
    bool as_slurm; /* that is the order that Slurm has by itself (block distribution) */
};

/* NULL and *err: the switches contradict themselves, or the mesh does not go into these ranks. */
struct order *order_create(const struct order_request *ask, struct error *err);
void order_destroy(struct order *order);

/* Another order, nodes[world], in the place of the one that was chosen: for a report of what is. */
void order_replace(struct order *order, const int *nodes);

/*
 * The ranks that Slurm will give each of the job's nodes, as "8(x4)" or "8(x3),4", into text: of `tasks` (-n, or what
 * sbatch was asked for), `tasks_a_node` (--ntasks-per-node), and `counts` (SLURM_TASKS_PER_NODE), any of which may be
 * NULL, for `nodes` nodes. -1 where these do not settle it; then Slurm's own layout is to be waited for.
 */
int order_counts(int nodes, const char *tasks, const char *tasks_a_node, const char *counts, char *text, size_t size);

#endif
