/* A site's profile, as libconfig reads it. Its strings stay libconfig's; all arrays are in one piece of memory. */
#include <libconfig.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/job_text.h"
#include "srun-plugin/fabric_keys.h"
#include "srun-plugin/fabric_profile.h"

struct owned {
    struct fabric_profile profile; /* the first, so that a pointer to it is one to all */
    config_t config;
    char *file;
    char *room, *next; /* the arrays, and behind the last of them */
};

/* ---- from libconfig ---------------------------------------------------------------------------------------------- */

/* Every setting, at any depth, has room for the largest thing that is made of one. */
static size_t count_settings(const config_setting_t *setting)
{
    size_t count = 1;

    for (int i = 0; i < config_setting_length(setting); i++)
        count += count_settings(config_setting_get_elem(setting, (unsigned)i));
    return count;
}

static void *take(struct owned *owned, size_t count, size_t size)
{
    void *at = owned->next;

    owned->next += count * size;
    return at;
}

/* The NULL behind the last takes the place that the array itself has. */
static const char *const *read_names(struct owned *owned, const config_setting_t *array)
{
    size_t count = array ? (size_t)config_setting_length(array) : 0;
    const char **names = count ? take(owned, count + 1, sizeof(const char *)) : NULL;

    for (size_t i = 0; i < count; i++)
        names[i] = config_setting_get_string_elem(array, (int)i);
    return names;
}

static enum fabric_topic find_topic(const char *name)
{
    enum fabric_topic topic = 0;

    while (strcmp(fabric_condition_keys[topic].name, name) != 0)
        topic++;
    return topic;
}

static long read_number(const config_setting_t *setting)
{
    if (config_setting_type(setting) == CONFIG_TYPE_BOOL)
        return config_setting_get_bool(setting);
    return config_setting_is_number(setting) ? (long)config_setting_get_int64(setting) : 0;
}

static struct fabric_condition read_condition(struct owned *owned, const config_setting_t *group)
{
    size_t count = group ? (size_t)config_setting_length(group) : 0;
    struct fabric_part *parts = take(owned, count, sizeof *parts);

    for (size_t i = 0; i < count; i++) {
        const config_setting_t *member = config_setting_get_elem(group, (unsigned)i);

        parts[i] = (struct fabric_part){.topic = find_topic(config_setting_name(member)), .number = read_number(member)};
        if (config_setting_is_array(member))
            parts[i].names = read_names(owned, member);
    }
    return (struct fabric_condition){parts, count};
}

static void read_set(struct owned *owned, const config_setting_t *list)
{
    size_t count = list ? (size_t)config_setting_length(list) : 0;
    struct fabric_setting *set = take(owned, count, sizeof *set);

    for (size_t i = 0; i < count; i++) {
        const config_setting_t *group = config_setting_get_elem(list, (unsigned)i);

        set[i] = (struct fabric_setting){.name = fabric_string(group, "name"),
                                         .value = fabric_string(group, "value"),
                                         .why = fabric_string(group, "why"),
                                         .line = fabric_line(group),
                                         .when = read_condition(owned, config_setting_get_member(group, "when"))};
    }
    owned->profile.set = set;
    owned->profile.set_count = count;
}

static void read_warn(struct owned *owned, const config_setting_t *list)
{
    size_t count = list ? (size_t)config_setting_length(list) : 0;
    struct fabric_warning *warn = take(owned, count, sizeof *warn);

    for (size_t i = 0; i < count; i++) {
        const config_setting_t *group = config_setting_get_elem(list, (unsigned)i);

        warn[i] = (struct fabric_warning){.text = fabric_string(group, "text"),
                                          .line = fabric_line(group),
                                          .when = read_condition(owned, config_setting_get_member(group, "when"))};
    }
    owned->profile.warn = warn;
    owned->profile.warn_count = count;
}

static int read_profile(struct owned *owned, struct error *err)
{
    const config_setting_t *root = config_root_setting(&owned->config);
    const config_setting_t *priority = config_setting_get_member(root, "priority");
    struct fabric_profile *profile = &owned->profile;

    owned->room = owned->next = calloc(count_settings(root), sizeof(struct fabric_setting));
    if (!owned->room)
        return error_errno(err, CODE_IO, "no memory for %s", owned->file);
    profile->file = owned->file;
    profile->name = fabric_string(root, "name");
    profile->priority = priority ? (int)config_setting_get_int64(priority) : FABRIC_PRIORITY_DEFAULT;
    profile->match = read_condition(owned, config_setting_get_member(root, "match"));
    profile->leave = read_names(owned, config_setting_get_member(root, "leave"));
    read_set(owned, config_setting_get_member(root, "set"));
    read_warn(owned, config_setting_get_member(root, "warn"));
    return 0;
}

/* ---- the file ---------------------------------------------------------------------------------------------------- */

static int parse(const struct fabric_reader *r, config_t *config, const char *text)
{
    struct error err;
    int line = 0, status = -1;
    char *safe = job_text_widen(text, &line, &err);

    if (!safe)
        return fabric_fail(r, line, "%s", err.text);
    if (config_read_string(config, safe))
        status = fabric_check(r, config_root_setting(config));
    else
        fabric_fail(r, config_error_line(config), "%s here or just before; write name = value;",
                    config_error_text(config));
    free(safe);
    return status;
}

const struct fabric_profile *fabric_read(const char *text, const char *file, struct error *err)
{
    struct owned *owned = calloc(1, sizeof *owned);
    const struct fabric_reader reader = {.file = file, .err = err};

    if (!owned) {
        error_errno(err, CODE_IO, "no memory for %s", file);
        return NULL;
    }
    config_init(&owned->config);
    if (!(owned->file = strdup(file)))
        error_errno(err, CODE_IO, "no memory for %s", file);
    else if (parse(&reader, &owned->config, text) == 0 && read_profile(owned, err) == 0)
        return &owned->profile;
    fabric_forget(&owned->profile);
    return NULL;
}

void fabric_forget(const struct fabric_profile *profile)
{
    struct owned *owned = (struct owned *)(uintptr_t)profile;

    if (!owned)
        return;
    config_destroy(&owned->config);
    free(owned->file);
    free(owned->room);
    free(owned);
}
