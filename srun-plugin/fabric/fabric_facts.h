/*
 * fabric_facts.h - the facts that fabric profiles match (fabric.h), from a node (node.h) and its binding (bind.h).
 * Pure.
 *
 *     struct fabric_facts facts;
 *     if (fabric_facts_fill(node, &request, &facts, &err) == 0)
 *         plan = fabric_plan_create(fabric, &facts, &inputs, &err);
 *     fabric_facts_clear(&facts);
 *
 * A port of the fabric's kind (node_fabric) is live if a GPU of the step would use it (bind.h): a storage port beside
 * no GPU is not. GPUs count and not ranks, since one rank may start a process for each GPU (torchrun). A port of
 * another kind is live if it can be used at all.
 */
#ifndef MUSTER_SRUN_PLUGIN_FABRIC_FABRIC_FACTS_H
#define MUSTER_SRUN_PLUGIN_FABRIC_FABRIC_FACTS_H

#include "srun-plugin/node/bind.h"
#include "srun-plugin/fabric/fabric.h"

/* Values from Slurm and from the system. Strings and arrays are borrowed. */
struct fabric_facts_request {
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
 * Fills *facts. Its strings belong to node, request and the program, and live as long as they do; its array of NICs is
 * its own until fabric_facts_clear, which also accepts a zeroed struct. -1 and *err (CODE_USAGE for 0 ranks, CODE_IO
 * when out of memory), and *facts is zeroed.
 */
int fabric_facts_fill(const struct node *node, const struct fabric_facts_request *request, struct fabric_facts *facts,
                      struct error *err);
void fabric_facts_clear(struct fabric_facts *facts);

#endif
