/*
 * fabric_profile.h - one profile, checked and ready to be asked; private to fabric*.c.
 *
 * A profile stays what libconfig made of it: once every key, type and value has been checked, reading it cannot fail,
 * and the lines of its settings are there for the report.
 */
#ifndef MUSTER_SRUN_PLUGIN_FABRIC_PROFILE_H
#define MUSTER_SRUN_PLUGIN_FABRIC_PROFILE_H

#include <libconfig.h>

#include "srun-plugin/fabric.h"

struct fabric_profile {
    enum fabric_layer layer;
    char *file;
    config_t config; /* owns all strings below */
    const char *name;
    int priority;
    const config_setting_t *match; /* a condition */
    const config_setting_t *set;   /* list of { name value why source [when] }; NULL for none */
    const config_setting_t *leave; /* names that profiles behind this one must not set; NULL for none */
    const config_setting_t *warn;  /* list of { text when }; NULL for none */
};

struct fabric {
    struct fabric_profile **profiles;
    size_t count;
    const struct fabric_expected *expected; /* NULL: anything */
};

/* NULL with CODE_CONFIG and the line, or CODE_IO for memory. */
struct fabric_profile *fabric_profile_create(enum fabric_layer layer, const char *text, const char *file,
                                             struct error *err);
void fabric_profile_destroy(struct fabric_profile *profile);

/* A string of a group that has been checked; NULL where it has none such. */
const char *fabric_string(const config_setting_t *group, const char *key);

/* Whether every part of a condition holds; NULL is no condition. */
bool fabric_holds(const config_setting_t *condition, const struct fabric_facts *facts);

/*
 * `value` with its placeholders filled in, to be freed. hca_list, nic_interfaces and gid_index are of the ports that
 * `match` is about: live, of its `nics`, and of these the fast ones (at least half of the fastest's rate). NULL where
 * one is not known, *missing then being its name in a static string, or for want of memory, *missing being NULL.
 */
char *fabric_render(const char *value, const config_setting_t *match, const struct fabric_facts *facts,
                    const char **missing);

/* The length of the placeholder's name at "${name}"; -1 for an unknown one or one that is not closed. */
int fabric_placeholder(const char *at);

/* All placeholders: "${socket_ifname}, ${hca_list}, ..." */
const char *fabric_placeholders(void);

#endif
