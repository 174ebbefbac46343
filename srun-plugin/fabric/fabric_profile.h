/*
 * fabric_profile.h - one profile, checked and ready for use; private to fabric/. fabric_read.c makes it with libconfig.
 * Evaluating it cannot fail. It keeps the lines of its settings for the report.
 */
#ifndef MUSTER_SRUN_PLUGIN_FABRIC_FABRIC_PROFILE_H
#define MUSTER_SRUN_PLUGIN_FABRIC_FABRIC_PROFILE_H

#include "srun-plugin/fabric/fabric.h"

enum fabric_topic {
    FABRIC_NICS,
    FABRIC_NO_NICS,
    FABRIC_DRIVERS,
    FABRIC_FILES,
    FABRIC_NO_FILES,
    FABRIC_GPUS,
    FABRIC_VENDORS,
    FABRIC_CLUSTERS,
    FABRIC_LEAST_NODES,
    FABRIC_MOST_NODES,
    FABRIC_MOST_JOB_NODES
};

/* A line of a condition: `nics = [ "roce", "efa" ];`. */
struct fabric_part {
    enum fabric_topic topic;
    long number;              /* nodes; for FABRIC_GPUS 0 or 1 */
    const char *const *names; /* NULL behind the last; NULL if the key has no names */
};

/* True if all its parts are; without parts, always. */
struct fabric_condition {
    const struct fabric_part *parts;
    size_t count;
};

struct fabric_setting {
    const char *name, *value, *why;
    int line;
    struct fabric_condition when;
};

struct fabric_warning {
    const char *text;
    int line;
    struct fabric_condition when;
};

struct fabric_profile {
    const char *file, *name;
    int priority;
    struct fabric_condition match;
    const struct fabric_setting *set;
    size_t set_count;
    const char *const *leave; /* variables that profiles of lower precedence must not set, NULL behind the last */
    const struct fabric_warning *warn;
    size_t warn_count;
};

/* NULL with CODE_CONFIG and "FILE:LINE: ...", or CODE_IO for memory. Free it with fabric_profile_destroy. */
struct fabric_profile *fabric_profile_read(const char *text, const char *file, struct error *err);
void fabric_profile_destroy(struct fabric_profile *profile);

struct fabric {
    struct fabric_entry {
        enum fabric_layer layer;
        struct fabric_profile *profile;
    } * entries;
    size_t count;
};

bool fabric_holds(const struct fabric_condition *condition, const struct fabric_facts *facts);

/*
 * `value` with its placeholders replaced; the caller frees it. hca_list, nic_interfaces and gid_index list the ports
 * that `match` selects: live, of its `nics`, and of at least half the rate of the fastest. NULL if one is not known,
 * with its name in *missing, or when out of memory, with *missing NULL.
 */
char *fabric_render(const char *value, const struct fabric_condition *match, const struct fabric_facts *facts,
                    const char **missing);

/* The length of the placeholder's name at "${name}"; -1 for an unknown one or one that is not closed. */
int fabric_placeholder(const char *at);

/* All placeholders: "${socket_ifname}, ${hca_list}, ..." */
const char *fabric_placeholders(void);

#endif
