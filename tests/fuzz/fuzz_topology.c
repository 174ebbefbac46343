/*
 * Any text as a host list, a topology.conf, a map of ranks and counts by node: refused with one line, or what comes of
 * it holds together. Before a byte 1 stands the allocation, after it the topology.
 */
#include "srun-plugin/place/cluster.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/rank_map.h"
#include "srun-plugin/place/hostlist.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void expect_reason(const struct error *err)
{
    if (err->text[0] == '\0' || strchr(err->text, '\n'))
        abort();
}

static void check_cluster(const struct cluster *cluster)
{
    int last = cluster->node_count - 1;

    for (int i = 1; i < cluster->switch_count; i++)
        if (cluster->switches[i].parent < 0 || cluster->switches[i].parent >= i || cluster->switches[i].nodes < 1)
            abort();
    if (cluster_meet(cluster, 0, last) != cluster_meet(cluster, last, 0) ||
        cluster_meet(cluster, last, last) != cluster->levels)
        abort();
}

static void try_cluster(const char *list, const char *text)
{
    struct error err = {0};
    struct hostlist *nodes = hostlist_create(list, &err);
    struct cluster *cluster = nodes ? cluster_create(nodes, text, "fuzz", &err) : NULL;

    if (cluster)
        check_cluster(cluster);
    else
        expect_reason(&err);
    cluster_destroy(cluster);
    hostlist_destroy(nodes);
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
