#include "common/job_text.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/text.h"

#define FILE_SIZE_MAX ((size_t)1 << 20)
#define DIGITS_MAX    18 /* any 18 digits fit in 64 bits */

char *job_text_read(const char *path, struct error *err)
{
    struct error why = {0};
    size_t size = 0;
    char *text = text_load(path, FILE_SIZE_MAX, &size, &why);

    if (!text && why.code == CODE_DATA)
        error_set(err, CODE_CONFIG, "%s; a job file is text of at most 1 MiB", why.text);
    else if (!text)
        error_set(err, CODE_CONFIG, "cannot read the job file %s", why.text);
    else if (strlen(text) == size)
        return text;
    else
        error_set(err, CODE_CONFIG, "%s: a zero byte at offset %zu; a job file is text", path, strlen(text));
    free(text);
    return NULL;
}

/* Length of the string at p with its quotes; 0 if it does not end on its line. */
static size_t string_length(const char *p)
{
    size_t n = 1;

    while (p[n] && p[n] != '"' && p[n] != '\n')
        n += p[n] == '\\' && p[n + 1] && p[n + 1] != '\n' ? 2 : 1;
    return p[n] == '"' ? n + 1 : 0;
}

/* Length of the comment, string or name that starts at p, which libconfig must get unchanged; 0 if none does. */
static size_t verbatim_length(const char *p)
{
    size_t n = 0;

    if (p[0] == '#' || (p[0] == '/' && p[1] == '/'))
        return strcspn(p, "\n");
    if (p[0] == '/' && p[1] == '*') {
        const char *end = strstr(p + 2, "*/");

        return end ? (size_t)(end - p) + 2 : strlen(p);
    }
    if (p[0] == '"')
        return string_length(p);
    if (isalpha((unsigned char)p[0]) || p[0] == '_' || p[0] == '*')
        while (isalnum((unsigned char)p[n]) || (p[n] && strchr("_-*", p[n])))
            n++;
    return n;
}

/* Length of the number at p, or of text that begins like one. The sign of an exponent belongs to it. */
static size_t number_length(const char *p)
{
    size_t n = 0;

    while (isalnum((unsigned char)p[n]) || p[n] == '.' ||
           (n > 0 && strchr("eE", p[n - 1]) && (p[n] == '+' || p[n] == '-')))
        n++;
    return n;
}

/* 1 if the number at p is an integer that needs the suffix, 0 if it needs none, -1 if it is refused. */
static int check_number(const char *p, size_t length, struct error *err)
{
    size_t digits = strspn(p, "0123456789");
    bool integer = digits == length || p[digits] == 'L';

    if (p[0] == '0' && length > 1 && ((integer && digits > 1) || strchr("xXbBoO", p[1])))
        return error_set(err, CODE_CONFIG,
                         "the integer %.*s is not plain decimal; write it without leading zeros or prefix", (int)length,
                         p);
    if (integer && digits > DIGITS_MAX)
        return error_set(err, CODE_CONFIG, "the integer %.*s is too large; at most %d digits", (int)length, p,
                         DIGITS_MAX);
    return digits == length;
}

char *job_text_prepare(const char *text, int *line, struct error *err)
{
    char *copy = error_calloc(2, strlen(text) + 1, err); /* at worst every second character is a one-digit integer */
    char *out = copy;

    if (!copy)
        return NULL;
    *line = 1;
    for (const char *p = text; *p;) {
        size_t length = verbatim_length(p);
        int widen = 0;

        if (length == 0 && (isdigit((unsigned char)*p) || *p == '.')) {
            length = number_length(p);
            widen = check_number(p, length, err);
        } else if (length == 0 && *p == '"') {
            widen = error_set(err, CODE_CONFIG, "a string is not closed on its line; write \"...\"");
        } else if (p[0] == '@' && strncmp(p, "@include", strlen("@include")) == 0) {
            widen = error_set(err, CODE_CONFIG, "@include; this file must stand alone: write the settings here");
        }
        if (widen < 0)
            goto fail;
        if (length == 0)
            length = 1;
        for (size_t i = 0; i < length; i++)
            *line += p[i] == '\n';
        out = mempcpy(out, p, length);
        p += length;
        if (widen)
            *out++ = 'L';
    }
    strcpy(out, out > copy && out[-1] == '\n' ? "" : "\n"); /* libconfig takes no comment without one */
    return copy;

fail:
    free(copy);
    return NULL;
}

int job_text_parse(config_t *config, const char *text, int *line, struct error *err)
{
    char *prepared = job_text_prepare(text, line, err);
    int status = prepared ? 0 : -1;

    config_init(config);
    if (prepared && !config_read_string(config, prepared)) {
        *line = config_error_line(config);
        status = error_set(err, CODE_CONFIG, "%s here or just before; write name = value; and name = { ... };",
                           config_error_text(config));
    }
    free(prepared);
    return status;
}

const char *job_setting_kind(const config_setting_t *setting)
{
    static const char *const kinds[] = {
        [CONFIG_TYPE_GROUP] = "a group",    [CONFIG_TYPE_INT] = "an integer",  [CONFIG_TYPE_INT64] = "an integer",
        [CONFIG_TYPE_FLOAT] = "a fraction", [CONFIG_TYPE_STRING] = "a string", [CONFIG_TYPE_BOOL] = "a boolean",
        [CONFIG_TYPE_ARRAY] = "an array",   [CONFIG_TYPE_LIST] = "a list",
    };

    return kinds[config_setting_type(setting)];
}
