/*
 * muster_topo.h - the commands of muster-topo, and what they share. Each command gets its arguments, with argv[0] its
 * name, prints to standard output, and returns the exit code, or -1 with *err, which the caller reports.
 */
#ifndef MUSTER_SRUN_PLUGIN_MUSTER_TOPO_H
#define MUSTER_SRUN_PLUGIN_MUSTER_TOPO_H

#include <jansson.h>
#include <stdio.h>

#include "srun-plugin/node/node.h"
#include "srun-plugin/order/order.h"

int topo_node(int argc, char **argv, struct error *err);
int topo_save(int argc, char **argv, struct error *err);

extern const char topo_usage[];

/*
 * Saves all files that node_read reads of a machine, so that it can read them elsewhere: from root ("/" or another
 * snapshot) to dir, which must be new or empty; else, or on I/O errors, -1 and *err.
 *
 * DIR/machine.xml is hwloc's export. Beside it are the files of sysfs and procfs under their own paths, as plain files,
 * and the three texts of sysfs.h. Of files with several lines only those that node_read searches for are saved: no
 * UUIDs of GPUs, and hardware addresses only in GIDs. machine.xml has the host's name, and serial numbers if root wrote
 * it; IP addresses are saved.
 */
int snapshot_save(const char *root, const char *dir, struct error *err);

/*
 * Draws a rank order: switches as a tree from left to right, nodes as boxes with their ranks, coloured by pipeline
 * stage, or by dp replica if there is one stage only. With many nodes the boxes are small and without text. The caller
 * checks the stream for errors (ferror).
 */
int place_svg(FILE *out, const struct order *order, struct error *err);

/* ---- topo_environment.c ------------------------------------------------------------------------------------------ */

/*
 * The variables that `srun --muster` would set for the ranks of a node, live or replayed: rank_setup.h for each rank.
 * MASTER_ADDR, MASTER_PORT and MUSTER_JOB_ID are not known without a job: their value is "(of the job)". A replayed
 * node has no user's environment; libraries and nccl.conf are searched below its root.
 */
struct environment_request {
    const char *root;      /* of node_read; NULL for a machine of which there is only hwloc's XML */
    unsigned nodes;        /* of the job and of its step; this node is the first */
    const char *cluster;   /* its name; NULL if not known */
    const char *interface; /* that routes to the other nodes; NULL: that of the default route */
    const char *profiles;  /* directory of the shipped profiles */
    const char *site;      /* directory of the site's profiles; NULL for none */
};

struct environment; /* of all ranks of the node */

/* `node` is borrowed, local_ranks at least 1. Broken profiles become notes. NULL and *err. */
struct environment *environment_create(struct node *node, unsigned local_ranks,
                                       const struct environment_request *request, struct error *err);
void environment_destroy(struct environment *environment);

/* A table to standard output: a line a variable, with the values of all ranks where they differ. */
void environment_print(const struct environment *environment);

/* {"profile", "notes", "ranks": [{NAME: {"value", "source", "why", "set"}}]}; NULL when memory is short. */
json_t *environment_json(const struct environment *environment);

#endif
