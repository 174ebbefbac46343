/*
 * fabric_keys.h - what a group of a profile may hold, as a table, and the check against it; private to fabric*.c.
 */
#ifndef MUSTER_SRUN_PLUGIN_FABRIC_KEYS_H
#define MUSTER_SRUN_PLUGIN_FABRIC_KEYS_H

#include <libconfig.h>
#include <stdbool.h>

#include "common/error.h"

#define FABRIC_PRIORITY_DEFAULT 50

enum fabric_key_type { STRING, INTEGER, BOOLEAN, NAMES, GROUP, LIST };

/* A key of a group; a table ends with one without a name. Strings are one line, not empty and not longer than 1024. */
struct fabric_key {
    const char *name;
    enum fabric_key_type type;
    bool required;
    const char *const *words; /* NAMES: the only ones that there are; NULL for any */
    int least, most;          /* INTEGER */
};

/* The keys of a condition, each at its enum fabric_topic. */
extern const struct fabric_key fabric_condition_keys[];

struct fabric_reader {
    const char *file; /* for errors */
    struct error *err;
};

/* CODE_CONFIG with "FILE:LINE: " before the text. Returns -1. */
int fabric_fail(const struct fabric_reader *r, int line, const char *format, ...) __attribute__((format(printf, 3, 4)));

/*
 * Every member of the group is in the table and of its type, and none that is required is missing. `what` names the
 * group in errors, `line` is where something missing is told.
 */
int fabric_check_group(const struct fabric_reader *r, const struct fabric_key *keys, const config_setting_t *group,
                       const char *what, int line);

/* The whole profile: keys, types, values, names of variables and placeholders (fabric_check.c). */
int fabric_check(const struct fabric_reader *r, const config_setting_t *root);

/* A string of a group that has been checked; NULL where it has none such. */
const char *fabric_string(const config_setting_t *group, const char *key);

int fabric_line(const config_setting_t *setting);

/* "a string", "an integer", ... */
const char *fabric_type(const config_setting_t *setting);

/* Whether a list that ends in NULL has the word. */
bool fabric_is_word(const char *const *words, const char *text);

#endif
