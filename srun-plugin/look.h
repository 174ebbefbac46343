/*
 * look.h - what the ranks of a node need to know of it, found out once for all of them in slurmstepd, before the tasks
 * are forked. Nothing here fails: what could not be found out is absent, and a line says so.
 */
#ifndef MUSTER_SRUN_PLUGIN_LOOK_H
#define MUSTER_SRUN_PLUGIN_LOOK_H

#include "srun-plugin/fabric/fabric.h"
#include "srun-plugin/node/node.h"
#include "srun-plugin/spank/step_plan.h"
#include "srun-plugin/node/route.h"

struct look {
    struct node *node;                 /* NULL where it could not be read */
    struct fabric *fabric;             /* NULL without memory only */
    struct route_address way;          /* to the other nodes of the step; "" where there is none */
    char head[STEP_PLAN_ADDRESS_SIZE]; /* by what this node's ranks reach rank 0's; "" if not known */
};

struct look_ask {
    const struct step_plan *plan;
    bool head_is_here;   /* this node is rank 0's */
    bool describe;       /* somebody will read of the node (node_describe) */
    const char *shipped; /* directory of fabric profiles instead of the installed ones; or NULL */
    const char *site;    /* directory of the site's */
    void (*complain)(const char *line);
};

void look_around(const struct look_ask *ask, struct look *look);

#endif
