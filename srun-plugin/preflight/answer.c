#include "srun-plugin/preflight/answer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const states[] = {"untried", "ok", "listen", "connect", "data"};

const char *talk_state_name(enum talk_state state)
{
    return states[state];
}

void answer_start(struct answer *answer, const char *name)
{
    *answer = (struct answer){.gpus = -1, .given_gpus = -1};
    snprintf(answer->name, sizeof answer->name, "%s", name);
}

void answer_clear(struct answer *answer)
{
    for (size_t i = 0; i < answer->problem_count; i++)
        free(answer->problems[i]);
    for (size_t i = 0; i < answer->oddity_count; i++)
        free(answer->oddities[i]);
    free(answer->to.text);
    free(answer->from.text);
    answer_start(answer, "");
}

static void add_text(char **texts, size_t *count, const char *text)
{
    char *copy = *count < ANSWER_TEXTS ? strdup(text) : NULL;

    if (copy)
        texts[(*count)++] = copy;
}

/* "NAME VALUE", where VALUE may hold blanks. */
static void add_fact(struct answer *answer, const char *text, bool note)
{
    struct fact *fact = &answer->facts[answer->fact_count];
    size_t length = strcspn(text, " ");

    if (answer->fact_count == ANSWER_FACTS || !length || length >= sizeof fact->name || !text[length])
        return;
    *fact = (struct fact){.note = note};
    memcpy(fact->name, text, length);
    snprintf(fact->value, sizeof fact->value, "%s", text + length + 1);
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
    double clock;

    if (strcmp(key, "clock") == 0 && sscanf(value, "%lf", &clock) == 1) {
        answer->has_clock = true;
        answer->ahead = clock - now;
    } else if (strcmp(key, "gpus") == 0) {
        sscanf(value, "%d %d", &answer->gpus, &answer->given_gpus);
    } else if (strcmp(key, "version") == 0 || strcmp(key, "note") == 0) {
        add_fact(answer, value, key[0] == 'n');
    } else if (strcmp(key, "problem") == 0) {
        add_text(answer->problems, &answer->problem_count, value);
    } else if (strcmp(key, "oddity") == 0) {
        add_text(answer->oddities, &answer->oddity_count, value);
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
            add_text(answer->problems, &answer->problem_count, text);
            answer->unstarted = found = true;
        }
    }
    for (size_t i = 0; found && i < count; i++)
        answers[i].interrupted = true;
    return found;
}
