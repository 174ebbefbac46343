/* What a profile may say, beyond what tables of keys can tell. */
#include <ctype.h>
#include <string.h>

#include "srun-plugin/fabric_keys.h"
#include "srun-plugin/fabric_profile.h"

#define PRIORITY_MOST 1000
#define NODES_MOST    1000000
#define NAME_MOST     64

static const char *const kinds[] = {"infiniband", "roce", "slingshot", "efa", "ethernet", NULL};
static const char *const vendors[] = {"nvidia", "amd", "intel", NULL};

static const struct fabric_key profile_keys[] = {
    {"name", STRING, true, NULL, 0, 0}, {"about", STRING, false, NULL, 0, 0},
    {"match", GROUP, true, NULL, 0, 0}, {"priority", INTEGER, false, NULL, 0, PRIORITY_MOST},
    {"set", LIST, false, NULL, 0, 0},   {"leave", NAMES, false, NULL, 0, 0},
    {"warn", LIST, false, NULL, 0, 0},  {NULL, STRING, false, NULL, 0, 0},
};

const struct fabric_key fabric_condition_keys[] = {
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
    if (fabric_check_group(r, fabric_condition_keys, condition, config_setting_name(condition),
                           fabric_line(condition)) < 0)
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

static bool is_empty(const config_setting_t *list)
{
    return !list || config_setting_length(list) == 0;
}

int fabric_check(const struct fabric_reader *r, const config_setting_t *root)
{
    const config_setting_t *set, *leave, *warn;

    if (fabric_check_group(r, profile_keys, root, "the profile", 1) < 0 ||
        check_condition(r, config_setting_get_member(root, "match")) < 0)
        return -1;
    set = config_setting_get_member(root, "set");
    leave = config_setting_get_member(root, "leave");
    warn = config_setting_get_member(root, "warn");
    for (int i = 0; set && i < config_setting_length(set); i++)
        if (check_setting(r, set, i) < 0)
            return -1;
    for (int i = 0; leave && i < config_setting_length(leave); i++)
        if (check_variable(r, leave, config_setting_get_string_elem(leave, i)) < 0)
            return -1;
    for (int i = 0; warn && i < config_setting_length(warn); i++)
        if (check_warning(r, warn, i) < 0)
            return -1;
    if (!leave && is_empty(set) && is_empty(warn))
        return fabric_fail(r, 1, "the profile does nothing; write set = ( { ... } );");
    return 0;
}
