/* Reads a profile with libconfig, and checks its keys, types and values against tables. */
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/job.h"
#include "common/job_text.h"
#include "common/text.h"
#include "srun-plugin/fabric/fabric_profile.h"

#define PRIORITY_DEFAULT 50
#define PRIORITY_MOST    1000
#define NODES_MOST       1000000
#define NAME_MOST        64
#define STRING_MOST      1024

struct reader {
    const char *file; /* for errors */
    struct error *err;
};

/* CODE_CONFIG with "FILE:LINE: " before the text; for the profile itself, line 1. Returns -1. */
static int __attribute__((format(printf, 3, 4)))
fail_at(const struct reader *r, const config_setting_t *at, const char *format, ...)
{
    int line = config_setting_is_root(at) ? 1 : fabric_line(at);
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

unsigned fabric_length(const config_setting_t *list)
{
    return list ? (unsigned)config_setting_length(list) : 0;
}

const config_setting_t *fabric_member(const struct fabric_profile *profile, const char *key)
{
    return config_setting_get_member(config_root_setting(&profile->config), key);
}

/* ---- keys -------------------------------------------------------------------------------------------------------- */

enum key_type { STRING, INTEGER, BOOLEAN, NAMES, CONDITION, LIST };

/* A key of a group; a table ends with one without a name. */
struct key {
    const char *name;
    enum key_type type;
    bool required;
    const char *allowed;     /* NAMES: the only ones, quoted; NULL for any */
    int least, most;         /* INTEGER */
    const struct key *items; /* LIST: the keys of each group in it */
    const char *item, *form; /* LIST: what a group is called in errors, and an example */
};

#define KINDS "\"infiniband\", \"roce\", \"slingshot\", \"efa\", \"ethernet\""

static const struct key condition_keys[] = {
    {.name = "nics", .type = NAMES, .allowed = KINDS},
    {.name = "no_nics", .type = NAMES, .allowed = KINDS},
    {.name = "drivers", .type = NAMES},
    {.name = "files", .type = NAMES},
    {.name = "no_files", .type = NAMES},
    {.name = "gpus", .type = BOOLEAN},
    {.name = "vendors", .type = NAMES, .allowed = "\"nvidia\", \"amd\", \"intel\""},
    {.name = "clusters", .type = NAMES},
    {.name = "least_nodes", .type = INTEGER, .least = 1, .most = NODES_MOST},
    {.name = "most_nodes", .type = INTEGER, .least = 1, .most = NODES_MOST},
    {.name = "most_job_nodes", .type = INTEGER, .least = 1, .most = NODES_MOST},
    {.name = NULL},
};

static const struct key setting_keys[] = {
    {.name = "name", .type = STRING, .required = true},
    {.name = "value", .type = STRING, .required = true},
    {.name = "why", .type = STRING, .required = true},
    {.name = "source", .type = STRING, .required = true},
    {.name = "when", .type = CONDITION},
    {.name = NULL},
};

static const struct key warning_keys[] = {
    {.name = "text", .type = STRING, .required = true},
    {.name = "when", .type = CONDITION, .required = true},
    {.name = NULL},
};

static const struct key profile_keys[] = {
    {.name = "name", .type = STRING, .required = true},
    {.name = "about", .type = STRING},
    {.name = "match", .type = CONDITION, .required = true},
    {.name = "priority", .type = INTEGER, .most = PRIORITY_MOST},
    {.name = "set",
     .type = LIST,
     .items = setting_keys,
     .item = "a setting",
     .form = "( { name = \"...\"; ... }, ... )"},
    {.name = "leave", .type = NAMES},
    {.name = "warn",
     .type = LIST,
     .items = warning_keys,
     .item = "a warning",
     .form = "( { text = \"...\"; when = { ... }; }, ... )"},
    {.name = NULL},
};

static const struct {
    int type; /* libconfig's */
    const char *form;
} types[] = {
    [STRING] = {CONFIG_TYPE_STRING, "\"...\""},      [INTEGER] = {CONFIG_TYPE_INT64, "an integer"},
    [BOOLEAN] = {CONFIG_TYPE_BOOL, "true or false"}, [NAMES] = {CONFIG_TYPE_ARRAY, "[ \"...\", ... ]"},
    [CONDITION] = {CONFIG_TYPE_GROUP, "{ ... }"},    [LIST] = {CONFIG_TYPE_LIST, "( { ... }, ... )"},
};

/* The report and errors print each string on one line: no control characters. */
static int check_string(const struct reader *r, const config_setting_t *setting, const char *key, const char *text)
{
    if (!text[0])
        return fail_at(r, setting, "%s is empty; remove it, or give it a text", key);
    if (strlen(text) > STRING_MOST)
        return fail_at(r, setting, "%s is %zu bytes long; at most %d", key, strlen(text), STRING_MOST);
    for (const char *c = text; *c; c++)
        if (iscntrl((unsigned char)*c))
            return fail_at(r, setting, "%s has a control character; one line of text", key);
    return 0;
}

static int check_names(const struct reader *r, const struct key *key, const config_setting_t *setting)
{
    char quoted[STRING_MOST + 3];

    if (config_setting_length(setting) == 0)
        return fail_at(r, setting, "%s is empty; remove it, or name one", key->name);
    for (unsigned i = 0; i < fabric_length(setting); i++) {
        const config_setting_t *element = config_setting_get_elem(setting, i);
        const char *name = config_setting_get_string(element);

        if (!name)
            return fail_at(r, setting, "%s has %s; it must be %s", key->name, job_setting_kind(element),
                           types[NAMES].form);
        if (check_string(r, setting, key->name, name) < 0)
            return -1;
        snprintf(quoted, sizeof quoted, "\"%s\"", name);
        if (key->allowed && (strchr(name, '"') || !strstr(key->allowed, quoted)))
            return fail_at(r, setting, "%s has %s; it can be %s", key->name, quoted, key->allowed);
    }
    return 0;
}

static int check_group(const struct reader *r, const struct key *keys, const config_setting_t *group, const char *what);

static int check_condition(const struct reader *r, const config_setting_t *condition)
{
    const config_setting_t *least = config_setting_get_member(condition, "least_nodes");
    const config_setting_t *most = config_setting_get_member(condition, "most_nodes");

    if (check_group(r, condition_keys, condition, config_setting_name(condition)) < 0)
        return -1;
    if (least && most && config_setting_get_int64(least) > config_setting_get_int64(most))
        return fail_at(r, most, "most_nodes = %lld is less than least_nodes = %lld; nothing would match",
                       config_setting_get_int64(most), config_setting_get_int64(least));
    return 0;
}

static int check_list(const struct reader *r, const struct key *key, const config_setting_t *list)
{
    for (unsigned i = 0; i < fabric_length(list); i++) {
        const config_setting_t *item = config_setting_get_elem(list, i);

        if (!config_setting_is_group(item))
            return fail_at(r, list, "%s has %s; it must be %s", key->name, job_setting_kind(item), key->form);
        if (check_group(r, key->items, item, key->item) < 0)
            return -1;
    }
    return 0;
}

static int check_value(const struct reader *r, const struct key *key, const config_setting_t *setting)
{
    int type = config_setting_type(setting);
    long long number;

    if (type != types[key->type].type && !(key->type == INTEGER && type == CONFIG_TYPE_INT))
        return fail_at(r, setting, "%s is %s; it must be %s", key->name, job_setting_kind(setting),
                       types[key->type].form);
    switch (key->type) {
    case STRING:
        return check_string(r, setting, key->name, config_setting_get_string(setting));
    case INTEGER:
        number = config_setting_get_int64(setting);
        if (number < key->least || number > key->most)
            return fail_at(r, setting, "%s = %lld; from %d to %d", key->name, number, key->least, key->most);
        return 0;
    case NAMES:
        return check_names(r, key, setting);
    case CONDITION:
        return check_condition(r, setting);
    case LIST:
        return check_list(r, key, setting);
    case BOOLEAN:
        break;
    }
    return 0;
}

static int fail_unknown(const struct reader *r, const struct key *keys, const config_setting_t *member,
                        const char *what)
{
    char text[256] = "";

    for (size_t used = 0; keys->name && used < sizeof text; keys++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s", used ? ", " : "", keys->name);
    return fail_at(r, member, "unknown key '%s' in %s; it has %s", config_setting_name(member), what, text);
}

/*
 * Checks that every member of the group is in the table and of its type, and that none that is required is missing.
 * `what` names the group in errors.
 */
static int check_group(const struct reader *r, const struct key *keys, const config_setting_t *group, const char *what)
{
    for (unsigned i = 0; i < fabric_length(group); i++) {
        const config_setting_t *member = config_setting_get_elem(group, i);
        const struct key *key = keys;

        while (key->name && strcmp(key->name, config_setting_name(member)) != 0)
            key++;
        if (!key->name)
            return fail_unknown(r, keys, member, what);
        if (check_value(r, key, member) < 0)
            return -1;
    }
    for (const struct key *key = keys; key->name; key++)
        if (key->required && !config_setting_get_member(group, key->name))
            return fail_at(r, group, "%s has no %s; write %s = %s;", what, key->name, key->name, types[key->type].form);
    return 0;
}

/* ---- checks beyond the tables ------------------------------------------------------------------------------------ */

static int check_variable(const struct reader *r, const config_setting_t *setting, const char *name)
{
    size_t length = text_name_length(name);

    if (name[length])
        return fail_at(r, setting, "\"%s\" is not a variable's name; letters, digits and _", name);
    if (length > NAME_MOST)
        return fail_at(r, setting, "a variable's name of %zu bytes; at most %d", length, NAME_MOST);
    if (job_reserves_variable(name))
        return fail_at(r, setting, "a profile must not set %s; Slurm or muster sets it", name);
    return 0;
}

static int check_placeholders(const struct reader *r, const config_setting_t *setting)
{
    for (const char *p = strchr(config_setting_get_string(setting), '$'); p; p = strchr(p + 1, '$'))
        if (p[1] == '{' && !fabric_is_placeholder(p))
            return fail_at(r, setting, "unknown placeholder %.*s; it can be %s",
                           (int)(strcspn(p, "}") + (strchr(p, '}') != NULL)), p, fabric_placeholders());
    return 0;
}

static int check_setting(const struct reader *r, const config_setting_t *set, unsigned index)
{
    const config_setting_t *setting = config_setting_get_elem(set, index);
    const char *name = fabric_string(setting, "name");

    if (check_variable(r, config_setting_get_member(setting, "name"), name) < 0 ||
        check_placeholders(r, config_setting_get_member(setting, "value")) < 0)
        return -1;
    for (unsigned i = 0; i < index; i++) {
        const config_setting_t *earlier = config_setting_get_elem(set, i);

        if (strcmp(fabric_string(earlier, "name"), name) == 0 && !config_setting_get_member(earlier, "when"))
            return fail_at(r, setting, "%s is set already in line %d; the first needs a when = { ... };", name,
                           fabric_line(earlier));
    }
    return 0;
}

static int check_profile(const struct reader *r, const config_setting_t *root)
{
    const config_setting_t *set, *leave;

    if (check_group(r, profile_keys, root, "the profile") < 0)
        return -1;
    set = config_setting_get_member(root, "set");
    leave = config_setting_get_member(root, "leave");
    for (unsigned i = 0; i < fabric_length(set); i++)
        if (check_setting(r, set, i) < 0)
            return -1;
    for (unsigned i = 0; i < fabric_length(leave); i++)
        if (check_variable(r, leave, config_setting_get_string_elem(leave, (int)i)) < 0)
            return -1;
    if (!leave && fabric_length(set) == 0 && fabric_length(config_setting_get_member(root, "warn")) == 0)
        return fail_at(r, root, "the profile does nothing; write set = ( { ... } );");
    return 0;
}

/* ---- the file ---------------------------------------------------------------------------------------------------- */

struct fabric_profile *fabric_profile_read(enum fabric_layer layer, const char *text, const char *file,
                                           struct error *err)
{
    struct fabric_profile *profile = calloc(1, sizeof *profile);
    const struct reader reader = {.file = file, .err = err};
    int line = 0;

    if (!profile || !(profile->file = strdup(file))) {
        error_errno(err, CODE_IO, "no memory for %s", file);
        free(profile);
        return NULL;
    }
    profile->layer = layer;
    if (job_text_parse(&profile->config, text, &line, err) < 0) {
        error_prefix(err, "%.300s:%d", file, line);
    } else if (check_profile(&reader, config_root_setting(&profile->config)) == 0) {
        const config_setting_t *priority = fabric_member(profile, "priority");

        profile->name = fabric_string(config_root_setting(&profile->config), "name");
        profile->priority = priority ? (int)config_setting_get_int64(priority) : PRIORITY_DEFAULT;
        return profile;
    }
    fabric_profile_destroy(profile);
    return NULL;
}

void fabric_profile_destroy(struct fabric_profile *profile)
{
    if (!profile)
        return;
    config_destroy(&profile->config);
    free(profile->file);
    free(profile);
}
