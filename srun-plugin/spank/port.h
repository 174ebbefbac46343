/*
 * port.h - chooses MASTER_PORT. Steps that run at the same time on a node must have different ones, and all ranks of a
 * step the same: it is computed from the job's and the step's id.
 */
#ifndef MUSTER_SRUN_PLUGIN_PORT_H
#define MUSTER_SRUN_PLUGIN_PORT_H

#include <stdbool.h>
#include <stdint.h>

#define PORT_FIRST    10000
#define PORT_COUNT    19391 /* a prime; below 29500 (torchrun's default) and the ephemeral ports */
#define PORT_ATTEMPTS 16

/*
 * The port of a step, PORT_FIRST .. PORT_FIRST + PORT_COUNT - 1; of its PORT_ATTEMPTS candidates the one numbered
 * `attempt`. Two steps of one job have different first candidates unless their ids are PORT_COUNT apart. So have steps
 * of two jobs whose ids are at most J apart, as long as the steps' ids are less than D apart:
 *
 *     J     1     4    16    64   256
 *     D  7499  3106   532   223    35
 *
 * (multiplicative hashing by the golden ratio: Knuth, The Art of Computer Programming, vol. 3, 6.4).
 */
unsigned port_of_step(uint32_t job_id, uint32_t step_id, unsigned attempt);

typedef bool port_probe(unsigned port, void *arg);

/*
 * The first candidate that `is_free`, else the first. Call it once a step, on rank 0's node: the ranks must not each
 * choose their own.
 */
unsigned port_choose(uint32_t job_id, uint32_t step_id, port_probe *is_free, void *arg);

/* A port_probe that tries to bind: true if nothing listens on the port now. */
bool port_is_free(unsigned port, void *arg);

#endif
