/*
 * rank_plan.h - all decisions for one rank on its node: its CPUs, the GPU and NICs near them, and its variables. Pure:
 * the node, the environment and Slurm's facts are arguments, so that muster-topo can show the same for a saved machine.
 */
#ifndef MUSTER_SRUN_PLUGIN_RANK_PLAN_H
#define MUSTER_SRUN_PLUGIN_RANK_PLAN_H

#include "srun-plugin/node/bind.h"
#include "srun-plugin/spank/env.h"
#include "srun-plugin/fabric/fabric.h"
#include "srun-plugin/node/visible.h"
#include "srun-plugin/spank/node_view.h"

/* Everything is borrowed. */
struct rank_ask {
    struct task task;             /* head and bound_* are filled in by rank_plan_create */
    const struct node_view *view; /* node->allowed and GPU states are this task's own (node_read_own) */
    struct affinity affinity;
    bool affinity_known; /* affinity was read */
    bool user_binds;     /* the user asked Slurm for a binding */
    bool may_bind;       /* srun knew what the user asked for; else nothing is bound */
    bool cpus_are_cores;
    unsigned job_nodes;
    const struct fabric_givens *job, *conf; /* variables of the job file, and of nccl.conf */
    fabric_has_file *files;
    void *files_arg;
    env_lookup *environment;
    void *environment_arg;
};

struct rank_plan {
    struct task task;           /* of the ask, with what was found out */
    struct bind_plan *bind;     /* of all ranks of the node; NULL where the node is not known */
    size_t row;                 /* this rank's in it */
    bool binds;                 /* its cpus are to be set */
    const char *unbound;        /* why not, where it could have been; NULL otherwise */
    struct fabric_plan *fabric; /* NULL without memory, or where the node is not known */
    struct env_set *env;        /* its MUSTER_SET records the fabric's variables too */
    enum isolation_state isolation;
    char isolation_line[ISOLATION_LINE_SIZE];
};

/* NULL and *err for want of memory. */
struct rank_plan *rank_plan_create(const struct rank_ask *ask, struct error *err);
void rank_plan_destroy(struct rank_plan *plan);

#endif
