#include "srun-plugin/node/env_list.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/text.h"

static void free_variable(struct env_variable *variable)
{
    free(variable->name);
    free(variable->value);
    free(variable->source);
    free(variable->why);
}

bool env_list_add(struct env_list *list, enum env_origin origin, const char *name, const char *value,
                  const char *source, const char *why, ...)
{
    struct env_variable *larger = realloc(list->variables, (list->count + 1) * sizeof *larger), added = {0};
    va_list args;

    if (!larger)
        return false;
    list->variables = larger;
    va_start(args, why);
    if (vasprintf(&added.why, why, args) < 0)
        added.why = NULL;
    va_end(args);
    added.origin = origin;
    added.name = strdup(name);
    added.value = strdup(value);
    added.source = strdup(source);
    if (added.name && added.value && added.source && added.why) {
        larger[list->count++] = added;
        return true;
    }
    free_variable(&added);
    return false;
}

void env_list_clear(struct env_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        free_variable(&list->variables[i]);
    text_free_lines(list->notes, list->note_count);
    free(list->variables);
    free(list->profile);
    *list = (struct env_list){0};
}

bool env_is_to_be_set(const struct env_variable *variable)
{
    return variable->origin != ENV_FROM_USER && variable->origin != ENV_FROM_CONF;
}
