/*
 * cluster.h - the tree of switches above the allocated nodes.
 *
 * Read from text in the form of Slurm's topology.conf (its own file, a site's file of the same form, or what
 * cluster_slurm.h gets from slurmctld):
 *
 *     SwitchName=leaf1 Nodes=n[1-16]           a switch with nodes
 *     SwitchName=spine Switches=leaf[1-8]      a switch of switches
 *     BlockName=b1     Nodes=n[1-18]           topology/block: a block is a switch beneath the root
 *
 * Keys are as in Slurm, in any case; "#" begins a comment and a backslash at the end of a line continues it. The output of
 * `scontrol show topology` is accepted too: Level, LinkSpeed, BlockIndex, BlockSize(s) and lines of AggregatedBlock are
 * ignored, and so are the Nodes of a switch that has Switches. Switches without an allocated node under them are left
 * out.
 *
 * The root is switch 0: the one switch above all others, or else a switch without a name that joins the topmost ones.
 * Nodes that no switch names are under the root.
 *
 * Depth: the root has 0, its children 1, ... Two nodes *meet* at the depth of the lowest switch above both; 0 is the
 * longest path. `levels` is one more than the depth of the deepest switch, and means "within a node".
 */
#ifndef MUSTER_SRUN_PLUGIN_CLUSTER_H
#define MUSTER_SRUN_PLUGIN_CLUSTER_H

#include <stddef.h>

#include "common/error.h"
#include "srun-plugin/place/hostlist.h"

struct cluster_switch {
    char *name; /* "" for a root that only joins */
    int parent; /* smaller than its own index; -1 for the root */
    int depth;
    int nodes; /* allocated nodes beneath it */
};

struct cluster {
    char **nodes; /* in the order of the allocation, which is Slurm's */
    int *above;   /* [node_count] the switch right above a node */
    int node_count;
    struct cluster_switch *switches; /* parents before children, siblings as in the text */
    int switch_count;
    int levels;
    int *path; /* [node_count][levels] the switch at each depth above a node; -1 below the last */
};

/*
 * The tree of `text` above `nodes`. NULL or "" as text: all nodes beneath one root. `where` names the text in errors:
 * "topology.conf:7: ...". CODE_DATA: a node or a switch under two switches, a ring of switches, a node allocated twice,
 * no node.
 */
struct cluster *cluster_create(const struct hostlist *nodes, const char *text, const char *where, struct error *err);
void cluster_destroy(struct cluster *cluster);

/* The text of a file for cluster_create, to be freed. NULL and *err (CODE_IO), which names the file. */
char *cluster_read_text(const char *path, struct error *err);

/*
 * The switches that slurmctld knows, as text for cluster_create, to be freed; "" if Slurm knows none (topology/flat).
 * One RPC: ask once, in srun. NULL and *err if slurmctld does not answer. In cluster_slurm.c, for the plugin only.
 */
char *cluster_slurm_text(struct error *err);

/* The depth at which two nodes meet; `levels` when they are one. */
int cluster_meet(const struct cluster *cluster, int a, int b);

/* "spine/leaf1", the switches above a node from below the root on; what does not fit is cut. Returns text. */
char *cluster_path_name(const struct cluster *cluster, int node, char *text, size_t size);

#endif
