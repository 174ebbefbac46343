#include "trainer/watch/hang.h"

#include <stdlib.h>
#include <string.h>

struct hang_rank *hang_ranks_create(int world, struct error *err)
{
    struct hang_rank *ranks = calloc((size_t)world, sizeof *ranks);

    if (!ranks)
        error_set(err, CODE_IO, "out of memory for the records of %d ranks", world);
    return ranks;
}

void hang_ranks_destroy(struct hang_rank *ranks, int world)
{
    for (int rank = 0; ranks && rank < world; rank++)
        for (int c = 0; c < RECORD_COMMS; c++)
            free(ranks[rank].members[c]);
    free(ranks);
}

const struct record_op *hang_waits(const struct hang_rank *rank)
{
    return rank->state == HANG_RUNNING && rank->record.waiting_since ? &rank->record.waiting : NULL;
}

double hang_idle_seconds(const struct hang_rank *rank)
{
    return 1e-9 * (double)(rank->taken - rank->record.active);
}

/* ---- who waits for whom ---- */

enum strength {
    NOT,
    BY_ABSENCE_OF_MIND, /* it has entered, and may have to do its part yet: a library moves data while one waits */
    BY_ABSENCE,         /* it has not entered */
};

static const struct record_comm *same_comm(const struct hang_rank *rank, const struct record_comm *comm)
{
    for (int i = 0; i < RECORD_COMMS; i++)
        if (rank->record.comms[i].id == comm->id)
            return &rank->record.comms[i];
    return NULL;
}

/* Messages that `rank` has begun to send to `peer`, or to receive from it. */
static uint64_t count_messages(const struct record_comm *comm, int peer, bool sends)
{
    for (int i = 0; comm && i < comm->npeers; i++)
        if (comm->peers[i].rank == peer)
            return sends ? comm->peers[i].sends : comm->peers[i].receives;
    return 0;
}

/* How far `rank` is in what ranks[waiter] waits in: collectives entered, or messages to or from the waiter. */
static uint64_t count_collectives(const struct hang_rank *rank, int waiter, const struct record_op *op,
                                  const struct record_comm *comm)
{
    const struct record_comm *theirs = same_comm(rank, comm);

    if (record_is_transfer(op->kind))
        return count_messages(theirs, waiter, op->kind == RECORD_RECEIVE);
    return theirs ? theirs->entered : 0;
}

static enum strength blocks_waiter(const struct hang_rank *ranks, int waiter, int rank)
{
    const struct record_op *op = hang_waits(&ranks[waiter]);
    const struct record_comm *comm = &ranks[waiter].record.comms[op->comm], *theirs;
    const struct hang_rank *other = &ranks[rank];

    if (rank == waiter || (record_is_transfer(op->kind) && rank != op->peer))
        return NOT;
    if (other->state == HANG_SILENT || count_collectives(other, waiter, op, comm) < op->sequence)
        return BY_ABSENCE;
    if (other->state != HANG_RUNNING)
        return BY_ABSENCE_OF_MIND;
    theirs = same_comm(other, comm);
    if (!hang_waits(other) && (record_is_transfer(op->kind) || (theirs && theirs->left < op->sequence)))
        return BY_ABSENCE_OF_MIND;
    return NOT;
}

/* The strongest hold that anybody has on a waiting rank. */
static enum strength find_strongest(const struct hang_rank *ranks, int waiter)
{
    int comm = ranks[waiter].record.waiting.comm;
    enum strength most = NOT;

    for (int i = 0; i < ranks[waiter].record.comms[comm].size && ranks[waiter].members[comm]; i++) {
        enum strength s = blocks_waiter(ranks, waiter, ranks[waiter].members[comm][i]);

        most = s > most ? s : most;
    }
    return most;
}

/* ---- the verdict ---- */

struct judge {
    const struct hang_rank *ranks;
    int world;
    int *waiter; /* [world] the lowest rank that waits for this one, which does not wait itself; -1: none */
    bool *late;  /* [world] */
    struct hang_verdict *verdict;
};

static bool is_lost(const struct hang_rank *rank)
{
    return rank->state == HANG_DEAD || rank->state == HANG_STOPPED;
}

/* Everyone at whom a chain of waiting ends; and who is lost or has aborted, even if nobody has missed it yet. */
static void find_ends(struct judge *j)
{
    for (int rank = 0; rank < j->world; rank++) {
        j->waiter[rank] = -1;
        j->late[rank] = is_lost(&j->ranks[rank]) || j->ranks[rank].state == HANG_ABORTED;
    }
    for (int w = 0; w < j->world; w++) {
        const struct hang_rank *r = &j->ranks[w];
        int comm = r->record.waiting.comm;
        enum strength most;

        if (!hang_waits(r) || (most = find_strongest(j->ranks, w)) == NOT)
            continue;
        for (int i = 0; i < r->record.comms[comm].size; i++) {
            int rank = r->members[comm][i];

            if (blocks_waiter(j->ranks, w, rank) != most || hang_waits(&j->ranks[rank]))
                continue;
            j->late[rank] = true;
            if (j->waiter[rank] < 0)
                j->waiter[rank] = w;
        }
    }
}

/*
 * Who is lost explains more than who is silent, which may mean only that its host has not spoken yet; either more than
 * who has aborted or ended, which may be the consequence; and any more than who is busy, unless for long. Among the
 * busy the longest count.
 */
static void keep_the_worst(struct judge *j, double patience)
{
    bool lost = false, silent = false, aborted = false;
    double longest = 0;

    for (int rank = 0; rank < j->world; rank++) {
        const struct hang_rank *r = &j->ranks[rank];

        if (!j->late[rank])
            continue;
        lost |= is_lost(r);
        silent |= r->state == HANG_SILENT;
        aborted |= r->state == HANG_ABORTED;
        if (r->state == HANG_RUNNING && hang_idle_seconds(r) > longest)
            longest = hang_idle_seconds(r);
    }
    for (int rank = 0; rank < j->world; rank++) {
        const struct hang_rank *r = &j->ranks[rank];
        double least = lost || silent || aborted ? patience : longest / 2;

        if (r->state == HANG_SILENT)
            j->late[rank] &= !lost;
        else if (r->state == HANG_ABORTED || r->state == HANG_ENDED)
            j->late[rank] &= !lost && !silent && (r->state == HANG_ABORTED || !aborted);
        else if (r->state == HANG_RUNNING)
            j->late[rank] &= hang_idle_seconds(r) >= least;
    }
}

static int add_late(struct judge *j, int rank, int waiter, struct error *err)
{
    struct hang_verdict *v = j->verdict;
    struct hang_late *more = realloc(v->late, (v->nlate + 1) * sizeof *more);

    if (!more)
        return error_set(err, CODE_IO, "out of memory");
    v->late = more;
    v->late[v->nlate++] = (struct hang_late){.rank = rank, .waiter = waiter};
    return 0;
}

/* How far behind the others a late rank is, where it is waited for. */
static void measure_lateness(const struct judge *j, struct hang_late *late)
{
    const struct hang_rank *w = &j->ranks[late->waiter];
    const struct record_op *op = &w->record.waiting;
    const struct record_comm *comm = &w->record.comms[op->comm];
    uint64_t most = op->sequence, own = count_collectives(&j->ranks[late->rank], late->waiter, op, comm);

    late->comm = op->comm;
    for (int i = 0; i < comm->size && !record_is_transfer(op->kind); i++) {
        uint64_t other = count_collectives(&j->ranks[w->members[op->comm][i]], late->waiter, op, comm);

        most = other > most ? other : most;
    }
    late->behind = most > own ? most - own : 0;
}

static int name_late(struct judge *j, struct error *err)
{
    for (int rank = 0; rank < j->world; rank++) {
        if (!j->late[rank])
            continue;
        if (add_late(j, rank, j->waiter[rank], err) < 0)
            return -1;
        if (j->waiter[rank] >= 0)
            measure_lateness(j, &j->verdict->late[j->verdict->nlate - 1]);
    }
    j->verdict->kind = HANG_LATE;
    return 0;
}

static bool same_operation(const struct hang_rank *a, const struct hang_rank *b)
{
    const struct record_op *p = hang_waits(a), *q = hang_waits(b);

    return a->record.comms[p->comm].id != b->record.comms[q->comm].id || p->sequence != q->sequence ||
           record_is_transfer(p->kind) || record_is_transfer(q->kind) ||
           (p->kind == q->kind && strcmp(p->purpose, q->purpose) == 0);
}

/* 1 when two ranks are found in different operations at the same place of a communicator. */
static int find_mismatch(struct judge *j, struct error *err)
{
    for (int a = 0; a < j->world; a++)
        for (int b = a + 1; b < j->world && hang_waits(&j->ranks[a]); b++)
            if (hang_waits(&j->ranks[b]) && !same_operation(&j->ranks[a], &j->ranks[b])) {
                j->verdict->kind = HANG_MISMATCH;
                return add_late(j, a, -1, err) < 0 || add_late(j, b, -1, err) < 0 ? -1 : 1;
            }
    return 0;
}

/* The lowest rank that a waiting one waits for; -1 for none. */
static int next_in_chain(const struct judge *j, int waiter)
{
    const struct hang_rank *r = &j->ranks[waiter];
    int comm = r->record.waiting.comm, lowest = -1;
    enum strength most = find_strongest(j->ranks, waiter);

    for (int i = 0; i < r->record.comms[comm].size && most != NOT; i++) {
        int rank = r->members[comm][i];

        if (blocks_waiter(j->ranks, waiter, rank) == most && (lowest < 0 || rank < lowest))
            lowest = rank;
    }
    return lowest;
}

/* Everyone waits: either some for nobody, or all in circles. `late` serves to mark who was met. */
static int name_waiting(struct judge *j, struct error *err)
{
    int first = -1, rank;

    j->verdict->kind = HANG_TRANSFER;
    for (int w = 0; w < j->world; w++) {
        if (!hang_waits(&j->ranks[w]))
            continue;
        first = first < 0 ? w : first;
        if (find_strongest(j->ranks, w) == NOT && add_late(j, w, -1, err) < 0)
            return -1;
    }
    if (j->verdict->nlate > 0)
        return 0;
    j->verdict->kind = first < 0 ? HANG_NOTHING : HANG_CYCLE;
    if (first < 0)
        return 0;
    for (rank = first; !j->late[rank]; rank = next_in_chain(j, rank))
        j->late[rank] = true;
    first = rank;
    do {
        if (add_late(j, rank, -1, err) < 0)
            return -1;
        rank = next_in_chain(j, rank);
    } while (rank != first);
    return 0;
}

static int judge_ranks(struct judge *j, double patience, struct error *err)
{
    int mismatch;
    bool any = false;

    find_ends(j);
    keep_the_worst(j, patience);
    for (int rank = 0; rank < j->world; rank++)
        any |= j->late[rank];
    if (any)
        return name_late(j, err);
    mismatch = find_mismatch(j, err);
    return mismatch != 0 ? (mismatch < 0 ? -1 : 0) : name_waiting(j, err);
}

int hang_judge(struct hang_verdict *verdict, const struct hang_rank *ranks, int world, double patience,
               struct error *err)
{
    struct judge j = {.ranks = ranks, .world = world, .verdict = verdict};
    int result = -1;

    *verdict = (struct hang_verdict){0};
    j.waiter = calloc((size_t)world, sizeof *j.waiter);
    j.late = calloc((size_t)world, sizeof *j.late);
    if (j.waiter && j.late)
        result = judge_ranks(&j, patience, err);
    else
        error_set(err, CODE_IO, "out of memory to judge %d ranks", world);
    free(j.waiter);
    free(j.late);
    return result;
}

void hang_verdict_free(struct hang_verdict *verdict)
{
    free(verdict->late);
    *verdict = (struct hang_verdict){0};
}
