/*
 * paper_memory.h - what papers say that training takes, in bytes a rank: to hold our own arithmetic against. Pure.
 *
 * These are rules of thumb for 16-bit training; what the engine allocates is counted elsewhere, to the byte.
 */
#ifndef MUSTER_COMMON_PAPER_MEMORY_H
#define MUSTER_COMMON_PAPER_MEMORY_H

#include <stdbool.h>

#include "common/job.h"

/*
 * Parameters, gradients and Adam's state of N parameters under a ZeRO stage (arXiv 1910.02054, figure 1): 2 bytes a
 * parameter, 2 a gradient, 12 for master weight and moments:
 *   stage 0: 16 N     1: 4 N + 12 N / dp     2: 2 N + 14 N / dp     3: 16 N / dp
 * Gradients in fp32 take 2 bytes more, wherever they are whole or shared.
 */
double paper_state_bytes(double parameters, int zero, int dp, bool fp32_gradients);

/*
 * Activations of one layer and micro-batch (arXiv 2205.05198, table 2), with s tokens, b samples, width h, a heads and
 * t tensor-parallel ranks:
 *   one rank                           s b h (34 + 5 a s / h)
 *   tensor parallel                    s b h (10 + 24 / t + 5 a s / (h t))
 *   and sequence parallel              s b h (34 / t + 5 a s / (h t))
 *   selective recompute                the same without the term 5 a s / h: attention's scores, also where a fused
 *                                      attention does not keep them
 *   full recompute                     2 s b h
 * Dropout's masks, a byte each, are in these numbers.
 */
double paper_activation_bytes(const struct model_shape *shape, int micro_batch, int tp, bool sequence_parallel,
                              enum recompute recompute);

#endif
