/*
 * hostlist.h - host lists as Slurm writes them: "n[1-4,7],login,rack[1-2]n[01-16]". Pure.
 *
 * Commas separate names; brackets hold numbers and ranges; a number that begins with 0 keeps its width. Of several
 * brackets in a name the last varies fastest. This does not call libslurm, since muster-topo works without Slurm.
 */
#ifndef MUSTER_PLAN_HOSTLIST_H
#define MUSTER_PLAN_HOSTLIST_H

#include "common/error.h"

#define HOSTLIST_MAX  (1 << 18) /* names; more is an error, before memory runs out */
#define HOSTNAME_SIZE 256

struct hostlist {
    char **names;
    int count;
};

/* All names of `text` in order, without blanks around them. CODE_DATA says what is wrong, and where. */
struct hostlist *hostlist_create(const char *text, struct error *err);
void hostlist_destroy(struct hostlist *list);

/*
 * Counts by node as Slurm writes them in SLURM_TASKS_PER_NODE: "8(x3),4" is 8, 8, 8, 4. counts[nodes] from text; a
 * single number is for all nodes. *all, if not NULL, becomes their sum. CODE_DATA unless there is one number from 0 to
 * 65535 for each node.
 */
int hostlist_counts(const char *text, int *counts, int nodes, int *all, struct error *err);

#endif
