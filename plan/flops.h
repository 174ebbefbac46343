/*
 * flops.h - the FLOPs of a training step, by the published conventions. Pure functions.
 *
 * N is model_parameters(), L, d, s and V as in struct model_shape. BERT's attention sees all tokens, a GPT's only
 * those before; all these conventions count attention as if it saw all, so they are the same for both.
 *
 *   PaLM (arXiv 2204.02311, appendix B): a token costs 6N + 12 L d s model FLOPs. MFU is that rate over the peak. HFU
 *     adds the recomputed FLOPs: full recompute is one more forward pass, 8N + 16 L d s together; selective recompute,
 *     of attention with its QKV product, is 4 L d s + 6 L d^2 more.
 *   Megatron's TFLOPs a GPU (arXiv 2104.04473, appendix; the log line since 2022):
 *     24 f B s L d^2 (1 + s / (6d) + V / (16 L d)), f = 3, or 4 with full recompute.
 *   Megatron before 2022: 2 f M a token, M the parameters of the layers.
 *   MosaicML (llm-foundry's tables): 6N + 4 L d s for MFU, 8N + 6 L d s for HFU with full recompute. Its columns
 *     "mfu_params" and "hfu_params" (mfu* and hfu*) leave attention out.
 */
#ifndef MUSTER_PLAN_FLOPS_H
#define MUSTER_PLAN_FLOPS_H

#include <stdbool.h>

#include "common/job.h"

double flops_model(const struct model_shape *shape, double tokens); /* PaLM, for MFU */

/* PaLM, for HFU, with all layers recomputed. With some of them, interpolate between flops_model and this. */
double flops_hardware(const struct model_shape *shape, double tokens, enum recompute recompute);

double flops_megatron(const struct model_shape *shape, double tokens, bool recompute);
double flops_megatron_before(const struct model_shape *shape, double tokens, bool recompute);
double flops_mosaicml(const struct model_shape *shape, double tokens, bool recompute, bool attention);

#endif
