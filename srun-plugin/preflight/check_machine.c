#include "srun-plugin/preflight/checks.h"

#include <stdio.h>
#include <stdlib.h>

#include "srun-plugin/node/node.h"
#include "srun-plugin/preflight/say.h"

/* Links that should carry traffic between nodes, by kind: as a fact, so that a port that is gone is seen as well. */
static void say_links(const struct node *node)
{
    for (int kind = NIC_INFINIBAND; kind < NIC_ETHERNET; kind++) {
        char name[64], *end;
        size_t up = 0;

        for (size_t i = 0; i < node->nic_count; i++)
            up += (int)node->nics[i].kind == kind && node->nics[i].up;
        snprintf(name, sizeof name, "%s-links-up", nic_kind_name((enum nic_kind)kind));
        for (end = name; *end; end++)
            if (*end == ' ')
                *end = '-';
        say("version", "%s %zu", name, up);
    }
}

void check_machine(const char *root)
{
    const char *given = getenv("SLURM_GPUS_ON_NODE");
    struct error err = {0};
    struct node *node = node_read(root, NULL, &err);
    size_t usable;

    if (!node) {
        say("problem", "what the node is made of cannot be read: %s", err.text);
        return;
    }
    usable = node_usable_gpus(node, NULL);
    say("gpus", "%zu%s%s", usable, given ? " " : "", given ? given : "");
    if (node->has_hwloc && given && atoi(given) > (int)usable)
        say("problem", "Slurm gave %d GPUs, and %zu are usable", atoi(given), usable);
    for (size_t i = 0; i < node->problem_count; i++)
        say("oddity", "%s", node->problems[i]);
    if (node->title[0])
        say("note", "machine %s", node->title);
    say_links(node);
    node_destroy(node);
}
