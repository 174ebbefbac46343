#include "trainer/report/metrics.h"

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
    KIND_TIME,    /* one for which milliseconds are */
};

struct metrics_key {
    const char *name;
    enum kind kind;
    long least; /* of counts */
    size_t offset;
};

#define KEY(field, type, low) .name = #field, .kind = type, .least = low, .offset = offsetof(struct metrics_step, field)

/* Both directions use this table. */
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
    /* optional ones; of these, KEY_NUMBERS are left out where they are 0 */
    {KEY(time, KIND_TIME, 0)},
    {KEY(tflops_before_2022, KIND_MEASURE, 0)},
    {KEY(mosaicml_mfu, KIND_MEASURE, 0)},
    {KEY(mosaicml_hfu, KIND_MEASURE, 0)},
    {KEY(mosaicml_mfu_params, KIND_MEASURE, 0)},
    {KEY(mosaicml_hfu_params, KIND_MEASURE, 0)},
    {KEY(order_loss, KIND_RESULT, 0)},
    {KEY(valid_loss, KIND_RESULT, 0)},
    {KEY(valid_order_loss, KIND_RESULT, 0)},
};

enum {
    KEY_COUNT = sizeof KEYS / sizeof KEYS[0],
    KEY_VALIDATION = KEY_COUNT - 2,
    KEY_NUMBERS = 6,
    KEY_OPTIONAL = KEY_VALIDATION - KEY_NUMBERS - 1,
};

/* ---- a step as text ---- */

/* The fewest digits that read back the same double: 0.00015 rather than 0.00014999999999999999. */
static int format_double(char *buf, size_t size, double value, enum kind kind)
{
    if (!isfinite(value))
        return snprintf(buf, size, "null");
    if (value == 0.0) /* "-0" would be read as an integer of JSON, without its sign */
        return snprintf(buf, size, signbit(value) ? "-0.0" : "0");
    if (kind == KIND_TIME)
        return snprintf(buf, size, "%.3f", value);
    if (kind == KIND_MEASURE)
        return snprintf(buf, size, "%.9g", value);
    for (int digits = 9; digits < 17; digits++) {
        int used = snprintf(buf, size, "%.*g", digits, value);

        if (strtod(buf, NULL) == value)
            return used;
    }
    return snprintf(buf, size, "%.17g", value);
}

static int format_value(char *buf, size_t size, const struct metrics_key *key, const void *field)
{
    if (key->kind == KIND_LONG)
        return snprintf(buf, size, "%ld", *(const long *)field);
    if (key->kind == KIND_INT)
        return snprintf(buf, size, "%d", *(const int *)field);
    return format_double(buf, size, *(const double *)field, key->kind);
}

static size_t format_array(char *buf, size_t size, const char *name, const double *values, int count)
{
    size_t used = 0;

    for (int i = 0; i < count; i++) {
        used += i ? (size_t)snprintf(buf + used, size - used, ",")
                  : (size_t)snprintf(buf + used, size - used, ",\"%s\":[", name);
        used += (size_t)format_double(buf + used, size - used, values[i], KIND_RESULT);
    }
    return used + (count ? (size_t)snprintf(buf + used, size - used, "]") : 0);
}

/* Leaves out an order_loss or valid_order_loss that is NaN, and optional numbers that are 0. */
static size_t format_keys(char *buf, size_t size, int first, int end, const struct metrics_step *step)
{
    size_t used = 0;

    for (int i = first; i < end; i++) {
        const void *field = (const char *)step + KEYS[i].offset;

        if (i >= KEY_OPTIONAL && i != KEY_VALIDATION && isnan(*(const double *)field))
            continue;
        if (i >= KEY_OPTIONAL && i < KEY_OPTIONAL + KEY_NUMBERS && *(const double *)field == 0)
            continue;
        used += (size_t)snprintf(buf + used, size - used, "%c\"%s\":", i ? ',' : '{', KEYS[i].name);
        used += (size_t)format_value(buf + used, size - used, &KEYS[i], field);
    }
    return used;
}

size_t metrics_format_end(char *buf, size_t size, const struct metrics_step *step)
{
    size_t used = step->validated ? format_keys(buf, size, KEY_VALIDATION, KEY_COUNT, step) : 0;

    used += format_array(buf + used, size - used, "valid_set_losses", step->valid_set_losses, step->valid_sets);
    return used + (size_t)snprintf(buf + used, size - used, "}\n");
}

size_t metrics_format(char *buf, const struct metrics_step *step)
{
    /* No check for room: 25 keys of at most 19 + 5 characters and 25 values of at most 24 are under 1200, and 2 arrays
     * of 128 values and commas are under 6500. */
    size_t used = format_keys(buf, METRICS_LINE_SIZE, 0, KEY_VALIDATION, step);

    used += format_array(buf + used, METRICS_LINE_SIZE - used, "set_losses", step->set_losses, step->sets);
    return used + metrics_format_end(buf + used, METRICS_LINE_SIZE - used, step);
}

/* An event as a line; its length. */
static size_t write_event(char *buf, json_t *event, size_t digits)
{
    size_t used = json_dumpb(event, buf, METRICS_LINE_SIZE - 1, JSON_COMPACT | JSON_REAL_PRECISION(digits));

    json_decref(event);
    used = used < METRICS_LINE_SIZE ? used : 0; /* it has no room: lines may be empty */
    buf[used] = '\n';
    return used + 1;
}

size_t metrics_format_start(char *buf, const struct metrics_start *s)
{
    json_t *object = s->ready > 0 ? json_pack("{s:s, s:I, s:s, s:f, s:f, s:f, s:s*}", "event", "start", "step",
                                              (json_int_t)s->step, "job", s->job, "job_began", s->job_began,
                                              "drain_seconds", s->drain_seconds, "ready", s->ready, "hang", s->hang)
                                  : json_pack("{s:s, s:f}", "event", "first_step", "first_step", s->first_step);
    json_t *restart = s->fault > 0 ? json_pack("{s:f, s:f, s:f, s:s, s:s}", "fault", s->fault, "ended", s->ended,
                                               "checked", s->checked, "nodes", s->nodes, "cause", s->cause)
                                   : NULL;

    json_object_update(object, restart);
    json_decref(restart);
    return write_event(buf, object, 14);
}

size_t metrics_format_saved(char *buf, long step, double seconds)
{
    return write_event(
        buf, json_pack("{s:s, s:I, s:f}", "event", "checkpoint", "step", (json_int_t)step, "seconds", seconds), 6);
}

static int parse_value(const struct metrics_key *key, const json_t *value, struct metrics_step *step, struct error *err)
{
    void *field = (char *)step + key->offset;
    json_int_t most = key->kind == KIND_INT ? INT_MAX : LONG_MAX, count = json_integer_value(value);

    if (key->kind >= KIND_RESULT) {
        if (!json_is_number(value) && !json_is_null(value))
            return error_set(err, CODE_DATA, "\"%s\" must be a number, or null where there is none", key->name);
        *(double *)field = json_is_null(value) ? NAN : json_number_value(value);
        return 0;
    }
    if (!json_is_integer(value) || count < key->least || count > most)
        return error_set(err, CODE_DATA, "\"%s\" must be a whole number from %ld to %lld", key->name, key->least,
                         (long long)most);
    if (key->kind == KIND_INT)
        *(int *)field = (int)count;
    else
        *(long *)field = (long)count;
    return 0;
}

static int check_array(json_t *object, const char *name, struct error *err)
{
    const json_t *array = json_object_get(object, name);

    if (array && !json_is_array(array))
        return error_set(err, CODE_DATA, "\"%s\" must be an array", name);
    for (size_t i = 0; i < json_array_size(array); i++)
        if (!json_is_number(json_array_get(array, i)) && !json_is_null(json_array_get(array, i)))
            return error_set(err, CODE_DATA, "\"%s\" must have numbers, and null for a set without predictions", name);
    return 0;
}

static int parse_object(struct metrics_step *step, json_t *object, struct error *err)
{
    const char *missing = NULL;

    step->validated = json_object_get(object, "valid_loss") != NULL;
    if (check_array(object, "set_losses", err) < 0 || check_array(object, "valid_set_losses", err) < 0)
        return -1;

    for (int i = 0; i < KEY_COUNT; i++) {
        const json_t *value = json_object_get(object, KEYS[i].name);

        if (!value && !missing && i < KEY_OPTIONAL)
            missing = KEYS[i].name;
        else if (value && parse_value(&KEYS[i], value, step, err) < 0)
            return -1;
    }
    return missing ? error_set(err, CODE_DATA, "key \"%s\" is missing", missing) : 0;
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
    result = json_is_object(object) ? parse_object(step, object, err)
                                    : error_set(err, CODE_DATA, "a line must be one JSON object");
    json_decref(object);
    return result;
}

/* NULL if nothing is known of them. */
static json_t *pack_gpus(const struct metrics_where *w)
{
    json_t *gpus = NULL;

    for (int i = 0; i < METRICS_GPU_MOST; i++)
        if (w->gpu_readings[i] > 0) {
            gpus = gpus ? gpus : json_pack("{s:f, s:f}", "ecc_errors", w->ecc, "xid", w->xid);
            json_object_set_new(gpus, w->gpu_names[i], json_real(w->gpu_sums[i] / (double)w->gpu_readings[i]));
        }
    if (w->lowest) {
        json_t *lowest = json_pack("{s:s, s:f}", "node", w->lowest, "sm_mhz", w->lowest_mhz);

        json_object_set_new(lowest, "celsius", json_real(w->lowest_celsius)); /* NaN: it stays unset */
        json_object_set_new(gpus, "lowest", lowest);
    }
    return gpus;
}

size_t metrics_format_where(char *buf, const struct metrics_where *w)
{
    json_t *mean = json_object(), *rank0 = json_object(), *object;

    for (int i = 0; i < w->shares; i++) {
        json_object_set_new(mean, w->names[i], json_real(w->mean[i]));
        json_object_set_new(rank0, w->names[i], json_real(w->rank0[i]));
    }
    object = json_pack("{s:s, s:I, s:i, s:i, s:i, s:s, s:f, s:f, s:f, s:o, s:o, s:o*}", "event", "where", "steps",
                       (json_int_t)w->steps, "dp", w->dp, "tp", w->tp, "pp", w->pp, "slowest", w->slowest, "slower",
                       w->slower, "device_mib", w->device_mib, "host_mib", w->host_mib, "mean", mean, "rank0", rank0,
                       "gpus", pack_gpus(w));
    return write_event(buf, object, 6);
}

/* ---- reading a file ---- */

int metrics_each_step(const char *path, metrics_take_step *take, void *arg, struct metrics_damage *damage,
                      struct error *err)
{
    FILE *file = fopen(path, "re");
    char *line = NULL;
    size_t size = 0, number = 0;
    ssize_t length;
    int result = 0;

    damage->lines = 0;
    if (!file)
        return error_errno(err, CODE_IO, "cannot open metrics %s", path);
    while (result == 0 && (length = getline(&line, &size, file)) > 0) {
        bool ended = line[length - 1] == '\n';
        struct metrics_step step;
        struct error why;

        number++;
        line[length - ended] = '\0';
        if (metrics_parse(&step, line, (size_t)(length - ended), &why) == 0) {
            result = take(arg, &step, line, err);
        } else if (ended && damage->lines++ == 0) {
            error_prefix(&why, "%s:%zu", path, number);
            damage->first = why;
        }
    }
    if (result == 0 && !feof(file)) /* a directory can be opened and fails only here; or there is no memory */
        result = error_errno(err, CODE_IO, "cannot read metrics %s", path);
    free(line);
    fclose(file);
    return result;
}

/* A whole file, and what its arrays have room for. */
struct metrics_reading {
    struct metrics *metrics;
    size_t room, start_room;
};

static int list_step(void *arg, const struct metrics_step *step, const char *line, struct error *err)
{
    struct metrics_reading *r = arg;

    (void)line;
    if (error_reserve(&r->metrics->steps, &r->room, r->metrics->count, 1, sizeof *step, err) < 0)
        return -1;
    r->metrics->steps[r->metrics->count++] = *step;
    return 0;
}

/* Adds a start; a first_step is of the one before it. Other events are left out. */
static int list_event(void *arg, const char *kind, json_t *object, struct error *err)
{
    struct metrics_reading *r = arg;
    struct metrics *m = r->metrics;
    struct metrics_start s = {0}, *before = m->nstarts ? &m->starts[m->nstarts - 1] : &s;
    const char *job = "", *nodes = "", *cause = "";
    json_int_t step = 0, repeated = 0;
    double first_step = 0;

    (void)kind;
    if (json_unpack(object, "{s:F}", "first_step", &first_step) == 0 && before->first_step == 0)
        before->first_step = first_step;
    if (json_unpack(object, "{s:I, s:I, s:F, s:s, s:F, s:F, s:F, s?F, s?F, s?F, s?s, s?s}", "step", &step, "repeated",
                    &repeated, "last", &s.last, "job", &job, "job_began", &s.job_began, "drain_seconds",
                    &s.drain_seconds, "ready", &s.ready, "fault", &s.fault, "ended", &s.ended, "checked", &s.checked,
                    "nodes", &nodes, "cause", &cause) == 0) {
        s.step = (long)step;
        s.repeated = (long)repeated;
        snprintf(s.job, sizeof s.job, "%s", job);
        snprintf(s.nodes, sizeof s.nodes, "%s", nodes);
        snprintf(s.cause, sizeof s.cause, "%s", cause);
        error_tame(s.job);
        error_tame(s.nodes);
        error_tame(s.cause);
        if (error_reserve(&m->starts, &r->start_room, m->nstarts, 1, sizeof s, err) < 0)
            return -1;
        m->starts[m->nstarts++] = s;
    }
    return 0;
}

int metrics_each_event(const char *path, metrics_take_event *take, void *arg, struct metrics_damage *damage,
                       struct error *err)
{
    char name[PATH_MAX], *line = NULL;
    size_t size = 0;
    int result = 0;
    FILE *file;

    snprintf(name, sizeof name, "%s.events", path);
    file = fopen(name, "re");
    if (!file) {
        result = errno == ENOENT || errno == ENOTDIR ? 1 : -1;
        error_errno(err, CODE_IO, "cannot open %s", name);
        return result;
    }
    for (long number = 1; result == 0 && getline(&line, &size, file) > 0; number++) {
        json_t *event = json_loads(line, 0, NULL);
        const char *kind = json_string_value(json_object_get(event, "event"));

        if (kind)
            result = take(arg, kind, event, err);
        else if (*line != '\n' && strchr(line, '\n') && damage->lines++ == 0) /* the last may be being written */
            error_set(&damage->first, CODE_DATA, "%s:%ld: not an event", name, number);
        json_decref(event);
    }
    free(line);
    fclose(file);
    return result;
}

int metrics_read_starts(const char *path, struct metrics *metrics, struct error *err)
{
    struct metrics_reading reading = {.metrics = metrics};
    struct metrics_damage ignored = {0};

    *metrics = (struct metrics){0};
    return metrics_each_event(path, list_event, &reading, &ignored, err) < 0 ? -1 : 0;
}

int metrics_read(const char *path, struct metrics *metrics, struct metrics_damage *damage, struct error *err)
{
    struct metrics_reading reading = {.metrics = metrics};
    int result;

    *metrics = (struct metrics){0};
    result = metrics_each_step(path, list_step, &reading, damage, err);
    if (result == 0 && metrics->count == 0 && damage->lines > 0) {
        *err = damage->first;
        result = -1;
    }
    if (result == 0)
        result = metrics_each_event(path, list_event, &reading, damage, err) < 0 ? -1 : 0;
    if (result < 0)
        metrics_free(metrics);
    return result;
}

void metrics_free(struct metrics *metrics)
{
    free(metrics->steps);
    free(metrics->starts);
    *metrics = (struct metrics){0};
}
