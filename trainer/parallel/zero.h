/*
 * zero.h - who holds what of the parameters, gradients and optimizer state, and when ranks exchange it. ZeRO (arXiv
 * 1910.02054) as one mechanism over units; the stage only decides what each call does.
 *
 *   stage | parameters                           | gradients                 | master, exp_avg, exp_avg_sq (fp32)
 *   0     | whole                                | whole, all-reduced        | whole
 *   1     | whole, all-gather after a step       | whole, reduce-scattered   | 1/dp
 *   2     | whole, all-gather after a step       | 1/dp, reduce-scattered    | 1/dp
 *   3     | 1/dp, gathered one unit ahead of use | 1/dp, reduce-scattered    | 1/dp
 *
 * Gradients are summed over ranks once a step, when the last micro-batch's are in (stages 0 and 1), or as each unit's
 * backward pass ends in every micro-batch (2 and 3, which is what lets them keep a shard only); parallel.reduce chooses
 * otherwise. Stages that reduce at the same moment compute the same bits. With a single micro-batch all do.
 *
 * Parameters are held in the type of the forward pass. The master copy is apart where that is 16 bits, or where the
 * optimizer is offloaded: then master, moments and the reduced gradients lie in host memory and the step runs there, a
 * bucket at a time (ZeRO-Offload, arXiv 2101.06840). Gradients go to the host beside the backward pass of what is still
 * to come, and new parameters to the device beside the step of the next bucket.
 *
 * The model's code brackets every use of a unit:
 *
 *     zero_gather(z, u)       before the first use of u's parameters in a forward or backward pass
 *     zero_param(z, u)        where they are, until
 *     zero_release(z, u)      after the last use
 *     zero_grad_begin(z, u)   an fp32 buffer for the gradients of u in this micro-batch; the caller overwrites it whole
 *     zero_grad_ready(z, u)   they are complete: added to the earlier micro-batches', and sent when it is time
 *
 * A micro-batch's gradients are computed alone and then added, never accumulated inside a product: with the comm's
 * fixed tree this makes 2n ranks with one micro-batch each give the bits of n ranks with two.
 */
#ifndef MUSTER_TRAINER_PARALLEL_ZERO_H
#define MUSTER_TRAINER_PARALLEL_ZERO_H

#include "ckpt/models/units.h"
#include "kernels/kernels.h"
#include "trainer/comm/comm.h"
#include "plan/footprint.h"
#include "trainer/parallel/initial_weights.h"

struct zero;

/* Everything that decides where things lie, and when they move. */
struct zero_config {
    int stage, dp, dp_rank;
    enum dtype compute; /* of parameters in the forward pass */
    enum dtype wire;    /* of gradients between ranks */
    bool offload;
    bool reduce_every;       /* every micro-batch, rather than once a step */
    bool many_micro_batches; /* some step may have more than one */
    bool tied;               /* the token embedding is held by another stage too */
    bool training;           /* false: parameters only, for the forward pass */
    bool discrete;           /* the device's memory is not host memory (device_is_host) */
    bool mirror; /* discrete: zero_pieces will be asked for, which takes host memory for all that it shows */
};

/* comms: dp, of config->dp ranks; tie, the first and the last stage's ranks with the same dp and tp place, or NULL
 * where the token embedding is not held twice; world, for norms. All is borrowed and must outlive the struct. */
struct zero_comms {
    struct comm *dp, *tie, *world;
};

struct zero *zero_create(struct device *dev, const struct zero_comms *comms, const struct units *units,
                         const struct zero_config *config, struct error *err);
void zero_destroy(struct zero *zero);

/* The bytes that zero_create will allocate for these units: the same arithmetic. Adds to *bytes. Pure. */
void zero_footprint(const struct units *units, const struct zero_config *config, struct footprint *bytes);

/* Parameters and moments to zero, padding included: what a checkpoint is read into. */
void zero_clear(struct zero *zero);

/* The same, then parameters to their initial values. Collective. */
int zero_initialize(struct zero *zero, const struct initial_weights *initial, struct error *err);

/* ---- in the model ------------------------------------------------------------------------------------------------ */

/*
 * The units that will be gathered, in order, until the next call: stage 3 fetches each while the one before is in use.
 * Borrowed until then. Every rank of the dp group must give the same.
 */
void zero_plan(struct zero *zero, const int *units, size_t count);

/* Failures stick and come out of zero_finish_gradients or zero_status. */
void zero_gather(struct zero *zero, int unit);
const void *zero_param(const struct zero *zero, int unit);
void zero_release(struct zero *zero, int unit);
float *zero_grad_begin(struct zero *zero, int unit);
void zero_grad_ready(struct zero *zero, int unit);
int zero_status(struct zero *zero, struct error *err);

/* ---- around a step ----------------------------------------------------------------------------------------------- */

/* Before each micro-batch's backward pass: whether it is the first, and the last, of the step. */
void zero_micro_batch(struct zero *zero, bool first, bool last);

/* Wait for the exchange begun by zero_grad_ready, and sum the tied embedding's two gradients. */
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

/* ---- for checkpoints and tests ----------------------------------------------------------------------------------- */

enum { ZERO_KINDS = 3 };
extern const char *const zero_kinds[ZERO_KINDS]; /* "param", "exp_avg", "exp_avg_sq" */

/*
 * This rank's part as checkpoint pieces, with the address of each kind of each piece: [npieces * ZERO_KINDS], kind
 * fastest. For saving, every element belongs to exactly one rank. For loading, a rank wants all the state that it
 * holds, and zero_loaded makes and spreads the parameters. Both arrays are malloc'ed.
 *
 * Addresses are of host memory. State that lies on a device is shown as it was when it was captured: by zero_capture,
 * or else now.
 */
int zero_pieces(struct zero *zero, bool saving, struct ckpt_piece **pieces, void ***addresses, size_t *npieces,
                struct error *err);
int zero_loaded(struct zero *zero, struct error *err);

/*
 * Begin to copy the state for the next zero_pieces, which waits for it. Forward and backward passes go on beside that,
 * and the next zero_step waits for it, on the device. False where the state is on the host already: then nothing is
 * captured, and zero_pieces shows what is there.
 */
bool zero_capture(struct zero *zero);

/*
 * The fp32 master parameters of a unit, from its element zero_state_first on: for tools that hold all of it. On a discrete
 * device it is where zero_loaded takes them from.
 */
float *zero_master(struct zero *zero, int unit);

/* The reduced gradient of a unit after zero_finish_gradients: whole in stage 0; else NULL. */
const float *zero_gradient(const struct zero *zero, int unit);

#endif
