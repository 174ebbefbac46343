/* fabric_machines.h - machines from published facts, what each is to get, and help for tests of fabric profiles. */
#ifndef MUSTER_TESTS_FABRIC_MACHINES_H
#define MUSTER_TESTS_FABRIC_MACHINES_H

#include <stdio.h>
#include <string.h>

#include "srun-plugin/fabric/fabric.h"

#define NICS(list) .nics = (list), .nic_count = sizeof(list) / sizeof(list)[0]
#define MACHINES   16
#define SHIPPED    8

struct machine {
    const char *name;
    struct fabric_facts facts;
    const char *matches; /* every shipped profile that would match, alone */
    const char *chosen;  /* the one whose variables these are: NAME=VALUE lines by name */
    const char *variables;
    size_t notes;
};

extern const struct machine machines[MACHINES];
extern const char *const machines_shipped[SHIPPED]; /* names of all shipped profiles, which are those of their files */

/* etc/fabric, all or without the files for absent NICs; the test fails if one is broken. */
struct fabric *machines_load_shipped(const char *const *absent);

/* A profile that must be a good one. */
void machines_add(struct fabric *fabric, enum fabric_layer layer, const char *text, const char *file);

/* A plan; `inputs` may be NULL. */
struct env_list *machines_plan(const struct fabric *fabric, const struct fabric_facts *facts,
                               const struct fabric_inputs *inputs);
void machines_plan_destroy(struct env_list *plan);

/* NULL where the plan has no such variable. */
const struct env_variable *machines_find(const struct env_list *plan, const char *name);

/* A `value` of NULL: the plan must not have the variable. */
void machines_expect(const struct env_list *plan, const char *name, const char *value, const char *source);

/* An env_lookup; arg is an environment: "NAME=value" strings, ended by NULL. */
static inline bool machines_look_up(const char *name, char *value, size_t size, void *arg)
{
    size_t length = strlen(name);

    for (char *const *word = arg; *word; word++)
        if (strncmp(*word, name, length) == 0 && (*word)[length] == '=')
            return snprintf(value, size, "%s", *word + length + 1) >= 0;
    return false;
}

#endif
