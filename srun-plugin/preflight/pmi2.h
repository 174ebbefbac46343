/*
 * pmi2.h - as much of PMI2's client as an exchange of addresses needs: over the descriptor PMI_FD that the launcher
 * leaves open, as in MPICH's "PMI v2 API" wire protocol. Without a library: a node that misses one is what is looked
 * for. Every call ends by its deadline, on the clock of deadline.h.
 */
#ifndef MUSTER_SRUN_PLUGIN_PREFLIGHT_PMI2_H
#define MUSTER_SRUN_PLUGIN_PREFLIGHT_PMI2_H

#include <stddef.h>

#include "common/error.h"

struct pmi2 {
    int fd, rank, size;
};

/* -1 with CODE_IO where nobody launched us with PMI2, or it does not answer. */
int pmi2_init(struct pmi2 *pmi, double deadline, struct error *err);
int pmi2_put(struct pmi2 *pmi, const char *key, const char *value, double deadline, struct error *err);

/* All ranks come here; what they put before can be got after. */
int pmi2_fence(struct pmi2 *pmi, double deadline, struct error *err);
int pmi2_get(struct pmi2 *pmi, const char *key, char *value, size_t size, double deadline, struct error *err);
void pmi2_finalize(struct pmi2 *pmi, double deadline);

#endif
