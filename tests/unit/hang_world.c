#include "tests/unit/hang_world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void add_comm(struct hang_world *w, int rank, int slot, const char *name, int first, int stride, int count)
{
    struct record_comm *c = &w->ranks[rank].record.comms[slot];

    c->id = (uint64_t)(1 + slot * 1000 + (slot == WORLD ? 0 : first * 10)); /* the same for all members */
    c->size = count;
    snprintf(c->name, sizeof c->name, "%s", name);
    c->members[0] = (struct record_run){first, stride, count};
}

struct hang_world hang_world(int dp, int tp, int pp)
{
    struct hang_world w = {.size = dp * tp * pp, .dp = dp, .tp = tp, .pp = pp, .now = 1000000000};

    w.ranks = calloc((size_t)w.size, sizeof *w.ranks);
    if (!w.ranks)
        abort();
    for (int rank = 0; rank < w.size; rank++) {
        struct hang_rank *r = &w.ranks[rank];
        int stage = dp * tp, first = rank / stage * stage;

        r->state = HANG_RUNNING;
        snprintf(r->host, sizeof r->host, "n%d", rank / 2 + 1);
        snprintf(r->record.phase, sizeof r->record.phase, "computing");
        r->record.last_change = w.now;
        add_comm(&w, rank, WORLD, "world", 0, 1, w.size);
        if (dp > 1)
            add_comm(&w, rank, DP, "dp", first + rank % tp, tp, dp);
        if (tp > 1)
            add_comm(&w, rank, TP, "tp", rank / tp * tp, 1, tp);
        if (pp > 1) {
            add_comm(&w, rank, FORWARD, "pp forward", rank % stage, stage, pp);
            add_comm(&w, rank, BACKWARD, "pp backward", rank % stage, stage, pp);
        }
    }
    return w;
}

void hang_world_free(struct hang_world *w)
{
    free(w->ranks);
}

static struct record_peer *peer_of(struct record_comm *c, int rank)
{
    int i = 0;

    while (i < c->npeers && c->peers[i].rank != rank)
        i++;
    if (i == c->npeers)
        c->peers[c->npeers++].rank = rank;
    return &c->peers[i];
}

struct record_op hang_world_enter(struct hang_world *w, int rank, int comm, enum record_kind kind, int peer,
                                  const char *purpose)
{
    struct flight_record *r = &w->ranks[rank].record;
    struct record_comm *c = &r->comms[comm];
    struct record_op op = {
        .number = ++r->operations, .entered = w->now += 1000, .kind = kind, .comm = comm, .peer = peer};

    if (kind == RECORD_SEND)
        op.sequence = ++peer_of(c, peer)->sends;
    else if (kind == RECORD_RECEIVE)
        op.sequence = ++peer_of(c, peer)->receives;
    else
        op.sequence = ++c->collectives_entered;
    snprintf(op.purpose, sizeof op.purpose, "%s", purpose);
    r->ring[op.number % RECORD_RING] = op;
    r->last_change = w->now;
    return op;
}

void hang_world_wait(struct hang_world *w, int rank, const struct record_op *op)
{
    struct flight_record *r = &w->ranks[rank].record;

    r->last_change = r->waiting_since = w->now += 1000;
    r->waiting = *op;
}

void hang_world_leave(struct hang_world *w, int rank, const struct record_op *op)
{
    struct flight_record *r = &w->ranks[rank].record;

    r->last_change = w->now += 1000;
    r->waiting_since = 0;
    r->ring[op->number % RECORD_RING].finished = w->now;
    if (!record_is_message(op->kind))
        r->comms[op->comm].collectives_finished++;
}

void hang_world_do(struct hang_world *w, int rank, int comm, enum record_kind kind, const char *purpose)
{
    struct record_op op = hang_world_enter(w, rank, comm, kind, -1, purpose);

    hang_world_leave(w, rank, &op);
}

void hang_world_take(struct hang_world *w, double seconds)
{
    for (int rank = 0; rank < w->size; rank++)
        w->ranks[rank].taken = w->now + (int64_t)(seconds * 1e9);
}
