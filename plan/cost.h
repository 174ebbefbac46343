/*
 * cost.h - the one cost model of a step: for placement, muster-plan, parallel.mesh = "auto" and benchmarks.
 *
 * A step is the schedule that the pipeline runs (plan/schedule.h), walked entry by entry: an entry starts when its
 * stage is free and its input has arrived. With P the product rate, A the attention rate, W the memory's bandwidth, R
 * the rows (tokens) of a micro-batch, d hidden, t = tp, e the bytes of an element:
 *
 *   product m x n x k   2 m n k / P + 0.7 e (m k + k n + m n) / W, the traffic that kernels do not hide. P falls by the
 *                       share of multiprocessors that the last round of tiles leaves idle, and to 0.74 where n or k of
 *                       a rank is no multiple of 64 (BigScience: hidden 14400 / 8). On CPUs only 2 m n k / P
 *   layer               the products of common/model/model_tensors.h; GPT: R x 3d/t x d, R x d x d/t, R x 4d/t x d,
 *                       R x d x 4d/t. The backward pass has two of each, full recompute one more but the last,
 *                       selective the first
 *   attention           fused (arXiv 2205.14135): 2 R (s + 380) d / t FLOPs causal, 4 R s d / t for BERT, at rate A;
 *                       the backward pass takes 2.9 times as long; CPUs: s + 160, 2.4. Else two batched products, and
 *                       `attention` bytes a score
 *   rows                stack.rows bytes at W (CPUs: at its row_bandwidth), over R / t rows where rows are
 *                       split (arXiv 2205.05198); else 10 of 34 bytes are over all R rows
 *   head                three products R x V/t x d, and LOGIT_BYTES a logit at row_bandwidth
 *   tp                  a layer's forward pass all-gathers and reduce-scatters R d twice (arXiv 1909.08053), so does
 *                       the backward pass, and full recompute. Where rows are split, the backward pass also gathers
 *                       the products' inputs again; these two and the reduce-scatters run beside its products. Full
 *                       recompute then has 3 exchanges, selective 1
 *   collective          n ranks, B bytes: (n - 1) / n B / bandwidth + min(n - 1, 2 log2 n) latency, at the level that
 *                       joins them; ranks of one node share its way out (NCCL's rings)
 *   dp                  a reduce-scatter of gradients and an all-gather of parameters a step (arXiv 1910.02054); stages
 *                       2 and 3 reduce every micro-batch (or as parallel.reduce says), stage 3 gathers in each forward
 *                       and backward pass. Hidden behind `overlap` of the pass's computing time
 *   pp                  R d / t elements between stages where rows are split, else R d
 *   optimizer           stack.optimizer bytes a parameter of this rank at W; on CPUs and offloaded: 32 bytes at
 *                       host_rate, and offloaded gradients and parameters over host_link
 */
#ifndef MUSTER_PLAN_COST_H
#define MUSTER_PLAN_COST_H

#include "common/job.h"
#include "common/mesh.h"
#include "plan/plan_machine.h"
#include "plan/state.h"

enum cost_part {
    COST_PRODUCTS,
    COST_ATTENTION,
    COST_ROWS,
    COST_HEAD, /* logits and losses: products too */
    COST_LAUNCH,
    COST_TP,
    COST_DP,
    COST_PIPELINE, /* bubble, imbalance and messages between stages */
    COST_OPTIMIZER,
    COST_OFFLOAD,
    COST_PARTS,
};
extern const char *const cost_names[COST_PARTS];

struct plan_cost {
    double seconds;          /* of a step */
    double part[COST_PARTS]; /* of the stage that computes longest; they add up to seconds */
};

/* The step of this job on this mesh. -1 with CODE_CONFIG if the job does not fit the mesh. */
int plan_cost(const struct job *job, const struct mesh *mesh, const struct plan_machine *machine,
              const struct stack *stack, struct plan_cost *cost, struct error *err);

/* What fused attention of one layer costs on one rank, of `batch` samples; backward: its backward pass. */
double cost_attention_flops(const struct model_shape *shape, double batch, bool gpu, bool backward);

/* What a rank sends in a step on each axis, in bytes along one edge of a ring or between two stages: the same walk on a
 * machine that computes in no time and whose links carry one byte a second. */
struct plan_traffic {
    double tp, dp, pp;
};
int plan_traffic(const struct job *job, const struct mesh *mesh, struct plan_traffic *traffic, struct error *err);

/* The bytes of a rank. `held` is what a monitor of the device shows, with the allocator's cache. `needed` is what must
 * fit on the device, and `host` in the host's memory; `host`, and on CPUs `needed`, include process_bytes. */
struct plan_memory {
    struct footprint footprint; /* of the largest stage, by the engine's arithmetic */
    double needed, held, host;
};
int plan_memory(const struct job *job, const struct mesh *mesh, const struct plan_machine *machine,
                const struct stack *stack, struct plan_memory *memory, struct error *err);

/* The rates by which published tables measure a step of `samples` in `seconds` on `ranks` ranks of that peak each
 * (flops_... below). */
struct plan_rates {
    double tokens, samples;                      /* a second */
    double tflops;                               /* a rank, Megatron's since 2022 */
    double tflops_before;                        /* Megatron's before 2022 */
    double mfu, hfu;                             /* PaLM's */
    double mosaic_mfu, mosaic_hfu;               /* MosaicML's with attention */
    double mosaic_mfu_params, mosaic_hfu_params; /* and without */
};
struct plan_rates plan_rates(const struct job *job, int samples, int ranks, double peak, double seconds);

double plan_machine_peak(const struct plan_machine *machine, enum dtype dtype);

/*
 * The FLOPs of a training step, by the published conventions (flops.c).
 *
 * N is model_parameters(), without an embedding that is not the head's too; L, d, s and V are as in struct model_shape.
 * BERT's attention sees all tokens, a GPT's only those before; these conventions count attention as if it saw all, so
 * they are the same for both.
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
double flops_model(const struct model_shape *shape, double tokens); /* PaLM, for MFU */

/* The same with half of a causal attention, as Megatron-LM counts since 2025. A window is not looked at by either. */
double flops_causal(const struct model_shape *shape, double tokens);

/* PaLM, for HFU, with all layers recomputed. With some of them, interpolate between flops_model and this. */
double flops_hardware(const struct model_shape *shape, double tokens, enum recompute recompute);

double flops_megatron(const struct model_shape *shape, double tokens, bool recompute);
double flops_megatron_before(const struct model_shape *shape, double tokens, bool recompute);
double flops_mosaicml(const struct model_shape *shape, double tokens, bool recompute, bool attention);

#endif
