/*
 * place_bytes.h - what the ranks of a job send to each other in one step, for place_ranks. Pure.
 *
 * Bytes that one rank sends along one edge (place.h), of a model of P parameters and L layers of width d, on sequences
 * of s tokens, elements of e bytes, m micro-batches of b samples:
 *
 *   dp   a ring's reduce-scatter and all-gather each pass (dp - 1) / dp of what is summed: P / (tp pp) elements.
 *        Two of them, three for ZeRO-3, which gathers parameters for the backward pass again.
 *   pp   m b s d e for the activations, as much for their gradients; chunks times, if stages are interleaved. Each of
 *        the tp ranks sends its part.
 *   tp   two all-reduces a layer and pass (arXiv 1909.08053, section 3), each 2 (tp - 1) / tp of b s d e, for the
 *        L / pp layers of a stage. With recompute the forward pass counts twice.
 *
 * Rounded, and without embeddings, heads and scalars: it decides which axis is the heavier, not how long a step takes.
 */
#ifndef MUSTER_SRUN_PLUGIN_PLACE_BYTES_H
#define MUSTER_SRUN_PLUGIN_PLACE_BYTES_H

#include "common/job.h"
#include "srun-plugin/place.h"

void place_bytes(const struct job *job, const struct mesh *mesh, uint64_t bytes[PLACE_AXES]);

#endif
