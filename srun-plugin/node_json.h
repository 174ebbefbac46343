/*
 * node_json.h - a node and the binding of its ranks for programs. The keys are those of the structs in node.h and
 * bind.h; what is not known is null. muster-topo(1) describes them.
 */
#ifndef MUSTER_SRUN_PLUGIN_NODE_JSON_H
#define MUSTER_SRUN_PLUGIN_NODE_JSON_H

#include <jansson.h>

#include "srun-plugin/bind.h"

/* A new reference, or NULL when memory is short. */
json_t *node_json(const struct node *node);
json_t *bind_json(const struct node *node, const struct bind_plan *plan);

#endif
