#include "srun-plugin/preflight/record.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const states[] = {"untried", "ok", "listen", "connect", "data"};

const char *talk_state_name(enum talk_state state)
{
    return states[state];
}

void record_start(struct record *record, const char *name)
{
    *record = (struct record){.gpus = -1, .given_gpus = -1};
    snprintf(record->name, sizeof record->name, "%s", name);
}

void record_clear(struct record *record)
{
    for (size_t i = 0; i < record->problem_count; i++)
        free(record->problems[i]);
    for (size_t i = 0; i < record->oddity_count; i++)
        free(record->oddities[i]);
    free(record->to.text);
    free(record->from.text);
    record_start(record, "");
}

static void add_text(char **texts, size_t *count, const char *text)
{
    char *copy = *count < RECORD_TEXTS ? strdup(text) : NULL;

    if (copy)
        texts[(*count)++] = copy;
}

/* "NAME VALUE", where VALUE may hold blanks. */
static void add_fact(struct record *record, const char *text, bool note)
{
    struct fact *fact = &record->facts[record->fact_count];
    size_t length = strcspn(text, " ");

    if (record->fact_count == RECORD_FACTS || !length || length >= sizeof fact->name || !text[length])
        return;
    *fact = (struct fact){.note = note};
    memcpy(fact->name, text, length);
    snprintf(fact->value, sizeof fact->value, "%s", text + length + 1);
    record->fact_count++;
}

/* "PEER STATE TEXT" */
static void take_talk(struct talk *talk, const char *text)
{
    char peer[RECORD_NAME_SIZE], state[16];
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

static void take_value(struct record *record, const char *key, const char *value, double now)
{
    double clock;

    if (strcmp(key, "clock") == 0 && sscanf(value, "%lf", &clock) == 1) {
        record->has_clock = true;
        record->ahead = clock - now;
    } else if (strcmp(key, "gpus") == 0) {
        sscanf(value, "%d %d", &record->gpus, &record->given_gpus);
    } else if (strcmp(key, "version") == 0 || strcmp(key, "note") == 0) {
        add_fact(record, value, key[0] == 'n');
    } else if (strcmp(key, "problem") == 0) {
        add_text(record->problems, &record->problem_count, value);
    } else if (strcmp(key, "oddity") == 0) {
        add_text(record->oddities, &record->oddity_count, value);
    } else if (strcmp(key, "to") == 0) {
        take_talk(&record->to, value);
    } else if (strcmp(key, "from") == 0) {
        take_talk(&record->from, value);
    } else if (strcmp(key, "end") == 0) {
        record->ended = true;
    }
}

bool record_take(struct record *records, size_t count, const char *line, double now)
{
    char name[RECORD_NAME_SIZE], key[16];
    int used = 0;

    if (sscanf(line, "preflight %255s %15s %n", name, key, &used) < 2 || !used)
        return false;
    for (size_t i = 0; i < count; i++)
        if (strcmp(records[i].name, name) == 0) {
            records[i].begun = true;
            take_value(&records[i], key, line + used, now);
            return true;
        }
    return false;
}

bool record_take_srun(struct record *records, size_t count, const char *line)
{
    static const char words[] = " failed on node ";
    const char *launch = strstr(line, "Task launch for "), *node = launch ? strstr(launch, words) : NULL;
    char name[RECORD_NAME_SIZE], text[RECORD_LINE_SIZE];
    bool found = false;
    int used = 0;

    if (!node || sscanf(node + strlen(words), "%255[^: ]: %n", name, &used) < 1 || !used)
        return false;
    for (size_t i = 0; i < count; i++) {
        struct record *record = &records[i];

        if (strcmp(record->name, name) == 0) {
            snprintf(text, sizeof text, "srun cannot start a task there: %s", node + strlen(words) + used);
            add_text(record->problems, &record->problem_count, text);
            record->unstarted = found = true;
        }
    }
    for (size_t i = 0; found && i < count; i++)
        records[i].interrupted = true;
    return found;
}
