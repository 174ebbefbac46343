#include "common/job.h"

#include <ctype.h>
#include <libconfig.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/job_data.h"
#include "common/job_impl.h"
#include "common/job_text.h"
#include "common/text.h"

#define OVERRIDE_LINE "#! --set "

int job_reader_fail(const struct job_reader *r, struct job_origin at, const char *format, ...)
{
    char text[sizeof r->err->text];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    error_set(r->err, CODE_CONFIG, "%s", text);
    if (at.override)
        return error_prefix(r->err, "--set %.300s", at.override);
    if (at.line > 0)
        return error_prefix(r->err, "%.300s:%d", r->name, at.line);
    return error_prefix(r->err, "%.300s", r->name);
}

/* ---- one value --------------------------------------------------------------------------------------------------- */

static int fail_type(const struct job_reader *r, const struct job_key *key, struct job_origin at, const char *found)
{
    const char *type = job_key_type_name(key->type);

    if (key->type == JOB_KEY_BOOL)
        return job_reader_fail(r, at, "%s is %s; it must be true or false", key->path, found);
    if (key->type == JOB_KEY_DATA)
        return job_reader_fail(r, at,
                               "%s is %s; it must be a string, or a list: ( { data = \"web\"; weight = 0.7; }, ... )",
                               key->path, found);
    return job_reader_fail(r, at, "%s is %s; it must be %s %s", key->path, found, type[0] == 'i' ? "an" : "a", type);
}

/* `value` is the number as text, for the message. */
static int check_range(const struct job_reader *r, const struct job_key *key, struct job_origin at, double number,
                       const char *value)
{
    if (number >= key->least && number <= key->most)
        return 0;
    if (key->rule)
        return job_reader_fail(r, at, "%s = %s; %s", key->path, value, key->rule);
    if (number < key->least)
        return job_reader_fail(r, at, "%s = %s; at least %.16g", key->path, value, key->least);
    return job_reader_fail(r, at, "%s = %s; at most %.16g", key->path, value, key->most);
}

static int store_integer(const struct job_reader *r, const struct job_key *key, struct job_origin at, long long number)
{
    char *field = (char *)r->job + key->offset;
    char value[32];

    snprintf(value, sizeof value, "%lld", number);
    if (check_range(r, key, at, (double)number, value) < 0)
        return -1;
    if (key->type == JOB_KEY_INT)
        *(int *)field = (int)number;
    else if (key->type == JOB_KEY_LONG)
        *(long *)field = (long)number;
    else
        *(uint64_t *)field = (uint64_t)number;
    return 0;
}

static int store_number(const struct job_reader *r, const struct job_key *key, struct job_origin at, double number)
{
    char value[32];

    snprintf(value, sizeof value, "%g", number);
    if (!isfinite(number))
        return job_reader_fail(r, at, "%s = %s; a finite number", key->path, value);
    if (check_range(r, key, at, number, value) < 0)
        return -1;
    *(double *)((char *)r->job + key->offset) = number;
    return 0;
}

static int store_choice(const struct job_reader *r, const struct job_key *key, struct job_origin at, const char *text)
{
    char list[128] = "";
    size_t used = 0;

    for (int i = 0; key->choices[i]; i++) {
        if (strcmp(key->choices[i], text) == 0) {
            *(unsigned *)((char *)r->job + key->offset) = (unsigned)i; /* GCC and Clang give these enums unsigned */
            return 0;
        }
        used += (size_t)snprintf(list + used, sizeof list - used, "%s\"%s\"", i ? ", " : "one of ", key->choices[i]);
    }
    return job_reader_fail(r, at, "%s = \"%s\"; %s", key->path, text, key->rule ? key->rule : list);
}

static int store_data(const struct job_reader *r, const struct job_key *key, struct job_origin at, const char *text)
{
    struct job_data data;
    struct error err;

    if (job_data_parse(&data, text, &err) < 0 || job_data_format(&data, (char *)r->job + key->offset, &err) < 0)
        return job_reader_fail(r, at, "%s: %s", key->path, err.text);
    return 0;
}

static int store_list(const struct job_reader *r, const struct job_key *key, struct job_origin at,
                      const config_setting_t *list)
{
    char text[JOB_DATA_SIZE];
    struct error err;
    int lines;

    if (job_data_from_list(list, text, &lines, &err) == 0)
        return store_data(r, key, at, text);
    at.line += at.line > 0 ? lines : 0;
    return job_reader_fail(r, at, "%s: %s", key->path, err.text);
}

static int store_string(const struct job_reader *r, const struct job_key *key, struct job_origin at, const char *text)
{
    if (key->type == JOB_KEY_DATA)
        return store_data(r, key, at, text);
    if (key->type == JOB_KEY_CHOICE)
        return store_choice(r, key, at, text);
    if (strlen(text) >= key->size)
        return job_reader_fail(r, at, "%s is %zu bytes long; at most %zu", key->path, strlen(text), key->size - 1);
    strcpy((char *)r->job + key->offset, text);
    return 0;
}

/* Stores a value in its field and records where it was given. */
static int store_setting(struct job_reader *r, int index, struct job_origin at, const config_setting_t *setting)
{
    const struct job_key *key = &job_keys[index];
    int type = config_setting_type(setting);
    bool integer = type == CONFIG_TYPE_INT || type == CONFIG_TYPE_INT64;
    bool wants_string = key->type == JOB_KEY_STRING || key->type == JOB_KEY_CHOICE || key->type == JOB_KEY_DATA;

    r->origin[index] = at;
    if (wants_string && type == CONFIG_TYPE_STRING)
        return store_string(r, key, at, config_setting_get_string(setting));
    if (key->type == JOB_KEY_DATA && type == CONFIG_TYPE_LIST)
        return store_list(r, key, at, setting);
    if (key->type == JOB_KEY_BOOL && type == CONFIG_TYPE_BOOL) {
        *((bool *)((char *)r->job + key->offset)) = config_setting_get_bool(setting);
        return 0;
    }
    if (key->type == JOB_KEY_NUMBER && type == CONFIG_TYPE_FLOAT)
        return store_number(r, key, at, config_setting_get_float(setting));
    if (key->type == JOB_KEY_NUMBER && integer)
        return store_number(r, key, at, (double)config_setting_get_int64(setting));
    if (!wants_string && key->type != JOB_KEY_BOOL && integer)
        return store_integer(r, key, at, config_setting_get_int64(setting));
    return fail_type(r, key, at, job_setting_kind(setting));
}

static bool is_bare_string(const struct job_key *key, const char *value)
{
    if (key->type == JOB_KEY_DATA && value[0] == '(') /* a list */
        return false;
    return (key->type == JOB_KEY_STRING || key->type == JOB_KEY_CHOICE || key->type == JOB_KEY_DATA) && value[0] != '"';
}

/* Stores a value given as text: a default or an override. */
static int store_text(struct job_reader *r, int index, struct job_origin at, const char *value)
{
    const struct job_key *key = &job_keys[index];
    char *text = NULL, *prepared = NULL;
    struct error err;
    config_t config;
    int line, status = -1;

    if (is_bare_string(key, value)) {
        r->origin[index] = at;
        return store_string(r, key, at, value);
    }
    config_init(&config);
    if (asprintf(&text, "value = %s\n", value) < 0) {
        text = NULL;
        error_errno(r->err, CODE_IO, "no memory for %s", key->path);
    } else if (!(prepared = job_text_prepare(text, &line, &err))) {
        job_reader_fail(r, at, "%s", err.text);
    } else if (!config_read_string(&config, prepared) || config_setting_length(config_root_setting(&config)) != 1) {
        fail_type(r, key, at, value[0] ? value : "nothing");
    } else {
        status = store_setting(r, index, at, config_setting_get_elem(config_root_setting(&config), 0));
    }
    config_destroy(&config);
    free(prepared);
    free(text);
    return status;
}

/* ---- all values -------------------------------------------------------------------------------------------------- */

static int fail_unknown(const struct job_reader *r, struct job_origin at, const char *path)
{
    char advice[512];

    job_key_advice(path, advice, sizeof advice);
    return job_reader_fail(r, at, "unknown key '%s'; %s", path, advice);
}

bool job_reserves_variable(const char *name)
{
    static const char *const names[] = {"RANK",      "WORLD_SIZE",  "LOCAL_RANK",  "LOCAL_WORLD_SIZE",
                                        "NODE_RANK", "MASTER_ADDR", "MASTER_PORT", "OMP_NUM_THREADS"};
    static const char *const prefixes[] = {"SLURM_", "SPANK_", "PMI_", "PMIX_", "MUSTER_", NULL};

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return text_begins_with(name, prefixes);
}

static bool is_one_line(const char *value)
{
    for (; *value; value++)
        if (iscntrl((unsigned char)*value))
            return false;
    return true;
}

static int check_environment(const struct job_reader *r, const config_setting_t *group)
{
    for (int i = 0; i < config_setting_length(group); i++) {
        const config_setting_t *setting = config_setting_get_elem(group, (unsigned)i);
        struct job_origin at = {.line = (int)config_setting_source_line(setting)};
        const char *name = config_setting_name(setting), *value = config_setting_get_string(setting);

        if (name[text_name_length(name)])
            return job_reader_fail(r, at, "environment.%s is not a valid variable name; use letters, digits and _",
                                   name);
        if (job_reserves_variable(name))
            return job_reader_fail(r, at, "environment.%s is reserved: Slurm or muster sets it", name);
        if (!value || !is_one_line(value))
            return job_reader_fail(r, at, "environment.%s must be a string of one line: %s = \"...\";", name, name);
    }
    return 0;
}

static int store_group(struct job_reader *r, const config_setting_t *group, const char *prefix)
{
    for (int i = 0; i < config_setting_length(group); i++) {
        const config_setting_t *setting = config_setting_get_elem(group, (unsigned)i);
        struct job_origin at = {.line = (int)config_setting_source_line(setting)};
        char path[256];
        int index, status;

        snprintf(path, sizeof path, "%s%s%s", prefix, prefix[0] ? "." : "", config_setting_name(setting));
        index = job_key_find(path);
        if (index >= 0)
            status = store_setting(r, index, at, setting);
        else if (!job_key_is_group(path) && strcmp(path, "environment") != 0)
            status = fail_unknown(r, at, path);
        else if (!config_setting_is_group(setting))
            status = job_reader_fail(r, at, "%s is %s; it must be a group: %s = { ... };", path,
                                     job_setting_kind(setting), path);
        else if (strcmp(path, "environment") == 0)
            status = check_environment(r, setting);
        else
            status = store_group(r, setting, path);
        if (status < 0)
            return -1;
    }
    return 0;
}

static int store_file(struct job_reader *r, const char *text)
{
    struct error err;
    config_t config;
    int line, status;

    if (job_text_parse(&config, text, &line, &err) == 0)
        status = store_group(r, config_root_setting(&config), "");
    else
        status = job_reader_fail(r, (struct job_origin){.line = line}, "%s", err.text);
    config_destroy(&config);
    return status;
}

/* ---- overrides --------------------------------------------------------------------------------------------------- */

static int store_override(struct job_reader *r, struct job_origin at, const char *assignment)
{
    const char *equals = strchr(assignment, '=');
    char path[64];
    int index, length;

    if (!equals || strcspn(assignment, "\r\n") != strlen(assignment))
        return job_reader_fail(r, at, "not one line path=value; an example: optimizer.lr=1e-4");
    length = (int)(equals - assignment);
    while (length > 0 && assignment[length - 1] == ' ')
        length--;
    snprintf(path, sizeof path, "%.*s", length, assignment);
    index = job_key_find(path);
    if (index < 0)
        return fail_unknown(r, at, path);
    return store_text(r, index, at, equals + 1 + strspn(equals + 1, " "));
}

/* Applies the lines of `text` that hold overrides. */
static int store_override_lines(struct job_reader *r, const char *text)
{
    const size_t mark = strlen(OVERRIDE_LINE);
    struct job_origin at = {.line = 1};

    for (const char *line = text; *line; at.line++) {
        size_t length = strcspn(line, "\r\n");
        char *assignment;
        int status;

        if (length > mark && strncmp(line, OVERRIDE_LINE, mark) == 0) {
            assignment = strndup(line + mark, length - mark);
            if (!assignment)
                return error_errno(r->err, CODE_IO, "no memory for %s", r->name);
            status = store_override(r, at, assignment);
            free(assignment);
            if (status < 0)
                return -1;
        }
        line += strcspn(line, "\n");
        line += *line == '\n';
    }
    return 0;
}

/* The file's text and a line for each override. */
static char *full_text(const char *text, char *const *set, int nset)
{
    size_t length = strlen(text), size;
    char *full = NULL;
    FILE *out = open_memstream(&full, &size);

    if (out)
        fprintf(out, "%s%s", text, length > 0 && text[length - 1] != '\n' ? "\n" : "");
    for (int i = 0; out && i < nset; i++)
        fprintf(out, OVERRIDE_LINE "%s\n", set[i]);
    if (out && fclose(out) == 0)
        return full;
    free(full);
    return NULL;
}

static int read_job(struct job_reader *reader, const char *text, char *const *set, int nset)
{
    struct job *job = reader->job;

    memset(job, 0, sizeof *job);
    job->text = full_text(text, set, nset);
    if (!job->text)
        return error_errno(reader->err, CODE_IO, "no memory for %s", reader->name);
    for (int k = 0; k < job_key_count; k++)
        if (job_keys[k].default_text && store_text(reader, k, (struct job_origin){0}, job_keys[k].default_text) < 0)
            goto fail;
    if (store_file(reader, text) < 0 || store_override_lines(reader, text) < 0)
        goto fail;
    for (int i = 0; i < nset; i++)
        if (store_override(reader, (struct job_origin){.override = set[i]}, set[i]) < 0)
            goto fail;
    for (int k = 0; k < job_key_count; k++)
        job->given[k] = reader->origin[k].line > 0 || reader->origin[k].override;
    if (job_check(reader) == 0)
        return 0;

fail:
    job_destroy(job);
    return -1;
}

int job_parse(struct job *job, const char *text, const char *name, char *const *set, int nset, struct error *err)
{
    struct job_reader reader = {.job = job, .name = name, .stored = true, .err = err};

    return read_job(&reader, text, set, nset);
}

int job_load(struct job *job, const char *path, char *const *set, int nset, struct error *err)
{
    struct job_reader reader = {.job = job, .name = path, .err = err};
    char *text = job_text_read(path, err);
    int status;

    if (!text)
        return -1;
    status = read_job(&reader, text, set, nset);
    free(text);
    return status;
}

bool job_gives(const struct job *job, const char *path)
{
    return job->given[job_key_find(path)];
}

int job_override(struct job *job, const char *name, const char *sets, struct error *err)
{
    char copy[1024], *rest = copy, *set[sizeof copy / 2 + 1];
    struct job more;
    int nset = 0;

    snprintf(copy, sizeof copy, "%s", sets);
    while ((set[nset] = strtok_r(rest, " ", &rest)))
        nset++;
    if (job_parse(&more, job->text, name, set, nset, err) < 0)
        return -1;
    job_destroy(job);
    *job = more;
    return 0;
}

void job_destroy(struct job *job)
{
    if (!job)
        return;
    free(job->text);
    job->text = NULL;
}

int job_each_variable(const struct job *job, job_variable_visit *visit, void *arg, struct error *err)
{
    const config_setting_t *group = NULL;
    config_t config;
    int line, status = job_text_parse(&config, job->text, &line, err);

    if (status == 0)
        group = config_lookup(&config, "environment");
    for (int i = 0; status == 0 && group && i < config_setting_length(group); i++) {
        const config_setting_t *setting = config_setting_get_elem(group, (unsigned)i);

        status = visit(config_setting_name(setting), config_setting_get_string(setting),
                       (int)config_setting_source_line(setting), arg, err);
    }
    config_destroy(&config);
    return status;
}
