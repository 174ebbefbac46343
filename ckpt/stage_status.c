#include "config.h"

#include "ckpt/json_get.h"
#include "ckpt/json_text.h"
#include "ckpt/stage_status.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_STATUS ((size_t)1 << 20)

static const char *const states[] = {"staging", "staged",    "draining",   "drained",
                                     "unknown", "committed", "superseded", "failed"};

const char *status_state_name(enum status_state state)
{
    return states[state];
}

enum status_state status_of(const struct contents *contents, int local)
{
    if (contents->staged + contents->drained < local)
        return STATUS_STAGING;
    return contents->staged > 0 ? STATUS_STAGED : STATUS_DRAINED;
}

static json_t *encode(const struct status_generation *g)
{
    return json_pack("{s:I, s:s, s:o, s:s, s:I, s:I, s:f, s:f, s:f, s:I, s:o}", "step", (json_int_t)g->step, "attempt",
                     g->attempt, "dir", json_text(g->dir), "state", states[g->state], "bytes_done",
                     (json_int_t)g->bytes_done, "bytes_total", (json_int_t)g->bytes_total, "rate", g->rate, "started",
                     g->started, "ended", g->ended, "serial", (json_int_t)g->serial, "reason", json_text(g->reason));
}

int status_write(const struct status *status, const struct directory *stage, struct error *err)
{
    json_t *array = json_array(), *json;
    char *text;
    int result = -1;

    for (size_t i = 0; i < status->count; i++)
        json_array_append_new(array, encode(&status->generations[i]));
    json = json_pack("{s:i, s:s, s:f, s:o}", "pid", status->pid, "host", status->host, "updated", status->updated,
                     "generations", array);
    text = json ? json_dumps(json, JSON_INDENT(1)) : NULL;
    if (text)
        result = file_write(stage, STATUS_NAME, text, strlen(text), err);
    else
        error_set(err, CODE_IO, "%s/" STATUS_NAME ": out of memory", stage->path);
    free(text);
    json_decref(json);
    return result;
}

static int decode(struct status_generation *g, json_t *json, struct error *err)
{
    char state[16];

    if (json_get_integer(json, "step", INT64_MAX, &g->step, err) < 0 ||
        json_get_string(json, "attempt", g->attempt, sizeof g->attempt, err) < 0 ||
        json_get_string(json, "dir", g->dir, sizeof g->dir, err) < 0 ||
        json_get_string(json, "state", state, sizeof state, err) < 0 ||
        json_get_integer(json, "bytes_done", INT64_MAX, &g->bytes_done, err) < 0 ||
        json_get_integer(json, "bytes_total", INT64_MAX, &g->bytes_total, err) < 0 ||
        json_get_number(json, "rate", &g->rate, err) < 0 || json_get_number(json, "started", &g->started, err) < 0 ||
        json_get_number(json, "ended", &g->ended, err) < 0 ||
        json_get_integer(json, "serial", INT64_MAX, &g->serial, err) < 0 ||
        json_get_string(json, "reason", g->reason, sizeof g->reason, err) < 0)
        return -1;
    error_tame(g->dir); /* for people only: target.json has it for drainers */
    error_tame(g->reason);
    for (size_t i = 0; i < sizeof states / sizeof *states; i++)
        if (strcmp(state, states[i]) == 0) {
            g->state = (enum status_state)i;
            return 0;
        }
    return error_set(err, CODE_DATA, "\"state\" is \"%s\"", state);
}

static int decode_all(struct status *status, json_t *json, struct error *err)
{
    json_t *array;

    if (json_get_int(json, "pid", &status->pid, err) < 0 ||
        json_get_string(json, "host", status->host, sizeof status->host, err) < 0 ||
        json_get_number(json, "updated", &status->updated, err) < 0 ||
        json_get_array(json, "generations", &array, err) < 0)
        return -1;
    error_tame(status->host);
    for (size_t i = 0; i < json_array_size(array) && status->count < STATUS_MOST; i++)
        if (decode(&status->generations[status->count++], json_array_get(array, i), err) < 0)
            return -1;
    return 0;
}

int status_read(struct status *status, const struct directory *stage, struct error *err)
{
    json_error_t where;
    json_t *json;
    size_t bytes;
    char *text;
    int result;

    memset(status, 0, sizeof *status);
    if (!stage_has(stage, STATUS_NAME))
        return 0;
    text = file_read(stage, STATUS_NAME, MAX_STATUS, &bytes, err);
    if (!text)
        return -1;
    json = json_loadb(text, bytes, 0, &where);
    result = json ? decode_all(status, json, err) : error_set(err, CODE_DATA, "not JSON");
    if (result < 0) {
        memset(status, 0, sizeof *status);
        error_prefix(err, "%s/" STATUS_NAME, stage->path);
    }
    json_decref(json);
    free(text);
    return result;
}

struct status_generation *status_find(struct status *status, uint64_t step, const char *attempt)
{
    for (size_t i = 0; i < status->count; i++)
        if (status->generations[i].step == step && strcmp(status->generations[i].attempt, attempt) == 0)
            return &status->generations[i];
    return NULL;
}

uint64_t status_serial(const struct status *status)
{
    uint64_t greatest = 0;

    for (size_t i = 0; i < status->count; i++)
        if (status->generations[i].serial > greatest)
            greatest = status->generations[i].serial;
    return greatest;
}

/* What the drainer has not come to. */
static void add_staged(struct status *status, const struct directory *stage, const struct generation *generation)
{
    struct status_generation *to = &status->generations[status->count];
    struct contents contents;
    struct directory directory;
    struct error why = {0};

    if (directory_open(&directory, stage, generation->name, NULL) < 0)
        return;
    generation_contents(&directory, &contents);
    generation_check_forms(generation, &directory, &why);
    directory_close(&directory);
    memset(to, 0, sizeof *to);
    to->step = generation->target.step;
    memcpy(to->attempt, generation->target.attempt, sizeof to->attempt);
    memcpy(to->dir, generation->target.dir, sizeof to->dir);
    to->state = why.code == CODE_OK ? status_of(&contents, generation->target.local) : STATUS_UNKNOWN;
    snprintf(to->reason, sizeof to->reason, "%.500s", why.text);
    to->bytes_total = contents.bytes;
    to->started = generation->target.started;
    status->count++;
}

int status_gather(struct status *status, const struct directory *stage, struct error *err)
{
    struct generation *generations;
    size_t count;

    if (status_read(status, stage, err) < 0 || generation_list(stage, &generations, &count, err) < 0)
        return -1;
    for (size_t i = 0; i < count && status->count < STATUS_MOST; i++)
        if (!status_find(status, generations[i].target.step, generations[i].target.attempt))
            add_staged(status, stage, &generations[i]);
    free(generations);
    return 0;
}
