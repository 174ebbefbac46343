#include "trainer/report/hang_report.h"

#include <stdlib.h>
#include <string.h>

#include "trainer/report/hang_words.h"

enum { MOST_GROUPS = 16, MOST_HISTORIES = 4, HISTORY = 12, OP_TEXT_SIZE = 160 };

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
    bool *said = calloc((size_t)world, sizeof *said), *group = calloc((size_t)world, sizeof *group);
    int groups = 0;

    for (int first = 0; said && group && first < world; first++) {
        char text[1024];
        struct line line = {.text = text, .size = sizeof text};
        double longest = 0;

        if (said[first] || !hang_waits(&ranks[first]))
            continue;
        if (++groups > MOST_GROUPS) {
            fputs("  and so on\n", out);
            break;
        }
        for (int rank = 0; rank < world; rank++) {
            double seconds = 1e-9 * (double)(ranks[rank].taken - ranks[rank].record.waiting_since);

            group[rank] = same_text(&ranks[first], &ranks[rank]);
            said[rank] |= group[rank];
            if (group[rank] && seconds > longest)
                longest = seconds;
        }
        hang_say_ranks(&line, group, world);
        hang_say(&line, strchr(text, '-') || strchr(text, ',') ? " wait in " : " waits in ");
        hang_say_op(&line, &ranks[first], &ranks[first].record.waiting);
        hang_say(&line, ", for ");
        hang_say_seconds(&line, longest);
        fprintf(out, "  %s\n", text);
    }
    free(said);
    free(group);
}

static const char *state_word(const struct hang_rank *rank)
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
    struct line line = {.text = text, .size = sizeof text};

    fprintf(out, "%c %5d  %-16s %-20s", late ? '*' : ' ', number, rank->host, state_word(rank));
    if (rank->state == HANG_SILENT) {
        fputc('\n', out);
        return;
    }
    if (op)
        hang_say_op(&line, rank, op);
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
        struct line line = {.text = text, .size = sizeof text};

        if (op->number != n)
            continue;
        hang_say_op(&line, rank, op);
        fprintf(out, "  %9.3f  #%llu %s, ", 1e-9 * (double)(rank->taken - op->entered),
                (unsigned long long)op->sequence, text);
        if (op->left)
            fprintf(out, "took %.3f s\n", 1e-9 * (double)(op->left - op->entered));
        else
            fputs("under way\n", out);
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
    fprintf(out, "\n%7s  %-16s %-20s %10s  %-10s what it waits in, or last entered\n", "rank", "host", "state", "since",
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
