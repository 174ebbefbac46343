#include "config.h"

#include "ckpt/format/json_fields.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int json_get_integer(json_t *object, const char *key, uint64_t most, uint64_t *out, struct error *err)
{
    json_t *value = json_object_get(object, key);

    if (!json_is_integer(value) || json_integer_value(value) < 0 || (uint64_t)json_integer_value(value) > most)
        return error_set(err, CODE_DATA, "\"%s\" must be an integer of 0 to %" PRIu64, key, most);
    *out = (uint64_t)json_integer_value(value);
    return 0;
}

int json_get_int(json_t *object, const char *key, int *out, struct error *err)
{
    uint64_t value;

    if (json_get_integer(object, key, INT32_MAX, &value, err) < 0)
        return -1;
    *out = (int)value;
    return 0;
}

int json_get_string(json_t *object, const char *key, char *out, size_t size, struct error *err)
{
    json_t *value = json_object_get(object, key);

    if (!json_is_string(value) || json_string_length(value) >= size)
        return error_set(err, CODE_DATA, "\"%s\" must be a string of at most %zu bytes", key, size - 1);
    memcpy(out, json_string_value(value), json_string_length(value) + 1);
    return 0;
}

int json_get_array(json_t *object, const char *key, json_t **out, struct error *err)
{
    *out = json_object_get(object, key);
    return json_is_array(*out) ? 0 : error_set(err, CODE_DATA, "\"%s\" must be an array", key);
}

int json_parse_hex(const char *text, int digits, uint64_t *out)
{
    *out = 0;
    for (int i = 0; i < digits; i++) {
        if (!isxdigit((unsigned char)text[i]) || isupper((unsigned char)text[i]))
            return -1;
        *out = *out << 4 | (uint64_t)(text[i] <= '9' ? text[i] - '0' : text[i] - 'a' + 10);
    }
    return 0;
}

int json_get_hex(json_t *object, const char *key, int digits, uint64_t *out, struct error *err)
{
    json_t *value = json_object_get(object, key);

    if (!json_is_string(value) || json_string_length(value) != (size_t)digits ||
        json_parse_hex(json_string_value(value), digits, out) < 0)
        return error_set(err, CODE_DATA, "\"%s\" must be a string of %d hexadecimal digits", key, digits);
    return 0;
}

json_t *json_text(const char *text)
{
    json_t *json = json_string(text);
    char *copy = json ? NULL : strdup(text);

    for (char *at = copy; at && *at; at++)
        if ((unsigned char)*at >= 0x80)
            *at = '?';
    if (copy)
        json = json_string(copy);
    free(copy);
    return json;
}

static json_t *write_field(const struct json_field *field, const void *at)
{
    char digits[17];

    switch (field->kind) {
    case FIELD_COUNT:
        return json_integer((json_int_t) * (const uint64_t *)at);
    case FIELD_INT:
        return json_integer(*(const int *)at);
    case FIELD_DOUBLE:
        return json_real(*(const double *)at);
    case FIELD_SEED: /* JSON has no unsigned 64-bit numbers */
        snprintf(digits, sizeof digits, "%016" PRIx64, *(const uint64_t *)at);
        return json_string(digits);
    default:
        return json_text(at);
    }
}

json_t *json_write_fields(const struct json_field *fields, const void *from)
{
    json_t *object = json_object();

    for (; fields->name; fields++)
        if (json_object_set_new(object, fields->name, write_field(fields, (const char *)from + fields->offset)) < 0) {
            json_decref(object);
            return NULL;
        }
    return object;
}

static int read_field(json_t *object, const struct json_field *field, void *to, struct error *err)
{
    json_t *value = json_object_get(object, field->name);

    switch (field->kind) {
    case FIELD_COUNT:
        return json_get_integer(object, field->name, INT64_MAX, to, err);
    case FIELD_INT:
        return json_get_int(object, field->name, to, err);
    case FIELD_DOUBLE:
        if (!json_is_number(value))
            return error_set(err, CODE_DATA, "\"%s\" must be a number", field->name);
        *(double *)to = json_number_value(value);
        return 0;
    case FIELD_SEED:
        return json_get_hex(object, field->name, 16, to, err);
    default:
        return json_get_string(object, field->name, to, field->size, err);
    }
}

/* Whether any of the later fields is there. */
static bool has_later(json_t *object, const struct json_field *fields)
{
    for (; fields->name; fields++)
        if (fields->later && json_object_get(object, fields->name))
            return true;
    return false;
}

int json_read_fields(json_t *object, const struct json_field *fields, void *to, struct error *err)
{
    bool later = has_later(object, fields);

    for (; fields->name; fields++)
        if ((later || !fields->later) && read_field(object, fields, (char *)to + fields->offset, err) < 0)
            return -1;
    return 0;
}

int json_write_file(const struct directory *directory, const char *name, json_t *json, size_t flags, struct error *err)
{
    char *text = json ? json_dumps(json, flags) : NULL;
    int result = text ? file_write(directory, name, text, strlen(text), err)
                      : error_set(err, CODE_IO, "%s/%s: out of memory", directory->path, name);

    json_decref(json);
    free(text);
    return result;
}

json_t *json_read_file(const struct directory *directory, const char *name, size_t most, struct error *err)
{
    size_t bytes;
    char *text = file_read(directory, name, most, &bytes, err);
    json_t *json = text ? json_loadb(text, bytes, 0, NULL) : NULL;

    if (text && !json)
        error_set(err, CODE_DATA, "%s/%s: not JSON", directory->path, name);
    free(text);
    return json;
}

int format_check(json_t *object, const struct file_format *format, struct error *err)
{
    const char *name = json_string_value(json_object_get(object, "format"));
    json_t *number = json_object_get(object, "version");

    if (!name)
        return error_set(err, CODE_CONFIG, "member \"format\" is missing");
    if (strcmp(name, format->name) != 0)
        return error_set(err, CODE_CONFIG, "format \"%.100s\" is unknown", name);
    if (!json_is_integer(number))
        return error_set(err, CODE_CONFIG, "member \"version\" is missing, or not a number");
    if (json_integer_value(number) < 1 || json_integer_value(number) > format->number)
        return error_set(err, CODE_CONFIG, "format version %lld is unknown", (long long)json_integer_value(number));
    return 0;
}

static bool is_among(const char *const *members, const struct json_field *fields, const char *key)
{
    for (; members && *members; members++)
        if (strcmp(*members, key) == 0)
            return true;
    for (; fields && fields->name; fields++)
        if (strcmp(fields->name, key) == 0)
            return true;
    return false;
}

int format_check_members(json_t *object, const char *const *members, const struct json_field *fields, struct error *err)
{
    bool later = fields && has_later(object, fields);
    const char *key;
    json_t *value;

    if (!json_is_object(object))
        return error_set(err, CODE_DATA, "must be a JSON object");
    json_object_foreach(object, key, value)
    {
        if (!is_among(members, fields, key))
            return error_set(err, CODE_CONFIG, "member \"%.100s\" is unknown", key);
    }
    for (; fields && fields->name; fields++)
        if ((later || !fields->later) && !json_object_get(object, fields->name))
            return error_set(err, CODE_CONFIG, "member \"%s\" is missing", fields->name);
    for (; members && *members; members++)
        if (!json_object_get(object, *members))
            return error_set(err, CODE_CONFIG, "member \"%s\" is missing", *members);
    return 0;
}

int format_explain(json_t *object, const struct file_format *known, struct error *err)
{
    const char *writer = json_string_value(json_object_get(object, "muster"));
    json_t *number = json_object_get(object, "version");
    char release[64] = "an unnamed release", format[64] = "a format without a number";
    size_t used;

    if (!err || err->code != CODE_CONFIG)
        return -1;
    if (writer)
        snprintf(release, sizeof release, "muster %.31s", writer);
    if (json_is_integer(number))
        snprintf(format, sizeof format, "format %lld", (long long)json_integer_value(number));
    used = strlen(err->text);
    snprintf(err->text + used, sizeof err->text - used,
             " (written by %s in %s; this is muster " PACKAGE_VERSION ", which knows format %d)", release, format,
             known->number);
    error_tame(err->text);
    return -1;
}
