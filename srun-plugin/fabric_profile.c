#include "srun-plugin/fabric_profile.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/job_text.h"

#define PRIORITY_DEFAULT 50
#define PRIORITY_MOST    1000
#define NODES_MOST       1000000
#define NAME_MOST        64
#define VALUE_MOST       1024

enum type { STRING, INTEGER, BOOLEAN, NAMES, GROUP, LIST };

/* A key of a group. `words`, for NAMES, are the only ones allowed; most is INTEGER's bound. */
struct key {
    const char *name;
    enum type type;
    bool required;
    const char *const *words;
    int least, most;
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

struct reader {
    const char *file;
    struct error *err;
};

static int fail(const struct reader *r, int line, const char *format, ...) __attribute__((format(printf, 3, 4)));

static int fail(const struct reader *r, int line, const char *format, ...)
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

/* ---- one group --------------------------------------------------------------------------------------------------- */

static const char *type_of(const config_setting_t *setting)
{
    static const char *const names[] = {
        [CONFIG_TYPE_GROUP] = "a group",    [CONFIG_TYPE_INT] = "an integer",  [CONFIG_TYPE_INT64] = "an integer",
        [CONFIG_TYPE_FLOAT] = "a fraction", [CONFIG_TYPE_STRING] = "a string", [CONFIG_TYPE_BOOL] = "a boolean",
        [CONFIG_TYPE_ARRAY] = "an array",   [CONFIG_TYPE_LIST] = "a list",
    };

    return names[config_setting_type(setting)];
}

static bool has_type(const config_setting_t *setting, enum type type)
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
static const char *list_keys(const struct key *keys, char *text, size_t size)
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

static bool is_word(const char *const *words, const char *text)
{
    for (; *words; words++)
        if (strcmp(*words, text) == 0)
            return true;
    return false;
}

/* For the report and for errors, each string is one line without control characters. */
static int check_string(const struct reader *r, const config_setting_t *setting, const char *key, const char *text)
{
    if (!text[0])
        return fail(r, line_of(setting), "%s is empty; leave it out, or say something", key);
    if (strlen(text) > VALUE_MOST)
        return fail(r, line_of(setting), "%s is %zu bytes long; at most %d", key, strlen(text), VALUE_MOST);
    for (const char *c = text; *c; c++)
        if (iscntrl((unsigned char)*c))
            return fail(r, line_of(setting), "%s has a control character; one line of text", key);
    return 0;
}

static int check_names(const struct reader *r, const struct key *key, const config_setting_t *setting)
{
    char text[256];

    if (config_setting_length(setting) == 0)
        return fail(r, line_of(setting), "%s is empty; leave it out, or name one", key->name);
    for (int i = 0; i < config_setting_length(setting); i++) {
        const config_setting_t *element = config_setting_get_elem(setting, (unsigned)i);
        const char *name = config_setting_get_string(element);

        if (!name)
            return fail(r, line_of(setting), "%s has %s; it must be [ \"...\", ... ]", key->name, type_of(element));
        if (check_string(r, setting, key->name, name) < 0)
            return -1;
        if (key->words && !is_word(key->words, name))
            return fail(r, line_of(setting), "%s has \"%s\"; there are %s", key->name, name,
                        list_words(key->words, text, sizeof text));
    }
    return 0;
}

static int check_value(const struct reader *r, const struct key *key, const config_setting_t *setting)
{
    long long number;

    if (!has_type(setting, key->type))
        return fail(r, line_of(setting), "%s is %s; it must be %s", key->name, type_of(setting), wanted[key->type]);
    if (key->type == STRING)
        return check_string(r, setting, key->name, config_setting_get_string(setting));
    if (key->type == NAMES)
        return check_names(r, key, setting);
    if (key->type != INTEGER)
        return 0;
    number = config_setting_get_int64(setting);
    if (number < key->least || number > key->most)
        return fail(r, line_of(setting), "%s = %lld; from %d to %d", key->name, number, key->least, key->most);
    return 0;
}

/* Every member of a group is known and of its type, and none that it must have is missing. */
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
            return fail(r, line_of(member), "unknown key '%s' in %s; it has %s", config_setting_name(member), what,
                        list_keys(keys, text, sizeof text));
        if (check_value(r, key, member) < 0)
            return -1;
    }
    for (const struct key *key = keys; key->name; key++)
        if (key->required && !config_setting_get_member(group, key->name))
            return fail(r, line, "%s has no %s; write %s = %s;", what, key->name, key->name, wanted[key->type]);
    return 0;
}

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
        return fail(r, line_of(most), "most_nodes = %lld is less than least_nodes = %lld; nothing would match",
                    config_setting_get_int64(most), config_setting_get_int64(least));
    return 0;
}

/* ---- settings ---------------------------------------------------------------------------------------------------- */

/* Slurm and the plugin say these: a profile must not lie about who a rank is. */
static bool is_reserved(const char *name)
{
    static const char *const names[] = {"RANK",      "WORLD_SIZE",  "LOCAL_RANK",  "LOCAL_WORLD_SIZE",
                                        "NODE_RANK", "MASTER_ADDR", "MASTER_PORT", "OMP_NUM_THREADS",
                                        NULL};
    static const char *const prefixes[] = {"SLURM_", "SPANK_", "PMI_", "PMIX_", "MUSTER_", NULL};

    for (const char *const *prefix = prefixes; *prefix; prefix++)
        if (strncmp(name, *prefix, strlen(*prefix)) == 0)
            return true;
    return is_word(names, name);
}

static int check_variable(const struct reader *r, const config_setting_t *at, const char *name)
{
    size_t length = strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_");

    if (name[length] || isdigit((unsigned char)name[0]))
        return fail(r, line_of(at), "\"%s\" is no variable's name; letters, digits and _", name);
    if (length > NAME_MOST)
        return fail(r, line_of(at), "a variable's name of %zu bytes; at most %d", length, NAME_MOST);
    if (is_reserved(name))
        return fail(r, line_of(at), "%s is not a profile's to set; Slurm or muster says it", name);
    return 0;
}

static int check_placeholders(const struct reader *r, const config_setting_t *at, const char *value)
{
    for (const char *p = strchr(value, '$'); p; p = strchr(p + 1, '$'))
        if (p[1] == '{' && fabric_placeholder(p) < 0)
            return fail(r, line_of(at), "unknown placeholder %.*s; there are %s",
                        (int)(strcspn(p, "}") + (strchr(p, '}') != NULL)), p, fabric_placeholders());
    return 0;
}

static int check_setting(const struct reader *r, const config_setting_t *set, int index)
{
    const config_setting_t *setting = config_setting_get_elem(set, (unsigned)index);
    const char *name;

    if (!config_setting_is_group(setting))
        return fail(r, line_of(set), "set has %s; it must be ( { name = \"...\"; ... }, ... )", type_of(setting));
    if (check_group(r, setting_keys, setting, "a setting", line_of(setting)) < 0 ||
        check_condition(r, config_setting_get_member(setting, "when")) < 0)
        return -1;
    name = fabric_string(setting, "name");
    if (check_variable(r, config_setting_get_member(setting, "name"), name) < 0 ||
        check_placeholders(r, config_setting_get_member(setting, "value"), fabric_string(setting, "value")) < 0)
        return -1;
    for (int i = 0; i < index; i++) {
        const config_setting_t *earlier = config_setting_get_elem(set, (unsigned)i);

        if (strcmp(fabric_string(earlier, "name"), name) == 0 && !config_setting_get_member(earlier, "when"))
            return fail(r, line_of(setting), "%s is set already in line %d; the first needs a when = { ... };", name,
                        line_of(earlier));
    }
    return 0;
}

static int check_warning(const struct reader *r, const config_setting_t *warn, int index)
{
    const config_setting_t *warning = config_setting_get_elem(warn, (unsigned)index);

    if (!config_setting_is_group(warning))
        return fail(r, line_of(warn), "warn has %s; it must be ( { text = \"...\"; when = { ... }; }, ... )",
                    type_of(warning));
    if (check_group(r, warning_keys, warning, "a warning", line_of(warning)) < 0)
        return -1;
    return check_condition(r, config_setting_get_member(warning, "when"));
}

static int check_profile(const struct reader *r, struct fabric_profile *p)
{
    const config_setting_t *root = config_root_setting(&p->config);
    const config_setting_t *priority = config_setting_get_member(root, "priority");

    if (check_group(r, profile_keys, root, "the profile", 1) < 0)
        return -1;
    p->name = fabric_string(root, "name");
    p->priority = priority ? (int)config_setting_get_int64(priority) : PRIORITY_DEFAULT;
    p->match = config_setting_get_member(root, "match");
    p->set = config_setting_get_member(root, "set");
    p->leave = config_setting_get_member(root, "leave");
    p->warn = config_setting_get_member(root, "warn");
    if (check_condition(r, p->match) < 0)
        return -1;
    for (int i = 0; p->set && i < config_setting_length(p->set); i++)
        if (check_setting(r, p->set, i) < 0)
            return -1;
    for (int i = 0; p->leave && i < config_setting_length(p->leave); i++)
        if (check_variable(r, p->leave, config_setting_get_string_elem(p->leave, i)) < 0)
            return -1;
    for (int i = 0; p->warn && i < config_setting_length(p->warn); i++)
        if (check_warning(r, p->warn, i) < 0)
            return -1;
    if (!p->leave && (!p->set || config_setting_length(p->set) == 0) &&
        (!p->warn || config_setting_length(p->warn) == 0))
        return fail(r, 1, "the profile does nothing; write set = ( { ... } );");
    return 0;
}

/* ---- the file ---------------------------------------------------------------------------------------------------- */

static int parse(const struct reader *r, struct fabric_profile *profile, const char *text)
{
    struct error err;
    int line = 0, status = -1;
    char *safe = job_text_widen(text, &line, &err);

    if (!safe)
        return fail(r, line, "%s", err.text);
    if (config_read_string(&profile->config, safe))
        status = check_profile(r, profile);
    else
        fail(r, config_error_line(&profile->config), "%s here or just before; write name = value;",
             config_error_text(&profile->config));
    free(safe);
    return status;
}

struct fabric_profile *fabric_profile_create(enum fabric_layer layer, const char *text, const char *file,
                                             struct error *err)
{
    struct fabric_profile *profile = calloc(1, sizeof *profile);
    struct reader reader = {.file = file, .err = err};

    if (!profile) {
        error_errno(err, CODE_IO, "no memory for %s", file);
        return NULL;
    }
    profile->layer = layer;
    config_init(&profile->config);
    profile->file = strdup(file);
    if (!profile->file) {
        error_errno(err, CODE_IO, "no memory for %s", file);
        goto fail;
    }
    if (parse(&reader, profile, text) < 0)
        goto fail;
    return profile;

fail:
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
