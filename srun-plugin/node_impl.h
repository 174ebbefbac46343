/*
 * node_impl.h - the parts of node_read, for node*.c only. Each fills its part of node and returns 0, or -1 when memory
 * is short (node_error says so).
 */
#ifndef MUSTER_SRUN_PLUGIN_NODE_IMPL_H
#define MUSTER_SRUN_PLUGIN_NODE_IMPL_H

#include "srun-plugin/node.h"

/* Room for one more element behind *count of them; NULL when memory is short. The new one is zeroed, and counted. */
void *node_grow(void *array_pointer, size_t *count, size_t size);

/* Frees what node holds, not node itself. */
void node_clear(struct node *node);

/* Adds a line to problems; lost when memory is short. */
void node_problem(struct node *node, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The PCI devices of a machine and the bridges above them. */
struct node_tree;

/*
 * Fills in cores, memory, CPUs and GPUs (address, ids and NUMA node) of a machine's text (machine.h), which is cut up.
 * -1 when it is none, and node is as before.
 */
int node_tree_read(struct node *node, struct node_tree **tree, char *text);
void node_tree_close(struct node_tree *tree);

int node_find_numa(const struct node *node, const struct node_tree *tree, const char *pci);
enum node_path node_find_path(const struct node *node, const struct node_tree *tree, size_t gpu, size_t nic);

/* From sysfs. */
void node_read_gpu_states(struct node *node, const char *root); /* after node_tree_read */
void node_read_hidden(struct node *node, const char *root);     /* of those that are usable or hidden, which */
void node_check_gone(struct node *node); /* after both: which GPUs of an older look are there no more */
int node_read_rdma(struct node *node, const char *root);
int node_read_netdevs(struct node *node, const char *root);      /* after node_read_rdma */
void node_read_addresses(struct node *node, const char *root);   /* of its nics */
void node_describe_netdevs(struct node *node, const char *root); /* that of node_describe */
void node_check_nics(struct node *node, const char *root);

#endif
