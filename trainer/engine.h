/*
 * engine.h - one rank's part of a training run: device, mesh, model, optimizer state and data. muster-train
 * (run_start.c creates it) and the tests use it.
 *
 * One step: train.c calls engine_step (step.c); pipeline.c runs its micro-batches through model/model.c by the
 * schedule; the model passes the gradients of each unit (ckpt/models/units.h: a block, say) to parallel/zero_grads.c,
 * which reduces them over comm/; and parallel/zero_params.c applies AdamW of kernels/. `tie` connects the first and the
 * last stage of a model whose head is the token embedding; else it is a group of this rank alone.
 */
#ifndef MUSTER_TRAINER_ENGINE_H
#define MUSTER_TRAINER_ENGINE_H

#include <stdbool.h>
#include <stdint.h>

#include "ckpt/ckpt.h"
#include "common/job.h"
#include "kernels/kernels.h"
#include "trainer/comm/comm.h"
#include "trainer/data/batch.h"
#include "plan/rank_config.h"
#include "trainer/optim/optim.h"
#include "trainer/model/model.h"

/* What this rank's samples of each data set add to a loss. */
struct set_sums {
    int sets;
    double *losses;      /* [sets] sum over tokens, in nats */
    double *predictions; /* [sets] number of tokens predicted; follows `losses` in memory */
};

struct engine {
    const struct job *job; /* borrowed */
    struct comm *world;    /* borrowed */
    struct comm_fabric *fabric;
    /* up, down: the stages of this rank's pipeline, for activations and for their gradients (pipeline_create) */
    struct comm *dp, *tp, *up, *down, *tie;
    struct rank_config config;
    struct units *units;
    struct context context;
    struct device *dev;
    struct tp_group tp_group;
    struct zero *zero;
    struct model *model;
    struct pipeline *pipeline;
    struct blend *train, *valid; /* valid may be NULL */
    char *job_text;              /* of the job, with the data sets (data/blend.h): for checkpoints */
    struct batch *batch;         /* this rank's samples of a step, and an empty one */
    struct feed *feed;
    struct micro_batch *micro_batches;
    struct losses losses; /* of this rank's samples of a step; on other stages than the last 0 */
    struct set_sums train_sums, valid_sums;

    uint64_t claim; /* number of the run's claim on checkpoint.dir (struct ckpt_claim); 0: none */

    /* progress, stored in checkpoints */
    uint64_t step, consumed_samples, skipped_steps;
    uint64_t skipped_in_a_row; /* overflows that a smaller loss scale may fix are not counted */
    struct loss_scale loss_scale;
    struct spike spike;
    uint64_t loaded_seed; /* of the checkpoint that was loaded */
    struct job loaded;    /* the job that it was trained with; `text` is NULL if it has none that can be read */
    struct error
        changed; /* a data set was replaced since that checkpoint; or CODE_OK, perhaps with a text to be logged */
};

/* Why a step left the parameters as they were. */
enum skip { SKIP_NONE, SKIP_NOT_FINITE, SKIP_SPIKE };

/* Sums over global batches and all ranks: of the losses, in nats, and of what was predicted. */
struct loss_sums {
    double token_loss, predictions;
    double order, samples; /* BERT: the loss of sentence order, of each sample; for a GPT `order` is 0 */
};

/* Means over what was predicted, in nats; NaN where no token was. */
struct mean_loss {
    double all;   /* the minimized loss: that of the tokens; BERT: the sum of both means */
    double order; /* the loss of sentence order, which is part of it; 0 for a GPT */
};

struct mean_loss loss_mean(const struct loss_sums *sums);
void loss_add(struct loss_sums *to, const struct loss_sums *sums);

struct step_result {
    struct loss_sums sums; /* no predictions: with data.reset, all documents of the step have one token */
    struct mean_loss loss; /* of `sums` */
    double grad_norm;      /* before clipping */
    double lr;
    double loss_scale; /* of this step */
    int global_batch;  /* samples of this step */
    enum skip skip;
    bool gives_up; /* the step was not finite, and no smaller loss scale is left to try */
};

/*
 * Rank 0 has `bytes` bytes at *data, unless its `result` is -1. The other ranks get a malloc'ed copy, with a zero
 * behind it. Fails if any rank's `result` is -1. Collective.
 */
int engine_share(struct engine *engine, int result, void **data, size_t *bytes, struct error *err);

/* Allocates everything; parameters are unset until engine_initialize or engine_restore. Collective. */
struct engine *engine_create(const struct job *job, struct comm *world, struct error *err);
void engine_destroy(struct engine *engine);

/* A part of engine_create: opens the data sets of engine->job as engine->train and valid. Not collective. */
int engine_open_sets(struct engine *engine, struct error *err);

/* Initial weights from batch.seed, step 0. Collective. */
int engine_initialize(struct engine *engine, struct error *err);

/* One optimizer step on the next global batch. Collective. */
int engine_step(struct engine *engine, struct step_result *result, struct error *err);

/* Adds to *sums samples [first, first + size) of the validation data; at most a global batch. Collective. */
int engine_evaluate(struct engine *engine, uint64_t first, int size, struct loss_sums *sums, struct error *err);

/*
 * losses[sums->sets]: each data set's mean loss of a predicted token, in nats, over the samples of all ranks since the
 * previous call (or the engine's creation); NaN for none. engine->train_sums has the steps with a finite loss,
 * engine->valid_sums the evaluations. This call exchanges the sums; steps do not. Collective.
 */
int engine_set_losses(struct engine *engine, struct set_sums *sums, double *losses, struct error *err);

/*
 * ---- pipeline.c: one stage's part of a step ----
 *
 * Executes a schedule (plan/schedule.h), receives its chunks' inputs and sends their outputs. With one stage nothing is
 * sent.
 *
 * Activations go up and gradients come down on two separate communicators. The input of the next entry of the schedule
 * is received, and the output of the previous one sent, while an entry computes.
 *
 * up and down: two communicators of this rank's pipeline group. Rank i of both is stage i. most_micro_batches: the most
 * that a step has. Everything is borrowed.
 */
struct pipeline *pipeline_create(const struct job *job, struct comm *up, struct comm *down, struct model *model,
                                 struct zero *zero, int most_micro_batches, struct error *err);
void pipeline_destroy(struct pipeline *pipeline);

/*
 * Forward and backward of a step's micro-batches. If scales is NULL, only forward (validation). The last stage writes
 * the micro-batches' losses, if it has not failed; the device may be working still.
 */
int pipeline_run(struct pipeline *pipeline, const struct micro_batch *micro_batches, int count,
                 const struct loss_factors *scales, struct error *err);

/*
 * ---- restore.c ----
 *
 * Loads the newest checkpoint in `dir` that is whole, whatever mesh wrote it. Rank 0 reads the manifest. A rank opens
 * only shards whose bytes it needs. A block that several ranks of a node need is read by one of them, into memory of
 * the node of at most 512 MiB, which is freed before this returns. Newer checkpoints that are damaged
 * are skipped: rank 0 calls skipped with one line for each.
 *
 *   RESTORE_OWN      the run saves in this directory too: if an older checkpoint was loaded, the skipped ones are
 *   renamed
 *                    to step-N.broken, so that their steps can be saved again
 *   RESTORE_OTHER    another run's; dir may be a single checkpoint, .../step-N
 *   RESTORE_WEIGHTS  the same, or a Hugging Face folder (hf.h): the weights alone. engine->step is the checkpoint's, or
 *                    0; everything else is as after engine_initialize. Its model must be the job's in every key;
 *                    model.seq_length may differ where positions are not learned.
 *
 * Returns 1 when a checkpoint was loaded and 0 when there is none. -1 with
 *   CODE_DATA    all checkpoints are damaged;
 *   CODE_IO      one could not be read for another reason, or seems damaged while the file system fails (ckpt_probe);
 *   CODE_CONFIG  one is of another model, of an unknown format, or (RESTORE_OWN) of another seed, or of data that has
 *                changed (engine->changed, data.changed).
 * After CODE_IO and CODE_CONFIG no older checkpoint was tried.
 *
 * An engine without `zero` (--check) has only job, world, units and perhaps data sets: reads the manifests and the
 * progress alone, changes nothing on the disk and does not try again.
 */
enum restore_from { RESTORE_OWN, RESTORE_OTHER, RESTORE_WEIGHTS };
int engine_restore(struct engine *engine, const char *dir, enum restore_from from, void (*skipped)(const char *why),
                   struct error *err);

#endif
