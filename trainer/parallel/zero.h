/*
 * zero.h - ZeRO (arXiv 1910.02054): the distribution of parameters, gradients and optimizer state over ranks, and their
 * exchange. All stages use the same calls on units; the stage decides what each call does.
 *
 * parallel.reduce says when gradients are summed over ranks. With "step": once a step, after the last micro-batch. With
 * "micro_batch": in every micro-batch, after each unit's backward pass. "step" is the default of stages 0 and 1,
 * "micro_batch" of 2 and 3 (common/job_check.c).
 *
 *         |                                      | gradients               | fp32: master,
 *   stage | parameters                           | "step"  | "micro_batch" | exp_avg, exp_avg_sq
 *   0     | whole                                | whole   | whole         | whole
 *   1, 2  | whole, all-gather after a step       | whole   | 1/dp          | 1/dp
 *   3     | 1/dp, gathered one unit ahead of use | whole   | 1/dp          | 1/dp
 *
 * Gradients are fp32. With precision.gradients = "compute" the accumulated gradient is kept in the type of the
 * forward pass: each addition is done in fp32, and its result is rounded.
 *
 * Stages 1 and 2 differ only in that default. With dp = 1 every stage is stage 0. The sum over ranks is a
 * reduce-scatter; in stage 0 an all-gather follows. Stages with the same parallel.reduce compute the same bits; with
 * one micro-batch a step, all stages do.
 *
 * Parameters are held in the type of the forward pass. There is a separate master copy if that type has 16 bits, or if
 * the optimizer is offloaded: then master, moments and the reduced gradients are in host memory and the step runs
 * there, STAGING_ELEMENTS at a time (ZeRO-Offload, arXiv 2101.06840). Gradients are copied to the host during the
 * backward pass of the remaining units, and new parameters to the device during the step of the next elements.
 *
 * The model's code (trainer/model/model.c) brackets every use of a unit:
 *
 *     zero_gather(z, u)       before the first use of u's parameters in a forward or backward pass
 *     zero_param(z, u)        the address of u's parameters; valid until zero_release
 *     zero_release(z, u)      after the last use of u's parameters
 *     zero_grad_begin(z, u)   an fp32 buffer for u's gradients of this micro-batch; the caller overwrites all of it
 *     zero_grad_ready(z, u)   u's gradients are complete: adds them to those of earlier micro-batches, and starts the
 *                             sum over ranks when it is due
 *
 * A micro-batch's gradients are computed separately and then added, never accumulated inside a product: with comm.h's
 * fixed tree, 2n ranks with one micro-batch each compute the same bits as n ranks with two.
 */
#ifndef MUSTER_TRAINER_PARALLEL_ZERO_H
#define MUSTER_TRAINER_PARALLEL_ZERO_H

#include "ckpt/models/units.h"
#include "common/job.h"
#include "kernels/kernels.h"
#include "plan/state.h"
#include "trainer/comm/comm.h"

struct zero;

/* dp: of config->dp ranks; tie: the ranks of the first and the last pipeline stage with the same dp and tp index, or
 * NULL if the token embedding is not held twice; world: for norms. All are borrowed and must outlive the struct. */
struct zero_comms {
    struct comm *dp, *tie, *world;
};

/* counts: of the units that this rank has (struct rank_config). units is borrowed. */
struct zero *zero_create(struct device *dev, const struct zero_comms *comms, const struct units *units,
                         const struct rank_units *counts, const struct zero_config *config, struct error *err);
void zero_destroy(struct zero *zero);

/* Sets all buffers to zero, padding included, before a checkpoint is read. */
void zero_clear(struct zero *zero);

/*
 * Initial weights are the same on every mesh: each element is a function of the seed and its index in the logical
 * tensor. The table of tensors (common/model/model_tensors.h) has their kinds.
 *
 * Writes elements [first, first + count) of a unit; padding is zero.
 */
void initial_weights(const struct job *job, const struct units *units, int unit, size_t first, size_t count,
                     float *out);

/* zero_clear, then sets the parameters to their initial values. Collective. */
int zero_initialize(struct zero *zero, const struct job *job, struct error *err);

/* ---- in the model ------------------------------------------------------------------------------------------------ */

/*
 * Sets the order in which units will be gathered, until the next zero_plan. ZeRO stage 3 prefetches the next one while
 * one is in use. trainer/pipeline.c calls it for each step. `units` is borrowed until the next call. All ranks of the
 * dp group must give the same list.
 */
void zero_plan(struct zero *zero, const int *units, size_t count);

/* The first failure is kept, and returned by zero_finish_gradients. */
void zero_gather(struct zero *zero, int unit);
const void *zero_param(const struct zero *zero, int unit);
void zero_release(struct zero *zero, int unit);
float *zero_grad_begin(struct zero *zero, int unit);
void zero_grad_ready(struct zero *zero, int unit);

/* ---- around a step ----------------------------------------------------------------------------------------------- */

/* Before each micro-batch's backward pass, by trainer/pipeline.c. first, last: of the step's micro-batches. */
void zero_begin_micro_batch(struct zero *zero, bool first, bool last);

/* Waits for the exchange begun by zero_grad_ready, and sums the tied embedding's two gradients. */
int zero_finish_gradients(struct zero *zero, struct error *err);

/* Sum of squares of the global gradient; every parameter counts once. The same bits in every ZeRO stage. */
int zero_grad_norm_squared(struct zero *zero, double *result, struct error *err);

/* One AdamW step. Only the scalars of *hyperparameters are used. weight_decay applies where the table of tensors says
 * so (common/model/model_tensors.h); elsewhere it is 0. */
int zero_step(struct zero *zero, const struct adamw *hyperparameters, struct error *err);

/* ---- for checkpoints --------------------------------------------------------------------------------------------- */

extern const char *const zero_kinds[ZERO_KINDS]; /* "param", "exp_avg", "exp_avg_sq" */

/*
 * This rank's pieces of a checkpoint, with the address of each kind of each piece: [npieces * ZERO_KINDS], kind
 * fastest. "param" is the fp32 master copy. For saving: the rank's 1/dp of each unit, in every ZeRO stage, so that all
 * ranks together have each element once. For loading: everything that the rank holds state for (ZeRO stage 0: whole
 * units); then zero_finish_load casts the master copy to the parameters and, in ZeRO stages 1 and 2, all-gathers them.
 * Both arrays are malloc'ed. The caller frees them, also after a failure.
 *
 * The addresses are in host memory. If the state is in device memory, they are in its mirror. For saving, the mirror
 * has the copy that zero_snapshot began (ZERO_SAVE_SNAPSHOT), or zero_pieces copies the present state. A snapshot that
 * is not saved needs no other call. For loading, the caller fills the mirror, and zero_finish_load copies it to the
 * device.
 */
enum zero_pieces_for { ZERO_LOAD, ZERO_SAVE_PRESENT, ZERO_SAVE_SNAPSHOT };
int zero_pieces(struct zero *zero, enum zero_pieces_for use, struct ckpt_piece **pieces, void ***addresses,
                size_t *npieces, struct error *err);
int zero_finish_load(struct zero *zero, struct error *err);

/*
 * Begins to copy the state for ZERO_SAVE_SNAPSHOT, which waits for it. Forward and backward passes overlap the copy;
 * the next zero_step waits for it, on the device. False if the state is in host memory: then nothing is copied, and
 * zero_pieces returns addresses of the state itself.
 */
bool zero_snapshot(struct zero *zero);

#endif
