/*
 * flops.h - the arithmetic of a training step, by the three conventions in use. Pure functions.
 *
 *   PaLM (arXiv 2204.02311, appendix B): a token costs 6N + 12*L*d*s model FLOPs. MFU is that rate over the peak;
 *     HFU counts the hardware's work too: with recompute 8N + 16*L*d*s.
 *   Megatron's corrected formula (arXiv 2104.04473, and its 2022 erratum about recompute):
 *     24*f*B*s*L*h^2 * (1 + s/(6h) + V/(16*L*h)), f = 3, or 4 with recompute.
 *   MosaicML's, whose attention term is 2*L*d*s^2 a sequence and pass: used to check ours against published rows.
 */
#ifndef MUSTER_COMMON_FLOPS_H
#define MUSTER_COMMON_FLOPS_H

#include <stdbool.h>

#include "common/job.h"

double flops_model(const struct model_shape *shape, double tokens);                    /* PaLM, for MFU */
double flops_hardware(const struct model_shape *shape, double tokens, bool recompute); /* PaLM, for HFU */
double flops_megatron(const struct model_shape *shape, double tokens, bool recompute);

#endif
