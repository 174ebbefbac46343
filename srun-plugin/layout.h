/*
 * layout.h - what slurmctld knows of a step: its nodes, the ranks on each, and where rank 0's node is reached.
 *
 * A short RPC each for layout_create and layout_find_head, and seldom one for layout_find_peer. Ask once, in srun; a
 * call in every task would be a call to slurmctld for every rank.
 */
#ifndef MUSTER_SRUN_PLUGIN_LAYOUT_H
#define MUSTER_SRUN_PLUGIN_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

#define LAYOUT_NAME_SIZE 256

struct layout_node {
    char name[LAYOUT_NAME_SIZE];
    uint32_t *ranks; /* ascending */
    size_t count;
};

struct layout {
    uint32_t job_id, step_id, ranks;
    struct layout_node *nodes; /* in the step's order */
    size_t count;
    char *list;                  /* their names as Slurm writes them, "n[1-4,7]", which of many nodes stays short */
    char head[LAYOUT_NAME_SIZE]; /* where rank 0's node is reached: its name, until layout_find_head */
    bool cpus_are_cores;         /* Slurm counts its cores as CPUs, not their hardware threads; false likewise */
};

/* NULL and *err when slurmctld does not answer or does not know the step. */
struct layout *layout_create(uint32_t job_id, uint32_t step_id, struct error *err);

/*
 * Makes head the address that Slurm itself reaches rank 0's node by (NodeAddr). -1 and *err when slurmctld does not
 * tell it (PrivateData=nodes): head stays the node's name.
 */
int layout_find_head(struct layout *layout, struct error *err);

/*
 * By what rank 0's node reaches another, after layout_find_head, into address; "" where there is none. A node's own
 * name, mostly, and slurmctld is not asked: where rank 0's node is reached by its name, so are the others; where it is
 * reached by a number, it finds its interface by that, and the other's name is for the case that it has none such.
 */
void layout_find_peer(const struct layout *layout, char *address, size_t size);

const struct layout_node *layout_node_of_rank_0(const struct layout *layout);

void layout_destroy(struct layout *layout);

/* The first name of a Slurm node list such as "n[3-5,9]"; -1 when it has none. */
int layout_first_name(const char *list, char *name, size_t size);

#endif
