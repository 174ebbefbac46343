/*
 * metrics.c - reads metrics, and converts a step to a line of JSON and back. Both directions use one table of keys.
 */

#include "trainer/report/metrics.h"

#include <ctype.h>
#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum kind {
    KIND_LONG,
    KIND_INT,
    KIND_RESULT,  /* a double that must read back unchanged */
    KIND_MEASURE, /* a double for which nine digits are enough */
};

struct metrics_key {
    const char *name;
    enum kind kind;
    long least; /* of counts */
    size_t offset;
};

#define KEY(field, type, low) .name = #field, .kind = type, .least = low, .offset = offsetof(struct metrics_step, field)

static const struct metrics_key KEYS[] = {
    {KEY(step, KIND_LONG, 0)},
    {KEY(consumed_samples, KIND_LONG, 0)},
    {KEY(loss, KIND_RESULT, 0)},
    {KEY(lr, KIND_RESULT, 0)},
    {KEY(grad_norm, KIND_RESULT, 0)},
    {KEY(loss_scale, KIND_RESULT, 0)},
    {KEY(skipped, KIND_INT, 0)},
    {KEY(step_seconds, KIND_MEASURE, 0)},
    {KEY(tokens_per_second, KIND_MEASURE, 0)},
    {KEY(tflops, KIND_MEASURE, 0)},
    {KEY(mfu, KIND_MEASURE, 0)},
    {KEY(hfu, KIND_MEASURE, 0)},
    {KEY(world, KIND_INT, 1)},
    {KEY(dp, KIND_INT, 1)},
    {KEY(tp, KIND_INT, 1)},
    {KEY(pp, KIND_INT, 1)},
    /* optional ones */
    {KEY(order_loss, KIND_RESULT, 0)},
    {KEY(valid_loss, KIND_RESULT, 0)},
    {KEY(valid_order_loss, KIND_RESULT, 0)},
};

enum { KEY_COUNT = sizeof KEYS / sizeof KEYS[0], KEY_OPTIONAL = KEY_COUNT - 3 }; /* the first of those */

/* ---- writing ---- */

/* The fewest digits that read back the same double: 0.00015 rather than 0.00014999999999999999. */
static int format_double(char *buf, size_t size, double value, enum kind kind)
{
    if (!isfinite(value))
        return snprintf(buf, size, "null");
    if (value == 0.0) /* "-0" would be read as an integer of JSON, without its sign */
        return snprintf(buf, size, signbit(value) ? "-0.0" : "0");
    if (kind == KIND_MEASURE)
        return snprintf(buf, size, "%.9g", value);
    for (int digits = 9; digits < 17; digits++) {
        int used = snprintf(buf, size, "%.*g", digits, value);

        if (strtod(buf, NULL) == value)
            return used;
    }
    return snprintf(buf, size, "%.17g", value);
}

static int format_value(char *buf, size_t size, const struct metrics_key *key, const struct metrics_step *step)
{
    const char *field = (const char *)step + key->offset;

    switch (key->kind) {
    case KIND_LONG:
        return snprintf(buf, size, "%ld", *(const long *)(const void *)field);
    case KIND_INT:
        return snprintf(buf, size, "%d", *(const int *)(const void *)field);
    case KIND_RESULT:
    case KIND_MEASURE:
        break;
    }
    return format_double(buf, size, *(const double *)(const void *)field, key->kind);
}

static bool is_missing(const struct metrics_key *key, const struct metrics_step *step)
{
    return isnan(*(const double *)(const void *)((const char *)step + key->offset));
}

size_t metrics_format(char *buf, const struct metrics_step *step)
{
    size_t used = 0;

    /* No check for room: 19 keys of at most 17 + 5 characters and 19 values of at most 24 are under 900. */
    for (int i = 0; i < KEY_COUNT; i++) {
        if (i >= KEY_OPTIONAL && is_missing(&KEYS[i], step))
            continue;
        used += (size_t)snprintf(buf + used, METRICS_LINE_SIZE - used, "%c\"%s\":", i ? ',' : '{', KEYS[i].name);
        used += (size_t)format_value(buf + used, METRICS_LINE_SIZE - used, &KEYS[i], step);
    }
    used += (size_t)snprintf(buf + used, METRICS_LINE_SIZE - used, "}\n");
    return used;
}

/* ---- reading ---- */

static int parse_count(const struct metrics_key *key, const json_t *value, void *field, struct error *err)
{
    json_int_t most = key->kind == KIND_INT ? INT_MAX : LONG_MAX;
    json_int_t count = json_integer_value(value);

    if (!json_is_integer(value) || count < key->least || count > most)
        return error_set(err, CODE_DATA, "\"%s\" must be a whole number from %ld to %lld", key->name, key->least,
                         (long long)most);
    if (key->kind == KIND_INT)
        *(int *)field = (int)count;
    else
        *(long *)field = (long)count;
    return 0;
}

static int parse_value(const struct metrics_key *key, const json_t *value, struct metrics_step *step, struct error *err)
{
    void *field = (char *)step + key->offset;

    if (key->kind == KIND_LONG || key->kind == KIND_INT)
        return parse_count(key, value, field, err);
    if (!json_is_number(value) && !json_is_null(value))
        return error_set(err, CODE_DATA, "\"%s\" must be a number, or null where it was not finite", key->name);
    *(double *)field = json_is_null(value) ? NAN : json_number_value(value);
    return 0;
}

static int find_key(const char *name)
{
    for (int i = 0; i < KEY_COUNT; i++)
        if (strcmp(name, KEYS[i].name) == 0)
            return i;
    return -1;
}

static int parse_object(struct metrics_step *step, json_t *object, struct error *err)
{
    bool seen[KEY_COUNT] = {false};
    const char *name;
    json_t *value;

    json_object_foreach(object, name, value)
    {
        int i = find_key(name);

        if (i < 0)
            return error_set(err, CODE_DATA, "unknown key \"%.47s\"", name);
        if (parse_value(&KEYS[i], value, step, err) < 0)
            return -1;
        seen[i] = true;
    }
    for (int i = 0; i < KEY_OPTIONAL; i++)
        if (!seen[i])
            return error_set(err, CODE_DATA, "key \"%s\" is missing", KEYS[i].name);
    return 0;
}

int metrics_parse(struct metrics_step *step, const char *text, size_t length, struct error *err)
{
    json_error_t why;
    json_t *object;
    int result;

    memset(step, 0, sizeof *step);
    step->order_loss = step->valid_loss = step->valid_order_loss = NAN;
    object = json_loadb(text, length, JSON_REJECT_DUPLICATES, &why);
    if (!object)
        return error_set(err, CODE_DATA, "column %d: %s; a line must be one JSON object", why.column, why.text);
    if (json_is_object(object))
        result = parse_object(step, object, err);
    else
        result = error_set(err, CODE_DATA, "a line must be one JSON object");
    json_decref(object);
    return result;
}

int metrics_each(const char *path, metrics_visit *visit, void *arg, bool *torn, struct error *err)
{
    FILE *file = fopen(path, "re");
    char *line = NULL;
    size_t size = 0;
    ssize_t length;
    int result;

    if (torn)
        *torn = false;
    if (!file)
        return error_errno(err, CODE_IO, "cannot open metrics %s", path);
    for (long number = 1; (length = getline(&line, &size, file)) >= 0; number++) {
        struct metrics_step step;

        if (line[length - 1] != '\n') { /* the last line, not completely written */
            if (torn)
                *torn = true;
            break;
        }
        if (metrics_parse(&step, line, (size_t)length, err) < 0) {
            result = error_prefix(err, "%s:%ld", path, number);
            goto out;
        }
        result = visit(&step, line, (size_t)length, arg);
        if (result)
            goto out;
    }
    if (ferror(file)) /* a directory can be opened and fails only here */
        result = error_errno(err, CODE_IO, "cannot read metrics %s", path);
    else
        result = 0;
out:
    free(line);
    fclose(file);
    return result;
}

struct step_list {
    struct metrics_step *steps;
    size_t count, room;
    struct error *err;
};

static int append_step(const struct metrics_step *step, const char *line, size_t length, void *arg)
{
    struct step_list *list = arg;

    (void)line, (void)length;
    if (list->count == list->room) {
        size_t room = list->room ? 2 * list->room : 256;
        struct metrics_step *more = reallocarray(list->steps, room, sizeof *more);

        if (!more)
            return error_errno(list->err, CODE_IO, "no memory for %zu steps of metrics", room);
        list->steps = more;
        list->room = room;
    }
    list->steps[list->count++] = *step;
    return 0;
}

int metrics_read(const char *path, struct metrics_step **steps, size_t *count, struct error *err)
{
    struct step_list list = {.err = err};

    *steps = NULL;
    *count = 0;
    if (metrics_each(path, append_step, &list, NULL, err) < 0) {
        free(list.steps);
        return -1;
    }
    *steps = list.steps;
    *count = list.count;
    return 0;
}
