#include "srun-plugin/place/topology.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* KEY=VALUE */
struct pair {
    char *key, *value;
};

/* The line that begins at *text, with the lines that a backslash joins to it; comments cut. NULL at the end. */
static char *take_line(char **text, int *lines)
{
    char *begin = *text, *end = begin;

    if (!*begin)
        return NULL;
    for (*lines = 0;;) {
        char *newline = strchrnul(end, '\n');

        ++*lines;
        if (*newline && newline > begin && newline[-1] == '\\') {
            newline[-1] = newline[0] = ' ';
            end = newline + 1;
            continue;
        }
        *text = *newline ? newline + 1 : newline;
        *newline = '\0';
        begin[strcspn(begin, "#")] = '\0';
        return begin;
    }
}

static int take_pair(char **line, struct pair *pair, struct error *err)
{
    char *begin = *line + strspn(*line, " \t\r"), *end = begin + strcspn(begin, " \t\r"), *equals;

    *pair = (struct pair){0};
    *line = *end ? end + 1 : end;
    if (begin == end)
        return 0;
    *end = '\0';
    equals = strchr(begin, '=');
    if (!equals || equals == begin)
        return error_set(err, CODE_DATA, "\"%.40s\" is no KEY=VALUE", begin);
    *equals = '\0';
    *pair = (struct pair){begin, equals + 1};
    return 1;
}

static int set_list(struct hostlist **list, const struct pair *pair, struct error *err)
{
    if (*list)
        return error_set(err, CODE_DATA, "%s= is there twice", pair->key);
    *list = hostlist_create(pair->value, err);
    return *list ? 0 : -1;
}

static int set_name(struct topology_record *record, const struct pair *pair, struct error *err)
{
    if (record->name)
        return error_set(err, CODE_DATA, "a line describes one switch or block; %s= begins a second one", pair->key);
    if (!*pair->value)
        return error_set(err, CODE_DATA, "%s= has no name", pair->key);
    record->name = strdup(pair->value);
    return record->name ? 0 : error_errno(err, CODE_IO, "no memory for a topology");
}

static int set_pair(struct topology_record *record, const struct pair *pair, struct error *err)
{
    static const char *const ignored[] = {"LinkSpeed", "Level", "BlockIndex", "BlockSize", "BlockSizes"};

    if (strcasecmp(pair->key, "SwitchName") == 0 || strcasecmp(pair->key, "BlockName") == 0)
        return set_name(record, pair, err);
    if (strcasecmp(pair->key, "Nodes") == 0)
        return set_list(&record->nodes, pair, err);
    if (strcasecmp(pair->key, "Switches") == 0)
        return set_list(&record->switches, pair, err);
    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++)
        if (strcasecmp(pair->key, ignored[i]) == 0)
            return 0;
    if (strcasecmp(pair->key, "AggregatedBlock") == 0) {
        record->aggregated = 1;
        return 0;
    }
    return error_set(err, CODE_DATA, "%.40s= is unknown; SwitchName=, BlockName=, Nodes= and Switches= are expected",
                     pair->key);
}

static int read_line(char *line, struct topology_record *record, struct error *err)
{
    struct pair pair;
    int found;

    while ((found = take_pair(&line, &pair, err)) > 0)
        if (set_pair(record, &pair, err) < 0)
            return -1;
    if (found < 0)
        return -1;
    if (record->switches) { /* as Slurm prints it: all nodes under it, which its switches name too */
        hostlist_destroy(record->nodes);
        record->nodes = NULL;
    }
    if (!record->name && !record->aggregated && (record->nodes || record->switches))
        return error_set(err, CODE_DATA, "has no SwitchName= or BlockName=");
    return 0;
}

static void drop_record(struct topology_record *record)
{
    free(record->name);
    hostlist_destroy(record->nodes);
    hostlist_destroy(record->switches);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct topology_record *)a)->name, ((const struct topology_record *)b)->name);
}

static int append_record(struct topology *topology, const struct topology_record *record, struct error *err)
{
    if ((topology->count & (topology->count - 1)) == 0) {
        size_t room = topology->count ? 2 * (size_t)topology->count : 1;
        struct topology_record *records = realloc(topology->records, room * sizeof *records);

        if (!records)
            return error_errno(err, CODE_IO, "no memory for a topology");
        topology->records = records;
    }
    topology->records[topology->count++] = *record;
    return 0;
}

static int sort_records(struct topology *topology, const char *where, struct error *err)
{
    if (topology->count)
        qsort(topology->records, (size_t)topology->count, sizeof *topology->records, by_name);
    for (int i = 1; i < topology->count; i++) {
        const struct topology_record *a = &topology->records[i - 1], *b = &topology->records[i];

        if (strcmp(a->name, b->name) == 0)
            return error_set(err, CODE_DATA, "%s:%d: switch %s is described already in line %d", where,
                             a->line > b->line ? a->line : b->line, a->name, a->line > b->line ? b->line : a->line);
    }
    return 0;
}

struct topology *topology_create(const char *text, const char *where, struct error *err)
{
    struct topology *topology = calloc(1, sizeof *topology);
    char *copy = strdup(text), *rest = copy, *line;
    int number = 1, lines;

    if (!topology || !copy) {
        error_errno(err, CODE_IO, "no memory for a topology");
        goto fail;
    }
    for (; (line = take_line(&rest, &lines)); number += lines) {
        struct topology_record record = {.line = number};
        int failed = read_line(line, &record, err) < 0;

        if (failed)
            error_prefix(err, "%s:%d", where, number);
        if (!failed && record.name)
            failed = append_record(topology, &record, err) < 0;
        if (failed || !record.name)
            drop_record(&record);
        if (failed)
            goto fail;
    }
    if (sort_records(topology, where, err) < 0)
        goto fail;
    free(copy);
    return topology;
fail:
    free(copy);
    topology_destroy(topology);
    return NULL;
}

int topology_find(const struct topology *topology, const char *name)
{
    struct topology_record key = {.name = (char *)(uintptr_t)name}, *found;

    if (!topology->count)
        return -1;
    found = bsearch(&key, topology->records, (size_t)topology->count, sizeof key, by_name);
    return found ? (int)(found - topology->records) : -1;
}

void topology_destroy(struct topology *topology)
{
    if (!topology)
        return;
    for (int i = 0; i < topology->count; i++)
        drop_record(&topology->records[i]);
    free(topology->records);
    free(topology);
}
