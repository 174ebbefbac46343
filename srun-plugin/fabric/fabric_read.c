/*
 * Reads a profile with libconfig: checks keys, types and values against tables, then copies it into a struct
 * fabric_profile. Strings stay libconfig's; all arrays share one block of memory.
 */
#include <ctype.h>
#include <libconfig.h>
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

static int line_of(const config_setting_t *setting)
{
    return (int)config_setting_source_line(setting);
}

/* A string of a group that has been checked; NULL if the group does not have it. */
static const char *string_of(const config_setting_t *group, const char *key)
{
    const config_setting_t *member = config_setting_get_member(group, key);

    return member ? config_setting_get_string(member) : NULL;
}

static int length_of(const config_setting_t *list)
{
    return list ? config_setting_length(list) : 0;
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
    [FABRIC_NICS] = {"nics", NAMES, false, kinds, 0, 0},
    [FABRIC_NO_NICS] = {"no_nics", NAMES, false, kinds, 0, 0},
    [FABRIC_DRIVERS] = {"drivers", NAMES, false, NULL, 0, 0},
    [FABRIC_FILES] = {"files", NAMES, false, NULL, 0, 0},
    [FABRIC_NO_FILES] = {"no_files", NAMES, false, NULL, 0, 0},
    [FABRIC_GPUS] = {"gpus", BOOLEAN, false, NULL, 0, 0},
    [FABRIC_VENDORS] = {"vendors", NAMES, false, vendors, 0, 0},
    [FABRIC_CLUSTERS] = {"clusters", NAMES, false, NULL, 0, 0},
    [FABRIC_LEAST_NODES] = {"least_nodes", INTEGER, false, NULL, 1, NODES_MOST},
    [FABRIC_MOST_NODES] = {"most_nodes", INTEGER, false, NULL, 1, NODES_MOST},
    [FABRIC_MOST_JOB_NODES] = {"most_job_nodes", INTEGER, false, NULL, 1, NODES_MOST},
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
        return fail_at(r, line_of(setting), "%s is empty; remove it, or give it a text", key);
    if (strlen(text) > STRING_MOST)
        return fail_at(r, line_of(setting), "%s is %zu bytes long; at most %d", key, strlen(text), STRING_MOST);
    for (const char *c = text; *c; c++)
        if (iscntrl((unsigned char)*c))
            return fail_at(r, line_of(setting), "%s has a control character; one line of text", key);
    return 0;
}

static int check_names(const struct reader *r, const struct key *key, const config_setting_t *setting)
{
    char text[256];

    if (config_setting_length(setting) == 0)
        return fail_at(r, line_of(setting), "%s is empty; remove it, or name one", key->name);
    for (int i = 0; i < config_setting_length(setting); i++) {
        const config_setting_t *element = config_setting_get_elem(setting, (unsigned)i);
        const char *name = config_setting_get_string(element);

        if (!name)
            return fail_at(r, line_of(setting), "%s has %s; it must be [ \"...\", ... ]", key->name,
                           type_name(element));
        if (check_string(r, setting, key->name, name) < 0)
            return -1;
        if (key->names && !is_among(key->names, name))
            return fail_at(r, line_of(setting), "%s has \"%s\"; it can be %s", key->name, name,
                           list_names(key->names, text, sizeof text));
    }
    return 0;
}

static int check_value(const struct reader *r, const struct key *key, const config_setting_t *setting)
{
    long long number;

    if (!has_type(setting, key->type))
        return fail_at(r, line_of(setting), "%s is %s; it must be %s", key->name, type_name(setting),
                       expected[key->type]);
    if (key->type == STRING)
        return check_string(r, setting, key->name, config_setting_get_string(setting));
    if (key->type == NAMES)
        return check_names(r, key, setting);
    if (key->type != INTEGER)
        return 0;
    number = config_setting_get_int64(setting);
    if (number < key->least || number > key->most)
        return fail_at(r, line_of(setting), "%s = %lld; from %d to %d", key->name, number, key->least, key->most);
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
            return fail_at(r, line_of(member), "unknown key '%s' in %s; it has %s", config_setting_name(member), what,
                           list_keys(keys, text, sizeof text));
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
    if (check_group(r, condition_keys, condition, config_setting_name(condition), line_of(condition)) < 0)
        return -1;
    least = config_setting_get_member(condition, "least_nodes");
    most = config_setting_get_member(condition, "most_nodes");
    if (least && most && config_setting_get_int64(least) > config_setting_get_int64(most))
        return fail_at(r, line_of(most), "most_nodes = %lld is less than least_nodes = %lld; nothing would match",
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
        return fail_at(r, line_of(setting), "\"%s\" is not a variable's name; letters, digits and _", name);
    if (length > NAME_MOST)
        return fail_at(r, line_of(setting), "a variable's name of %zu bytes; at most %d", length, NAME_MOST);
    if (is_reserved(name))
        return fail_at(r, line_of(setting), "a profile must not set %s; Slurm or muster sets it", name);
    return 0;
}

static int check_placeholders(const struct reader *r, const config_setting_t *setting, const char *value)
{
    for (const char *p = strchr(value, '$'); p; p = strchr(p + 1, '$'))
        if (p[1] == '{' && fabric_placeholder(p) < 0)
            return fail_at(r, line_of(setting), "unknown placeholder %.*s; it can be %s",
                           (int)(strcspn(p, "}") + (strchr(p, '}') != NULL)), p, fabric_placeholders());
    return 0;
}

static int check_setting(const struct reader *r, const config_setting_t *set, int index)
{
    const config_setting_t *setting = config_setting_get_elem(set, (unsigned)index);
    const char *name;

    if (!config_setting_is_group(setting))
        return fail_at(r, line_of(set), "set has %s; it must be ( { name = \"...\"; ... }, ... )", type_name(setting));
    if (check_group(r, setting_keys, setting, "a setting", line_of(setting)) < 0 ||
        check_condition(r, config_setting_get_member(setting, "when")) < 0)
        return -1;
    name = string_of(setting, "name");
    if (check_variable(r, config_setting_get_member(setting, "name"), name) < 0 ||
        check_placeholders(r, config_setting_get_member(setting, "value"), string_of(setting, "value")) < 0)
        return -1;
    for (int i = 0; i < index; i++) {
        const config_setting_t *earlier = config_setting_get_elem(set, (unsigned)i);

        if (strcmp(string_of(earlier, "name"), name) == 0 && !config_setting_get_member(earlier, "when"))
            return fail_at(r, line_of(setting), "%s is set already in line %d; the first needs a when = { ... };", name,
                           line_of(earlier));
    }
    return 0;
}

static int check_warning(const struct reader *r, const config_setting_t *warn, int index)
{
    const config_setting_t *warning = config_setting_get_elem(warn, (unsigned)index);

    if (!config_setting_is_group(warning))
        return fail_at(r, line_of(warn), "warn has %s; it must be ( { text = \"...\"; when = { ... }; }, ... )",
                       type_name(warning));
    if (check_group(r, warning_keys, warning, "a warning", line_of(warning)) < 0)
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
    for (int i = 0; i < length_of(set); i++)
        if (check_setting(r, set, i) < 0)
            return -1;
    for (int i = 0; i < length_of(leave); i++)
        if (check_variable(r, leave, config_setting_get_string_elem(leave, i)) < 0)
            return -1;
    for (int i = 0; i < length_of(warn); i++)
        if (check_warning(r, warn, i) < 0)
            return -1;
    if (!leave && length_of(set) == 0 && length_of(warn) == 0)
        return fail_at(r, 1, "the profile does nothing; write set = ( { ... } );");
    return 0;
}

/* ---- the copy ---------------------------------------------------------------------------------------------------- */

struct owned {
    struct fabric_profile profile; /* the first member: a pointer to it is a pointer to all */
    config_t config;
    char *file;
    char *block, *next; /* the arrays, and the end of those that are in use */
};

/* Each setting, at any depth, has room for the largest struct that is made of one. */
static size_t count_settings(const config_setting_t *setting)
{
    size_t count = 1;

    for (int i = 0; i < config_setting_length(setting); i++)
        count += count_settings(config_setting_get_elem(setting, (unsigned)i));
    return count;
}

static void *take_array(struct owned *owned, size_t count, size_t size)
{
    void *array = owned->next;

    owned->next += count * size;
    return array;
}

/* The room of the array itself holds the NULL behind its last element. */
static const char *const *copy_names(struct owned *owned, const config_setting_t *array)
{
    size_t count = (size_t)length_of(array);
    const char **names = count ? take_array(owned, count + 1, sizeof(const char *)) : NULL;

    for (size_t i = 0; i < count; i++)
        names[i] = config_setting_get_string_elem(array, (int)i);
    return names;
}

static enum fabric_topic find_topic(const char *name)
{
    enum fabric_topic topic = 0;

    while (strcmp(condition_keys[topic].name, name) != 0)
        topic++;
    return topic;
}

static long number_of(const config_setting_t *setting)
{
    if (config_setting_type(setting) == CONFIG_TYPE_BOOL)
        return config_setting_get_bool(setting);
    return config_setting_is_number(setting) ? (long)config_setting_get_int64(setting) : 0;
}

static struct fabric_condition copy_condition(struct owned *owned, const config_setting_t *group)
{
    size_t count = (size_t)length_of(group);
    struct fabric_part *parts = take_array(owned, count, sizeof *parts);

    for (size_t i = 0; i < count; i++) {
        const config_setting_t *member = config_setting_get_elem(group, (unsigned)i);

        parts[i] = (struct fabric_part){.topic = find_topic(config_setting_name(member)), .number = number_of(member)};
        if (config_setting_is_array(member))
            parts[i].names = copy_names(owned, member);
    }
    return (struct fabric_condition){parts, count};
}

static void copy_settings(struct owned *owned, const config_setting_t *list)
{
    size_t count = (size_t)length_of(list);
    struct fabric_setting *set = take_array(owned, count, sizeof *set);

    for (size_t i = 0; i < count; i++) {
        const config_setting_t *group = config_setting_get_elem(list, (unsigned)i);

        set[i] = (struct fabric_setting){.name = string_of(group, "name"),
                                         .value = string_of(group, "value"),
                                         .why = string_of(group, "why"),
                                         .line = line_of(group),
                                         .when = copy_condition(owned, config_setting_get_member(group, "when"))};
    }
    owned->profile.set = set;
    owned->profile.set_count = count;
}

static void copy_warnings(struct owned *owned, const config_setting_t *list)
{
    size_t count = (size_t)length_of(list);
    struct fabric_warning *warn = take_array(owned, count, sizeof *warn);

    for (size_t i = 0; i < count; i++) {
        const config_setting_t *group = config_setting_get_elem(list, (unsigned)i);

        warn[i] = (struct fabric_warning){.text = string_of(group, "text"),
                                          .line = line_of(group),
                                          .when = copy_condition(owned, config_setting_get_member(group, "when"))};
    }
    owned->profile.warn = warn;
    owned->profile.warn_count = count;
}

static int copy_profile(struct owned *owned, struct error *err)
{
    const config_setting_t *root = config_root_setting(&owned->config);
    const config_setting_t *priority = config_setting_get_member(root, "priority");
    struct fabric_profile *profile = &owned->profile;

    owned->block = owned->next = calloc(count_settings(root), sizeof(struct fabric_setting));
    if (!owned->block)
        return error_errno(err, CODE_IO, "no memory for %s", owned->file);
    profile->file = owned->file;
    profile->name = string_of(root, "name");
    profile->priority = priority ? (int)config_setting_get_int64(priority) : PRIORITY_DEFAULT;
    profile->match = copy_condition(owned, config_setting_get_member(root, "match"));
    profile->leave = copy_names(owned, config_setting_get_member(root, "leave"));
    copy_settings(owned, config_setting_get_member(root, "set"));
    copy_warnings(owned, config_setting_get_member(root, "warn"));
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
    struct owned *owned = calloc(1, sizeof *owned);
    const struct reader reader = {.file = file, .err = err};

    if (!owned) {
        error_errno(err, CODE_IO, "no memory for %s", file);
        return NULL;
    }
    config_init(&owned->config);
    if (!(owned->file = strdup(file)))
        error_errno(err, CODE_IO, "no memory for %s", file);
    else if (parse_text(&reader, &owned->config, text) == 0 && copy_profile(owned, err) == 0)
        return &owned->profile;
    fabric_profile_destroy(&owned->profile);
    return NULL;
}

void fabric_profile_destroy(struct fabric_profile *profile)
{
    struct owned *owned = (struct owned *)profile;

    if (!owned)
        return;
    config_destroy(&owned->config);
    free(owned->file);
    free(owned->block);
    free(owned);
}
