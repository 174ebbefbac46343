/* Reads a profile with libconfig, and checks its keys, types and values against tables. */
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/job_text.h"
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

static int fail_at(const struct reader *r, int line, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* CODE_CONFIG with "FILE:LINE: " before the text. Returns -1. */
static int fail_at(const struct reader *r, int line, const char *format, ...)
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

unsigned fabric_length(const config_setting_t *list)
{
    return list ? (unsigned)config_setting_length(list) : 0;
}

const config_setting_t *fabric_member(const struct fabric_profile *profile, const char *key)
{
    return config_setting_get_member(config_root_setting(&profile->config), key);
}

/* ---- keys -------------------------------------------------------------------------------------------------------- */

enum key_type { STRING, INTEGER, BOOLEAN, NAMES, GROUP, LIST };

/* A key of a group; a table ends with one without a name. */
struct key {
    const char *name;
    enum key_type type;
    bool required;
    const char *const *names; /* NAMES: the only ones allowed; NULL for any */
    int least, most;          /* INTEGER */
};

static const char *const kinds[] = {"infiniband", "roce", "slingshot", "efa", "ethernet", NULL};
static const char *const vendors[] = {"nvidia", "amd", "intel", NULL};

static const struct key profile_keys[] = {
    {"name", STRING, true, NULL, 0, 0}, {"about", STRING, false, NULL, 0, 0},
    {"match", GROUP, true, NULL, 0, 0}, {"priority", INTEGER, false, NULL, 0, PRIORITY_MOST},
    {"set", LIST, false, NULL, 0, 0},   {"leave", NAMES, false, NULL, 0, 0},
    {"warn", LIST, false, NULL, 0, 0},  {NULL, STRING, false, NULL, 0, 0},
};

static const struct key condition_keys[] = {
    {"nics", NAMES, false, kinds, 0, 0},
    {"no_nics", NAMES, false, kinds, 0, 0},
    {"drivers", NAMES, false, NULL, 0, 0},
    {"files", NAMES, false, NULL, 0, 0},
    {"no_files", NAMES, false, NULL, 0, 0},
    {"gpus", BOOLEAN, false, NULL, 0, 0},
    {"vendors", NAMES, false, vendors, 0, 0},
    {"clusters", NAMES, false, NULL, 0, 0},
    {"least_nodes", INTEGER, false, NULL, 1, NODES_MOST},
    {"most_nodes", INTEGER, false, NULL, 1, NODES_MOST},
    {"most_job_nodes", INTEGER, false, NULL, 1, NODES_MOST},
    {NULL, STRING, false, NULL, 0, 0},
};

static const struct key setting_keys[] = {
    {"name", STRING, true, NULL, 0, 0},   {"value", STRING, true, NULL, 0, 0}, {"why", STRING, true, NULL, 0, 0},
    {"source", STRING, true, NULL, 0, 0}, {"when", GROUP, false, NULL, 0, 0},  {NULL, STRING, false, NULL, 0, 0},
};

static const struct key warning_keys[] = {
    {"text", STRING, true, NULL, 0, 0},
    {"when", GROUP, true, NULL, 0, 0},
    {NULL, STRING, false, NULL, 0, 0},
};

static const char *const expected[] = {
    [STRING] = "\"...\"",         [INTEGER] = "an integer", [BOOLEAN] = "true or false",
    [NAMES] = "[ \"...\", ... ]", [GROUP] = "{ ... }",      [LIST] = "( { ... }, ... )",
};

/* "a string", "an integer", ... */
static const char *type_name(const config_setting_t *setting)
{
    static const char *const names[] = {
        [CONFIG_TYPE_GROUP] = "a group",    [CONFIG_TYPE_INT] = "an integer",  [CONFIG_TYPE_INT64] = "an integer",
        [CONFIG_TYPE_FLOAT] = "a fraction", [CONFIG_TYPE_STRING] = "a string", [CONFIG_TYPE_BOOL] = "a boolean",
        [CONFIG_TYPE_ARRAY] = "an array",   [CONFIG_TYPE_LIST] = "a list",
    };

    return names[config_setting_type(setting)];
}

static bool has_type(const config_setting_t *setting, enum key_type type)
{
    static const int types[] = {
        [STRING] = CONFIG_TYPE_STRING, [INTEGER] = CONFIG_TYPE_INT64, [BOOLEAN] = CONFIG_TYPE_BOOL,
        [NAMES] = CONFIG_TYPE_ARRAY,   [GROUP] = CONFIG_TYPE_GROUP,   [LIST] = CONFIG_TYPE_LIST,
    };
    int found = config_setting_type(setting);

    return found == types[type] || (type == INTEGER && found == CONFIG_TYPE_INT);
}

/* "a, b, c" of the keys of a table. */
static const char *list_keys(const struct key *keys, char *text, size_t size)
{
    size_t used = 0;

    for (; keys->name && used < size; keys++)
        used += (size_t)snprintf(text + used, size - used, "%s%s", used ? ", " : "", keys->name);
    return text;
}

static const char *list_names(const char *const *names, char *text, size_t size)
{
    size_t used = 0;

    for (; *names && used < size; names++)
        used += (size_t)snprintf(text + used, size - used, "%s\"%s\"", used ? ", " : "", *names);
    return text;
}

static bool is_among(const char *const *names, const char *text)
{
    for (; *names; names++)
        if (strcmp(*names, text) == 0)
            return true;
    return false;
}

/* The report and errors print each string on one line: no control characters. */
static int check_string(const struct reader *r, const config_setting_t *setting, const char *key, const char *text)
{
    if (!text[0])
        return fail_at(r, fabric_line(setting), "%s is empty; remove it, or give it a text", key);
    if (strlen(text) > STRING_MOST)
        return fail_at(r, fabric_line(setting), "%s is %zu bytes long; at most %d", key, strlen(text), STRING_MOST);
    for (const char *c = text; *c; c++)
        if (iscntrl((unsigned char)*c))
            return fail_at(r, fabric_line(setting), "%s has a control character; one line of text", key);
    return 0;
}

static int check_names(const struct reader *r, const struct key *key, const config_setting_t *setting)
{
    char text[256];

    if (config_setting_length(setting) == 0)
        return fail_at(r, fabric_line(setting), "%s is empty; remove it, or name one", key->name);
    for (int i = 0; i < config_setting_length(setting); i++) {
        const config_setting_t *element = config_setting_get_elem(setting, (unsigned)i);
        const char *name = config_setting_get_string(element);

        if (!name)
            return fail_at(r, fabric_line(setting), "%s has %s; it must be [ \"...\", ... ]", key->name,
                           type_name(element));
        if (check_string(r, setting, key->name, name) < 0)
            return -1;
        if (key->names && !is_among(key->names, name))
            return fail_at(r, fabric_line(setting), "%s has \"%s\"; it can be %s", key->name, name,
                           list_names(key->names, text, sizeof text));
    }
    return 0;
}

static int check_value(const struct reader *r, const struct key *key, const config_setting_t *setting)
{
    long long number;

    if (!has_type(setting, key->type))
        return fail_at(r, fabric_line(setting), "%s is %s; it must be %s", key->name, type_name(setting),
                       expected[key->type]);
    if (key->type == STRING)
        return check_string(r, setting, key->name, config_setting_get_string(setting));
    if (key->type == NAMES)
        return check_names(r, key, setting);
    if (key->type != INTEGER)
        return 0;
    number = config_setting_get_int64(setting);
    if (number < key->least || number > key->most)
        return fail_at(r, fabric_line(setting), "%s = %lld; from %d to %d", key->name, number, key->least, key->most);
    return 0;
}

/*
 * Checks that every member of the group is in the table and of its type, and that none that is required is missing.
 * `what` names the group in errors; `line` is the line for a missing member.
 */
static int check_group(const struct reader *r, const struct key *keys, const config_setting_t *group, const char *what,
                       int line)
{
    char text[256];

    for (int i = 0; i < config_setting_length(group); i++) {
        const config_setting_t *member = config_setting_get_elem(group, (unsigned)i);
        const struct key *key = keys;

        while (key->name && strcmp(key->name, config_setting_name(member)) != 0)
            key++;
        if (!key->name)
            return fail_at(r, fabric_line(member), "unknown key '%s' in %s; it has %s", config_setting_name(member),
                           what, list_keys(keys, text, sizeof text));
        if (check_value(r, key, member) < 0)
            return -1;
    }
    for (const struct key *key = keys; key->name; key++)
        if (key->required && !config_setting_get_member(group, key->name))
            return fail_at(r, line, "%s has no %s; write %s = %s;", what, key->name, key->name, expected[key->type]);
    return 0;
}

/* ---- checks beyond the tables ------------------------------------------------------------------------------------ */

static int check_condition(const struct reader *r, const config_setting_t *condition)
{
    const config_setting_t *least, *most;

    if (!condition)
        return 0;
    if (check_group(r, condition_keys, condition, config_setting_name(condition), fabric_line(condition)) < 0)
        return -1;
    least = config_setting_get_member(condition, "least_nodes");
    most = config_setting_get_member(condition, "most_nodes");
    if (least && most && config_setting_get_int64(least) > config_setting_get_int64(most))
        return fail_at(r, fabric_line(most), "most_nodes = %lld is less than least_nodes = %lld; nothing would match",
                       config_setting_get_int64(most), config_setting_get_int64(least));
    return 0;
}

/* Slurm and the plugin set these: a profile must not change who a rank is. */
static bool is_reserved(const char *name)
{
    static const char *const names[] = {"RANK",      "WORLD_SIZE",  "LOCAL_RANK",  "LOCAL_WORLD_SIZE",
                                        "NODE_RANK", "MASTER_ADDR", "MASTER_PORT", "OMP_NUM_THREADS",
                                        NULL};
    static const char *const prefixes[] = {"SLURM_", "SPANK_", "PMI_", "PMIX_", "MUSTER_", NULL};

    for (const char *const *prefix = prefixes; *prefix; prefix++)
        if (strncmp(name, *prefix, strlen(*prefix)) == 0)
            return true;
    return is_among(names, name);
}

static int check_variable(const struct reader *r, const config_setting_t *setting, const char *name)
{
    size_t length = strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_");

    if (name[length] || isdigit((unsigned char)name[0]))
        return fail_at(r, fabric_line(setting), "\"%s\" is not a variable's name; letters, digits and _", name);
    if (length > NAME_MOST)
        return fail_at(r, fabric_line(setting), "a variable's name of %zu bytes; at most %d", length, NAME_MOST);
    if (is_reserved(name))
        return fail_at(r, fabric_line(setting), "a profile must not set %s; Slurm or muster sets it", name);
    return 0;
}

static int check_placeholders(const struct reader *r, const config_setting_t *setting, const char *value)
{
    for (const char *p = strchr(value, '$'); p; p = strchr(p + 1, '$'))
        if (p[1] == '{' && fabric_placeholder(p) < 0)
            return fail_at(r, fabric_line(setting), "unknown placeholder %.*s; it can be %s",
                           (int)(strcspn(p, "}") + (strchr(p, '}') != NULL)), p, fabric_placeholders());
    return 0;
}

static int check_setting(const struct reader *r, const config_setting_t *set, unsigned index)
{
    const config_setting_t *setting = config_setting_get_elem(set, index);
    const char *name;

    if (!config_setting_is_group(setting))
        return fail_at(r, fabric_line(set), "set has %s; it must be ( { name = \"...\"; ... }, ... )",
                       type_name(setting));
    if (check_group(r, setting_keys, setting, "a setting", fabric_line(setting)) < 0 ||
        check_condition(r, config_setting_get_member(setting, "when")) < 0)
        return -1;
    name = fabric_string(setting, "name");
    if (check_variable(r, config_setting_get_member(setting, "name"), name) < 0 ||
        check_placeholders(r, config_setting_get_member(setting, "value"), fabric_string(setting, "value")) < 0)
        return -1;
    for (unsigned i = 0; i < index; i++) {
        const config_setting_t *earlier = config_setting_get_elem(set, i);

        if (strcmp(fabric_string(earlier, "name"), name) == 0 && !config_setting_get_member(earlier, "when"))
            return fail_at(r, fabric_line(setting), "%s is set already in line %d; the first needs a when = { ... };",
                           name, fabric_line(earlier));
    }
    return 0;
}

static int check_warning(const struct reader *r, const config_setting_t *warn, unsigned index)
{
    const config_setting_t *warning = config_setting_get_elem(warn, index);

    if (!config_setting_is_group(warning))
        return fail_at(r, fabric_line(warn), "warn has %s; it must be ( { text = \"...\"; when = { ... }; }, ... )",
                       type_name(warning));
    if (check_group(r, warning_keys, warning, "a warning", fabric_line(warning)) < 0)
        return -1;
    return check_condition(r, config_setting_get_member(warning, "when"));
}

static int check_profile(const struct reader *r, const config_setting_t *root)
{
    const config_setting_t *set, *leave, *warn;

    if (check_group(r, profile_keys, root, "the profile", 1) < 0 ||
        check_condition(r, config_setting_get_member(root, "match")) < 0)
        return -1;
    set = config_setting_get_member(root, "set");
    leave = config_setting_get_member(root, "leave");
    warn = config_setting_get_member(root, "warn");
    for (unsigned i = 0; i < fabric_length(set); i++)
        if (check_setting(r, set, i) < 0)
            return -1;
    for (unsigned i = 0; i < fabric_length(leave); i++)
        if (check_variable(r, leave, config_setting_get_string_elem(leave, (int)i)) < 0)
            return -1;
    for (unsigned i = 0; i < fabric_length(warn); i++)
        if (check_warning(r, warn, i) < 0)
            return -1;
    if (!leave && fabric_length(set) == 0 && fabric_length(warn) == 0)
        return fail_at(r, 1, "the profile does nothing; write set = ( { ... } );");
    return 0;
}

/* ---- the file ---------------------------------------------------------------------------------------------------- */

static int parse_text(const struct reader *r, config_t *config, const char *text)
{
    struct error err;
    int line = 0, status = -1;
    char *safe = job_text_widen(text, &line, &err);

    if (!safe)
        return fail_at(r, line, "%s", err.text);
    if (config_read_string(config, safe))
        status = check_profile(r, config_root_setting(config));
    else
        fail_at(r, config_error_line(config), "%s here or just before; write name = value;", config_error_text(config));
    free(safe);
    return status;
}

struct fabric_profile *fabric_profile_read(const char *text, const char *file, struct error *err)
{
    struct fabric_profile *profile = calloc(1, sizeof *profile);
    const struct reader reader = {.file = file, .err = err};

    if (!profile || !(profile->file = strdup(file))) {
        error_errno(err, CODE_IO, "no memory for %s", file);
        free(profile);
        return NULL;
    }
    config_init(&profile->config);
    if (parse_text(&reader, &profile->config, text) == 0) {
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
