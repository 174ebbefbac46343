/*
 * node_facts.h - what fabric profiles are told of a node (fabric.h), from what is seen of it (node.h). Pure.
 *
 *     struct fabric_facts facts;
 *     if (node_facts(node, &request, &facts, &err) == 0)
 *         plan = fabric_plan_create(fabric, &facts, &inputs, &err);
 *     node_facts_clear(&facts);
 *
 * Of the ports of the fabric's kind (node_fabric) those are live that a GPU of the step would talk through (bind.h): a
 * storage port beside no GPU is none of them. It is the step's GPUs that count and not its ranks, since one rank may
 * start a process for each GPU (torchrun). Of other kinds those are live that can be used at all.
 */
#ifndef MUSTER_SRUN_PLUGIN_NODE_FACTS_H
#define MUSTER_SRUN_PLUGIN_NODE_FACTS_H

#include "srun-plugin/bind.h"
#include "srun-plugin/fabric.h"

/* What Slurm says, and what is asked of the system. Strings and arrays are borrowed. */
struct node_facts_request {
    unsigned nodes, job_nodes; /* of the step; of the job in all its components */
    unsigned local_ranks;      /* of the step on this node, at least 1 */
    unsigned local_rank;
    unsigned cores;        /* that the rank may run on; 0 if not known */
    const size_t *gpus;    /* [gpu_count] indices into node->gpus, those that the ranks see (visible.h) */
    size_t gpu_count;      /* 0: the step has none */
    const char *cluster;   /* SLURM_CLUSTER_NAME; NULL if not known */
    const char *interface; /* that routes to the other nodes (route.h); NULL if not known */
    fabric_has_file *files;
    void *files_arg;
};

/*
 * Fills *facts. Its strings are those of node, request and the program, and are good as long as they are; its array of
 * NICs is its own, until node_facts_clear, which may also be called of a struct of zeros. -1 and *err (CODE_USAGE for 0
 * ranks, CODE_IO without memory), and *facts is of zeros.
 */
int node_facts(const struct node *node, const struct node_facts_request *request, struct fabric_facts *facts,
               struct error *err);
void node_facts_clear(struct fabric_facts *facts);

#endif
