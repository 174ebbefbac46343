#include "srun-plugin/preflight/judge.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/text.h"

/* ---- answers ----------------------------------------------------------------------------------------------------- */

void answer_clear(struct answer *answer)
{
    text_free_lines(answer->problems, answer->problem_count);
    text_free_lines(answer->notes, answer->note_count);
}

static void add_text(char ***texts, size_t *count, const char *text)
{
    if (*count < ANSWER_TEXTS)
        text_add_line(texts, count, "%s", text);
}

static void take_value(struct answer *answer, const char *key, const char *value, double now)
{
    double clock;

    if (strcmp(key, "clock") == 0 && sscanf(value, "%lf", &clock) == 1) {
        answer->has_clock = true;
        answer->ahead = clock - now;
    } else if (strcmp(key, "fact") == 0) {
        struct fact *fact = &answer->facts[answer->fact_count]; /* value: "NAME VALUE" */

        if (answer->fact_count < ANSWER_FACTS && sscanf(value, "%31s %95[^\n]", fact->name, fact->value) == 2)
            answer->fact_count++;
    } else if (strcmp(key, "problem") == 0) {
        add_text(&answer->problems, &answer->problem_count, value);
    } else if (strcmp(key, "note") == 0) {
        add_text(&answer->notes, &answer->note_count, value);
    } else if (strcmp(key, "end") == 0) {
        answer->ended = true;
    }
}

bool answer_take(struct answer *answers, size_t count, const char *line, double now)
{
    char name[ANSWER_NAME_SIZE], key[16];
    int used = 0;

    if (sscanf(line, "preflight %255s %15s %n", name, key, &used) < 2 || !used)
        return false;
    for (size_t i = 0; i < count; i++)
        if (strcmp(answers[i].name, name) == 0) {
            answers[i].begun = true;
            take_value(&answers[i], key, line + used, now);
            return true;
        }
    return false;
}

bool answer_take_srun(struct answer *answers, size_t count, const char *line)
{
    static const char words[] = " failed on node ";
    const char *launch = strstr(line, "Task launch for "), *node = launch ? strstr(launch, words) : NULL;
    char name[ANSWER_NAME_SIZE], text[ANSWER_LINE_SIZE];
    bool found = false;
    int used = 0;

    if (!node || sscanf(node + strlen(words), "%255[^: ]: %n", name, &used) < 1 || !used)
        return false;
    for (size_t i = 0; i < count; i++) {
        struct answer *answer = &answers[i];

        if (strcmp(answer->name, name) == 0) {
            snprintf(text, sizeof text, "srun cannot start a task there: %s", node + strlen(words) + used);
            add_text(&answer->problems, &answer->problem_count, text);
            answer->unstarted = found = true;
        }
    }
    for (size_t i = 0; found && i < count; i++)
        answers[i].interrupted = true;
    return found;
}

/* ---- each node by itself ----------------------------------------------------------------------------------------- */

static void __attribute__((format(printf, 3, 4)))
blame_node(struct verdict *verdict, size_t node, const char *format, ...)
{
    char text[ANSWER_LINE_SIZE], *joined;
    char *old = verdict->reasons[node];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if ((old && strlen(old) > ANSWER_LINE_SIZE) || /* one line is enough */
        asprintf(&joined, "%s%s%s", old ? old : "", old ? "; " : "", text) < 0)
        return;
    verdict->bad += !old;
    free(old);
    verdict->reasons[node] = joined;
}

/* Adds a line to the notes, as printf writes it. */
#define add_note(verdict, ...) text_add_line(&(verdict)->notes, &(verdict)->note_count, __VA_ARGS__)

static void judge_alone(struct verdict *verdict, const struct answer *answers, double seconds)
{
    size_t interrupted = 0;

    for (size_t i = 0; i < verdict->count; i++) {
        const struct answer *answer = &answers[i];

        for (size_t k = 0; k < answer->problem_count; k++)
            blame_node(verdict, i, "%s", answer->problems[k]);
        if (answer->ended || answer->unstarted)
            continue;
        if (answer->interrupted)
            interrupted++;
        else if (!answer->begun)
            blame_node(verdict, i, "silent: no answer in %.0f s", seconds);
        else
            blame_node(verdict, i, "silent: it began, but did not finish in %.0f s", seconds);
    }
    if (interrupted)
        add_note(verdict, "%zu of %zu nodes could not finish: srun gave up", interrupted, verdict->count);
}

static bool has_note(const struct answer *answer, const char *text)
{
    for (size_t k = 0; k < answer->note_count; k++)
        if (strcmp(answer->notes[k], text) == 0)
            return true;
    return false;
}

/* One note for all nodes with the same text, when called for the first of them. */
static void take_note(struct verdict *verdict, const struct answer *answers, size_t node, const char *text)
{
    size_t nodes = 0;

    for (size_t i = 0; i < verdict->count; i++)
        if (has_note(&answers[i], text)) {
            if (i < node)
                return;
            nodes++;
        }
    if (nodes == 1)
        add_note(verdict, "%s: %s", answers[node].name, text);
    else
        add_note(verdict, "%zu of %zu nodes: %s", nodes, verdict->count, text);
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void judge_clocks(struct verdict *verdict, const struct answer *answers)
{
    double *ahead = malloc((verdict->count + 1) * sizeof *ahead), median;
    size_t known = 0;

    for (size_t i = 0; ahead && i < verdict->count; i++)
        if (answers[i].has_clock)
            ahead[known++] = answers[i].ahead;
    if (known) {
        qsort(ahead, known, sizeof *ahead, compare_doubles);
        /* Of one or two clocks none is the usual one: they are compared with the reader's. */
        median = known > 2 ? ahead[(known - 1) / 2] : 0;
        for (size_t i = 0; i < verdict->count; i++)
            if (answers[i].has_clock && fabs(answers[i].ahead - median) > JUDGE_CLOCK_SECONDS)
                blame_node(verdict, i, "its clock is %.1f s %s", fabs(answers[i].ahead - median),
                           answers[i].ahead > median ? "ahead" : "behind");
    }
    free(ahead);
}

/* ---- facts that should be equal on all nodes --------------------------------------------------------------------- */

/* The value of a fact; NULL if the node has none. */
static const char *value_of(const struct answer *answer, const char *name)
{
    for (size_t i = 0; i < answer->fact_count; i++)
        if (strcmp(answer->facts[i].name, name) == 0)
            return answer->facts[i].value;
    return NULL;
}

/* Compares a fact of all nodes with that of `first`. */
static void compare_fact(struct verdict *verdict, const struct answer *answers, size_t first, const struct fact *fact)
{
    size_t different = 0, other = first;

    for (size_t i = first + 1; i < verdict->count; i++) {
        const char *value = value_of(&answers[i], fact->name);

        if (value && strcmp(value, fact->value) != 0 && different++ == 0)
            other = i;
    }
    if (different)
        add_note(verdict, "%s: not the same on all nodes: %s has %s, %s has %s", fact->name, answers[first].name,
                 fact->value, answers[other].name, value_of(&answers[other], fact->name));
}

/* Each fact once, at the first node that has it. */
static void compare_facts(struct verdict *verdict, const struct answer *answers)
{
    for (size_t i = 0; i < verdict->count; i++)
        for (size_t k = 0; k < answers[i].fact_count; k++) {
            const struct fact *fact = &answers[i].facts[k];
            bool seen = false;

            for (size_t before = 0; before < i && !seen; before++)
                seen = value_of(&answers[before], fact->name) != NULL;
            if (!seen)
                compare_fact(verdict, answers, i, fact);
        }
}

/* ---- the verdict ------------------------------------------------------------------------------------------------- */

static bool all_the_same(const struct verdict *verdict)
{
    if (verdict->count < 2 || verdict->bad < verdict->count)
        return false;
    for (size_t i = 1; i < verdict->count; i++)
        if (strcmp(verdict->reasons[i], verdict->reasons[0]) != 0)
            return false;
    return true;
}

struct verdict *verdict_create(const struct answer *answers, size_t count, double seconds)
{
    struct verdict *verdict = calloc(1, sizeof *verdict);

    if (!verdict || !(verdict->reasons = calloc(count + 1, sizeof *verdict->reasons))) {
        free(verdict);
        return NULL;
    }
    verdict->count = count;
    judge_alone(verdict, answers, seconds);
    judge_clocks(verdict, answers);
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < answers[i].note_count; k++)
            take_note(verdict, answers, i, answers[i].notes[k]);
    compare_facts(verdict, answers);
    verdict->everywhere = all_the_same(verdict);
    return verdict;
}

void verdict_destroy(struct verdict *verdict)
{
    if (!verdict)
        return;
    text_free_lines(verdict->reasons, verdict->count);
    text_free_lines(verdict->notes, verdict->note_count);
    free(verdict);
}
