/*
 * zero.h - ZeRO (arXiv 1910.02054): the distribution of parameters, gradients and optimizer state over ranks, and their
 * exchange. All stages use the same calls on units; the stage decides what each call does.
 *
 *   stage | parameters                           | gradients                 | master, exp_avg, exp_avg_sq (fp32)
 *   0     | whole                                | whole, all-reduced        | whole
 *   1     | whole, all-gather after a step       | whole, reduce-scattered   | 1/dp
 *   2     | whole, all-gather after a step       | 1/dp, reduce-scattered    | 1/dp
 *   3     | 1/dp, gathered one unit ahead of use | 1/dp, reduce-scattered    | 1/dp
 *
 * Gradients are summed over ranks once a step, after the last micro-batch (stages 0 and 1), or after each unit's
 * backward pass in every micro-batch (2 and 3, so that they need to keep a shard only); parallel.reduce can choose
 * otherwise. Stages that reduce at the same moment compute the same bits. With a single micro-batch all do.
 *
 * Parameters are held in the type of the forward pass. There is a separate master copy if that type has 16 bits, or if
 * the optimizer is offloaded: then master, moments and the reduced gradients are in host memory and the step runs
 * there, a bucket at a time (ZeRO-Offload, arXiv 2101.06840). Gradients are copied to the host during the backward pass
 * of the remaining units, and new parameters to the device during the step of the next bucket.
 *
 * The model's code brackets every use of a unit:
 *
 *     zero_gather(z, u)       before the first use of u's parameters in a forward or backward pass
 *     zero_param(z, u)        their address, until
 *     zero_release(z, u)      after the last use
 *     zero_grad_begin(z, u) an fp32 buffer for the gradients of u in this micro-batch; the caller overwrites all of it
 *     zero_grad_ready(z, u) they are complete: adds them to those of earlier micro-batches, and sends them when due
 *
 * A micro-batch's gradients are computed separately and then added, never accumulated inside a product: with the comm's
 * fixed tree, 2n ranks with one micro-batch each compute the same bits as n ranks with two.
 */
#ifndef MUSTER_TRAINER_PARALLEL_ZERO_H
#define MUSTER_TRAINER_PARALLEL_ZERO_H

#include "ckpt/models/units.h"
#include "kernels/kernels.h"
#include "trainer/comm/comm.h"
#include "plan/footprint.h"
#include "trainer/parallel/initial_weights.h"

struct zero;

/* The options that decide where state is held, and when it is exchanged. */
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

/* dp: of config->dp ranks; tie: the ranks of the first and the last stage with the same dp and tp index, or NULL if the
 * token embedding is not held twice; world: for norms. All are borrowed and must outlive the struct. */
struct zero_comms {
    struct comm *dp, *tie, *world;
};

struct zero *zero_create(struct device *dev, const struct zero_comms *comms, const struct units *units,
                         const struct zero_config *config, struct error *err);
void zero_destroy(struct zero *zero);

/* The bytes that zero_create will allocate for these units: the same arithmetic. Adds to *bytes. Pure. */
void zero_footprint(const struct units *units, const struct zero_config *config, struct footprint *bytes);

/* Sets parameters and moments to zero, padding included, before a checkpoint is read. */
void zero_clear(struct zero *zero);

/* The same, then sets the parameters to their initial values. Collective. */
int zero_initialize(struct zero *zero, const struct initial_weights *initial, struct error *err);

/* ---- in the model ------------------------------------------------------------------------------------------------ */

/*
 * The units that will be gathered, in order, until the next call: stage 3 fetches each while the one before is in use.
 * Borrowed until then. Every rank of the dp group must give the same.
 */
void zero_plan(struct zero *zero, const int *units, size_t count);

/* The first failure is kept, and returned by zero_finish_gradients or zero_status. */
void zero_gather(struct zero *zero, int unit);
const void *zero_param(const struct zero *zero, int unit);
void zero_release(struct zero *zero, int unit);
float *zero_grad_begin(struct zero *zero, int unit);
void zero_grad_ready(struct zero *zero, int unit);
int zero_status(struct zero *zero, struct error *err);

/* ---- around a step ----------------------------------------------------------------------------------------------- */

/* Before each micro-batch's backward pass. first, last: it is the first, and the last, of the step. */
void zero_micro_batch(struct zero *zero, bool first, bool last);

/* Waits for the exchange begun by zero_grad_ready, and sums the tied embedding's two gradients. */
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
 * fastest. For saving, every element belongs to exactly one rank. For loading, the pieces are all state that the rank
 * holds; then zero_loaded derives the parameters and sends them to the other ranks. Both arrays are malloc'ed.
 *
 * Addresses are of host memory. For state on a device it is a copy: the one begun by zero_capture, or one made now.
 */
int zero_pieces(struct zero *zero, bool saving, struct ckpt_piece **pieces, void ***addresses, size_t *npieces,
                struct error *err);
int zero_loaded(struct zero *zero, struct error *err);

/*
 * Begins to copy the state for the next zero_pieces, which waits for it. Forward and backward passes overlap the copy;
 * the next zero_step waits for it, on the device. False if the state is in host memory: then nothing is copied, and
 * zero_pieces returns addresses of the state itself.
 */
bool zero_capture(struct zero *zero);

/*
 * The fp32 master parameters of a unit, from its element zero_state_first on: for tools that hold all of it. On a
 * discrete device it is where zero_loaded takes them from.
 */
float *zero_master(struct zero *zero, int unit);

/* The reduced gradient of a unit after zero_finish_gradients: whole in stage 0; else NULL. */
const float *zero_gradient(const struct zero *zero, int unit);

#endif
