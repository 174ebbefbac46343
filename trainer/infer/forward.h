/*
 * forward.h - the forward pass of a whole GPT over one text, on one device: the parameters of a checkpoint of any mesh,
 * without gradients, optimizer state and groups of ranks.
 *
 * Each call computes the whole text again, `room` rows: fast enough to try a model, too slow to serve it.
 */
#ifndef MUSTER_TRAINER_INFER_FORWARD_H
#define MUSTER_TRAINER_INFER_FORWARD_H

#include "ckpt/ckpt.h"
#include "common/job.h"
#include "kernels/kernels.h"

struct forward_pass;

/*
 * Allocates for texts of at most `room` tokens (at most seq_length) and reads the parameters from the checkpoint, which
 * must have exactly the tensors of the job's model. Parameters and activations have the type precision.compute. device
 * and job are borrowed. NULL with CODE_IO and the bytes needed if the memory is not there, and the errors of ckpt_read.
 */
struct forward_pass *forward_create(struct device *device, const struct job *job, int room, struct ckpt *ckpt,
                                    struct error *err);
void forward_destroy(struct forward_pass *forward);

/* logits [vocab]: of what follows the last of these `count` tokens. Waits for the device. */
int forward_logits(struct forward_pass *forward, const int32_t *tokens, int count, float *logits, struct error *err);

#endif
