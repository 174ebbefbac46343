/*
 * place_cluster.h - what the tests of place.h share: clusters from text, and what every order must keep. Fails the test
 * where something fails.
 */
#ifndef MUSTER_TESTS_PLACE_CLUSTER_H
#define MUSTER_TESTS_PLACE_CLUSTER_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "srun-plugin/place/place.h"

#define RANKS 64 /* of a mesh here, at most */

static inline struct cluster *make_cluster(const char *nodes, const char *text)
{
    struct error err = {0};
    struct hostlist *list = hostlist_create(nodes, &err);
    struct cluster *cluster = list ? cluster_create(list, text, "test", &err) : NULL;

    if (!cluster)
        fail_msg("%s", err.text);
    hostlist_destroy(list);
    return cluster;
}

static inline void place_all(const struct cluster *cluster, struct mesh mesh, const uint64_t *bytes, const int *slots,
                             int *order, struct place_report *report)
{
    struct error err = {0};

    if (place_ranks(cluster, &mesh, bytes, slots, order, report, &err) < 0)
        fail_msg("%s", err.text);
}

/* Whatever the order: nobody gets more than its slots, and the report is what the order costs. */
static inline void check_order(const struct cluster *cluster, struct mesh mesh, const uint64_t *bytes, const int *slots,
                               const int *order, const struct place_report *report)
{
    uint64_t traffic[PLACE_LEVELS + 1];
    int used[RANKS] = {0};

    for (int rank = 0; rank < mesh_world(&mesh); rank++) {
        assert_in_range(order[rank], 0, cluster->node_count - 1);
        assert_true(used[order[rank]]++ < slots[order[rank]]);
    }
    place_traffic(cluster, &mesh, bytes, order, traffic);
    assert_memory_equal(traffic, report->traffic, ((size_t)cluster->levels + 1) * sizeof *traffic);
}

#endif
