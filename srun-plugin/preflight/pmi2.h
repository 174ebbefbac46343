/*
 * pmi2.h - the part of a PMI2 client that exchanges addresses: MPICH's "PMI v2 API" wire protocol over the descriptor
 * PMI_FD, which the launcher leaves open. No library: preflight must work on a node that lacks one. Every call ends by
 * its deadline (deadline.h).
 */
#ifndef MUSTER_SRUN_PLUGIN_PREFLIGHT_PMI2_H
#define MUSTER_SRUN_PLUGIN_PREFLIGHT_PMI2_H

#include <stddef.h>

#include "common/error.h"

struct pmi2 {
    int fd, rank, size;
};

/* -1 with CODE_IO if the launcher has no PMI2, or does not answer. */
int pmi2_init(struct pmi2 *pmi, double deadline, struct error *err);
int pmi2_put(struct pmi2 *pmi, const char *key, const char *value, double deadline, struct error *err);

/* A barrier: what a rank put before it, all ranks can get after it. */
int pmi2_fence(struct pmi2 *pmi, double deadline, struct error *err);
int pmi2_get(struct pmi2 *pmi, const char *key, char *value, size_t size, double deadline, struct error *err);
void pmi2_finalize(struct pmi2 *pmi, double deadline);

#endif
