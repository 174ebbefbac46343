/*
 * The text is read into records, one for each switch or block. These are linked to a tree, of which the part above
 * allocated nodes is copied into the switch tree.
 */
#include "srun-plugin/order/order.h"

#include <search.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/text.h"
#include "plan/hostlist.h"

/* A switch or block of the text. */
struct record {
    char *name;
    bool aggregated;                   /* only while reading: a line for several blocks that Slurm joins */
    bool torus;                        /* only while reading: of a torus, whose first line has its nodes */
    struct hostlist *nodes, *switches; /* NULL for none */
    int line;                          /* of the text, from 1 */
    int below;                         /* allocated nodes beneath it */
    int number;                        /* in the switch tree; -1: not (yet) there */
};

/* Children with the parent of each: either all allocated nodes, or all switches (records). */
struct members {
    const char **names;
    void *by_name; /* a tree (tsearch) of pointers into `names` */
    int *above;    /* the record above each; -1 for none */
};

struct draft {
    const char *where;
    struct record *records; /* as in the text */
    size_t room;            /* of the array */
    int count;
    struct members nodes, switches;
};

static int no_memory(struct error *err)
{
    return error_errno(err, CODE_IO, "no memory for a tree of switches");
}

/* ---- lines ------------------------------------------------------------------------------------------------------- */

#define BLANKS " \t\r"

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

/* KEY=VALUE, KEY = VALUE or KEY="VALUE". 1; 0 at the end of the line; -1. */
static int take_pair(char **line, struct pair *pair, struct error *err)
{
    char *key = *line + strspn(*line, BLANKS), *end = key + strcspn(key, "=" BLANKS),
         *equals = end + strspn(end, BLANKS);
    char *value, *after;

    *pair = (struct pair){0};
    *line = key;
    if (!*key)
        return 0;
    if (*equals != '=' || equals == key)
        return error_set(err, CODE_DATA, "\"%.*s\" is no KEY=VALUE", (int)strcspn(key, BLANKS), key);
    value = equals + 1 + (equals > end ? strspn(equals + 1, BLANKS) : 0);
    value += *value == '"';
    after = value + strcspn(value, value[-1] == '"' ? "\"" : BLANKS);
    *line = *after ? after + 1 : after;
    *end = *after = '\0';
    *pair = (struct pair){key, value};
    return 1;
}

static int set_list(struct hostlist **list, const struct pair *pair, struct error *err)
{
    if (*list)
        return error_set(err, CODE_DATA, "%s= is given twice", pair->key);
    *list = hostlist_create(pair->value, err);
    return *list ? 0 : -1;
}

static int set_name(struct record *record, const struct pair *pair, struct error *err)
{
    if (record->name)
        return error_set(err, CODE_DATA, "a line describes one switch or block; %s= begins a second one", pair->key);
    if (!*pair->value)
        return error_set(err, CODE_DATA, "%s= has no name", pair->key);
    record->name = strdup(pair->value);
    return record->name ? 0 : no_memory(err);
}

static int set_pair(struct record *record, const struct pair *pair, struct error *err)
{
    static const char *const names[] = {"SwitchName", "BlockName", "RingName", "TorusName"};
    static const char *const ignored[] = {"LinkSpeed", "Level", "BlockIndex",    "BlockSize", "BlockSizes",
                                          "RingSize",  "Dims",  "PlacementDims", "Anchors"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcasecmp(pair->key, names[i]) == 0) {
            record->torus = names[i][0] == 'T';
            return set_name(record, pair, err);
        }
    if (strcasecmp(pair->key, "Nodes") == 0)
        return set_list(&record->nodes, pair, err);
    if (strcasecmp(pair->key, "Switches") == 0)
        return set_list(&record->switches, pair, err);
    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++)
        if (strcasecmp(pair->key, ignored[i]) == 0)
            return 0;
    if (strcasecmp(pair->key, "AggregatedBlock") == 0) {
        record->aggregated = true;
        return 0;
    }
    return error_set(err, CODE_DATA, "%.40s= is unknown; SwitchName=, BlockName=, Nodes= and Switches= are expected",
                     pair->key);
}

static int read_line(char *line, struct record *record, struct error *err)
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

static void clear_record(struct record *record)
{
    free(record->name);
    hostlist_destroy(record->nodes);
    hostlist_destroy(record->switches);
}

static int read_records(struct draft *draft, const char *text, struct error *err)
{
    char *copy = strdup(text), *rest = copy, *line;
    int number = 1, lines, rc = copy ? 0 : no_memory(err);

    for (; rc == 0 && (line = take_line(&rest, &lines)); number += lines) {
        struct record record = {.line = number, .number = -1};

        if ((rc = read_line(line, &record, err)) < 0)
            error_prefix(err, "%s:%d", draft->where, number);
        else if (record.name && (record.nodes || !record.torus))
            rc = error_reserve(&draft->records, &draft->room, (size_t)draft->count, 1, sizeof record, err);
        if (rc < 0 || !record.name || (record.torus && !record.nodes))
            clear_record(&record);
        else
            draft->records[draft->count++] = record;
    }
    free(copy);
    return rc;
}

/* ---- from records to parents ------------------------------------------------------------------------------------- */

static int create_members(struct members *members, int count, struct error *err)
{
    members->names = calloc((size_t)count + 1, sizeof *members->names);
    members->above = malloc(((size_t)count + 1) * sizeof *members->above);
    for (int i = 0; members->above && i < count; i++)
        members->above[i] = -1;
    return members->names && members->above ? 0 : no_memory(err);
}

static void keep_name(void *name)
{
    (void)name;
}

static void destroy_members(struct members *members)
{
    tdestroy(members->by_name, keep_name);
    free(members->names);
    free(members->above);
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Returns the index of the member of that name: `index` if it is new. -1 without memory. */
static int enter_member(struct members *members, const char *name, int index, struct error *err)
{
    const char ***entry;

    members->names[index] = name;
    entry = tsearch(&members->names[index], &members->by_name, compare_names);
    return entry ? (int)(*entry - members->names) : no_memory(err);
}

static int list_members(struct draft *draft, const struct switch_tree *switch_tree, struct error *err)
{
    int twin;

    if (create_members(&draft->switches, draft->count, err) < 0 ||
        create_members(&draft->nodes, switch_tree->node_count, err) < 0)
        return -1;
    for (int i = 0; i < draft->count; i++) {
        if ((twin = enter_member(&draft->switches, draft->records[i].name, i, err)) < 0)
            return -1;
        if (twin != i)
            return error_set(err, CODE_DATA, "%s:%d: switch %s is described already in line %d", draft->where,
                             draft->records[i].line, draft->records[i].name, draft->records[twin].line);
    }
    for (int i = 0; i < switch_tree->node_count; i++) {
        if ((twin = enter_member(&draft->nodes, switch_tree->nodes[i], i, err)) < 0)
            return -1;
        if (twin != i)
            return error_set(err, CODE_DATA, "node %s is twice in the allocation", switch_tree->nodes[i]);
    }
    return 0;
}

/* Puts the members that a record lists, or NULL, under it. Nodes that are not allocated have no member. */
static int link_members(struct draft *draft, struct members *members, const struct hostlist *list, int at,
                        struct error *err)
{
    const struct record *records = draft->records;

    for (int i = 0; list && i < list->count; i++) {
        const char ***found = tfind(&list->names[i], &members->by_name, compare_names);
        int *above;

        if (!found) {
            if (members == &draft->nodes)
                continue;
            return error_set(err, CODE_DATA, "%s:%d: switch %s is not described", draft->where, records[at].line,
                             list->names[i]);
        }
        above = &members->above[*found - members->names];
        if (*above >= 0 && *above != at)
            return error_set(err, CODE_DATA, "%s:%d: %s %s is under %s already", draft->where, records[at].line,
                             members == &draft->nodes ? "node" : "switch", list->names[i], records[*above].name);
        *above = at;
    }
    return 0;
}

static int refuse_cycles(const struct draft *draft, struct error *err)
{
    for (int i = 0; i < draft->count; i++) {
        int steps = 0;

        for (int at = i; at >= 0; at = draft->switches.above[at])
            if (steps++ > draft->count)
                return error_set(err, CODE_DATA, "%s:%d: switch %s is above itself", draft->where,
                                 draft->records[at].line, draft->records[at].name);
    }
    return 0;
}

static int link_all(struct draft *draft, struct error *err)
{
    for (int i = 0; i < draft->count; i++)
        if (link_members(draft, &draft->switches, draft->records[i].switches, i, err) < 0 ||
            link_members(draft, &draft->nodes, draft->records[i].nodes, i, err) < 0)
            return -1;
    return refuse_cycles(draft, err);
}

/* ---- from parents to the tree ------------------------------------------------------------------------------------ */

/* Counts the nodes beneath each record, and returns the record that is the root; -1 if there is none. */
static int find_root(struct draft *draft, const struct switch_tree *switch_tree)
{
    int root = -1, tops = 0;

    for (int node = 0; node < switch_tree->node_count; node++)
        for (int at = draft->nodes.above[node]; at >= 0; at = draft->switches.above[at])
            draft->records[at].below++;
    for (int i = 0; i < draft->count; i++)
        if (draft->switches.above[i] < 0 && draft->records[i].below) {
            root = i;
            tops++;
        }
    return tops == 1 ? root : -1;
}

/* Returns its number, or -1 without memory. */
static int add_switch(struct switch_tree *switch_tree, const char *name, int parent)
{
    struct tree_switch *added = &switch_tree->switches[switch_tree->switch_count];

    *added = (struct tree_switch){.name = strdup(name), .parent = parent};
    added->depth = parent < 0 ? 0 : switch_tree->switches[parent].depth + 1;
    if (added->depth >= switch_tree->levels)
        switch_tree->levels = added->depth + 1;
    return added->name ? switch_tree->switch_count++ : -1;
}

/* Level by level, so that parents come before children. */
static int add_switches(struct draft *draft, struct switch_tree *switch_tree, struct error *err)
{
    int root = find_root(draft, switch_tree), before;

    switch_tree->switches = calloc((size_t)draft->count + 1, sizeof *switch_tree->switches);
    if (!switch_tree->switches || add_switch(switch_tree, root < 0 ? "" : draft->records[root].name, -1) < 0)
        return no_memory(err);
    if (root >= 0)
        draft->records[root].number = 0;
    do {
        before = switch_tree->switch_count;
        for (int i = 0; i < draft->count; i++) {
            struct record *record = &draft->records[i];
            int parent = draft->switches.above[i], above = parent < 0 ? 0 : draft->records[parent].number;

            if (record->number >= 0 || !record->below || above < 0 || above >= before)
                continue;
            if ((record->number = add_switch(switch_tree, record->name, above)) < 0)
                return no_memory(err);
        }
    } while (switch_tree->switch_count > before);
    for (int node = 0; node < switch_tree->node_count; node++)
        if (draft->nodes.above[node] >= 0) /* else it is under the root */
            switch_tree->above[node] = draft->records[draft->nodes.above[node]].number;
    return 0;
}

static int fill_paths(struct switch_tree *switch_tree, struct error *err)
{
    switch_tree->path =
        malloc((size_t)switch_tree->node_count * (size_t)switch_tree->levels * sizeof *switch_tree->path);
    if (!switch_tree->path)
        return no_memory(err);
    for (int node = 0; node < switch_tree->node_count; node++) {
        int *path = &switch_tree->path[(size_t)node * (size_t)switch_tree->levels];

        for (int depth = 0; depth < switch_tree->levels; depth++)
            path[depth] = -1;
        for (int at = switch_tree->above[node]; at >= 0; at = switch_tree->switches[at].parent)
            path[switch_tree->switches[at].depth] = at;
    }
    return 0;
}

static int read_nodes(struct switch_tree *switch_tree, const char *nodes, struct error *err)
{
    struct hostlist *list = hostlist_create(nodes, err);
    int rc = -1;

    if (list && list->count < 1)
        error_set(err, CODE_DATA, "there is no node in the allocation");
    else if (list && (switch_tree->above = error_calloc((size_t)list->count, sizeof *switch_tree->above, err))) {
        switch_tree->nodes = list->names;
        switch_tree->node_count = list->count;
        *list = (struct hostlist){0};
        rc = 0;
    }
    hostlist_destroy(list);
    return rc;
}

struct switch_tree *switch_tree_create(const char *nodes, const char *text, const char *where, struct error *err)
{
    struct draft draft = {.where = where};
    struct switch_tree *switch_tree = error_calloc(1, sizeof *switch_tree, err);
    int rc = switch_tree ? read_nodes(switch_tree, nodes, err) : -1;

    if (rc == 0 &&
        (read_records(&draft, text ? text : "", err) < 0 || list_members(&draft, switch_tree, err) < 0 ||
         link_all(&draft, err) < 0 || add_switches(&draft, switch_tree, err) < 0 || fill_paths(switch_tree, err) < 0))
        rc = -1;
    for (int i = 0; i < draft.count; i++)
        clear_record(&draft.records[i]);
    free(draft.records);
    destroy_members(&draft.nodes);
    destroy_members(&draft.switches);
    if (rc == 0)
        return switch_tree;
    switch_tree_destroy(switch_tree);
    return NULL;
}

char *switch_tree_read_text(const char *path, struct error *err)
{
    FILE *in = fopen(path, "re");
    char *text = NULL;
    size_t room = 0, mark;

    if (!in || (getdelim(&text, &room, '\0', in) < 0 && ferror(in))) {
        error_errno(err, CODE_IO, "cannot read %s", path);
        free(text);
        text = NULL;
    } else if (!text) {
        text = strdup("");
    }
    mark = text ? text_mark(text, strlen(text), path) : 0;
    if (mark)
        memmove(text, text + mark, strlen(text + mark) + 1);
    if (in)
        fclose(in);
    return text;
}
