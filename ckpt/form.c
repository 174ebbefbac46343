#include "config.h"

#include "ckpt/form.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

int form_check(json_t *object, const char *format, int version, struct error *err)
{
    const char *name = json_string_value(json_object_get(object, "format"));
    json_t *number = json_object_get(object, "version");

    if (!name)
        return error_set(err, CODE_CONFIG, "member \"format\" is missing");
    if (strcmp(name, format) != 0)
        return error_set(err, CODE_CONFIG, "format \"%.100s\" is unknown", name);
    if (!json_is_integer(number))
        return error_set(err, CODE_CONFIG, "member \"version\" is missing, or not a number");
    if (json_integer_value(number) != version)
        return error_set(err, CODE_CONFIG, "format version %lld is unknown", (long long)json_integer_value(number));
    return 0;
}

static bool is_among(const char *members, const char *key)
{
    size_t length = strlen(key);

    for (const char *at = members; (at = strstr(at, key)); at += length)
        if (length > 0 && (at == members || at[-1] == ' ') && (at[length] == ' ' || at[length] == '\0'))
            return true;
    return false;
}

int form_check_members(json_t *object, const char *members, struct error *err)
{
    const char *key;
    json_t *value;

    if (!json_is_object(object))
        return error_set(err, CODE_DATA, "must be a JSON object");
    json_object_foreach(object, key, value) if (!is_among(members, key)) return error_set(
        err, CODE_CONFIG, "member \"%.100s\" is unknown", key);
    while (*members) {
        size_t length = strcspn(members, " ");
        char name[64];

        snprintf(name, sizeof name, "%.*s", (int)length, members);
        if (!json_object_get(object, name))
            return error_set(err, CODE_CONFIG, "member \"%s\" is missing", name);
        members += length + (members[length] == ' ');
    }
    return 0;
}

int form_explain(json_t *object, int version, struct error *err)
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
             version);
    error_tame(err->text);
    return -1;
}
