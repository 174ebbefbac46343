#include "trainer/watch/hang.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_SENTENCES = 8, MOST_GROUPS = 16, MOST_HISTORIES = 4, HISTORY = 12, OP_TEXT_SIZE = 160 };

/* ---- parts of sentences ---- */

/* Text that is truncated at the end of its buffer. */
struct report_line {
    char *text;
    size_t size, used;
};
__attribute__((format(printf, 2, 3))) static void add_text(struct report_line *line, const char *format, ...)
{
    va_list args;
    int length;

    va_start(args, format);
    length = vsnprintf(line->text + line->used, line->size - line->used, format, args);
    va_end(args);
    if (length > 0)
        line->used += (size_t)length < line->size - line->used ? (size_t)length : line->size - line->used - 1;
}

static void add_seconds(struct report_line *line, double seconds)
{
    add_text(line, seconds < 10 ? "%.1f s" : "%.0f s", seconds);
}

static void add_operation(struct report_line *line, const struct hang_rank *rank, const struct record_op *op)
{
    add_text(line, "%s", record_kinds[op->kind]);
    if (op->purpose[0])
        add_text(line, " of %s", op->purpose);
    if (op->kind == RECORD_SEND)
        add_text(line, " to rank %d", op->peer);
    if (op->kind == RECORD_RECEIVE)
        add_text(line, " from rank %d", op->peer);
    add_text(line, " (%s)", rank->record.comms[op->comm].name);
}

static void add_ranks(struct report_line *line, const bool *chosen, int world)
{
    const char *before = "";
    int count = 0;

    for (int rank = 0; rank < world; rank++)
        count += chosen[rank];
    add_text(line, count == 1 ? "rank " : "ranks ");
    for (int rank = 0; rank < world; rank++) {
        int last = rank;

        if (!chosen[rank])
            continue;
        while (last + 1 < world && chosen[last + 1])
            last++;
        add_text(line, last > rank ? "%s%d-%d" : "%s%d", before, rank, last);
        before = ", ";
        rank = last;
    }
}

/* ---- the sentence ---- */

static void add_position(struct report_line *line, const struct hang_late *late, const struct hang_rank *ranks)
{
    const struct hang_rank *rank = &ranks[late->rank];
    const struct record_op *last = record_last(&rank->record);
    const struct record_op *op = late->waiter >= 0 ? &ranks[late->waiter].record.waiting : NULL;
    bool transfer = op && record_is_transfer(op->kind);

    if (late->behind > 0 && transfer)
        add_text(line, " has not begun to %s rank %d,", op->kind == RECORD_RECEIVE ? "send to" : "receive from",
                 late->waiter);
    else if (late->behind > 0)
        add_text(line, " is %llu collective%s behind,", (unsigned long long)late->behind, late->behind == 1 ? "" : "s");
    if (!last) {
        add_text(line, " has entered nothing yet");
        return;
    }
    add_text(line, " last entered ");
    add_operation(line, rank, last);
}

/* Several silent, dead or stopped ranks of one host share a sentence. */
static const char *describe_state(enum hang_state state, bool several)
{
    switch (state) {
    case HANG_SILENT:
        return several ? "gave no sign: their node is dead, stopped or cut off"
                       : "gave no sign: its node or it is dead, stopped or cut off";
    case HANG_DEAD:
        return several ? "are dead (their processes are gone)" : "is dead (its process is gone)";
    case HANG_STOPPED:
        return several ? "are stopped (by SIGSTOP or a debugger)" : "is stopped (by SIGSTOP or a debugger)";
    case HANG_ABORTED:
        return several ? "have aborted" : "has aborted";
    case HANG_ENDED:
        return several ? "have ended" : "has ended";
    case HANG_RUNNING:
        break;
    }
    return "";
}

static void add_one(struct report_line *line, const struct hang_late *late, const struct hang_rank *ranks)
{
    const struct hang_rank *rank = &ranks[late->rank];

    add_text(line, "rank %d on %s", late->rank, rank->host);
    if (rank->state != HANG_RUNNING)
        add_text(line, " %s", describe_state(rank->state, false));
    if (rank->state == HANG_SILENT)
        return;
    if (rank->state != HANG_RUNNING)
        add_text(line, ";%s", late->behind > 0 ? " it" : "");
    add_position(line, late, ranks);
    if (rank->state != HANG_RUNNING)
        return;
    add_text(line, "; it has been %s for ", rank->record.phase);
    add_seconds(line, hang_idle_seconds(rank));
}

static void add_late_ranks(struct report_line *line, const struct hang_verdict *v, const struct hang_rank *ranks,
                           int world)
{
    bool *done = calloc((size_t)world, sizeof *done), *group = calloc((size_t)world, sizeof *group);
    int sentences = 0;

    for (size_t i = 0; done && group && i < v->nlate; i++) {
        const struct hang_rank *rank = &ranks[v->late[i].rank];
        int together = 0;

        if (done[v->late[i].rank])
            continue;
        if (sentences++ > 0)
            add_text(line, "; ");
        if (sentences > MOST_SENTENCES) {
            add_text(line, "and %zu more", v->nlate - i);
            break;
        }
        memset(group, 0, (size_t)world * sizeof *group);
        for (size_t k = i; k < v->nlate && rank->state != HANG_RUNNING; k++) {
            const struct hang_rank *other = &ranks[v->late[k].rank];

            if (other->state != rank->state || strcmp(other->host, rank->host) != 0)
                continue;
            group[v->late[k].rank] = done[v->late[k].rank] = true;
            together++;
        }
        if (together > 1) {
            add_ranks(line, group, world);
            add_text(line, " on %s %s", rank->host, describe_state(rank->state, true));
        } else {
            add_one(line, &v->late[i], ranks);
        }
    }
    free(done);
    free(group);
}

static void add_waiting(struct report_line *line, const struct hang_rank *ranks, int rank)
{
    add_text(line, "rank %d on %s in ", rank, ranks[rank].host);
    add_operation(line, &ranks[rank], &ranks[rank].record.waiting);
}

void hang_sentence(char *text, size_t size, const struct hang_verdict *v, const struct hang_rank *ranks, int world)
{
    struct report_line line = {.text = text, .size = size};
    const struct record_op *op = v->nlate ? &ranks[v->late[0].rank].record.waiting : NULL;

    text[0] = '\0';
    switch (v->kind) {
    case HANG_LATE:
        add_late_ranks(&line, v, ranks, world);
        break;
    case HANG_MISMATCH:
        add_text(&line, "two ranks are in different operations, both number %llu on their communicator: ",
                 (unsigned long long)op->sequence);
        add_waiting(&line, ranks, v->late[0].rank);
        add_text(&line, ", ");
        add_waiting(&line, ranks, v->late[1].rank);
        add_text(&line, "; this is a bug in muster");
        break;
    case HANG_CYCLE:
        add_text(&line, "ranks wait for each other in a cycle: ");
        for (size_t i = 0; i < v->nlate && i < MOST_SENTENCES; i++) {
            add_waiting(&line, ranks, v->late[i].rank);
            add_text(&line, ", ");
        }
        add_text(&line, "which waits for rank %d; this is a bug in muster", v->late[0].rank);
        break;
    case HANG_TRANSFER:
        add_text(&line, "no rank is late, but data does not arrive: ");
        add_waiting(&line, ranks, v->late[0].rank);
        add_text(&line, ", which all others have entered; check the network of %s", ranks[v->late[0].rank].host);
        break;
    case HANG_NOTHING:
        add_text(&line, "no rank waits for another");
        break;
    }
}

bool hang_blames_abort(const char *sentence, int rank)
{
    char start[32], aborted[64];
    const char *at;

    snprintf(start, sizeof start, "rank %d on ", rank);
    snprintf(aborted, sizeof aborted, " %s", describe_state(HANG_ABORTED, false));
    at = strstr(sentence, start);
    at = at ? strchr(at + strlen(start), ' ') : NULL; /* after the host */
    return at && strncmp(at, aborted, strlen(aborted)) == 0;
}

/* ---- the report ---- */

static bool is_late(const struct hang_verdict *v, int rank)
{
    for (size_t i = 0; i < v->nlate; i++)
        if (v->late[i].rank == rank)
            return true;
    return false;
}

static bool same_text(const struct hang_rank *a, const struct hang_rank *b)
{
    const struct record_op *p = hang_waits(a), *q = hang_waits(b);

    return p && q && p->kind == q->kind && strcmp(p->purpose, q->purpose) == 0 &&
           strcmp(a->record.comms[p->comm].name, b->record.comms[q->comm].name) == 0;
}

/* "ranks 0-3 wait in reduce-scatter of block 6 gradients (dp), for 12 s" */
static void print_waiting(FILE *out, const struct hang_rank *ranks, int world)
{
    bool *done = calloc((size_t)world, sizeof *done), *group = calloc((size_t)world, sizeof *group);
    int groups = 0;

    for (int first = 0; done && group && first < world; first++) {
        char text[1024];
        struct report_line line = {.text = text, .size = sizeof text};
        double longest = 0;

        if (done[first] || !hang_waits(&ranks[first]))
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
        add_ranks(&line, group, world);
        add_text(&line, strchr(text, '-') || strchr(text, ',') ? " wait in " : " waits in ");
        add_operation(&line, &ranks[first], &ranks[first].record.waiting);
        add_text(&line, ", for ");
        add_seconds(&line, longest);
        fprintf(out, "  %s\n", text);
    }
    free(done);
    free(group);
}

static const char *state_name(const struct hang_rank *rank)
{
    switch (rank->state) {
    case HANG_SILENT:
        return "no sign";
    case HANG_STOPPED:
        return "stopped";
    case HANG_DEAD:
        return "dead";
    case HANG_ABORTED:
        return "aborted";
    case HANG_ENDED:
        return "ended";
    case HANG_RUNNING:
        break;
    }
    return hang_waits(rank) ? "waiting" : rank->record.phase;
}

static void print_rank(FILE *out, const struct hang_rank *rank, int number, bool late)
{
    const struct record_op *op = hang_waits(rank) ? hang_waits(rank) : record_last(&rank->record);
    char text[OP_TEXT_SIZE] = "-", step[48] = "-";
    struct report_line line = {.text = text, .size = sizeof text};

    fprintf(out, "%c %5d  %-16s %-20s", late ? '*' : ' ', number, rank->host, state_name(rank));
    if (rank->state == HANG_SILENT) {
        fputc('\n', out);
        return;
    }
    if (op)
        add_operation(&line, rank, op);
    if (rank->record.step && rank->record.micro_batch)
        snprintf(step, sizeof step, "%lld.%lld", (long long)rank->record.step, (long long)rank->record.micro_batch);
    else if (rank->record.step)
        snprintf(step, sizeof step, "%lld", (long long)rank->record.step);
    fprintf(out, " %8.1f s  %-10s #%llu %s\n", hang_idle_seconds(rank), step, op ? (unsigned long long)op->sequence : 0,
            text);
}

static void print_history(FILE *out, const struct hang_rank *rank, int number)
{
    uint64_t last = rank->record.operations, first = last > HISTORY ? last - HISTORY + 1 : 1;

    fprintf(out, "\nlast operations of rank %d, seconds before this report:\n", number);
    for (uint64_t n = first; n <= last; n++) {
        const struct record_op *op = &rank->record.ring[n % RECORD_RING];
        char text[OP_TEXT_SIZE];
        struct report_line line = {.text = text, .size = sizeof text};

        if (op->number != n)
            continue;
        add_operation(&line, rank, op);
        fprintf(out, "  %9.3f  #%llu %s, ", 1e-9 * (double)(rank->taken - op->entered),
                (unsigned long long)op->sequence, text);
        if (op->left)
            fprintf(out, "took %.3f s\n", 1e-9 * (double)(op->left - op->entered));
        else
            fputs("not finished\n", out);
    }
}

void hang_print(FILE *out, const char *title, const struct hang_verdict *v, const struct hang_rank *ranks, int world,
                int most_lines)
{
    char sentence[2048];
    int lines = 0, histories = 0;

    hang_sentence(sentence, sizeof sentence, v, ranks, world);
    fprintf(out, "%s\n%s\n\n", sentence, title ? title : "");
    print_waiting(out, ranks, world);
    fprintf(out, "\n%7s  %-16s %-20s %10s  %-10s waits in, or last entered\n", "rank", "host", "state", "since",
            "step");
    for (int rank = 0; rank < world; rank++)
        if (most_lines == 0 || lines++ < most_lines || is_late(v, rank))
            print_rank(out, &ranks[rank], rank, is_late(v, rank));
    for (size_t i = 0; i < v->nlate && histories < MOST_HISTORIES; i++)
        if (record_last(&ranks[v->late[i].rank].record)) {
            print_history(out, &ranks[v->late[i].rank], v->late[i].rank);
            histories++;
        }
}
