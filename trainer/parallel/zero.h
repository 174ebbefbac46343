/*
 * zero.h - who holds what of the parameters, gradients and optimizer state, and when ranks exchange it. ZeRO (arXiv
 * 1910.02054) as one mechanism over units; the stage only decides what each call does.
 *
 *   stage | parameters                  | gradients                                     | exp_avg, exp_avg_sq
 *   0     | whole                       | all-reduce when the last micro-batch's are in | whole
 *   1     | whole, all-gather after step| reduce-scatter, the same moment               | 1/dp
 *
 * The model's code brackets every use of a unit, so that further stages (and a GPU's streams) fit in without changing
 * it:
 *
 *     zero_gather(z, u)       before the first use of u's parameters in a forward or backward pass
 *     zero_param(z, u)        where they are, until
 *     zero_release(z, u)      after the last use
 *     zero_grad_begin(z, u)   a buffer for the gradients of u in this micro-batch; the caller overwrites all of it
 *     zero_grad_ready(z, u)   they are complete: added to the earlier micro-batches'; after the last one, on their way
 *
 * A micro-batch's gradients are computed alone and then added, never accumulated inside a product: with the comm's
 * fixed tree this makes 2n ranks with one micro-batch each give the bits of n ranks with two.
 */
#ifndef MUSTER_TRAINER_PARALLEL_ZERO_H
#define MUSTER_TRAINER_PARALLEL_ZERO_H

#include "kernels/kernels.h"
#include "trainer/comm/comm.h"
#include "trainer/model/units.h"

struct zero;

/* Everything is borrowed and must outlive the struct. training: false holds parameters only, for the forward pass. */
struct zero *zero_create(struct device *dev, struct comm *dp, const struct units *units, int stage, bool training,
                         struct error *err);
void zero_destroy(struct zero *zero);

/* Parameters and moments to zero, padding included: what a checkpoint is read into. */
void zero_clear(struct zero *zero);

/* The same, then parameters to their initial values. */
void zero_initialize(struct zero *zero, uint64_t seed);

/* ---- in the model ------------------------------------------------------------------------------------------------ */

/* Failures stick and come out of zero_finish_gradients. */
void zero_gather(struct zero *zero, int unit);
float *zero_param(const struct zero *zero, int unit);
void zero_release(struct zero *zero, int unit);
float *zero_grad_begin(struct zero *zero, int unit);
void zero_grad_ready(struct zero *zero, int unit);

/* ---- around a step ------------------------------------------------------------------------------------------------
 */

/* Before each micro-batch's forward pass: whether it is the first, and the last, of this rank's in the step. */
void zero_micro_batch(struct zero *zero, bool first, bool last);

/* Wait for the exchange begun by zero_grad_ready. */
int zero_finish_gradients(struct zero *zero, struct error *err);

/* Sum of squares of the global gradient; every parameter counts once. The same bits in every stage. */
int zero_grad_norm_squared(struct zero *zero, double *result, struct error *err);

/* Hyperparameters of one optimizer step; weight_decay is for tensors that decay. */
struct zero_step {
    double lr, beta1, beta2, eps, weight_decay;
    double grad_scale; /* clip coefficient, and 1/loss scale */
    uint64_t step;     /* 1 for the first */
};

int zero_step(struct zero *zero, const struct zero_step *step, struct error *err);

/* ---- for checkpoints and tests -------------------------------------------------------------------------------------
 */

enum { ZERO_KINDS = 3 };
extern const char *const zero_kinds[ZERO_KINDS]; /* "param", "exp_avg", "exp_avg_sq" */

/*
 * This rank's part as checkpoint pieces, with the address of each kind of each piece: [npieces * ZERO_KINDS], kind
 * fastest. For saving, every element belongs to exactly one rank. For loading, a rank wants all that it holds of the
 * moments, and zero_loaded spreads the parameters. Both arrays are malloc'ed.
 */
int zero_pieces(struct zero *zero, bool saving, struct ckpt_piece **pieces, void ***addresses, size_t *npieces,
                struct error *err);
int zero_loaded(struct zero *zero, struct error *err);

/* The reduced gradient of a unit (stage 0: whole; stage 1: this rank's shard valid only), after zero_finish_gradients.
 */
const float *zero_gradient(const struct zero *zero, int unit);

#endif
