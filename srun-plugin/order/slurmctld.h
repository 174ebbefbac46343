/*
 * slurmctld.h - asks slurmctld: the nodes of a step, the ranks on each, the address of rank 0's node, and the switches.
 *
 * step_layout_create, step_layout_ask_rank0_node and switch_tree_slurm_text each send one short RPC
 * (switch_tree_slurm_text two from Slurm 25.05 on); step_layout_find_peer rarely needs one. Call them in srun only: in
 * a task, each rank would send an RPC to slurmctld. For the plugin only.
 */
#ifndef MUSTER_SRUN_PLUGIN_ORDER_SLURMCTLD_H
#define MUSTER_SRUN_PLUGIN_ORDER_SLURMCTLD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"
#include "plan/hostlist.h"

/* The variable in which srun sends its handoff to the nodes (spank/handoff.h). Tasks do not see it. It is here
 * because preflight/ may not include handoff.h. */
#define HANDOFF_NAME "SLURM_MUSTER_STEP"

/* The variable that carries MUSTER_RANK_MAP to the tasks: srun --export=NONE passes variables of Slurm only. */
#define RANK_MAP_NAME "SLURM_MUSTER_RANK_MAP"

/* In each task: the release of the plugin that started it, since the plugin's file on a node may be another by now. */
#define PLUGIN_VERSION_NAME "MUSTER_PLUGIN_VERSION"

struct step_layout {
    uint32_t job_id, step_id, rank_count;
    struct hostlist *hosts; /* the names of the nodes, in the step's order */
    char *list;             /* the same as a Slurm host list: "n[1-4,7]" */
    size_t node_count;
    int *first, *ranks;                 /* node i has Slurm's ranks ranks[first[i]] .. ranks[first[i + 1] - 1] */
    int *node_of;                       /* [rank_count] for each of Slurm's ranks, the index of its node */
    size_t rank0_node;                  /* index of rank 0's node */
    char master_address[HOSTNAME_SIZE]; /* address of rank 0's node: its name, until step_layout_ask_rank0_node */
    bool cpus_are_cores; /* a Slurm CPU of rank 0's node is a core, not a hardware thread; step_layout_ask_rank0_node
                                 sets it, and it is taken to hold for all nodes */
};

/* NULL and *err when slurmctld does not answer or does not know the step. */
struct step_layout *step_layout_create(uint32_t job_id, uint32_t step_id, struct error *err);

/*
 * Asks slurmctld about rank 0's node: sets master_address to the address by which Slurm's own daemons reach it
 * (NodeAddr), and cpus_are_cores. -1 and *err if slurmctld does not give them (PrivateData=nodes): then master_address
 * stays the node's name.
 */
int step_layout_ask_rank0_node(struct step_layout *layout, struct error *err);

/*
 * After step_layout_ask_rank0_node: the address by which rank 0's node reaches another node of the step (the peer), or
 * "" if there is no other node. If master_address is the node's name or an IP address, the result is the peer's name,
 * and no RPC is sent.
 */
void step_layout_find_peer(const struct step_layout *layout, char *address, size_t size);

void step_layout_destroy(struct step_layout *layout);

/*
 * The switches that slurmctld knows, as text for switch_tree_create, to be freed; "" if Slurm knows none
 * (topology/flat). From Slurm 25.05 on, those of the partition's Topology= (topology.yaml). If it has none, if
 * `partition` is NULL, or if slurmctld hides partitions (PrivateData=partitions), those of the cluster's default
 * topology. NULL and *err if slurmctld does not answer.
 */
char *switch_tree_slurm_text(const char *partition, struct error *err);

#endif
