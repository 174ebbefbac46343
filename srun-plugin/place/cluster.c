#include "srun-plugin/place/cluster.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "srun-plugin/place/topology.h"

struct named {
    const char *name;
    int index;
};

/* The tree while it is made: its switches are still the records of the text, with or without allocated nodes. */
struct draft {
    const struct topology *topology;
    const char *where;
    struct named *sorted; /* [node_count] to look nodes up */
    int *parent, *nodes;  /* [records] */
    int *by_line;         /* [records] in the order of the text */
    int *number;          /* [records] in the finished tree; -1 for what is left out */
};

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct named *)a)->name, ((const struct named *)b)->name);
}

static int sort_nodes(struct draft *draft, const struct cluster *cluster, struct error *err)
{
    for (int i = 0; i < cluster->node_count; i++)
        draft->sorted[i] = (struct named){cluster->nodes[i], i};
    qsort(draft->sorted, (size_t)cluster->node_count, sizeof *draft->sorted, by_name);
    for (int i = 1; i < cluster->node_count; i++)
        if (by_name(&draft->sorted[i - 1], &draft->sorted[i]) == 0)
            return error_set(err, CODE_DATA, "node %s is twice in the allocation", draft->sorted[i].name);
    return 0;
}

/* ---- from records to parents ---- */

static int link_switches(struct draft *draft, int record, struct error *err)
{
    const struct topology_record *records = draft->topology->records, *above = &records[record];

    for (int i = 0; above->switches && i < above->switches->count; i++) {
        int below = topology_find(draft->topology, above->switches->names[i]);

        if (below < 0)
            return error_set(err, CODE_DATA, "%s:%d: switch %s is not described", draft->where, above->line,
                             above->switches->names[i]);
        if (draft->parent[below] >= 0 && draft->parent[below] != record)
            return error_set(err, CODE_DATA, "%s:%d: switch %s is under %s already", draft->where, above->line,
                             records[below].name, records[draft->parent[below]].name);
        draft->parent[below] = record;
    }
    return 0;
}

static int link_nodes(struct draft *draft, struct cluster *cluster, int record, struct error *err)
{
    const struct topology_record *records = draft->topology->records, *above = &records[record];

    for (int i = 0; above->nodes && i < above->nodes->count; i++) {
        struct named key = {.name = above->nodes->names[i]}, *found;

        found = bsearch(&key, draft->sorted, (size_t)cluster->node_count, sizeof key, by_name);
        if (!found)
            continue;
        if (cluster->above[found->index] >= 0 && cluster->above[found->index] != record)
            return error_set(err, CODE_DATA, "%s:%d: node %s is under %s already", draft->where, above->line, key.name,
                             records[cluster->above[found->index]].name);
        cluster->above[found->index] = record;
    }
    return 0;
}

static int refuse_rings(const struct draft *draft, struct error *err)
{
    for (int i = 0; i < draft->topology->count; i++) {
        int steps = 0;

        for (int at = i; at >= 0; at = draft->parent[at])
            if (steps++ > draft->topology->count)
                return error_set(err, CODE_DATA, "%s:%d: switch %s is above itself", draft->where,
                                 draft->topology->records[at].line, draft->topology->records[at].name);
    }
    return 0;
}

static int link_all(struct draft *draft, struct cluster *cluster, struct error *err)
{
    for (int i = 0; i < cluster->node_count; i++)
        cluster->above[i] = -1;
    for (int i = 0; i < draft->topology->count; i++)
        draft->parent[i] = draft->number[i] = -1;
    for (int i = 0; i < draft->topology->count; i++)
        if (link_switches(draft, i, err) < 0 || link_nodes(draft, cluster, i, err) < 0)
            return -1;
    return refuse_rings(draft, err);
}

/* ---- from parents to the tree ---- */

/* Counts the nodes beneath each record, and says which record is the root: -1 where one must be made. */
static int find_root(struct draft *draft, const struct cluster *cluster)
{
    int root = -1, tops = 0;

    for (int node = 0; node < cluster->node_count; node++)
        for (int at = cluster->above[node]; at >= 0; at = draft->parent[at])
            draft->nodes[at]++;
    for (int i = 0; i < draft->topology->count; i++)
        if (draft->parent[i] < 0 && draft->nodes[i]) {
            root = i;
            tops++;
        }
    return tops == 1 ? root : -1;
}

static int add_switch(struct cluster *cluster, const char *name, int parent, int nodes)
{
    struct cluster_switch *made = &cluster->switches[cluster->switch_count];

    *made = (struct cluster_switch){.name = strdup(name), .parent = parent, .nodes = nodes};
    made->depth = parent < 0 ? 0 : cluster->switches[parent].depth + 1;
    if (made->depth >= cluster->levels)
        cluster->levels = made->depth + 1;
    return made->name ? cluster->switch_count++ : -1;
}

static int by_line(const void *a, const void *b, void *records)
{
    const struct topology_record *all = records;

    return all[*(const int *)a].line < all[*(const int *)b].line ? -1 : 1;
}

/* Level by level, so that parents come before children. */
static int add_switches(struct draft *draft, struct cluster *cluster, struct error *err)
{
    int root = find_root(draft, cluster), added;

    cluster->switches = calloc((size_t)draft->topology->count + 1, sizeof *cluster->switches);
    if (!cluster->switches ||
        add_switch(cluster, root < 0 ? "" : draft->topology->records[root].name, -1, cluster->node_count) < 0)
        return error_errno(err, CODE_IO, "no memory for a tree of switches");
    if (root >= 0)
        draft->number[root] = 0;
    for (int i = 0; i < draft->topology->count; i++)
        draft->by_line[i] = i;
    qsort_r(draft->by_line, (size_t)draft->topology->count, sizeof *draft->by_line, by_line, draft->topology->records);
    do {
        int before = cluster->switch_count;

        added = 0;
        for (int j = 0; j < draft->topology->count; j++) {
            int i = draft->by_line[j], above = draft->parent[i] < 0 ? 0 : draft->number[draft->parent[i]];

            if (draft->number[i] >= 0 || !draft->nodes[i] || above < 0 || above >= before)
                continue;
            draft->number[i] = add_switch(cluster, draft->topology->records[i].name, above, draft->nodes[i]);
            if (draft->number[i] < 0)
                return error_errno(err, CODE_IO, "no memory for a tree of switches");
            added++;
        }
    } while (added);
    for (int node = 0; node < cluster->node_count; node++)
        cluster->above[node] = cluster->above[node] < 0 ? 0 : draft->number[cluster->above[node]];
    return 0;
}

static int fill_paths(struct cluster *cluster, struct error *err)
{
    cluster->path = malloc((size_t)cluster->node_count * (size_t)cluster->levels * sizeof *cluster->path);
    if (!cluster->path)
        return error_errno(err, CODE_IO, "no memory for a tree of switches");
    for (int node = 0; node < cluster->node_count; node++) {
        int *path = &cluster->path[(size_t)node * (size_t)cluster->levels];

        for (int depth = 0; depth < cluster->levels; depth++)
            path[depth] = -1;
        for (int at = cluster->above[node]; at >= 0; at = cluster->switches[at].parent)
            path[cluster->switches[at].depth] = at;
    }
    return 0;
}

static int build_tree(struct cluster *cluster, const struct topology *topology, const char *where, struct error *err)
{
    size_t records = (size_t)topology->count + 1;
    int *numbers = calloc(4 * records, sizeof *numbers), rc = -1;
    struct draft draft = {.topology = topology,
                          .where = where,
                          .sorted = calloc((size_t)cluster->node_count, sizeof *draft.sorted),
                          .parent = numbers,
                          .nodes = numbers + records,
                          .number = numbers + 2 * records,
                          .by_line = numbers + 3 * records};

    if (!numbers || !draft.sorted)
        error_errno(err, CODE_IO, "no memory for a tree of switches");
    else if (sort_nodes(&draft, cluster, err) == 0 && link_all(&draft, cluster, err) == 0 &&
             add_switches(&draft, cluster, err) == 0)
        rc = fill_paths(cluster, err);
    free(draft.sorted);
    free(numbers);
    return rc;
}

static int copy_nodes(struct cluster *cluster, const struct hostlist *nodes, struct error *err)
{
    if (nodes->count < 1)
        return error_set(err, CODE_DATA, "there is no node in the allocation");
    cluster->nodes = calloc((size_t)nodes->count, sizeof *cluster->nodes);
    cluster->above = calloc((size_t)nodes->count, sizeof *cluster->above);
    if (!cluster->nodes || !cluster->above)
        return error_errno(err, CODE_IO, "no memory for %d nodes", nodes->count);
    for (; cluster->node_count < nodes->count; cluster->node_count++) {
        cluster->nodes[cluster->node_count] = strdup(nodes->names[cluster->node_count]);
        if (!cluster->nodes[cluster->node_count])
            return error_errno(err, CODE_IO, "no memory for %d nodes", nodes->count);
    }
    return 0;
}

struct cluster *cluster_create(const struct hostlist *nodes, const char *text, const char *where, struct error *err)
{
    struct topology *topology = topology_create(text ? text : "", where, err);
    struct cluster *cluster = calloc(1, sizeof *cluster);

    if (topology && !cluster)
        error_errno(err, CODE_IO, "no memory for a tree of switches");
    if (!topology || !cluster || copy_nodes(cluster, nodes, err) < 0 || build_tree(cluster, topology, where, err) < 0)
        goto fail;
    topology_destroy(topology);
    return cluster;
fail:
    topology_destroy(topology);
    cluster_destroy(cluster);
    return NULL;
}

void cluster_destroy(struct cluster *cluster)
{
    if (!cluster)
        return;
    for (int i = 0; i < cluster->node_count; i++)
        free(cluster->nodes[i]);
    for (int i = 0; i < cluster->switch_count; i++)
        free(cluster->switches[i].name);
    free(cluster->nodes);
    free(cluster->above);
    free(cluster->switches);
    free(cluster->path);
    free(cluster);
}

int cluster_meet(const struct cluster *cluster, int a, int b)
{
    const int *of_a = &cluster->path[(size_t)a * (size_t)cluster->levels];
    const int *of_b = &cluster->path[(size_t)b * (size_t)cluster->levels];
    int depth = 0;

    if (a == b)
        return cluster->levels;
    while (depth + 1 < cluster->levels && of_a[depth + 1] >= 0 && of_a[depth + 1] == of_b[depth + 1])
        depth++;
    return depth;
}

char *cluster_path_name(const struct cluster *cluster, int node, char *text, size_t size)
{
    size_t used = 0;

    text[0] = '\0';
    for (int depth = 1; depth < cluster->levels && used < size; depth++) {
        int at = cluster->path[(size_t)node * (size_t)cluster->levels + (size_t)depth];

        if (at >= 0)
            used += (size_t)snprintf(text + used, size - used, "%s%s", used ? "/" : "", cluster->switches[at].name);
    }
    return text;
}

char *cluster_read_text(const char *path, struct error *err)
{
    FILE *in = fopen(path, "re");
    char *text = NULL;
    size_t room = 0;

    if (!in || (getdelim(&text, &room, '\0', in) < 0 && ferror(in))) {
        error_errno(err, CODE_IO, "cannot read %s", path);
        free(text);
        text = NULL;
    } else if (!text) {
        text = strdup("");
    }
    if (in)
        fclose(in);
    return text;
}
