/*
 * fabric_profile.h - one profile, checked and ready to be asked; private to fabric*.c.
 *
 * Those that muster ships are constants: fabric_compile.c makes C of etc/fabric when muster is built, so that no rank
 * waits until its node has read them. A site's are read by libconfig (fabric_read.c). Once a profile is there, asking
 * it cannot fail; the lines of its settings are in it for the report.
 */
#ifndef MUSTER_SRUN_PLUGIN_FABRIC_PROFILE_H
#define MUSTER_SRUN_PLUGIN_FABRIC_PROFILE_H

#include "srun-plugin/fabric.h"

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
    long number;              /* nodes; of FABRIC_GPUS 0 or 1 */
    const char *const *names; /* NULL behind the last; NULL where the key has none */
};

/* Holds if all its parts do; without any, always. */
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
    const char *const *leave; /* names that profiles behind this one must not set, NULL behind the last */
    const struct fabric_warning *warn;
    size_t warn_count;
};

/* What muster ships, by name, and NULL behind the last; `file` is without a directory. */
extern const struct fabric_profile *const fabric_shipped[];

/* NULL with CODE_CONFIG and "FILE:LINE: ...", or CODE_IO for memory. To be given back to fabric_forget. */
const struct fabric_profile *fabric_read(const char *text, const char *file, struct error *err);
void fabric_forget(const struct fabric_profile *profile);

struct fabric {
    struct fabric_entry {
        enum fabric_layer layer;
        bool is_read; /* by fabric_read */
        const struct fabric_profile *profile;
    } * entries;
    size_t count;
};

bool fabric_holds(const struct fabric_condition *condition, const struct fabric_facts *facts);

/*
 * `value` with its placeholders filled in, to be freed. hca_list, nic_interfaces and gid_index are of the ports that
 * `match` is about: live, of its `nics`, and of these the fast ones (at least half of the fastest's rate). NULL where
 * one is not known, *missing then being its name in a static string, or for want of memory, *missing being NULL.
 */
char *fabric_render(const char *value, const struct fabric_condition *match, const struct fabric_facts *facts,
                    const char **missing);

/* The length of the placeholder's name at "${name}"; -1 for an unknown one or one that is not closed. */
int fabric_placeholder(const char *at);

/* All placeholders: "${socket_ifname}, ${hca_list}, ..." */
const char *fabric_placeholders(void);

#endif
