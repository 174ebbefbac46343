#include "srun-plugin/preflight/judge.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "srun-plugin/preflight/judge_ring.h"

int verdict_blame(struct verdict *verdict, size_t node, const char *format, ...)
{
    char text[RECORD_LINE_SIZE], *joined;
    char *old = verdict->reasons[node];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (old && strlen(old) > RECORD_LINE_SIZE) /* enough is said */
        return 0;
    if (asprintf(&joined, "%s%s%s", old ? old : "", old ? "; " : "", text) < 0)
        return -1;
    verdict->bad += !old;
    free(old);
    verdict->reasons[node] = joined;
    return 0;
}

static void add_note(struct verdict *verdict, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void add_note(struct verdict *verdict, const char *format, ...)
{
    char **longer = realloc(verdict->notes, (verdict->note_count + 1) * sizeof *longer), *text;
    va_list args;
    int rc;

    if (!longer)
        return;
    verdict->notes = longer;
    va_start(args, format);
    rc = vasprintf(&text, format, args);
    va_end(args);
    if (rc >= 0)
        verdict->notes[verdict->note_count++] = text;
}

static void judge_alone(struct verdict *verdict, const struct record *records, double seconds)
{
    size_t interrupted = 0;

    for (size_t i = 0; i < verdict->count; i++) {
        const struct record *record = &records[i];

        for (size_t k = 0; k < record->problem_count; k++)
            verdict_blame(verdict, i, "%s", record->problems[k]);
        if (record->ended || record->unstarted)
            continue;
        if (record->interrupted)
            interrupted++;
        else if (!record->begun)
            verdict_blame(verdict, i, "silent: it said nothing in %.0f s", seconds);
        else
            verdict_blame(verdict, i, "silent: it began, but did not finish in %.0f s", seconds);
    }
    if (interrupted)
        add_note(verdict, "%zu of %zu nodes were not heard out: srun gave up", interrupted, verdict->count);
}

static bool has_oddity(const struct record *record, const char *text)
{
    for (size_t k = 0; k < record->oddity_count; k++)
        if (strcmp(record->oddities[k], text) == 0)
            return true;
    return false;
}

/* Once for all nodes that say the same: by the first of them. */
static void note_oddity(struct verdict *verdict, const struct record *records, size_t node, const char *text)
{
    size_t nodes = 0;

    for (size_t i = 0; i < verdict->count; i++)
        if (has_oddity(&records[i], text)) {
            if (i < node)
                return;
            nodes++;
        }
    if (nodes == 1)
        add_note(verdict, "%s: %s", records[node].name, text);
    else
        add_note(verdict, "%zu of %zu nodes: %s", nodes, verdict->count, text);
}

static void judge_oddities(struct verdict *verdict, const struct record *records)
{
    for (size_t i = 0; i < verdict->count; i++) {
        size_t others = 0, fewer = 0;

        for (size_t k = 0; k < verdict->count; k++)
            if (k != i && records[k].ended) {
                others++;
                fewer += records[k].oddity_count < records[i].oddity_count;
            }
        for (size_t k = 0; k < records[i].oddity_count; k++)
            if (others && 2 * fewer >= others)
                verdict_blame(verdict, i, "%s", records[i].oddities[k]);
            else
                note_oddity(verdict, records, i, records[i].oddities[k]);
    }
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void judge_clocks(struct verdict *verdict, const struct record *records)
{
    double *ahead = malloc((verdict->count + 1) * sizeof *ahead), median;
    size_t known = 0;

    for (size_t i = 0; ahead && i < verdict->count; i++)
        if (records[i].has_clock)
            ahead[known++] = records[i].ahead;
    if (known) {
        qsort(ahead, known, sizeof *ahead, compare_doubles);
        /* Of two clocks that differ neither is the right one: the reader's decides, as it does for one alone. */
        median = known > 2 ? ahead[(known - 1) / 2] : 0;
        for (size_t i = 0; i < verdict->count; i++)
            if (records[i].has_clock && fabs(records[i].ahead - median) > JUDGE_CLOCK_SECONDS)
                verdict_blame(verdict, i, "its clock is %.1f s %s", fabs(records[i].ahead - median),
                              records[i].ahead > median ? "ahead" : "behind");
    }
    free(ahead);
}

/* ---- what should be the same everywhere -------------------------------------------------------------------------- */

/* What record says of `name`; NULL for nothing. GPUs are a fact like any other. */
static const char *value_of(const struct record *record, const char *name, char text[32])
{
    if (strcmp(name, "usable GPUs") == 0) {
        snprintf(text, 32, "%d", record->gpus);
        return record->gpus >= 0 ? text : NULL;
    }
    for (size_t i = 0; i < record->fact_count; i++)
        if (strcmp(record->facts[i].name, name) == 0)
            return record->facts[i].value;
    return NULL;
}

/* Boyer and Moore's vote: the one value that can have a majority; then it is counted. */
static const char *majority(const struct record *records, size_t count, const char *name, size_t *votes, size_t *voters,
                            char kept[96])
{
    char text[32];
    size_t balance = 0;

    *votes = *voters = 0;
    kept[0] = '\0';
    for (size_t i = 0; i < count; i++) {
        const char *value = value_of(&records[i], name, text);

        if (!value)
            continue;
        (*voters)++;
        if (balance == 0)
            snprintf(kept, 96, "%s", value);
        balance = strcmp(value, kept) == 0 ? balance + 1 : balance - 1;
    }
    for (size_t i = 0; i < count; i++) {
        const char *value = value_of(&records[i], name, text);

        *votes += value && strcmp(value, kept) == 0;
    }
    return 2 * *votes > *voters ? kept : NULL;
}

static void judge_fact(struct verdict *verdict, const struct record *records, const char *name, bool note)
{
    char kept[96], text[32];
    size_t votes, voters;
    const char *usual = majority(records, verdict->count, name, &votes, &voters, kept);

    if (votes == voters)
        return;
    if (!usual || note) {
        add_note(verdict, "%s: not the same on all nodes; %zu of %zu have %s", name, votes, voters, kept);
        return;
    }
    for (size_t i = 0; i < verdict->count; i++) {
        const char *value = value_of(&records[i], name, text);

        if (value && strcmp(value, usual) != 0)
            verdict_blame(verdict, i, "%s: %s, and %s on %zu of %zu nodes", name, value, usual, votes, voters);
    }
}

/* Each name that any node has, once: when the first node that has it comes by. */
static void judge_facts(struct verdict *verdict, const struct record *records)
{
    char text[32];

    judge_fact(verdict, records, "usable GPUs", false);
    for (size_t i = 0; i < verdict->count; i++)
        for (size_t k = 0; k < records[i].fact_count; k++) {
            const struct fact *fact = &records[i].facts[k];
            bool seen = false;

            for (size_t before = 0; before < i && !seen; before++)
                seen = value_of(&records[before], fact->name, text) != NULL;
            if (!seen)
                judge_fact(verdict, records, fact->name, fact->note);
        }
}

static bool all_the_same(const struct verdict *verdict)
{
    if (verdict->count < 2 || verdict->bad < verdict->count)
        return false;
    for (size_t i = 1; i < verdict->count; i++)
        if (strcmp(verdict->reasons[i], verdict->reasons[0]) != 0)
            return false;
    return true;
}

struct verdict *verdict_create(const struct record *records, size_t count, double seconds)
{
    struct verdict *verdict = calloc(1, sizeof *verdict);

    if (!verdict || !(verdict->reasons = calloc(count + 1, sizeof *verdict->reasons))) {
        free(verdict);
        return NULL;
    }
    verdict->count = count;
    judge_alone(verdict, records, seconds);
    judge_oddities(verdict, records);
    judge_clocks(verdict, records);
    judge_facts(verdict, records);
    if (judge_ring(verdict, records) < 0) {
        verdict_destroy(verdict);
        return NULL;
    }
    verdict->everywhere = all_the_same(verdict);
    return verdict;
}

void verdict_destroy(struct verdict *verdict)
{
    if (!verdict)
        return;
    for (size_t i = 0; i < verdict->count; i++)
        free(verdict->reasons[i]);
    for (size_t i = 0; i < verdict->note_count; i++)
        free(verdict->notes[i]);
    free(verdict->reasons);
    free(verdict->notes);
    free(verdict);
}
