/*
 * step_layout.h - a step as slurmctld knows it: its nodes, the ranks on each, and the address of rank 0's node.
 *
 * step_layout_create and step_layout_find_head are a short RPC each, step_layout_find_peer rarely is one. Call them in
 * srun only: in a task, each rank would send an RPC to slurmctld.
 */
#ifndef MUSTER_SRUN_PLUGIN_PLACE_STEP_LAYOUT_H
#define MUSTER_SRUN_PLUGIN_PLACE_STEP_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

#define STEP_NODE_NAME_SIZE 256

struct step_node {
    char name[STEP_NODE_NAME_SIZE];
    uint32_t *ranks; /* ascending */
    size_t count;
};

struct step_layout {
    uint32_t job_id, step_id, ranks;
    struct step_node *nodes; /* in the step's order */
    size_t count;
    char *list;                     /* their names as Slurm writes them: "n[1-4,7]" */
    char head[STEP_NODE_NAME_SIZE]; /* address of rank 0's node: its name, until step_layout_find_head */
    bool cpus_are_cores;            /* Slurm counts that node's cores as CPUs, not hardware threads; false until then */
};

/* NULL and *err when slurmctld does not answer or does not know the step. */
struct step_layout *step_layout_create(uint32_t job_id, uint32_t step_id, struct error *err);

/*
 * Set head to the address by which Slurm's own daemons reach rank 0's node (NodeAddr). -1 and *err if slurmctld does not
 * give it (PrivateData=nodes): head stays the node's name.
 */
int step_layout_find_head(struct step_layout *layout, struct error *err);

/*
 * After step_layout_find_head: the address by which rank 0's node reaches another one, or "" if there is none. If Slurm
 * reaches rank 0's node by its name, or by a number, it is that other node's name: no RPC.
 */
void step_layout_find_peer(const struct step_layout *layout, char *address, size_t size);

const struct step_node *step_layout_node_of_rank_0(const struct step_layout *layout);

void step_layout_destroy(struct step_layout *layout);

/* The first name of a Slurm node list such as "n[3-5,9]"; -1 when it has none. */
int step_layout_first_name(const char *list, char *name, size_t size);

#endif
