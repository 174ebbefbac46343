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
    BLOCKS_NOT,
    BLOCKS_BUSY,   /* it has entered but does not wait: a library may move data only while a rank waits */
    BLOCKS_ABSENT, /* it has not entered */
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

/* The progress of `rank` where `waiter` waits: collectives entered, or messages to or from the waiter. */
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
        return BLOCKS_NOT;
    if (other->state == HANG_SILENT || count_collectives(other, waiter, op, comm) < op->sequence)
        return BLOCKS_ABSENT;
    if (other->state != HANG_RUNNING)
        return BLOCKS_BUSY;
    theirs = same_comm(other, comm);
    if (!hang_waits(other) && (record_is_transfer(op->kind) || (theirs && theirs->left < op->sequence)))
        return BLOCKS_BUSY;
    return BLOCKS_NOT;
}

/* The strongest way in which any rank blocks a waiting one. */
static enum strength find_strongest(const struct hang_rank *ranks, int waiter)
{
    int comm = ranks[waiter].record.waiting.comm;
    enum strength most = BLOCKS_NOT;

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
    int *waiter; /* [world] the lowest rank that waits for this one, if this one does not wait itself; else -1 */
    bool *late;  /* [world] */
    struct hang_verdict *verdict;
};

static bool is_lost(const struct hang_rank *rank)
{
    return rank->state == HANG_DEAD || rank->state == HANG_STOPPED;
}

/* Marks the ranks at which chains of waiting end, and those that are lost or have aborted. */
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

        if (!hang_waits(r) || (most = find_strongest(j->ranks, w)) == BLOCKS_NOT)
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
 * Keeps the most likely causes: lost ranks before silent ones, whose host may only not have published yet; either
 * before ranks that aborted or ended, which may be a consequence; and any of these before busy ranks, unless they have
 * been busy for long. Of the busy ranks those are kept that were busy for more than half of the longest time.
 */
static void keep_worst(struct judge *j, double patience)
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

/* How far a late rank is behind the others on the communicator where a rank waits for it. */
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

/* 1 if two ranks are in different operations at the same place of a communicator. */
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

    for (int i = 0; i < r->record.comms[comm].size && most != BLOCKS_NOT; i++) {
        int rank = r->members[comm][i];

        if (blocks_waiter(j->ranks, waiter, rank) == most && (lowest < 0 || rank < lowest))
            lowest = rank;
    }
    return lowest;
}

/* All late candidates wait: some for no rank, or all in cycles. `late` marks the ranks that were visited. */
static int name_waiting(struct judge *j, struct error *err)
{
    int first = -1, rank;

    j->verdict->kind = HANG_TRANSFER;
    for (int w = 0; w < j->world; w++) {
        if (!hang_waits(&j->ranks[w]))
            continue;
        first = first < 0 ? w : first;
        if (find_strongest(j->ranks, w) == BLOCKS_NOT && add_late(j, w, -1, err) < 0)
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
    keep_worst(j, patience);
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
