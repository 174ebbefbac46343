/*
 * env_list.h - environment variables: how one is looked up, and the list of those that muster sets for a rank, with who
 * chose each and why.
 */
#ifndef MUSTER_SRUN_PLUGIN_NODE_ENV_LIST_H
#define MUSTER_SRUN_PLUGIN_NODE_ENV_LIST_H

#include <stdbool.h>
#include <stddef.h>

/* Copies a variable of an environment, cut if it does not fit. False only if it is not set. */
typedef bool env_lookup(const char *name, char *value, size_t size, void *arg);

enum env_origin {
    ENV_FROM_USER,
    ENV_FROM_MUSTER, /* computed for the rank (spank/rank_setup.h) */
    ENV_FROM_JOB,
    ENV_FROM_CONF,
    ENV_FROM_SITE,
    ENV_FROM_SHIPPED,
};

struct env_variable {
    char *name, *value;
    enum env_origin origin;
    char *source; /* "user", "muster", "nccl.conf", or "FILE:LINE" of the job file or profile */
    char *why; /* the reason; or, where the user or nccl.conf decides, "infiniband.cfg:12 would have set =ib0", or "" */
};

/* The variables of a rank. Zeroed, it is empty. */
struct env_list {
    char *profile; /* names of the profiles that matched: "infiniband" or "our-site, infiniband"; "" for none */
    struct env_variable *variables; /* set them in this order: if a name occurs twice, the later one counts */
    size_t count;
    char **notes; /* lines for the user: warnings of profiles, and settings that were left out */
    size_t note_count;
};

/* Appends a variable; `why` is a printf format. False without memory. */
bool env_list_add(struct env_list *list, enum env_origin origin, const char *name, const char *value,
                  const char *source, const char *why, ...) __attribute__((format(printf, 6, 7)));

void env_list_clear(struct env_list *list);

/* True if the variable is to be set, overwriting; false if the user or nccl.conf has set it already. */
bool env_is_to_be_set(const struct env_variable *variable);

#endif
