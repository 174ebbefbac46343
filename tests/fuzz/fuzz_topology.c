/*
 * Any text as a host list, a topology.conf, a map of ranks and counts by node: refused with one line, or what comes of
 * it holds together. Before a byte 1 stands the allocation, after it the topology.
 */
#include "srun-plugin/order/order.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/mesh.h"
#include "plan/hostlist.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void expect_reason(const struct error *err)
{
    if (err->text[0] == '\0' || strchr(err->text, '\n'))
        abort();
}

/* Whether an allocated node is beneath the switch. */
static int has_node(const struct switch_tree *switch_tree, int at)
{
    for (int node = 0; node < switch_tree->node_count; node++)
        if (switch_tree->path[node * switch_tree->levels + switch_tree->switches[at].depth] == at)
            return 1;
    return 0;
}

static void check_cluster(const struct switch_tree *switch_tree)
{
    int last = switch_tree->node_count - 1;

    for (int i = 1; i < switch_tree->switch_count; i++)
        if (switch_tree->switches[i].parent < 0 || switch_tree->switches[i].parent >= i || !has_node(switch_tree, i))
            abort();
    if (switch_tree_meet(switch_tree, 0, last) != switch_tree_meet(switch_tree, last, 0) ||
        switch_tree_meet(switch_tree, last, last) != switch_tree->levels)
        abort();
}

static void try_cluster(const char *list, const char *text)
{
    struct error err = {0};
    struct switch_tree *switch_tree = switch_tree_create(list, text, "fuzz", &err);

    if (switch_tree)
        check_cluster(switch_tree);
    else
        expect_reason(&err);
    switch_tree_destroy(switch_tree);
}

static void try_rank_map(const char *text)
{
    struct error err = {0};
    int map[8], again[8];
    char *same;

    if (rank_map_parse(text, 8, map, &err) < 0) {
        expect_reason(&err);
        return;
    }
    same = rank_map_text(map, 8, &err);
    if (!same || rank_map_parse(same, 8, again, &err) < 0 || memcmp(map, again, sizeof map) != 0)
        abort();
    free(same);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1), *topology;
    struct error err = {0};
    int counts[4];

    if (!text)
        return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    try_rank_map(text);
    if (hostlist_counts(text, counts, 4, NULL, &err) < 0)
        expect_reason(&err);
    topology = strchr(text, 1);
    if (topology)
        *topology++ = '\0';
    try_cluster(text, topology);
    free(text);
    return 0;
}
