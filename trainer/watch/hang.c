#include "trainer/watch/hang.h"

#include <stdlib.h>
#include <string.h>

const struct record_op *hang_waiting_op(const struct hang_rank *rank)
{
    return rank->state == HANG_RUNNING && rank->record.waiting_since ? &rank->record.waiting : NULL;
}

double hang_unchanged_seconds(const struct hang_rank *rank)
{
    return 1e-9 * (double)(rank->taken - rank->record.last_change);
}

/* ---- who waits for whom ---- */

enum strength {
    BLOCKS_NOT,
    BLOCKS_ENTERED, /* it has entered, but computes, or is stopped or dead: MPI may need it to move data */
    BLOCKS_ABSENT,  /* it has not entered */
};

static const struct record_comm *same_comm(const struct hang_rank *rank, const struct record_comm *comm)
{
    for (int i = 0; i < RECORD_COMMS; i++)
        if (rank->record.comms[i].id == comm->id)
            return &rank->record.comms[i];
    return NULL;
}

/* The progress of `rank` where `waiter` waits: collectives entered, or messages to or from the waiter begun. */
static uint64_t count_progress(const struct hang_rank *rank, int waiter, const struct record_op *op,
                               const struct record_comm *comm)
{
    const struct record_comm *theirs = same_comm(rank, comm);

    if (!record_is_message(op->kind))
        return theirs ? theirs->collectives_entered : 0;
    for (int i = 0; theirs && i < theirs->npeers; i++)
        if (theirs->peers[i].rank == waiter)
            return op->kind == RECORD_RECEIVE ? theirs->peers[i].sends : theirs->peers[i].receives;
    return 0;
}

static enum strength blocks_waiter(const struct hang_rank *ranks, int waiter, int rank)
{
    const struct record_op *op = hang_waiting_op(&ranks[waiter]);
    const struct record_comm *comm = &ranks[waiter].record.comms[op->comm], *theirs;
    const struct hang_rank *other = &ranks[rank];

    if (rank < 0 || rank == waiter || (record_is_message(op->kind) && rank != op->peer))
        return BLOCKS_NOT;
    if (other->state == HANG_SILENT || count_progress(other, waiter, op, comm) < op->sequence)
        return BLOCKS_ABSENT;
    if (other->state != HANG_RUNNING)
        return BLOCKS_ENTERED;
    theirs = same_comm(other, comm);
    if (!hang_waiting_op(other) &&
        (record_is_message(op->kind) || (theirs && theirs->collectives_finished < op->sequence)))
        return BLOCKS_ENTERED;
    return BLOCKS_NOT;
}

/* The strongest way in which any rank blocks a waiting one. */
static enum strength find_strongest(const struct hang_rank *ranks, int waiter)
{
    const struct record_comm *comm = &ranks[waiter].record.comms[ranks[waiter].record.waiting.comm];
    enum strength most = BLOCKS_NOT;

    for (int i = 0; i < comm->size; i++) {
        enum strength s = blocks_waiter(ranks, waiter, record_member(comm, i));

        most = s > most ? s : most;
    }
    return most;
}

/* ---- the verdict ---- */

/* What is found out about a rank. */
struct finding {
    int waiter;   /* the lowest rank that waits for this one, if this one does not wait itself; else -1 */
    int next;     /* the lowest rank that this one waits for; -1 for none */
    bool suspect; /* it may be the cause */
};

struct judge {
    const struct hang_rank *ranks;
    int world;
    struct finding *of; /* [world] */
    struct hang_verdict *verdict;
};

static bool is_dead_or_stopped(const struct hang_rank *rank)
{
    return rank->state == HANG_DEAD || rank->state == HANG_STOPPED;
}

/*
 * Marks the ranks at which chains of waiting end, and those that are dead, stopped or have aborted. If one has aborted,
 * it does not show for whom it waited: then it may have been for any silent rank.
 */
static void find_ends(struct judge *j)
{
    bool aborted = false;

    for (int rank = 0; rank < j->world; rank++)
        aborted |= j->ranks[rank].state == HANG_ABORTED;
    for (int rank = 0; rank < j->world; rank++) {
        enum hang_state state = j->ranks[rank].state;

        j->of[rank].waiter = j->of[rank].next = -1;
        j->of[rank].suspect =
            is_dead_or_stopped(&j->ranks[rank]) || state == HANG_ABORTED || (aborted && state == HANG_SILENT);
    }
    for (int w = 0; w < j->world; w++) {
        const struct hang_rank *r = &j->ranks[w];
        const struct record_comm *comm = &r->record.comms[r->record.waiting.comm];
        enum strength most;

        if (!hang_waiting_op(r) || (most = find_strongest(j->ranks, w)) == BLOCKS_NOT)
            continue;
        for (int i = 0; i < comm->size; i++) {
            int rank = record_member(comm, i);

            if (blocks_waiter(j->ranks, w, rank) != most)
                continue;
            if (j->of[w].next < 0 || rank < j->of[w].next)
                j->of[w].next = rank;
            if (hang_waiting_op(&j->ranks[rank]))
                continue;
            j->of[rank].suspect = true;
            if (j->of[rank].waiter < 0)
                j->of[rank].waiter = w;
        }
    }
}

/*
 * Keeps the most likely causes. Of these classes only the first one that occurs remains:
 *
 *   1. dead and stopped ranks
 *   2. silent ranks: perhaps their node has just not published yet
 *   3. ranks that have aborted: it may be a consequence
 *   4. ranks that have ended or are ending: it may be a consequence
 *
 * A running rank that does not wait is kept if it has been unchanged for long enough. If there is a rank of class 1, 2
 * or 3, that is at least `patience`. Otherwise it is at least half of the time of the one that has been unchanged
 * longest.
 */
static void keep_most_likely(struct judge *j, double patience)
{
    bool gone = false, silent = false, aborted = false;
    double longest = 0;

    for (int rank = 0; rank < j->world; rank++) {
        const struct hang_rank *r = &j->ranks[rank];

        if (!j->of[rank].suspect)
            continue;
        gone |= is_dead_or_stopped(r);
        silent |= r->state == HANG_SILENT;
        aborted |= r->state == HANG_ABORTED;
        if (r->state == HANG_RUNNING && hang_unchanged_seconds(r) > longest)
            longest = hang_unchanged_seconds(r);
    }
    for (int rank = 0; rank < j->world; rank++) {
        const struct hang_rank *r = &j->ranks[rank];
        double least = gone || silent || aborted ? patience : longest / 2;

        if (r->state == HANG_SILENT)
            j->of[rank].suspect &= !gone;
        else if (r->state == HANG_ABORTED || r->state == HANG_ENDING)
            j->of[rank].suspect &= !gone && !silent && (r->state == HANG_ABORTED || !aborted);
        else if (r->state == HANG_RUNNING)
            j->of[rank].suspect &= hang_unchanged_seconds(r) >= least;
    }
}

static void add_named(struct judge *j, int rank, int waiter)
{
    j->verdict->named[j->verdict->nnamed++] = (struct hang_named){.rank = rank, .waiter = waiter};
}

/* How far a late rank is behind the others on the communicator where a rank waits for it. */
static void measure_lateness(const struct judge *j, struct hang_named *named)
{
    const struct hang_rank *w = &j->ranks[named->waiter];
    const struct record_op *op = &w->record.waiting;
    const struct record_comm *comm = &w->record.comms[op->comm];
    uint64_t most = op->sequence, own = count_progress(&j->ranks[named->rank], named->waiter, op, comm);

    for (int i = 0; i < comm->size && !record_is_message(op->kind); i++) {
        int member = record_member(comm, i);
        uint64_t other = member >= 0 ? count_progress(&j->ranks[member], named->waiter, op, comm) : 0;

        most = other > most ? other : most;
    }
    named->behind = most > own ? most - own : 0;
}

/* False if there are none. */
static bool name_suspects(struct judge *j)
{
    for (int rank = 0; rank < j->world; rank++) {
        if (!j->of[rank].suspect)
            continue;
        add_named(j, rank, j->of[rank].waiter);
        if (j->of[rank].waiter >= 0)
            measure_lateness(j, &j->verdict->named[j->verdict->nnamed - 1]);
    }
    j->verdict->kind = HANG_LATE;
    return j->verdict->nnamed > 0;
}

/* False if the two ranks are in different operations with the same sequence number on one communicator. */
static bool operations_agree(const struct hang_rank *a, const struct hang_rank *b)
{
    const struct record_op *p = hang_waiting_op(a), *q = hang_waiting_op(b);

    return a->record.comms[p->comm].id != b->record.comms[q->comm].id || p->sequence != q->sequence ||
           record_is_message(p->kind) || record_is_message(q->kind) ||
           (p->kind == q->kind && strcmp(p->purpose, q->purpose) == 0);
}

static bool find_mismatch(struct judge *j)
{
    for (int a = 0; a < j->world; a++)
        for (int b = a + 1; b < j->world && hang_waiting_op(&j->ranks[a]); b++)
            if (hang_waiting_op(&j->ranks[b]) && !operations_agree(&j->ranks[a], &j->ranks[b])) {
                j->verdict->kind = HANG_MISMATCH;
                add_named(j, a, -1);
                add_named(j, b, -1);
                return true;
            }
    return false;
}

/*
 * There is no suspect: every rank that is waited for waits too. Either some wait for no rank (HANG_NETWORK), or all are
 * in cycles (HANG_CYCLE).
 */
static void judge_without_suspects(struct judge *j)
{
    int first = -1, rank;

    j->verdict->kind = HANG_NETWORK;
    for (int w = 0; w < j->world; w++) {
        if (!hang_waiting_op(&j->ranks[w]))
            continue;
        first = first < 0 ? w : first;
        if (j->of[w].next < 0)
            add_named(j, w, -1);
    }
    if (j->verdict->nnamed > 0)
        return;
    j->verdict->kind = first < 0 ? HANG_NOTHING : HANG_CYCLE;
    if (first < 0)
        return;
    for (rank = first; !j->of[rank].suspect; rank = j->of[rank].next)
        j->of[rank].suspect = true; /* visited: no rank is a suspect here */
    first = rank;
    do {
        add_named(j, rank, -1);
        rank = j->of[rank].next;
    } while (rank != first);
}

int hang_judge(struct hang_verdict *verdict, const struct hang_rank *ranks, int world, double patience,
               struct error *err)
{
    struct judge j = {.ranks = ranks, .world = world, .verdict = verdict};

    *verdict = (struct hang_verdict){.named = error_calloc((size_t)world, sizeof *verdict->named, err)};
    j.of = verdict->named ? error_calloc((size_t)world, sizeof *j.of, err) : NULL;
    if (!j.of)
        return -1;
    find_ends(&j);
    keep_most_likely(&j, patience);
    if (!name_suspects(&j) && !find_mismatch(&j))
        judge_without_suspects(&j);
    free(j.of);
    return 0;
}

bool hang_blames(const struct hang_verdict *verdict, const struct hang_rank *ranks, unsigned states)
{
    for (size_t i = 0; i < verdict->nnamed; i++)
        if (states & 1u << ranks[verdict->named[i].rank].state)
            return true;
    return false;
}
