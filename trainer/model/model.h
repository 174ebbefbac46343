/*
 * model.h - this rank's chunks of a model: one micro-batch forward and backward. zero.h stores parameters and
 * gradients, kernels.h has the arithmetic, and pipeline.c exchanges inputs and outputs between stages.
 *
 * Without a pipeline there is one chunk with the whole model. With one, a stage has a chunk, which is a run of layers
 * (several chunks with virtual stages); the first chunk of the model begins with the embedding, the last ends with the
 * head.
 */
#ifndef MUSTER_TRAINER_MODEL_MODEL_H
#define MUSTER_TRAINER_MODEL_MODEL_H

#include "plan/activations.h"
#include "trainer/model/context.h"
#include "trainer/model/head.h"
#include "trainer/parallel/zero.h"

struct model;

/* Everything is borrowed. */
struct model *model_create(const struct context *context, const struct units *units, struct zero *zero,
                           const struct model_config *config, struct error *err);
void model_destroy(struct model *model);

/*
 * One of chunk_inputs, and of chunk_outputs, buffers [local rows, d] of a chunk. mb_index is the micro-batch's number
 * in the step. The embedding writes the first chunk's input; the other chunks' inputs are received.
 */
void *model_input(struct model *model, int chunk, int mb_index);
void *model_output(struct model *model, int chunk, int mb_index);

/* The bytes of a chunk's input for that number of samples; its output has as many. */
size_t model_stream_bytes(const struct model *model, int samples);

/* MODEL_GRADIENTS buffers [local rows, d]. Each holds the gradient of an output, which model_backward replaces by that
 * of the input. */
void *model_gradient(struct model *model, int index);

/* All layers of a chunk. Before them the embedding, if the chunk has it. */
void model_forward(struct model *model, int chunk, int mb_index, const struct micro_batch *mb);

/*
 * After model_forward of the same micro-batch: replaces dx, the gradient of the chunk's output, by that of its input.
 * If the chunk has the head, this runs the head's forward pass too: dx is then only written, and mb->losses get the
 * micro-batch's. Passes the units' gradients to zero_grad_ready, from the last unit to the first.
 */
void model_backward(struct model *model, int chunk, int mb_index, const struct micro_batch *mb,
                    const struct loss_factors *scales, void *dx);

/* The losses alone, after model_forward of the last chunk. */
void model_losses(struct model *model, int mb_index, const struct micro_batch *mb);

/* After model_forward, without a pipeline: the logits [vocab] of what follows token `position` of sample `sample`. */
void model_logits(struct model *model, const struct micro_batch *mb, int sample, int position, float *out);

/* The units that a forward pass, a backward pass and model_losses will gather, in order, for zero_plan. `units` has room
 * for all units of the model; returns their number. */
size_t model_forward_uses(const struct model *model, int chunk, int *units);
size_t model_backward_uses(const struct model *model, int chunk, int *units);
size_t model_losses_uses(const struct model *model, int *units);

#endif
