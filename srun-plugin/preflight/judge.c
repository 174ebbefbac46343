#include "srun-plugin/preflight/judge.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/text.h"

/* ---- answers ----------------------------------------------------------------------------------------------------- */

static const char *const states[] = {"untried", "ok", "listen", "connect", "data"};

void answer_start(struct answer *answer, const char *name)
{
    *answer = (struct answer){.begun = false};
    snprintf(answer->name, sizeof answer->name, "%s", name);
}

void answer_clear(struct answer *answer)
{
    text_free_lines(answer->problems, answer->problem_count);
    text_free_lines(answer->oddities, answer->oddity_count);
    free(answer->to.text);
    free(answer->from.text);
    answer_start(answer, "");
}

static void add_text(char ***texts, size_t *count, const char *text)
{
    if (*count < ANSWER_TEXTS)
        text_add_line(texts, count, "%s", text);
}

/* The name is the first `length` bytes. */
static void add_fact(struct answer *answer, const char *name, size_t length, const char *value, bool note)
{
    struct fact *fact = &answer->facts[answer->fact_count];

    if (answer->fact_count == ANSWER_FACTS || !length || length >= sizeof fact->name)
        return;
    *fact = (struct fact){.note = note};
    memcpy(fact->name, name, length);
    snprintf(fact->value, sizeof fact->value, "%s", value);
    answer->fact_count++;
}

/* "PEER STATE TEXT" */
static void take_talk(struct talk *talk, const char *text)
{
    char peer[ANSWER_NAME_SIZE], state[16];
    int used = 0;

    if (sscanf(text, "%255s %15s %n", peer, state, &used) < 2)
        return;
    for (size_t i = 0; i < sizeof states / sizeof *states; i++)
        if (strcmp(states[i], state) == 0)
            talk->state = (enum talk_state)i;
    snprintf(talk->peer, sizeof talk->peer, "%s", strcmp(peer, "-") == 0 ? "" : peer);
    free(talk->text);
    talk->text = used && text[used] ? strdup(text + used) : NULL;
}

static void take_value(struct answer *answer, const char *key, const char *value, double now)
{
    static const char usable[] = "usable GPUs";
    size_t length = strcspn(value, " ");
    char gpus[12];
    double clock;

    if (strcmp(key, "clock") == 0 && sscanf(value, "%lf", &clock) == 1) {
        answer->has_clock = true;
        answer->ahead = clock - now;
    } else if (strcmp(key, "gpus") == 0 && sscanf(value, "%11s", gpus) == 1) {
        add_fact(answer, usable, strlen(usable), gpus, false);
    } else if ((strcmp(key, "version") == 0 || strcmp(key, "note") == 0) && value[length]) {
        add_fact(answer, value, length, value + length + 1, key[0] == 'n');
    } else if (strcmp(key, "problem") == 0) {
        add_text(&answer->problems, &answer->problem_count, value);
    } else if (strcmp(key, "oddity") == 0) {
        add_text(&answer->oddities, &answer->oddity_count, value);
    } else if (strcmp(key, "to") == 0) {
        take_talk(&answer->to, value);
    } else if (strcmp(key, "from") == 0) {
        take_talk(&answer->from, value);
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

static bool has_oddity(const struct answer *answer, const char *text)
{
    for (size_t k = 0; k < answer->oddity_count; k++)
        if (strcmp(answer->oddities[k], text) == 0)
            return true;
    return false;
}

/* One note for all nodes with the same text, when called for the first of them. */
static void note_oddity(struct verdict *verdict, const struct answer *answers, size_t node, const char *text)
{
    size_t nodes = 0;

    for (size_t i = 0; i < verdict->count; i++)
        if (has_oddity(&answers[i], text)) {
            if (i < node)
                return;
            nodes++;
        }
    if (nodes == 1)
        add_note(verdict, "%s: %s", answers[node].name, text);
    else
        add_note(verdict, "%zu of %zu nodes: %s", nodes, verdict->count, text);
}

static void judge_oddities(struct verdict *verdict, const struct answer *answers)
{
    for (size_t i = 0; i < verdict->count; i++) {
        size_t others = 0, fewer = 0;

        for (size_t k = 0; k < verdict->count; k++)
            if (k != i && answers[k].ended) {
                others++;
                fewer += answers[k].oddity_count < answers[i].oddity_count;
            }
        for (size_t k = 0; k < answers[i].oddity_count; k++)
            if (others && 2 * fewer >= others)
                blame_node(verdict, i, "%s", answers[i].oddities[k]);
            else
                note_oddity(verdict, answers, i, answers[i].oddities[k]);
    }
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

/* Boyer and Moore's vote finds the one value that can have a majority; its votes are then counted. */
static const char *find_majority(const struct answer *answers, size_t count, const char *name, size_t *votes,
                                 size_t *voters)
{
    const char *kept = NULL;
    size_t balance = 0;

    *votes = *voters = 0;
    for (size_t i = 0; i < count; i++) {
        const char *value = value_of(&answers[i], name);

        if (!value)
            continue;
        (*voters)++;
        if (balance == 0)
            kept = value;
        balance = strcmp(value, kept) == 0 ? balance + 1 : balance - 1;
    }
    for (size_t i = 0; i < count; i++) {
        const char *value = value_of(&answers[i], name);

        *votes += value && strcmp(value, kept) == 0;
    }
    return kept;
}

static void judge_fact(struct verdict *verdict, const struct answer *answers, const char *name, bool note)
{
    size_t votes, voters, other = 0;
    const char *usual = find_majority(answers, verdict->count, name, &votes, &voters);

    if (votes == voters)
        return;
    if (2 * votes <= voters || note) {
        for (const char *value; !(value = value_of(&answers[other], name)) || strcmp(value, usual) == 0;)
            other++;
        add_note(verdict, "%s: not the same on all nodes; %zu of %zu have %s, %s has %s", name, votes, voters, usual,
                 answers[other].name, value_of(&answers[other], name));
        return;
    }
    for (size_t i = 0; i < verdict->count; i++) {
        const char *value = value_of(&answers[i], name);

        if (value && strcmp(value, usual) != 0)
            blame_node(verdict, i, "%s: %s, and %s on %zu of %zu nodes", name, value, usual, votes, voters);
    }
}

/* Each fact once, at the first node that has it. */
static void judge_facts(struct verdict *verdict, const struct answer *answers)
{
    for (size_t i = 0; i < verdict->count; i++)
        for (size_t k = 0; k < answers[i].fact_count; k++) {
            const struct fact *fact = &answers[i].facts[k];
            bool seen = false;

            for (size_t before = 0; before < i && !seen; before++)
                seen = value_of(&answers[before], fact->name) != NULL;
            if (!seen)
                judge_fact(verdict, answers, fact->name, fact->note);
        }
}

/* ---- which of two nodes that cannot talk is bad ------------------------------------------------------------------ */

#define NOBODY ((size_t)-1)

/* From a node to the next of the ring. */
struct edge {
    size_t next;
    enum talk_state state; /* the worse of what both ends say */
    const char *text;
};

static size_t find_node(const struct answer *answers, size_t count, const char *name)
{
    for (size_t i = 0; name[0] && i < count; i++)
        if (strcmp(answers[i].name, name) == 0)
            return i;
    return NOBODY;
}

/* The connecting end knows best why it failed: its word counts, the other's only if it saw no failure. */
static void add_talk(struct edge *edge, size_t next, const struct talk *talk)
{
    edge->next = next;
    if (edge->state > TALK_OK || talk->state == TALK_UNTRIED)
        return;
    edge->state = talk->state;
    edge->text = talk->text;
}

static struct edge *draw_ring(const struct answer *answers, size_t count)
{
    struct edge *edges = calloc(count + 1, sizeof *edges);

    for (size_t i = 0; edges && i < count; i++)
        edges[i].next = NOBODY;
    for (size_t i = 0; edges && i < count; i++) {
        size_t next = find_node(answers, count, answers[i].to.peer);

        if (next != NOBODY)
            add_talk(&edges[i], next, &answers[i].to);
    }
    for (size_t i = 0; edges && i < count; i++) {
        size_t before = find_node(answers, count, answers[i].from.peer);

        if (before != NOBODY)
            add_talk(&edges[before], i, &answers[i].from);
    }
    return edges;
}

static bool has_failed(const struct edge *edge)
{
    return edge->next != NOBODY && edge->state > TALK_OK;
}

static const char *text_of(const struct edge *edge)
{
    return edge->text ? edge->text : states[edge->state];
}

/* After all else was judged: a pair with a node that is bad already explains itself. -1 without memory. */
static int judge_ring(struct verdict *verdict, const struct answer *answers)
{
    size_t count = verdict->count;
    struct edge *edges = draw_ring(answers, count);
    bool *known = calloc(count + 1, sizeof *known); /* bad for another reason */
    char text[ANSWER_LINE_SIZE];

    if (!edges || !known) {
        free(edges);
        free(known);
        return -1;
    }
    for (size_t i = 0; i < count; i++)
        known[i] = verdict->reasons[i] != NULL;
    for (size_t i = 0; i < count; i++) {
        size_t next = edges[i].next, after = next == NOBODY ? NOBODY : edges[next].next;

        /* i - next - after: both pairs of `next` fail, and neither because of the other end. */
        if (after == NOBODY || after == i || next == i || !has_failed(&edges[i]) || !has_failed(&edges[next]))
            continue;
        if (!known[i] && !known[next] && !known[after])
            blame_node(verdict, next, "it cannot talk to either neighbour: with %s %s: %s; with %s %s: %s",
                       answers[i].name, states[edges[i].state], text_of(&edges[i]), answers[after].name,
                       states[edges[next].state], text_of(&edges[next]));
    }
    for (size_t i = 0; i < count; i++) {
        size_t next = edges[i].next;

        if (!has_failed(&edges[i]) || verdict->reasons[i] || verdict->reasons[next])
            continue;
        snprintf(text, sizeof text, "the pair %s and %s cannot talk: %s: %s", answers[i].name, answers[next].name,
                 states[edges[i].state], text_of(&edges[i]));
        blame_node(verdict, i, "%s", text);
        if (next != i)
            blame_node(verdict, next, "%s", text);
    }
    free(edges);
    free(known);
    return 0;
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
    judge_oddities(verdict, answers);
    judge_clocks(verdict, answers);
    judge_facts(verdict, answers);
    if (judge_ring(verdict, answers) < 0) {
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
    text_free_lines(verdict->reasons, verdict->count);
    text_free_lines(verdict->notes, verdict->note_count);
    free(verdict);
}
