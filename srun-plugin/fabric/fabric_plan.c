/* The variables of a plan. Sources are applied in the order of precedence: the first to set a variable decides it. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/text.h"
#include "srun-plugin/fabric/fabric_profile.h"

struct planner {
    struct fabric_plan *plan;
    const struct fabric_facts *facts;
    const struct fabric_inputs *inputs;
    bool no_memory;
};

/* ---- the plan ---------------------------------------------------------------------------------------------------- */

static char *print_text(struct planner *p, const char *format, ...) __attribute__((format(printf, 2, 3)));

static char *print_text(struct planner *p, const char *format, ...)
{
    char *text = NULL;
    va_list args;

    va_start(args, format);
    if (vasprintf(&text, format, args) < 0)
        text = NULL;
    va_end(args);
    p->no_memory |= !text;
    return text;
}

/* Adds a line to notes, as printf writes it. */
#define add_note(p, ...) ((p)->no_memory |= !text_add_line(&(p)->plan->notes, &(p)->plan->note_count, __VA_ARGS__))

static bool is_decided(const struct planner *p, const char *name)
{
    for (size_t i = 0; i < p->plan->count; i++)
        if (strcmp(p->plan->variables[i].name, name) == 0)
            return true;
    return false;
}

static void free_variable(struct fabric_variable *variable)
{
    free(variable->name);
    free(variable->value);
    free(variable->source);
    free(variable->why);
}

/* Takes the strings. */
static void add_variable(struct planner *p, struct fabric_variable variable)
{
    struct fabric_variable *larger = realloc(p->plan->variables, (p->plan->count + 1) * sizeof *larger);

    if (larger)
        p->plan->variables = larger;
    if (larger && variable.name && variable.value && variable.source && variable.why) {
        larger[p->plan->count++] = variable;
        return;
    }
    p->no_memory = true;
    free_variable(&variable);
}

/* ---- precedence -------------------------------------------------------------------------------------------------- */

static const struct fabric_given *find_given(const struct fabric_givens *givens, const char *name)
{
    for (size_t i = 0; givens && i < givens->count; i++)
        if (strcmp(givens->items[i].name, name) == 0)
            return &givens->items[i];
    return NULL;
}

/*
 * Sets a variable for a source of lower precedence than the user, unless it is decided. `source` and `value` are
 * borrowed.
 */
static void offer_value(struct planner *p, enum fabric_origin origin, const char *name, const char *value,
                        const char *source, const char *why)
{
    const struct fabric_given *conf = find_given(p->inputs->conf, name);
    char own[FABRIC_VALUE_SIZE];

    if (is_decided(p, name))
        return;
    if (p->inputs->user && p->inputs->user(name, own, sizeof own, p->inputs->user_arg))
        add_variable(p, (struct fabric_variable){strdup(name), strdup(own), FABRIC_FROM_USER, strdup("user"),
                                                 print_text(p, "%s would have set %s", source, value)});
    else if (conf && origin > FABRIC_FROM_CONF)
        add_variable(p,
                     (struct fabric_variable){strdup(name), strdup(conf->value), FABRIC_FROM_CONF, strdup(conf->source),
                                              print_text(p, "%s would have set %s", source, value)});
    else
        add_variable(p, (struct fabric_variable){strdup(name), strdup(value), origin, strdup(source), strdup(why)});
}

/* True if a source of higher precedence than profiles sets the variable. */
static bool is_taken(const struct planner *p, const char *name)
{
    char own[FABRIC_VALUE_SIZE];

    return is_decided(p, name) || find_given(p->inputs->conf, name) ||
           (p->inputs->user && p->inputs->user(name, own, sizeof own, p->inputs->user_arg));
}

static void offer_givens(struct planner *p, enum fabric_origin origin, const struct fabric_givens *givens,
                         const char *why)
{
    for (size_t i = 0; givens && i < givens->count; i++)
        offer_value(p, origin, givens->items[i].name, givens->items[i].value, givens->items[i].source, why);
}

/* The directory of the shipped profiles is known; a site's file is shown with its path. */
static const char *shown_file(const struct fabric_entry *entry)
{
    const char *slash = entry->layer == FABRIC_SHIPPED ? strrchr(entry->profile->file, '/') : NULL;

    return slash ? slash + 1 : entry->profile->file;
}

static void offer_setting(struct planner *p, const struct fabric_entry *entry, const config_setting_t *setting)
{
    const char *name = fabric_string(setting, "name"), *missing;
    char *value =
        fabric_render(fabric_string(setting, "value"), fabric_member(entry->profile, "match"), p->facts, &missing);
    char *source = print_text(p, "%s:%d", shown_file(entry), fabric_line(setting));

    if (value && source)
        offer_value(p, entry->layer == FABRIC_SITE ? FABRIC_FROM_SITE : FABRIC_FROM_SHIPPED, name, value, source,
                    fabric_string(setting, "why"));
    else if (!missing || !source)
        p->no_memory = true;
    else if (!is_taken(p, name))
        add_note(p, "%s: %s is left out: %s is not known here", source, name, missing);
    free(source);
    free(value);
}

/* True if a profile of higher precedence lists the variable in `leave`. */
static bool is_left(const struct fabric_entry *const *before, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++) {
        const config_setting_t *leave = fabric_member(before[i]->profile, "leave");

        for (unsigned j = 0; j < fabric_length(leave); j++)
            if (strcmp(config_setting_get_string_elem(leave, (int)j), name) == 0)
                return true;
    }
    return false;
}

static void apply_profile(struct planner *p, const struct fabric_entry *const *entries, size_t index)
{
    const struct fabric_profile *profile = entries[index]->profile;
    const config_setting_t *set = fabric_member(profile, "set"), *warn = fabric_member(profile, "warn"), *item;

    for (unsigned i = 0; i < fabric_length(set); i++) {
        item = config_setting_get_elem(set, i);
        if (fabric_holds(config_setting_get_member(item, "when"), p->facts) &&
            !is_left(entries, index, fabric_string(item, "name")))
            offer_setting(p, entries[index], item);
    }
    for (unsigned i = 0; i < fabric_length(warn); i++) {
        item = config_setting_get_elem(warn, i);
        if (fabric_holds(config_setting_get_member(item, "when"), p->facts))
            add_note(p, "%s:%d: %s", shown_file(entries[index]), fabric_line(item), fabric_string(item, "text"));
    }
}

/* ---- which profiles ---------------------------------------------------------------------------------------------- */

/* The site's before the shipped ones, then by priority, the highest first, then by name. */
static int by_rank(const void *a, const void *b)
{
    const struct fabric_entry *one = *(const struct fabric_entry *const *)a;
    const struct fabric_entry *other = *(const struct fabric_entry *const *)b;

    if (one->layer != other->layer)
        return one->layer == FABRIC_SITE ? -1 : 1;
    if (one->profile->priority != other->profile->priority)
        return one->profile->priority > other->profile->priority ? -1 : 1;
    return strcmp(one->profile->name, other->profile->name);
}

static bool is_replaced(const struct fabric *fabric, const struct fabric_profile *profile)
{
    for (size_t i = 0; i < fabric->count; i++)
        if (fabric->entries[i].layer == FABRIC_SITE && strcmp(fabric->entries[i].profile->name, profile->name) == 0)
            return true;
    return false;
}

/* All profiles of the site that match, and the first shipped one that does, unless the site has replaced it. */
static size_t choose_profiles(const struct fabric *fabric, const struct fabric_facts *facts,
                              const struct fabric_entry **chosen)
{
    size_t count = 0;

    for (size_t i = 0; i < fabric->count; i++) {
        const struct fabric_entry *entry = &fabric->entries[i];

        if (fabric_holds(fabric_member(entry->profile, "match"), facts) &&
            (entry->layer == FABRIC_SITE || !is_replaced(fabric, entry->profile)))
            chosen[count++] = entry;
    }
    qsort(chosen, count, sizeof *chosen, by_rank);
    for (size_t i = 0; i < count; i++)
        if (chosen[i]->layer == FABRIC_SHIPPED)
            return i + 1;
    return count;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct fabric_variable *)a)->name, ((const struct fabric_variable *)b)->name);
}

static void apply_all(struct planner *p, const struct fabric *fabric, const struct fabric_entry **chosen)
{
    size_t count = choose_profiles(fabric, p->facts, chosen);

    for (size_t i = 0; i < count; i++) {
        char *names = print_text(p, "%s%s%s", p->plan->profile, i ? ", " : "", chosen[i]->profile->name);

        if (names) {
            free(p->plan->profile);
            p->plan->profile = names;
        }
        apply_profile(p, chosen, i);
    }
}

struct fabric_plan *fabric_plan_create(const struct fabric *fabric, const struct fabric_facts *facts,
                                       const struct fabric_inputs *inputs, struct error *err)
{
    const struct fabric_entry **chosen = calloc(fabric->count + 1, sizeof(const struct fabric_entry *));
    struct fabric_plan *plan = calloc(1, sizeof *plan);
    struct planner planner = {.plan = plan, .facts = facts, .inputs = inputs};

    if (!chosen || !plan || !(plan->profile = strdup("")))
        goto fail;
    offer_givens(&planner, FABRIC_FROM_JOB, inputs->job, "set by the job file");
    apply_all(&planner, fabric, chosen);
    offer_givens(&planner, FABRIC_FROM_CONF, inputs->conf, "");
    if (planner.no_memory)
        goto fail;
    if (plan->count > 0)
        qsort(plan->variables, plan->count, sizeof *plan->variables, by_name);
    free(chosen);
    return plan;

fail:
    error_set(err, CODE_IO, "no memory for the fabric's variables");
    free(chosen);
    fabric_plan_destroy(plan);
    return NULL;
}

void fabric_plan_destroy(struct fabric_plan *plan)
{
    if (!plan)
        return;
    for (size_t i = 0; i < plan->count; i++)
        free_variable(&plan->variables[i]);
    text_free_lines(plan->notes, plan->note_count);
    free(plan->variables);
    free(plan->profile);
    free(plan);
}

bool fabric_sets(const struct fabric_variable *variable)
{
    return variable->origin != FABRIC_FROM_USER && variable->origin != FABRIC_FROM_CONF;
}
