#include "config.h"

#include "ckpt/stage/stage_dir.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt/format/json_fields.h"

#define MAX_STATUS ((size_t)1 << 20)

static const char *const states[] = {"staging", "staged",    "draining",   "hanging", "drained",
                                     "unknown", "committed", "superseded", "failed"};

const char *status_state_name(enum ckpt_save_state state)
{
    return states[state];
}

enum ckpt_save_state status_of(const struct contents *contents, int local)
{
    if (contents->staged + contents->drained < local)
        return CKPT_STAGING;
    return contents->staged > 0 ? CKPT_STAGED : CKPT_DRAINED;
}

static const struct json_field save_fields[] = {
    {"step", FIELD_COUNT, JSON_PLACE(struct ckpt_save_status, step), false},
    {"attempt", FIELD_TEXT, JSON_PLACE(struct ckpt_save_status, attempt), false},
    {"dir", FIELD_TEXT, JSON_PLACE(struct ckpt_save_status, dir), false},
    {"bytes_done", FIELD_COUNT, JSON_PLACE(struct ckpt_save_status, bytes_done), false},
    {"bytes_total", FIELD_COUNT, JSON_PLACE(struct ckpt_save_status, bytes_total), false},
    {"rate", FIELD_DOUBLE, JSON_PLACE(struct ckpt_save_status, rate), false},
    {"started", FIELD_DOUBLE, JSON_PLACE(struct ckpt_save_status, started), false},
    {"ended", FIELD_DOUBLE, JSON_PLACE(struct ckpt_save_status, ended), false},
    {"serial", FIELD_COUNT, JSON_PLACE(struct ckpt_save_status, serial), false},
    {"reason", FIELD_TEXT, JSON_PLACE(struct ckpt_save_status, reason), false},
    {"newest", FIELD_COUNT, JSON_PLACE(struct ckpt_save_status, newest), true},
    {0},
};

static const struct json_field status_fields[] = {
    {"pid", FIELD_INT, JSON_PLACE(struct status, pid), false},
    {"host", FIELD_TEXT, JSON_PLACE(struct status, host), false},
    {"updated", FIELD_DOUBLE, JSON_PLACE(struct status, updated), false},
    {0},
};

json_t *status_json(const struct status *status)
{
    json_t *array = json_array(), *json = json_write_fields(status_fields, status);

    for (size_t i = 0; i < status->count; i++) {
        json_t *staged = json_write_fields(save_fields, &status->saves[i]);

        json_object_set_new(staged, "state", json_string(states[status->saves[i].state]));
        json_array_append_new(array, staged);
    }
    json_object_set_new(json, "generations", array);
    return json;
}

int status_write(const struct status *status, const struct directory *stage, struct error *err)
{
    return json_write_file(stage, STATUS_NAME, status_json(status), JSON_INDENT(1), err);
}

static int decode_save(struct ckpt_save_status *g, json_t *json, struct error *err)
{
    char state[16];

    if (json_read_fields(json, save_fields, g, err) < 0 || json_get_string(json, "state", state, sizeof state, err) < 0)
        return -1;
    error_tame(g->dir); /* for people only: target.json has it for drainers */
    error_tame(g->reason);
    for (size_t i = 0; i < sizeof states / sizeof *states; i++)
        if (strcmp(state, states[i]) == 0) {
            g->state = (enum ckpt_save_state)i;
            return 0;
        }
    return error_set(err, CODE_DATA, "\"state\" is \"%s\"", state);
}

static int decode_status(struct status *status, json_t *json, struct error *err)
{
    json_t *array;

    if (json_read_fields(json, status_fields, status, err) < 0 || json_get_array(json, "generations", &array, err) < 0)
        return -1;
    error_tame(status->host);
    for (size_t i = 0; i < json_array_size(array) && status->count < STATUS_MOST; i++)
        if (decode_save(&status->saves[status->count++], json_array_get(array, i), err) < 0)
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
    if (!file_exists(stage, STATUS_NAME))
        return 0;
    text = file_read(stage, STATUS_NAME, MAX_STATUS, &bytes, err);
    if (!text)
        return -1;
    json = json_loadb(text, bytes, 0, &where);
    result = json ? decode_status(status, json, err) : error_set(err, CODE_DATA, "not JSON");
    if (result < 0) {
        memset(status, 0, sizeof *status);
        error_prefix(err, "%s/" STATUS_NAME, stage->path);
    }
    json_decref(json);
    free(text);
    return result;
}

struct ckpt_save_status *status_find(struct status *status, uint64_t step, const char *attempt)
{
    for (size_t i = 0; i < status->count; i++)
        if (status->saves[i].step == step && strcmp(status->saves[i].attempt, attempt) == 0)
            return &status->saves[i];
    return NULL;
}

uint64_t status_serial(const struct status *status)
{
    uint64_t greatest = 0;

    for (size_t i = 0; i < status->count; i++)
        if (status->saves[i].serial > greatest)
            greatest = status->saves[i].serial;
    return greatest;
}

void status_begin(struct ckpt_save_status *status, const struct staged_save *save)
{
    *status = (struct ckpt_save_status){.step = save->step, .started = save->started};
    memcpy(status->attempt, save->attempt, sizeof status->attempt);
    memcpy(status->dir, save->dir, sizeof status->dir);
}

/* A save that the drainer has not seen yet. */
static void add_staged(struct status *status, const struct directory *stage, const struct staged *staged)
{
    struct ckpt_save_status *to = &status->saves[status->count];
    struct contents contents;
    struct directory directory;
    struct error why = {0};

    if (directory_open(&directory, stage, staged->name, NULL) < 0)
        return;
    staged_contents(&directory, ".", &contents, NULL);
    staged_check_formats(&directory, staged, &why);
    directory_close(&directory);
    status_begin(to, &staged->save);
    error_tame(to->dir);
    to->state = why.code == CODE_OK ? status_of(&contents, staged->save.local) : CKPT_UNKNOWN;
    snprintf(to->reason, sizeof to->reason, "%.500s", why.text);
    to->bytes_total = contents.bytes;
    status->count++;
}

int status_gather(struct status *status, const struct directory *stage, struct error *err)
{
    struct staged *saves;
    size_t count;

    if (status_read(status, stage, err) < 0 || staged_list(stage, &saves, &count, err) < 0)
        return -1;
    for (size_t i = 0; i < count && status->count < STATUS_MOST; i++)
        if (!status_find(status, saves[i].save.step, saves[i].save.attempt))
            add_staged(status, stage, &saves[i]);
    free(saves);
    return 0;
}
