/*
 * fabric_profile.h - one profile as libconfig has it, checked (fabric_read.c) so that evaluating it cannot fail;
 * private to fabric/. A condition is a group of a profile, `match` or `when`.
 */
#ifndef MUSTER_SRUN_PLUGIN_FABRIC_FABRIC_PROFILE_H
#define MUSTER_SRUN_PLUGIN_FABRIC_FABRIC_PROFILE_H

#include <libconfig.h>

#include "srun-plugin/fabric/fabric.h"

struct fabric_profile {
    enum fabric_layer layer;
    char *file;
    const char *name;
    int priority;
    config_t config;
};

/* NULL with CODE_CONFIG and "FILE:LINE: ...", or CODE_IO for memory. Free it with fabric_profile_destroy. */
struct fabric_profile *fabric_profile_read(enum fabric_layer layer, const char *text, const char *file,
                                           struct error *err);
void fabric_profile_destroy(struct fabric_profile *profile);

struct fabric {
    struct fabric_profile **profiles;
    size_t count, room;
};

/* A member of the profile, or NULL. */
const config_setting_t *fabric_member(const struct fabric_profile *profile, const char *key);

/* A string of a group, the line of a setting, and the length of a list or array, 0 for NULL. */
const char *fabric_string(const config_setting_t *group, const char *key);
int fabric_line(const config_setting_t *setting);
unsigned fabric_length(const config_setting_t *list);

/* True if all members of the condition are; without a condition, always. */
bool fabric_holds(const config_setting_t *condition, const struct fabric_facts *facts);

/*
 * `value` with its placeholders replaced; the caller frees it. hca_list, nic_interfaces and gid_index list the ports
 * that `match` selects: live, of its `nics`, and of at least half the rate of the fastest. NULL if one is not known,
 * with its name in *missing, or when out of memory, with *missing NULL.
 */
char *fabric_render(const char *value, const config_setting_t *match, const struct fabric_facts *facts,
                    const char **missing);

/* True if one of the placeholders begins at `at`. */
bool fabric_is_placeholder(const char *at);

/* All placeholders: "${socket_ifname}, ${hca_list}, ..." */
const char *fabric_placeholders(void);

#endif
