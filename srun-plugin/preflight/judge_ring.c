#include "srun-plugin/preflight/judge_ring.h"

#include <stdlib.h>
#include <string.h>

#define NOBODY ((size_t)-1)

/* From a node to the next of the ring. */
struct edge {
    size_t next;
    enum talk_state state; /* the worst that either end says */
    const char *text;
};

static size_t find(const struct record *records, size_t count, const char *name)
{
    for (size_t i = 0; name[0] && i < count; i++)
        if (strcmp(records[i].name, name) == 0)
            return i;
    return NOBODY;
}

/* The end that connects knows best why it could not: it comes first, and the other only where it saw none or less. */
static void hear(struct edge *edge, size_t next, const struct talk *talk)
{
    edge->next = next;
    if (edge->state > TALK_OK || talk->state == TALK_UNTRIED)
        return;
    edge->state = talk->state;
    edge->text = talk->text;
}

static struct edge *draw_ring(const struct record *records, size_t count)
{
    struct edge *edges = calloc(count + 1, sizeof *edges);

    for (size_t i = 0; edges && i < count; i++)
        edges[i].next = NOBODY;
    for (size_t i = 0; edges && i < count; i++) {
        size_t next = find(records, count, records[i].to.peer);

        if (next != NOBODY)
            hear(&edges[i], next, &records[i].to);
    }
    for (size_t i = 0; edges && i < count; i++) {
        size_t before = find(records, count, records[i].from.peer);

        if (before != NOBODY)
            hear(&edges[before], i, &records[i].from);
    }
    return edges;
}

static bool failed(const struct edge *edge)
{
    return edge->next != NOBODY && edge->state > TALK_OK;
}

static const char *text_of(const struct edge *edge)
{
    return edge->text ? edge->text : talk_state_name(edge->state);
}

int judge_ring(struct verdict *verdict, const struct record *records)
{
    size_t count = verdict->count;
    struct edge *edges = draw_ring(records, count);
    bool *known = calloc(count + 1, sizeof *known); /* bad before any pair was looked at */

    if (!edges || !known) {
        free(edges);
        free(known);
        return -1;
    }
    for (size_t i = 0; i < count; i++)
        known[i] = verdict->reasons[i] != NULL;
    for (size_t i = 0; i < count; i++) {
        size_t next = edges[i].next, after = next == NOBODY ? NOBODY : edges[next].next;

        /* i - next - after: both pairs of `next` fail, and neither because of the other end. */
        if (after == NOBODY || after == i || next == i || !failed(&edges[i]) || !failed(&edges[next]))
            continue;
        if (!known[i] && !known[next] && !known[after])
            verdict_blame(verdict, next, "it cannot talk to either neighbour: with %s %s: %s; with %s %s: %s",
                          records[i].name, talk_state_name(edges[i].state), text_of(&edges[i]), records[after].name,
                          talk_state_name(edges[next].state), text_of(&edges[next]));
    }
    for (size_t i = 0; i < count; i++) {
        size_t next = edges[i].next;

        if (!failed(&edges[i]) || verdict->reasons[i] || verdict->reasons[next])
            continue;
        verdict_blame(verdict, i, "the pair %s and %s cannot talk: %s: %s", records[i].name, records[next].name,
                      talk_state_name(edges[i].state), text_of(&edges[i]));
        if (next != i)
            verdict_blame(verdict, next, "the pair %s and %s cannot talk: %s: %s", records[i].name, records[next].name,
                          talk_state_name(edges[i].state), text_of(&edges[i]));
    }
    free(edges);
    free(known);
    return 0;
}
