#include "srun-plugin/fabric_keys.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define STRING_MOST 1024

int fabric_fail(const struct fabric_reader *r, int line, const char *format, ...)
{
    char text[sizeof r->err->text];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return error_set(r->err, CODE_CONFIG, "%.300s:%d: %s", r->file, line, text);
}

int fabric_line(const config_setting_t *setting)
{
    return (int)config_setting_source_line(setting);
}

const char *fabric_string(const config_setting_t *group, const char *key)
{
    const config_setting_t *member = config_setting_get_member(group, key);

    return member ? config_setting_get_string(member) : NULL;
}

const char *fabric_type(const config_setting_t *setting)
{
    static const char *const names[] = {
        [CONFIG_TYPE_GROUP] = "a group",    [CONFIG_TYPE_INT] = "an integer",  [CONFIG_TYPE_INT64] = "an integer",
        [CONFIG_TYPE_FLOAT] = "a fraction", [CONFIG_TYPE_STRING] = "a string", [CONFIG_TYPE_BOOL] = "a boolean",
        [CONFIG_TYPE_ARRAY] = "an array",   [CONFIG_TYPE_LIST] = "a list",
    };

    return names[config_setting_type(setting)];
}

static bool has_type(const config_setting_t *setting, enum fabric_key_type type)
{
    int found = config_setting_type(setting);

    switch (type) {
    case STRING:
        return found == CONFIG_TYPE_STRING;
    case INTEGER:
        return found == CONFIG_TYPE_INT || found == CONFIG_TYPE_INT64;
    case BOOLEAN:
        return found == CONFIG_TYPE_BOOL;
    case NAMES:
        return found == CONFIG_TYPE_ARRAY;
    case GROUP:
        return found == CONFIG_TYPE_GROUP;
    default:
        return found == CONFIG_TYPE_LIST;
    }
}

static const char *const wanted[] = {
    [STRING] = "\"...\"",         [INTEGER] = "an integer", [BOOLEAN] = "true or false",
    [NAMES] = "[ \"...\", ... ]", [GROUP] = "{ ... }",      [LIST] = "( { ... }, ... )",
};

/* "a, b, c" of the keys, or words, of a table. */
static const char *list_keys(const struct fabric_key *keys, char *text, size_t size)
{
    size_t used = 0;

    for (; keys->name && used < size; keys++)
        used += (size_t)snprintf(text + used, size - used, "%s%s", used ? ", " : "", keys->name);
    return text;
}

static const char *list_words(const char *const *words, char *text, size_t size)
{
    size_t used = 0;

    for (; *words && used < size; words++)
        used += (size_t)snprintf(text + used, size - used, "%s\"%s\"", used ? ", " : "", *words);
    return text;
}

bool fabric_is_word(const char *const *words, const char *text)
{
    for (; *words; words++)
        if (strcmp(*words, text) == 0)
            return true;
    return false;
}

/* For the report and for errors, each string is one line without control characters. */
static int check_string(const struct fabric_reader *r, const config_setting_t *setting, const char *key,
                        const char *text)
{
    if (!text[0])
        return fabric_fail(r, fabric_line(setting), "%s is empty; leave it out, or say something", key);
    if (strlen(text) > STRING_MOST)
        return fabric_fail(r, fabric_line(setting), "%s is %zu bytes long; at most %d", key, strlen(text), STRING_MOST);
    for (const char *c = text; *c; c++)
        if (iscntrl((unsigned char)*c))
            return fabric_fail(r, fabric_line(setting), "%s has a control character; one line of text", key);
    return 0;
}

static int check_names(const struct fabric_reader *r, const struct fabric_key *key, const config_setting_t *setting)
{
    char text[256];

    if (config_setting_length(setting) == 0)
        return fabric_fail(r, fabric_line(setting), "%s is empty; leave it out, or name one", key->name);
    for (int i = 0; i < config_setting_length(setting); i++) {
        const config_setting_t *element = config_setting_get_elem(setting, (unsigned)i);
        const char *name = config_setting_get_string(element);

        if (!name)
            return fabric_fail(r, fabric_line(setting), "%s has %s; it must be [ \"...\", ... ]", key->name,
                               fabric_type(element));
        if (check_string(r, setting, key->name, name) < 0)
            return -1;
        if (key->words && !fabric_is_word(key->words, name))
            return fabric_fail(r, fabric_line(setting), "%s has \"%s\"; there are %s", key->name, name,
                               list_words(key->words, text, sizeof text));
    }
    return 0;
}

static int check_value(const struct fabric_reader *r, const struct fabric_key *key, const config_setting_t *setting)
{
    long long number;

    if (!has_type(setting, key->type))
        return fabric_fail(r, fabric_line(setting), "%s is %s; it must be %s", key->name, fabric_type(setting),
                           wanted[key->type]);
    if (key->type == STRING)
        return check_string(r, setting, key->name, config_setting_get_string(setting));
    if (key->type == NAMES)
        return check_names(r, key, setting);
    if (key->type != INTEGER)
        return 0;
    number = config_setting_get_int64(setting);
    if (number < key->least || number > key->most)
        return fabric_fail(r, fabric_line(setting), "%s = %lld; from %d to %d", key->name, number, key->least,
                           key->most);
    return 0;
}

int fabric_check_group(const struct fabric_reader *r, const struct fabric_key *keys, const config_setting_t *group,
                       const char *what, int line)
{
    char text[256];

    for (int i = 0; i < config_setting_length(group); i++) {
        const config_setting_t *member = config_setting_get_elem(group, (unsigned)i);
        const struct fabric_key *key = keys;

        while (key->name && strcmp(key->name, config_setting_name(member)) != 0)
            key++;
        if (!key->name)
            return fabric_fail(r, fabric_line(member), "unknown key '%s' in %s; it has %s", config_setting_name(member),
                               what, list_keys(keys, text, sizeof text));
        if (check_value(r, key, member) < 0)
            return -1;
    }
    for (const struct fabric_key *key = keys; key->name; key++)
        if (key->required && !config_setting_get_member(group, key->name))
            return fabric_fail(r, line, "%s has no %s; write %s = %s;", what, key->name, key->name, wanted[key->type]);
    return 0;
}
