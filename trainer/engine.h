/*
 * engine.h - one rank's part of a training run: device, mesh, model, optimizer state and data. muster-train and the
 * tests use it.
 *
 * One step: train.c calls engine_step (step.c); pipeline.c runs its micro-batches through model/model.c by the
 * schedule; the model passes each unit's gradients to parallel/zero.c, which reduces them over comm/ and applies AdamW
 * of kernels/.
 */
#ifndef MUSTER_TRAINER_ENGINE_H
#define MUSTER_TRAINER_ENGINE_H

#include <stdbool.h>
#include <stdint.h>

#include "ckpt/ckpt.h"
#include "common/job.h"
#include "common/mesh.h"
#include "kernels/kernels.h"
#include "trainer/comm/comm.h"
#include "trainer/data/batch.h"
#include "trainer/data/feed.h"
#include "trainer/rank_config.h"
#include "trainer/optim/optim.h"

struct engine {
    const struct job *job; /* borrowed */
    struct comm *world;    /* borrowed */
    struct comm_fabric *fabric;
    struct comm *dp, *tp, *up, *down, *tie;
    struct mesh mesh;
    struct mesh_place place;
    struct rank_config *config;
    struct device *dev;
    struct context context;
    struct tensor tensor;
    struct zero *zero;
    struct model *model;
    struct pipeline *pipeline;
    struct samples *train, *valid; /* valid may be NULL */
    struct batch *batch;           /* this rank's samples of a step, and an empty one */
    struct feed *feed;
    struct micro_batch *micro_batches;

    /* progress, stored in checkpoints */
    uint64_t step, consumed_samples, skipped_steps;
    uint64_t skipped_in_a_row; /* without overflows that a smaller loss scale may fix */
    struct loss_scale loss_scale;
    struct spike spike;
    uint64_t loaded_seed; /* of the checkpoint that was loaded */
    struct job loaded;    /* the job that it was trained with */
    bool is_loaded_known; /* the checkpoint has its job file */
};

/* Why a step left the parameters as they were. */
enum skip { SKIP_NONE, SKIP_NOT_FINITE, SKIP_SPIKE };

/* Means over the predictions of a global batch, in nats. */
struct mean_loss {
    double all;   /* the minimized loss: that of the tokens; BERT: the sum of both means */
    double order; /* the sentences' order's part of it; 0 for a GPT */
};

struct step_result {
    struct mean_loss loss;
    double grad_norm; /* before clipping */
    double lr;
    double loss_scale; /* of this step */
    int global_batch;  /* samples of this step */
    enum skip skip;
    bool gives_up; /* the step was not finite, and no smaller loss scale is left to try */
};

/* Allocates everything; parameters are unset until engine_initialize or engine_restore. Collective. */
struct engine *engine_create(const struct job *job, struct comm *world, struct error *err);
void engine_destroy(struct engine *engine);

/* The predicted memory of rank `rank` of this engine's mesh (prediction.h). */
int engine_predict_memory(const struct engine *engine, int rank, struct footprint *bytes, struct error *err);

/* Initial weights from batch.seed, step 0. Collective. */
int engine_initialize(struct engine *engine, struct error *err);

/* One optimizer step on the next global batch. Collective. */
int engine_step(struct engine *engine, struct step_result *result, struct error *err);

/* Mean loss over the global batch `batch` (from 0) of the validation data, in its order. Collective. */
int engine_evaluate(struct engine *engine, int batch, struct mean_loss *loss, struct error *err);

/* Fails with CODE_DATA, naming the rank, if ranks read different data. Collective. */
int engine_compare_ranks(struct engine *engine, struct error *err);

/*
 * Begins a save of the present state. On a device with discrete memory its copy to the host overlaps the next step:
 * true, and the caller passes *captured to engine_part_create or engine_save after that step. False if the device's
 * memory is the host's: then nothing was begun.
 */
bool engine_capture(struct engine *engine, struct ckpt_state *captured);

/* This rank's part of a save: its own shard, and the name of this attempt, which is the same on all ranks. */
struct engine_part {
    struct ckpt_save save; /* borrows from the engine and from this struct, which must not be moved */
    char attempt[CKPT_ATTEMPT_SIZE];
};

/* captured: from engine_capture; NULL: the present state. Collective. Must be destroyed also after a failure. */
int engine_part_create(struct engine *engine, const struct ckpt_state *captured, struct engine_part *part,
                       struct error *err);
void engine_part_destroy(struct engine_part *part);

/*
 * Writes a checkpoint to checkpoint.dir and commits it before returning; saver.h does that in the background.
 * Collective; every rank gets the same result. After a failure earlier checkpoints stand, and training can go on.
 */
int engine_save(struct engine *engine, const struct ckpt_state *captured, struct error *err);

/*
 * Load the newest checkpoint in `dir` that is whole, whatever topology wrote it. skipped is called on every rank with
 * one line for each newer one that is damaged; where the directory is `ours` to write, these are renamed to
 * step-N.broken once an older one was loaded, so that their steps can be saved again.
 *
 * Returns 1 when one was loaded and 0 when there is none at all. -1 with CODE_DATA when there are some and all are
 * damaged; CODE_IO when one could not be read for another reason, which is no reason to skip it; CODE_CONFIG when they
 * are of another model, or (where ours) of another seed. Where not ours, dir may be a single checkpoint, .../step-N.
 */
int engine_restore(struct engine *engine, const char *dir, bool ours, void (*skipped)(const char *why),
                   struct error *err);

/* Frees engine->loaded. */
void engine_forget_loaded(struct engine *engine);

#endif
