#include "srun-plugin/fabric_profile.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/job_text.h"
#include "srun-plugin/fabric_keys.h"

#define PRIORITY_DEFAULT 50
#define PRIORITY_MOST    1000
#define NODES_MOST       1000000
#define NAME_MOST        64

static const char *const kinds[] = {"infiniband", "roce", "slingshot", "efa", "ethernet", NULL};
static const char *const vendors[] = {"nvidia", "amd", "intel", NULL};

static const struct fabric_key profile_keys[] = {
    {"name", STRING, true, NULL, 0, 0}, {"about", STRING, false, NULL, 0, 0},
    {"match", GROUP, true, NULL, 0, 0}, {"priority", INTEGER, false, NULL, 0, PRIORITY_MOST},
    {"set", LIST, false, NULL, 0, 0},   {"leave", NAMES, false, NULL, 0, 0},
    {"warn", LIST, false, NULL, 0, 0},  {NULL, STRING, false, NULL, 0, 0},
};

static const struct fabric_key condition_keys[] = {
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

static const struct fabric_key setting_keys[] = {
    {"name", STRING, true, NULL, 0, 0},   {"value", STRING, true, NULL, 0, 0}, {"why", STRING, true, NULL, 0, 0},
    {"source", STRING, true, NULL, 0, 0}, {"when", GROUP, false, NULL, 0, 0},  {NULL, STRING, false, NULL, 0, 0},
};

static const struct fabric_key warning_keys[] = {
    {"text", STRING, true, NULL, 0, 0},
    {"when", GROUP, true, NULL, 0, 0},
    {NULL, STRING, false, NULL, 0, 0},
};

static int check_condition(const struct fabric_reader *r, const config_setting_t *condition)
{
    const config_setting_t *least, *most;

    if (!condition)
        return 0;
    if (fabric_check_group(r, condition_keys, condition, config_setting_name(condition), fabric_line(condition)) < 0)
        return -1;
    least = config_setting_get_member(condition, "least_nodes");
    most = config_setting_get_member(condition, "most_nodes");
    if (least && most && config_setting_get_int64(least) > config_setting_get_int64(most))
        return fabric_fail(r, fabric_line(most),
                           "most_nodes = %lld is less than least_nodes = %lld; nothing would match",
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
    return fabric_is_word(names, name);
}

static int check_variable(const struct fabric_reader *r, const config_setting_t *at, const char *name)
{
    size_t length = strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_");

    if (name[length] || isdigit((unsigned char)name[0]))
        return fabric_fail(r, fabric_line(at), "\"%s\" is no variable's name; letters, digits and _", name);
    if (length > NAME_MOST)
        return fabric_fail(r, fabric_line(at), "a variable's name of %zu bytes; at most %d", length, NAME_MOST);
    if (is_reserved(name))
        return fabric_fail(r, fabric_line(at), "%s is not a profile's to set; Slurm or muster says it", name);
    return 0;
}

static int check_placeholders(const struct fabric_reader *r, const config_setting_t *at, const char *value)
{
    for (const char *p = strchr(value, '$'); p; p = strchr(p + 1, '$'))
        if (p[1] == '{' && fabric_placeholder(p) < 0)
            return fabric_fail(r, fabric_line(at), "unknown placeholder %.*s; there are %s",
                               (int)(strcspn(p, "}") + (strchr(p, '}') != NULL)), p, fabric_placeholders());
    return 0;
}

static int check_setting(const struct fabric_reader *r, const config_setting_t *set, int index)
{
    const config_setting_t *setting = config_setting_get_elem(set, (unsigned)index);
    const char *name;

    if (!config_setting_is_group(setting))
        return fabric_fail(r, fabric_line(set), "set has %s; it must be ( { name = \"...\"; ... }, ... )",
                           fabric_type(setting));
    if (fabric_check_group(r, setting_keys, setting, "a setting", fabric_line(setting)) < 0 ||
        check_condition(r, config_setting_get_member(setting, "when")) < 0)
        return -1;
    name = fabric_string(setting, "name");
    if (check_variable(r, config_setting_get_member(setting, "name"), name) < 0 ||
        check_placeholders(r, config_setting_get_member(setting, "value"), fabric_string(setting, "value")) < 0)
        return -1;
    for (int i = 0; i < index; i++) {
        const config_setting_t *earlier = config_setting_get_elem(set, (unsigned)i);

        if (strcmp(fabric_string(earlier, "name"), name) == 0 && !config_setting_get_member(earlier, "when"))
            return fabric_fail(r, fabric_line(setting),
                               "%s is set already in line %d; the first needs a when = { ... };", name,
                               fabric_line(earlier));
    }
    return 0;
}

static int check_warning(const struct fabric_reader *r, const config_setting_t *warn, int index)
{
    const config_setting_t *warning = config_setting_get_elem(warn, (unsigned)index);

    if (!config_setting_is_group(warning))
        return fabric_fail(r, fabric_line(warn), "warn has %s; it must be ( { text = \"...\"; when = { ... }; }, ... )",
                           fabric_type(warning));
    if (fabric_check_group(r, warning_keys, warning, "a warning", fabric_line(warning)) < 0)
        return -1;
    return check_condition(r, config_setting_get_member(warning, "when"));
}

static int check_profile(const struct fabric_reader *r, struct fabric_profile *p)
{
    const config_setting_t *root = config_root_setting(&p->config);
    const config_setting_t *priority = config_setting_get_member(root, "priority");

    if (fabric_check_group(r, profile_keys, root, "the profile", 1) < 0)
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
        return fabric_fail(r, 1, "the profile does nothing; write set = ( { ... } );");
    return 0;
}

/* ---- the file ---------------------------------------------------------------------------------------------------- */

static int parse(const struct fabric_reader *r, struct fabric_profile *profile, const char *text)
{
    struct error err;
    int line = 0, status = -1;
    char *safe = job_text_widen(text, &line, &err);

    if (!safe)
        return fabric_fail(r, line, "%s", err.text);
    if (config_read_string(&profile->config, safe))
        status = check_profile(r, profile);
    else
        fabric_fail(r, config_error_line(&profile->config), "%s here or just before; write name = value;",
                    config_error_text(&profile->config));
    free(safe);
    return status;
}

struct fabric_profile *fabric_profile_create(enum fabric_layer layer, const char *text, const char *file,
                                             struct error *err)
{
    struct fabric_profile *profile = calloc(1, sizeof *profile);
    struct fabric_reader reader = {.file = file, .err = err};

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
