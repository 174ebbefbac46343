/* hang_sentence.c - the verdict of hang_report.h in one line. */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/report/hang_words.h"

enum { MOST_SENTENCES = 8 };

/* ---- words ---- */

void hang_say(struct line *line, const char *format, ...)
{
    va_list args;
    int length;

    va_start(args, format);
    length = vsnprintf(line->text + line->used, line->size - line->used, format, args);
    va_end(args);
    if (length > 0)
        line->used += (size_t)length < line->size - line->used ? (size_t)length : line->size - line->used - 1;
}

void hang_say_seconds(struct line *line, double seconds)
{
    hang_say(line, seconds < 10 ? "%.1f s" : "%.0f s", seconds);
}

void hang_say_op(struct line *line, const struct hang_rank *rank, const struct record_op *op)
{
    hang_say(line, "%s", record_kinds[op->kind]);
    if (op->purpose[0])
        hang_say(line, " of %s", op->purpose);
    if (op->kind == RECORD_SEND)
        hang_say(line, " to rank %d", op->peer);
    if (op->kind == RECORD_RECEIVE)
        hang_say(line, " from rank %d", op->peer);
    hang_say(line, " (%s)", rank->record.comms[op->comm].name);
}

void hang_say_ranks(struct line *line, const bool *chosen, int world)
{
    const char *before = "";
    int count = 0;

    for (int rank = 0; rank < world; rank++)
        count += chosen[rank];
    hang_say(line, count == 1 ? "rank " : "ranks ");
    for (int rank = 0; rank < world; rank++) {
        int last = rank;

        if (!chosen[rank])
            continue;
        while (last + 1 < world && chosen[last + 1])
            last++;
        hang_say(line, last > rank ? "%s%d-%d" : "%s%d", before, rank, last);
        before = ", ";
        rank = last;
    }
}

/* ---- the sentence ---- */

static void say_position(struct line *line, const struct hang_late *late, const struct hang_rank *ranks)
{
    const struct hang_rank *rank = &ranks[late->rank];
    const struct record_op *last = record_last(&rank->record);
    const struct record_op *op = late->waiter >= 0 ? &ranks[late->waiter].record.waiting : NULL;
    bool transfer = op && record_is_transfer(op->kind);

    if (late->behind > 0 && transfer)
        hang_say(line, " has not begun to %s rank %d,", op->kind == RECORD_RECEIVE ? "send to" : "receive from",
                 late->waiter);
    else if (late->behind > 0)
        hang_say(line, " is %llu collective%s behind,", (unsigned long long)late->behind, late->behind == 1 ? "" : "s");
    if (!last) {
        hang_say(line, " has entered nothing yet");
        return;
    }
    hang_say(line, " last entered ");
    hang_say_op(line, rank, last);
}

/* Silent, dead and stopped ranks of one host are one sentence if they are several. */
static const char *lost_words(enum hang_state state, bool several)
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

static void say_one(struct line *line, const struct hang_late *late, const struct hang_rank *ranks)
{
    const struct hang_rank *rank = &ranks[late->rank];

    hang_say(line, "rank %d on %s", late->rank, rank->host);
    if (rank->state != HANG_RUNNING)
        hang_say(line, " %s", lost_words(rank->state, false));
    if (rank->state == HANG_SILENT)
        return;
    if (rank->state != HANG_RUNNING)
        hang_say(line, ";%s", late->behind > 0 ? " it" : "");
    say_position(line, late, ranks);
    if (rank->state != HANG_RUNNING)
        return;
    hang_say(line, "; it has been %s for ", rank->record.phase);
    hang_say_seconds(line, hang_idle_seconds(rank));
}

static void say_late(struct line *line, const struct hang_verdict *v, const struct hang_rank *ranks, int world)
{
    bool *said = calloc((size_t)world, sizeof *said), *group = calloc((size_t)world, sizeof *group);
    int sentences = 0;

    for (size_t i = 0; said && group && i < v->nlate; i++) {
        const struct hang_rank *rank = &ranks[v->late[i].rank];
        int together = 0;

        if (said[v->late[i].rank])
            continue;
        if (sentences++ > 0)
            hang_say(line, "; ");
        if (sentences > MOST_SENTENCES) {
            hang_say(line, "and %zu more", v->nlate - i);
            break;
        }
        memset(group, 0, (size_t)world * sizeof *group);
        for (size_t k = i; k < v->nlate && rank->state != HANG_RUNNING; k++) {
            const struct hang_rank *other = &ranks[v->late[k].rank];

            if (other->state != rank->state || strcmp(other->host, rank->host) != 0)
                continue;
            group[v->late[k].rank] = said[v->late[k].rank] = true;
            together++;
        }
        if (together > 1) {
            hang_say_ranks(line, group, world);
            hang_say(line, " on %s %s", rank->host, lost_words(rank->state, true));
        } else {
            say_one(line, &v->late[i], ranks);
        }
    }
    free(said);
    free(group);
}

static void say_waiting(struct line *line, const struct hang_rank *ranks, int rank)
{
    hang_say(line, "rank %d on %s in ", rank, ranks[rank].host);
    hang_say_op(line, &ranks[rank], &ranks[rank].record.waiting);
}

void hang_sentence(char *text, size_t size, const struct hang_verdict *v, const struct hang_rank *ranks, int world)
{
    struct line line = {.text = text, .size = size};
    const struct record_op *op = v->nlate ? &ranks[v->late[0].rank].record.waiting : NULL;

    text[0] = '\0';
    switch (v->kind) {
    case HANG_LATE:
        say_late(&line, v, ranks, world);
        break;
    case HANG_MISMATCH:
        hang_say(&line, "two ranks are in different operations, both their number %llu there: ",
                 (unsigned long long)op->sequence);
        say_waiting(&line, ranks, v->late[0].rank);
        hang_say(&line, ", ");
        say_waiting(&line, ranks, v->late[1].rank);
        hang_say(&line, "; this is a fault of muster");
        break;
    case HANG_CYCLE:
        hang_say(&line, "ranks wait for each other in a circle: ");
        for (size_t i = 0; i < v->nlate && i < MOST_SENTENCES; i++) {
            say_waiting(&line, ranks, v->late[i].rank);
            hang_say(&line, ", ");
        }
        hang_say(&line, "which waits for rank %d; this is a fault of muster", v->late[0].rank);
        break;
    case HANG_TRANSFER:
        hang_say(&line, "no rank is late, but data does not arrive: ");
        say_waiting(&line, ranks, v->late[0].rank);
        hang_say(&line, ", which all others have entered; look at the network of %s", ranks[v->late[0].rank].host);
        break;
    case HANG_NOTHING:
        hang_say(&line, "no rank waits for another any more");
        break;
    }
}

bool hang_blames_abort(const char *sentence, int rank)
{
    char start[32], words[64];
    const char *at;

    snprintf(start, sizeof start, "rank %d on ", rank);
    snprintf(words, sizeof words, " %s", lost_words(HANG_ABORTED, false));
    at = strstr(sentence, start);
    at = at ? strchr(at + strlen(start), ' ') : NULL; /* after the host */
    return at && strncmp(at, words, strlen(words)) == 0;
}
