/*
 * node_impl.h - the parts of node_read, private to node*.c. Each fills its part of node and returns 0, or -1 when out
 * of memory.
 */
#ifndef MUSTER_SRUN_PLUGIN_NODE_NODE_IMPL_H
#define MUSTER_SRUN_PLUGIN_NODE_NODE_IMPL_H

#include "common/text.h"
#include "srun-plugin/node/node.h"

/* Appends a zeroed element to an array of *count, and returns it; NULL when out of memory. */
void *node_grow(void *array_pointer, size_t *count, size_t size);

/* Frees the members of node, not node itself, and zeroes it. */
void node_clear(struct node *node);

/* Adds a line to problems, as printf writes it; lost when out of memory. */
#define node_problem(node, ...) text_add_line(&(node)->problems, &(node)->problem_count, __VA_ARGS__)

/*
 * Reads cores, memory, CPUs, the PCI tree and GPUs (address, ids and NUMA node) from the text of machine.h, which it
 * modifies, into a zeroed node. -1 if the text is not one of those; node is then zeroed again.
 */
int node_read_text(struct node *node, char *text);

int node_find_numa(const struct node *node, const char *pci);
enum node_path node_find_path(const struct node *node, size_t gpu, size_t nic);

/* From sysfs. */
void node_read_gpu_states(struct node *node, const char *root); /* after node_read_text */
void node_read_hidden(struct node *node, const char *root);     /* again, which GPUs are usable and which hidden */
void node_check_gone(struct node *node); /* after both: GPUs that have gone since slurmd read the machine */
int node_read_rdma(struct node *node, const char *root);
int node_read_netdevs(struct node *node, const char *root);      /* after node_read_rdma */
void node_read_addresses(struct node *node, const char *root);   /* of its nics */
void node_describe_netdevs(struct node *node, const char *root); /* for node_describe */
void node_check_nics(struct node *node, const char *root);

/*
 * The GID of a RoCE port that routes: of type RoCE v2 and with an IPv4 address (::ffff:a.b.c.d). Its index depends on
 * the addresses of the node: NCCL_IB_GID_INDEX=3 is right on many nodes, not on all. NCCL 2.21 and later find it
 * themselves. Returns the lowest index of such a GID of `hca` ("mlx5_0:1"; port 1 without ":1"), or -1.
 */
int node_gid_index(const char *root, const char *hca);

#endif
