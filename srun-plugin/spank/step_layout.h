/*
 * step_layout.h - what slurmctld knows of a step: its nodes, the ranks on each, and where rank 0's node is reached.
 *
 * A short RPC each for step_layout_create and step_layout_find_head, and seldom one for step_layout_find_peer. Ask once, in srun; a
 * call in every task would be a call to slurmctld for every rank.
 */
#ifndef MUSTER_SRUN_PLUGIN_SPANK_STEP_LAYOUT_H
#define MUSTER_SRUN_PLUGIN_SPANK_STEP_LAYOUT_H

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
    char *list;                     /* their names as Slurm writes them, "n[1-4,7]", which of many nodes stays short */
    char head[STEP_NODE_NAME_SIZE]; /* where rank 0's node is reached: its name, until step_layout_find_head */
    bool cpus_are_cores;            /* Slurm counts its cores as CPUs, not their hardware threads; false likewise */
};

/* NULL and *err when slurmctld does not answer or does not know the step. */
struct step_layout *step_layout_create(uint32_t job_id, uint32_t step_id, struct error *err);

/*
 * Makes head the address that Slurm itself reaches rank 0's node by (NodeAddr). -1 and *err when slurmctld does not
 * tell it (PrivateData=nodes): head stays the node's name.
 */
int step_layout_find_head(struct step_layout *layout, struct error *err);

/*
 * By what rank 0's node reaches another, after step_layout_find_head, into address; "" where there is none. A node's own
 * name, mostly, and slurmctld is not asked: where rank 0's node is reached by its name, so are the others; where it is
 * reached by a number, it finds its interface by that, and the other's name is for the case that it has none such.
 */
void step_layout_find_peer(const struct step_layout *layout, char *address, size_t size);

const struct step_node *step_layout_node_of_rank_0(const struct step_layout *layout);

void step_layout_destroy(struct step_layout *layout);

/* The first name of a Slurm node list such as "n[3-5,9]"; -1 when it has none. */
int step_layout_first_name(const char *list, char *name, size_t size);

#endif
