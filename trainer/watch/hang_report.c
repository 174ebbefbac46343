#include "trainer/watch/hang.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_CAUSES = 8, MOST_GROUPS = 16, MOST_HISTORIES = 4, HISTORY = 12 };

/* ---- parts of the text ---- */

static void put_seconds(FILE *out, double seconds)
{
    fprintf(out, seconds < 10 ? "%.1f s" : "%.0f s", seconds);
}

static void put_operation(FILE *out, const struct hang_rank *rank, const struct record_op *op)
{
    fputs(record_kinds[op->kind], out);
    if (op->purpose[0])
        fprintf(out, " of %s", op->purpose);
    if (op->kind == RECORD_SEND)
        fprintf(out, " to rank %d", op->peer);
    if (op->kind == RECORD_RECEIVE)
        fprintf(out, " from rank %d", op->peer);
    fprintf(out, " (%s)", rank->record.comms[op->comm].name);
}

/* "ranks 0-3, 5"; returns their number. */
static int put_ranks(FILE *out, const bool *group, int world)
{
    const char *before = "";
    int count = 0;

    for (int rank = 0; rank < world; rank++)
        count += group[rank];
    fputs(count == 1 ? "rank " : "ranks ", out);
    for (int rank = 0; rank < world; rank++) {
        int last = rank;

        if (!group[rank])
            continue;
        while (last + 1 < world && group[last + 1])
            last++;
        fprintf(out, last > rank ? "%s%d-%d" : "%s%d", before, rank, last);
        before = ", ";
        rank = last;
    }
    return count;
}

static bool has_record(const struct hang_rank *rank)
{
    return rank->state != HANG_SILENT && rank->taken;
}

/* ---- the cause ---- */

static void put_position(FILE *out, const struct hang_named *named, const struct hang_rank *ranks)
{
    const struct hang_rank *rank = &ranks[named->rank];
    const struct record_op *last = record_last(&rank->record);
    const struct record_op *op = named->waiter >= 0 ? &ranks[named->waiter].record.waiting : NULL;
    bool message = op && record_is_message(op->kind);

    if (named->behind > 0 && message)
        fprintf(out, " has not begun to %s rank %d,", op->kind == RECORD_RECEIVE ? "send to" : "receive from",
                named->waiter);
    else if (named->behind > 0)
        fprintf(out, " is %llu collective%s behind,", (unsigned long long)named->behind, named->behind == 1 ? "" : "s");
    if (!last) {
        fprintf(out, " has entered nothing yet");
        return;
    }
    fprintf(out, " last entered ");
    put_operation(out, rank, last);
}

/* In the table of ranks; of one rank; and of several ranks of one node. What a running rank does is in its record. */
static const struct {
    const char *state, *one, *several;
} states[HANG_STATES] = {
    [HANG_SILENT] = {"silent", "is silent: it or its node is dead, stopped or cut off",
                     "are silent: their node is dead, stopped or cut off"},
    [HANG_STOPPED] = {"stopped", "is stopped (by SIGSTOP or a debugger)", "are stopped (by SIGSTOP or a debugger)"},
    /* other signals, and exit, are announced: HANG_ABORTED */
    [HANG_DEAD] = {"dead", "is dead (its process is gone), probably by SIGKILL",
                   "are dead (their processes are gone), probably by SIGKILL"},
    [HANG_ABORTED] = {"aborted", "has aborted", "have aborted"},
    [HANG_ENDING] = {"ending", "has ended", "have ended"},
};

static void put_state(FILE *out, const struct hang_rank *rank, bool several)
{
    if (rank->state == HANG_ABORTED && rank->signal && rank->signal != SIGABRT)
        fprintf(out, " %s ended by signal %d (%s)", several ? "were" : "was", rank->signal, strsignal(rank->signal));
    else
        fprintf(out, " %s", several ? states[rank->state].several : states[rank->state].one);
}

static void put_one(FILE *out, const struct hang_named *named, const struct hang_rank *ranks)
{
    const struct hang_rank *rank = &ranks[named->rank];

    fprintf(out, "rank %d on %s", named->rank, rank->host);
    if (rank->state == HANG_RUNNING) {
        put_position(out, named, ranks);
        fprintf(out, "; it has been %s for ", rank->record.phase);
        put_seconds(out, hang_unchanged_seconds(rank));
        return;
    }
    put_state(out, rank, false);
    if (!has_record(rank))
        return;
    fprintf(out, ";%s", named->behind > 0 ? " it" : "");
    put_position(out, named, ranks);
}

static void put_named_ranks(FILE *out, const struct hang_verdict *v, const struct hang_rank *ranks, int world)
{
    bool *done = calloc(2 * (size_t)world, sizeof *done), *group = done + world;
    int causes = 0;

    for (size_t i = 0; done && i < v->nnamed; i++) {
        const struct hang_rank *rank = &ranks[v->named[i].rank];
        int together = 0;

        if (done[v->named[i].rank])
            continue;
        if (causes++ > 0)
            fprintf(out, "; ");
        if (causes > MOST_CAUSES) {
            fprintf(out, "and %zu more", v->nnamed - i);
            break;
        }
        memset(group, 0, (size_t)world * sizeof *group);
        for (size_t k = i; k < v->nnamed && rank->state != HANG_RUNNING; k++) {
            const struct hang_rank *other = &ranks[v->named[k].rank];

            if (other->state != rank->state || other->signal != rank->signal || strcmp(other->host, rank->host) != 0)
                continue;
            group[v->named[k].rank] = done[v->named[k].rank] = true;
            together++;
        }
        if (together > 1) {
            put_ranks(out, group, world);
            fprintf(out, " on %s", rank->host);
            put_state(out, rank, true);
        } else {
            put_one(out, &v->named[i], ranks);
        }
    }
    free(done);
}

static void put_waiting(FILE *out, const struct hang_rank *ranks, int rank)
{
    fprintf(out, "rank %d on %s in ", rank, ranks[rank].host);
    put_operation(out, &ranks[rank], &ranks[rank].record.waiting);
}

static void put_cause(FILE *out, const struct hang_verdict *v, const struct hang_rank *ranks, int world)
{
    const struct record_op *op = v->nnamed ? &ranks[v->named[0].rank].record.waiting : NULL;

    switch (v->kind) {
    case HANG_LATE:
        put_named_ranks(out, v, ranks, world);
        break;
    case HANG_MISMATCH:
        fprintf(out, "two ranks are in different operations, both number %llu on their communicator: ",
                (unsigned long long)op->sequence);
        put_waiting(out, ranks, v->named[0].rank);
        fprintf(out, ", ");
        put_waiting(out, ranks, v->named[1].rank);
        fprintf(out, "; this is a bug in muster");
        break;
    case HANG_CYCLE:
        fprintf(out, "ranks wait for each other in a cycle: ");
        for (size_t i = 0; i < v->nnamed && i < MOST_CAUSES; i++) {
            put_waiting(out, ranks, v->named[i].rank);
            fprintf(out, ", ");
        }
        fprintf(out, "which waits for rank %d; this is a bug in muster", v->named[0].rank);
        break;
    case HANG_NETWORK:
        fprintf(out, "no rank is late, but data does not arrive: ");
        put_waiting(out, ranks, v->named[0].rank);
        fprintf(out, ", which all others have entered; check the network of %s", ranks[v->named[0].rank].host);
        break;
    case HANG_NOTHING:
        fprintf(out, "no rank waits for another");
        break;
    }
}

void hang_cause(struct record_cause *cause, const struct hang_verdict *v, const struct hang_rank *ranks, int world)
{
    FILE *out = fmemopen(cause->text, sizeof cause->text, "w");

    cause->text[0] = '\0';
    cause->aborted = hang_blames(v, ranks, 1u << HANG_ABORTED); /* a lost rank would have been named instead */
    if (!out)
        return;
    put_cause(out, v, ranks, world);
    fclose(out);
    cause->text[sizeof cause->text - 1] = '\0'; /* fmemopen does not terminate a text that it truncates */
}

/* ---- the report ---- */

static bool is_named(const struct hang_verdict *v, int rank)
{
    for (size_t i = 0; i < v->nnamed; i++)
        if (v->named[i].rank == rank)
            return true;
    return false;
}

static bool same_text(const struct hang_rank *a, const struct hang_rank *b)
{
    const struct record_op *p = hang_waiting_op(a), *q = hang_waiting_op(b);

    return p && q && p->kind == q->kind && strcmp(p->purpose, q->purpose) == 0 &&
           strcmp(a->record.comms[p->comm].name, b->record.comms[q->comm].name) == 0;
}

/* "ranks 0-3 wait in reduce-scatter of block 6 gradients (dp), for 12 s" */
static void print_waiting(FILE *out, const struct hang_rank *ranks, int world)
{
    bool *done = calloc(2 * (size_t)world, sizeof *done), *group = done + world;
    int groups = 0;

    for (int first = 0; done && first < world; first++) {
        double longest = 0;

        if (done[first] || !hang_waiting_op(&ranks[first]))
            continue;
        if (++groups > MOST_GROUPS) {
            fputs("  and so on\n", out);
            break;
        }
        for (int rank = 0; rank < world; rank++) {
            double seconds = 1e-9 * (double)(ranks[rank].taken - ranks[rank].record.waiting_since);

            group[rank] = same_text(&ranks[first], &ranks[rank]);
            done[rank] |= group[rank];
            if (group[rank] && seconds > longest)
                longest = seconds;
        }
        fputs("  ", out);
        fputs(put_ranks(out, group, world) > 1 ? " wait in " : " waits in ", out);
        put_operation(out, &ranks[first], &ranks[first].record.waiting);
        fprintf(out, ", for ");
        put_seconds(out, longest);
        fputc('\n', out);
    }
    free(done);
}

static void print_rank(FILE *out, const struct hang_rank *rank, int number, bool named)
{
    const struct record_op *op = hang_waiting_op(rank) ? hang_waiting_op(rank) : record_last(&rank->record);
    const struct flight_record *r = &rank->record;
    const char *state = states[rank->state].state;
    char step[48] = "-";

    if (rank->state == HANG_RUNNING)
        state = hang_waiting_op(rank) ? "waiting" : r->phase;
    fprintf(out, "%c %5d  %-16s %-20s", named ? '*' : ' ', number, rank->host, state);
    if (has_record(rank)) {
        if (r->step)
            snprintf(step, sizeof step, r->micro_batch ? "%lld.%lld" : "%lld", (long long)r->step,
                     (long long)r->micro_batch);
        fprintf(out, " %8.1f s  %-10s #%llu ", hang_unchanged_seconds(rank), step,
                op ? (unsigned long long)op->sequence : 0);
        if (op)
            put_operation(out, rank, op);
        else
            fputc('-', out);
    }
    fputc('\n', out);
}

static void print_history(FILE *out, const struct hang_rank *rank, int number)
{
    uint64_t last = rank->record.operations, first = last > HISTORY ? last - HISTORY + 1 : 1;

    fprintf(out, "\nlast operations of rank %d, seconds before this report:\n", number);
    for (uint64_t n = first; n <= last; n++) {
        const struct record_op *op = &rank->record.ring[n % RECORD_RING];

        if (op->number != n)
            continue;
        fprintf(out, "  %9.3f  #%llu ", 1e-9 * (double)(rank->taken - op->entered), (unsigned long long)op->sequence);
        put_operation(out, rank, op);
        if (op->finished)
            fprintf(out, ", took %.3f s\n", 1e-9 * (double)(op->finished - op->entered));
        else
            fputs(", not finished\n", out);
    }
}

static void print_report(FILE *out, const char *title, const struct hang_verdict *v, const struct hang_rank *ranks,
                         int world, int most_lines)
{
    int lines = 0, histories = 0;
    long long step = 0;

    for (int rank = 0; rank < world; rank++)
        step = ranks[rank].record.step > step ? (long long)ranks[rank].record.step : step;
    put_cause(out, v, ranks, world);
    fprintf(out, "\n%s, at step %lld\n\n", title, step);
    print_waiting(out, ranks, world);
    fprintf(out, "\n%7s  %-16s %-20s %10s  %-10s waits in, or last entered\n", "rank", "node", "state", "unchanged",
            "step.micro");
    for (int rank = 0; rank < world; rank++)
        if (most_lines == 0 || lines++ < most_lines || is_named(v, rank))
            print_rank(out, &ranks[rank], rank, is_named(v, rank));
    for (size_t i = 0; i < v->nnamed && histories < MOST_HISTORIES; i++)
        if (record_last(&ranks[v->named[i].rank].record)) {
            print_history(out, &ranks[v->named[i].rank], v->named[i].rank);
            histories++;
        }
    if (hang_blames(v, ranks, 1u << HANG_ABORTED))
        fputs("\n" HANG_ABORTED_LINE, out);
}

char *hang_compose(const char *title, const struct hang_verdict *verdict, const struct hang_rank *ranks, int world,
                   int most_lines)
{
    char *text = NULL;
    size_t length;
    FILE *out = open_memstream(&text, &length);

    if (!out)
        return NULL;
    print_report(out, title, verdict, ranks, world, most_lines);
    return fclose(out) == 0 ? text : (free(text), NULL);
}
