#include "srun-plugin/handoff.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct flag {
    const char *name;
    size_t offset; /* of a bool */
} flags[] = {
    {"cpus_inherited", offsetof(struct handoff, cpus_inherited)},
    {"user_binds", offsetof(struct handoff, user_binds)},
    {"ordered", offsetof(struct handoff, ordered)},
    {"mapped", offsetof(struct handoff, mapped)},
    {"cpus_are_cores", offsetof(struct handoff, cpus_are_cores)},
};

static bool *flag_of(struct handoff *handoff, const struct flag *flag)
{
    return (bool *)((char *)handoff + flag->offset);
}

static size_t add_address(char *text, size_t used, const char *name, const char *address)
{
    if (!address[0] || strpbrk(address, " \t\n"))
        return used;
    return used + (size_t)snprintf(text + used, HANDOFF_SIZE - used, "%s=%s ", name, address);
}

char *handoff_text(const struct handoff *handoff, char text[HANDOFF_SIZE])
{
    struct handoff copy = *handoff;
    size_t used = 0;

    used = add_address(text, used, "head", handoff->head);
    used = add_address(text, used, "peer", handoff->peer);
    used +=
        (size_t)snprintf(text + used, HANDOFF_SIZE - used, "head_node=%u port=%u", handoff->head_node, handoff->port);
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++)
        if (*flag_of(&copy, &flags[i]))
            used += (size_t)snprintf(text + used, HANDOFF_SIZE - used, " %s=1", flags[i].name);
    return text;
}

static void read_word(char *word, struct handoff *handoff)
{
    char *value = strchr(word, '=');

    if (!value)
        return;
    *value++ = '\0';
    if (strcmp(word, "head") == 0)
        snprintf(handoff->head, sizeof handoff->head, "%s", value);
    else if (strcmp(word, "peer") == 0)
        snprintf(handoff->peer, sizeof handoff->peer, "%s", value);
    else if (strcmp(word, "head_node") == 0)
        handoff->head_node = (unsigned)strtoul(value, NULL, 10);
    else if (strcmp(word, "port") == 0)
        handoff->port = (unsigned)strtoul(value, NULL, 10) & 0xffff;
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++)
        if (strcmp(word, flags[i].name) == 0)
            *flag_of(handoff, &flags[i]) = strcmp(value, "1") == 0;
}

void handoff_read(const char *text, struct handoff *handoff)
{
    char copy[HANDOFF_SIZE], *rest = NULL;

    *handoff = (struct handoff){.here = text != NULL};
    snprintf(copy, sizeof copy, "%s", text ? text : "");
    for (char *word = strtok_r(copy, " ", &rest); word; word = strtok_r(NULL, " ", &rest))
        read_word(word, handoff);
}
