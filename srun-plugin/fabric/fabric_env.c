/* fabric_env.c - fills a list of variables. Sources are applied in the order of precedence: the first to set a variable
 * decides it. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/text.h"
#include "srun-plugin/fabric/fabric_profile.h"

struct filler {
    struct env_list *list;
    size_t first; /* of the variables that this filler has added */
    const struct fabric_facts *facts;
    const struct fabric_inputs *inputs;
    bool no_memory;
    char own[FABRIC_VALUE_SIZE]; /* the user's value, of the last call of is_users */
};

/* Adds a line to notes, as printf writes it. */
#define add_note(p, ...) ((p)->no_memory |= !text_add_line(&(p)->list->notes, &(p)->list->note_count, __VA_ARGS__))

/* ---- precedence -------------------------------------------------------------------------------------------------- */

static bool is_decided(const struct filler *p, const char *name)
{
    for (size_t i = p->first; i < p->list->count; i++)
        if (strcmp(p->list->variables[i].name, name) == 0)
            return true;
    return false;
}

static bool is_users(struct filler *p, const char *name)
{
    return p->inputs->user && p->inputs->user(name, p->own, sizeof p->own, p->inputs->user_arg);
}

/* The value in nccl.conf, or NULL. */
static const char *conf_value(const struct filler *p, const char *name)
{
    const struct file_variables *conf = p->inputs->conf;

    for (size_t i = 0; conf && i < conf->count; i++)
        if (strcmp(conf->items[i].name, name) == 0)
            return conf->items[i].value;
    return NULL;
}

/* Sets a variable for a source of lower precedence than the user, unless it is decided. */
static void offer_value(struct filler *p, enum env_origin origin, const char *name, const char *value,
                        const char *source, const char *why)
{
    static const char beaten[] = "%s would have set %s";
    const char *conf = origin > ENV_FROM_CONF ? conf_value(p, name) : NULL;
    bool added;

    if (is_decided(p, name))
        return;
    if (is_users(p, name))
        added = env_list_add(p->list, ENV_FROM_USER, name, p->own, "user", beaten, source, value);
    else if (conf)
        added = env_list_add(p->list, ENV_FROM_CONF, name, conf, "nccl.conf", beaten, source, value);
    else
        added = env_list_add(p->list, origin, name, value, source, "%s", why);
    p->no_memory |= !added;
}

static void offer_job(struct filler *p)
{
    const struct file_variables *job = p->inputs->job;
    const char *file = p->inputs->job_file ? basename(p->inputs->job_file) : "";
    char source[PATH_MAX];

    for (size_t i = 0; job && i < job->count; i++) {
        snprintf(source, sizeof source, "%s:%d", file, job->items[i].line);
        offer_value(p, ENV_FROM_JOB, job->items[i].name, job->items[i].value, source, "set by the job file");
    }
}

/* The directory of the shipped profiles is known; a site's file is shown with its path. */
static const char *shown_file(const struct fabric_profile *profile)
{
    return profile->layer == FABRIC_SHIPPED ? basename(profile->file) : profile->file;
}

static void offer_setting(struct filler *p, const struct fabric_profile *profile, const config_setting_t *setting)
{
    const char *name = fabric_string(setting, "name"), *missing;
    char *value = fabric_render(fabric_string(setting, "value"), fabric_member(profile, "match"), p->facts, &missing);
    char source[PATH_MAX];

    snprintf(source, sizeof source, "%s:%d", shown_file(profile), fabric_line(setting));
    if (value)
        offer_value(p, profile->layer == FABRIC_SITE ? ENV_FROM_SITE : ENV_FROM_SHIPPED, name, value, source,
                    fabric_string(setting, "why"));
    else if (!missing)
        p->no_memory = true;
    else if (!is_decided(p, name) && !conf_value(p, name) && !is_users(p, name))
        add_note(p, "%s: %s is left out: %s is not known here", source, name, missing);
    free(value);
}

/* True if a profile of higher precedence lists the variable in `leave`. */
static bool is_left(const struct fabric_profile *const *before, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++) {
        const config_setting_t *leave = fabric_member(before[i], "leave");

        for (unsigned j = 0; j < fabric_length(leave); j++)
            if (strcmp(config_setting_get_string_elem(leave, (int)j), name) == 0)
                return true;
    }
    return false;
}

static void apply_profile(struct filler *p, const struct fabric_profile *const *profiles, size_t index)
{
    const struct fabric_profile *profile = profiles[index];
    const config_setting_t *set = fabric_member(profile, "set"), *warn = fabric_member(profile, "warn"), *item;

    for (unsigned i = 0; i < fabric_length(set); i++) {
        item = config_setting_get_elem(set, i);
        if (fabric_holds(config_setting_get_member(item, "when"), p->facts) &&
            !is_left(profiles, index, fabric_string(item, "name")))
            offer_setting(p, profiles[index], item);
    }
    for (unsigned i = 0; i < fabric_length(warn); i++) {
        item = config_setting_get_elem(warn, i);
        if (fabric_holds(config_setting_get_member(item, "when"), p->facts))
            add_note(p, "%s:%d: %s", shown_file(profiles[index]), fabric_line(item), fabric_string(item, "text"));
    }
}

/* ---- which profiles ---------------------------------------------------------------------------------------------- */

/* The site's before the shipped ones, then by priority, the highest first, then by name. */
static int by_rank(const void *a, const void *b)
{
    const struct fabric_profile *one = *(const struct fabric_profile *const *)a;
    const struct fabric_profile *other = *(const struct fabric_profile *const *)b;

    if (one->layer != other->layer)
        return one->layer == FABRIC_SITE ? -1 : 1;
    if (one->priority != other->priority)
        return one->priority > other->priority ? -1 : 1;
    return strcmp(one->name, other->name);
}

static bool is_replaced(const struct fabric *fabric, const struct fabric_profile *profile)
{
    for (size_t i = 0; i < fabric->count; i++)
        if (fabric->profiles[i]->layer == FABRIC_SITE && strcmp(fabric->profiles[i]->name, profile->name) == 0)
            return true;
    return false;
}

/* All profiles of the site that match, and the first shipped one that does, unless the site has replaced it. */
static size_t choose_profiles(const struct fabric *fabric, const struct fabric_facts *facts,
                              const struct fabric_profile **chosen)
{
    size_t count = 0;

    for (size_t i = 0; i < fabric->count; i++) {
        const struct fabric_profile *profile = fabric->profiles[i];

        if (fabric_holds(fabric_member(profile, "match"), facts) &&
            (profile->layer == FABRIC_SITE || !is_replaced(fabric, profile)))
            chosen[count++] = profile;
    }
    qsort(chosen, count, sizeof *chosen, by_rank);
    for (size_t i = 0; i < count; i++)
        if (chosen[i]->layer == FABRIC_SHIPPED)
            return i + 1;
    return count;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct env_variable *)a)->name, ((const struct env_variable *)b)->name);
}

static void apply_all(struct filler *p, const struct fabric *fabric, const struct fabric_profile **chosen)
{
    size_t count = choose_profiles(fabric, p->facts, chosen);

    for (size_t i = 0; i < count; i++) {
        char *names;

        if (asprintf(&names, "%s%s%s", p->list->profile, i ? ", " : "", chosen[i]->name) < 0) {
            p->no_memory = true;
            return;
        }
        free(p->list->profile);
        p->list->profile = names;
        apply_profile(p, chosen, i);
    }
}

int fabric_fill_env(struct env_list *list, const struct fabric *fabric, const struct fabric_facts *facts,
                    const struct fabric_inputs *inputs, struct error *err)
{
    const struct fabric_profile **chosen = calloc(fabric->count + 1, sizeof(const struct fabric_profile *));
    struct filler filler = {.list = list, .first = list->count, .facts = facts, .inputs = inputs};
    const struct file_variables *conf = inputs->conf;

    list->profile = strdup("");
    filler.no_memory = !chosen || !list->profile;
    if (!filler.no_memory) {
        offer_job(&filler);
        apply_all(&filler, fabric, chosen);
        for (size_t i = 0; conf && i < conf->count; i++)
            offer_value(&filler, ENV_FROM_CONF, conf->items[i].name, conf->items[i].value, "nccl.conf", "");
    }
    if (list->count > filler.first)
        qsort(list->variables + filler.first, list->count - filler.first, sizeof *list->variables, by_name);
    free(chosen);
    return filler.no_memory ? error_set(err, CODE_IO, "no memory for the fabric's variables") : 0;
}
