/*
 * node_view.h - what a node adds to the step plan: its hardware, the fabric profiles, and the routes to other nodes.
 * Read once a node in slurmstepd, before it forks the tasks, which share it. Reading never fails: what could not be
 * read is absent, and a line reports it.
 */
#ifndef MUSTER_SRUN_PLUGIN_SPANK_NODE_VIEW_H
#define MUSTER_SRUN_PLUGIN_SPANK_NODE_VIEW_H

#include "srun-plugin/fabric/fabric.h"
#include "srun-plugin/node/node.h"
#include "srun-plugin/node/route.h"
#include "srun-plugin/spank/step_plan.h"

struct node_view {
    struct node *node;                 /* NULL if it could not be read */
    struct fabric *fabric;             /* NULL only when out of memory */
    struct route_address way;          /* the interface and address for the other nodes of the step; "" for none */
    char head[STEP_PLAN_ADDRESS_SIZE]; /* at which the ranks of this node reach rank 0's node; "" if not known */
};

struct node_view_request {
    const struct step_plan *plan;
    bool head_is_here;    /* this node is rank 0's */
    bool describe;        /* for a report (node_describe) */
    const char *profiles; /* directory of fabric profiles instead of the installed ones; or NULL */
    const char *site;     /* directory of the site's profiles */
    void (*warn)(const char *line);
};

void node_view_read(const struct node_view_request *request, struct node_view *view);

#endif
