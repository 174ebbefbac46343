/*
 * checks.h - the check of muster-preflight that involves other nodes, and the PMI2 client that it needs.
 */
#ifndef MUSTER_SRUN_PLUGIN_PREFLIGHT_CHECKS_H
#define MUSTER_SRUN_PLUGIN_PREFLIGHT_CHECKS_H

#include <stddef.h>

#include "common/error.h"

/*
 * Each node of the step sends 1 MiB to the next of a ring, which checks every byte and sends its own back. Nodes find
 * each other by PMI2 and talk over TCP, on the interface that the kernel routes to the other nodes through: if TCP
 * fails there, so does the bootstrap of NCCL, Gloo and MPI. Not tested: RDMA, and other interfaces. `name` is this
 * node's. Writes "to" and "from" by the deadline (CLOCK_MONOTONIC).
 */
void check_neighbours(const char *name, double deadline);

/* ---- muster_preflight.c ------------------------------------------------------------------------------------------ */

/*
 * Prints a line of judge.h, "preflight NODE KEY TEXT", as one write: all nodes share one pipe in the end. Newlines
 * become blanks. May be called by several threads.
 */
void write_finding(const char *key, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- pmi2.c ------------------------------------------------------------------------------------------------------ */

/*
 * The part of a PMI2 client that exchanges addresses: MPICH's "PMI v2 API" wire protocol over the descriptor PMI_FD,
 * which the launcher leaves open. No library: preflight must work on a node that lacks one. Deadlines are times of
 * clock_monotonic; every call of PMI2 ends by pmi->deadline.
 */
struct pmi2 {
    int fd, rank, size;
    double deadline;
};

/* -1 with CODE_IO if the launcher has no PMI2, or does not answer. */
int pmi2_init(struct pmi2 *pmi, double deadline, struct error *err);
int pmi2_put(struct pmi2 *pmi, const char *key, const char *value, struct error *err);

/* A barrier: what a rank put before it, all ranks can get after it. */
int pmi2_fence(struct pmi2 *pmi, struct error *err);
int pmi2_get(struct pmi2 *pmi, const char *key, char *value, size_t size, struct error *err);
void pmi2_finalize(struct pmi2 *pmi);

/* Until poll's `events` come on fd: 0; -1 and errno, ETIMEDOUT when it is too late. */
int deadline_wait(int fd, short events, double deadline);

/* All of `size` bytes: 0; -1 and errno, ECONNRESET if the other end closed early. fd may be blocking or not. */
int deadline_read(int fd, void *data, size_t size, double deadline);
int deadline_write(int fd, const void *data, size_t size, double deadline);

#endif
