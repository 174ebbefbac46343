/*
 * order.h - the rank order of a step. plan/place.h finds it, from the job file's mesh, the ranks of each node and the
 * switches. Slurm gets it as the text of a host file, the trainer as a rank map. Pure: spank/srun_order.c sets the
 * variables, and slurmctld.h asks for the nodes and switches.
 *
 * Without a job file the mesh is not known. The ranks of a node then count as a tensor-parallel group, and the nodes as
 * a data-parallel ring: node after node, switch by switch. This helps all programs in which neighbouring ranks exchange
 * the most data.
 *
 * Rank 0 stays on Slurm's first node where possible, since scripts use that node as MASTER_ADDR. The order is changed
 * for this only in ways that keep the traffic: the rings of dp are rotated, or the pipeline is reversed.
 */
#ifndef MUSTER_SRUN_PLUGIN_ORDER_H
#define MUSTER_SRUN_PLUGIN_ORDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "common/job.h"
#include "plan/place.h"

#define ORDER_BYTES_COMPUTED UINT64_MAX /* for this axis, order_create computes the bytes */

struct order_request {
    const struct job *job;      /* NULL: none */
    const char *nodes;          /* of the step, in Slurm's order: "n[1-4]" */
    const char *tasks_per_node; /* of the step: "8(x4)" */
    const char *topology;       /* the switches, for switch_tree_create */
    const char *where;          /* names their source in errors */
    const struct mesh *mesh;    /* NULL: the job's; dp = 0: as many replicas as fit */
    const uint64_t
        *bytes; /* [PLACE_AXES] of an edge of each axis; ORDER_BYTES_COMPUTED: the computed value; NULL: all computed */
};

struct order {
    struct switch_tree *switch_tree;
    struct mesh mesh;
    bool guessed; /* the mesh is not known */
    uint64_t bytes[PLACE_AXES];
    int *slots;   /* [nodes] ranks of each */
    int *node_of; /* [world] the node of each rank of the mesh */
    struct place_cost cost;
    bool keeps_slurm_order; /* order_create: no order is better than Slurm's block distribution, so node_of is that.
                               order_replace makes it false if it changes the order. */
};

/* NULL and *err if the switches are inconsistent or the mesh does not fit the ranks. */
struct order *order_create(const struct order_request *request, struct error *err);
void order_destroy(struct order *order);

/* Replace the order by node_of[world], to report the order that a step really has. */
void order_replace(struct order *order, const int *node_of);

/*
 * The text of a host file, a line with a host for each rank, to be freed. With it in SLURM_HOSTFILE and
 * SLURM_DISTRIBUTION=arbitrary, Slurm starts rank i on the host in line i. NULL and CODE_IO without memory.
 */
char *order_hostfile(const struct order *order, struct error *err);

/*
 * For MUSTER_RANK_MAP (common/mesh.h): map[slurm_rank] = its rank in the mesh, if Slurm placed its ranks on
 * slurm_nodes[slurm_rank]. The n-th of Slurm's ranks on a node becomes the n-th mesh rank of that node. So the local
 * ranks are the same in both orders. CODE_CONFIG unless the order and Slurm put the same number of ranks on each node.
 */
int order_rank_map(const struct order *order, const int *slurm_nodes, int *map, struct error *err);

/* The ranks by node: ranks[first[node] .. first[node + 1]) ascending. `first` holds nodes + 1, `ranks` world. */
void order_by_node(const int *node_of, int world, int nodes, int *first, int *ranks);

/*
 * Predicts how many ranks Slurm will start on each of `nodes` nodes, as "8(x4)" or "8(x3),4" in text. `ntasks` is -n's
 * value, or sbatch's; `ntasks_per_node` that of --ntasks-per-node; `tasks_per_node` is SLURM_TASKS_PER_NODE. Each may
 * be NULL. -1 if they are not enough: the numbers are then known when the step exists (step_layout_create).
 */
int order_counts(int nodes, const char *ntasks, const char *ntasks_per_node, const char *tasks_per_node, char *text,
                 size_t size);

/* ---- switches (topology.c) --------------------------------------------------------------------------------------- */

/*
 * The switches above the allocated nodes (plan/place.h), from text in the form of Slurm's topology.conf: that file
 * itself, a file of the site (topology= in plugstack.conf), or slurmctld's answer (switch_tree_slurm_text).
 *
 *     SwitchName=leaf1 Nodes=n[1-16]           a switch with nodes
 *     SwitchName=spine Switches=leaf[1-8]      a switch of switches
 *     BlockName=b1     Nodes=n[1-18]           topology/block: a block is a switch beneath the root
 *     RingName=r1      Nodes=n[1-4]            topology/ring and topology/torus3d (TorusName=): a ring is a block, and
 *                                              so is a torus; which of its nodes are neighbours is not used
 *
 * Keys are as in Slurm, in any case. "#" begins a comment, and a backslash at the end of a line continues it. The
 * output of `scontrol show topology` is accepted too. Its Level, LinkSpeed, BlockIndex, BlockSize(s), RingSize, Dims
 * and PlacementDims, lines of AggregatedBlock, and the Nodes of a switch that has Switches are ignored. Switches
 * without an allocated node under them are left out.
 *
 * switch_tree_create: the tree of `text` above the host list `nodes`. NULL or "" as text: all nodes beneath one root.
 * `where` names the text in errors: "topology.conf:7: ...". CODE_DATA: a node or a switch under two switches, a cycle
 * of switches, a node allocated twice, no node, an invalid host list, or an invalid line.
 */
struct switch_tree *switch_tree_create(const char *nodes, const char *text, const char *where, struct error *err);

/* The text of a file for switch_tree_create, to be freed. NULL and *err (CODE_IO), which names the file. */
char *switch_tree_read_text(const char *path, struct error *err);

/* ---- tables ------------------------------------------------------------------------------------------------------ */

/* The nodes by switch, with their ranks and where those are in the mesh. -1 with *err only without memory. */
int order_report_nodes(const struct order *order, FILE *out, struct error *err);

/* The traffic of a step at each depth, of this order, of Slurm's, and of sorted names. */
int order_report_traffic(const struct order *order, FILE *out, struct error *err);

/* "1.25 GB" (10^9), into text; returns text. */
char *order_bytes_text(uint64_t bytes, char *text, size_t size);

/* A depth as text: "across spine", "across the top", "1 level below", "within a node". Returns text. */
char *order_depth_text(const struct switch_tree *switch_tree, int depth, char *text, size_t size);

#endif
