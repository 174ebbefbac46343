/*
 * inference.h - a GPT of a checkpoint continues a text: its forward pass, and the choice of the next token. For
 * muster-generate.
 */
#ifndef MUSTER_TRAINER_INFER_INFERENCE_H
#define MUSTER_TRAINER_INFER_INFERENCE_H

#include <stdbool.h>
#include <stdint.h>

#include "ckpt/ckpt.h"
#include "common/job.h"
#include "kernels/kernels.h"

/*
 * The forward pass of a whole GPT over one text, on one device: the parameters of a checkpoint of any mesh,
 * without gradients, optimizer state and groups of ranks.
 *
 * Each call computes the whole text again, `room` rows: fast enough to try a model, too slow to serve it.
 */

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

/*
 * The choice of the next token from its logits.
 *
 * The distribution is softmax(logits / temperature). top_k keeps the k likeliest tokens; top_p then the fewest of
 * these, from the likeliest on, whose sum is at least top_p of theirs (nucleus sampling; Holtzman et al., arXiv
 * 1904.09751). Of equal tokens, the one with the lower id counts as the likelier. These are the definitions of Hugging
 * Face's transformers.
 */

struct sampling {
    double temperature; /* 0: the likeliest token */
    int top_k;          /* 0: all */
    double top_p;       /* 1: all */
};

/*
 * The token for a uniform number in [0, 1). Tokens where allowed is false do not count. Overwrites logits [count].
 * order [count] is scratch memory. Logits that are not finite are never chosen, unless there are no others: then -1.
 */
int32_t sample_next(const struct sampling *sampling, float *logits, const bool *allowed, int count, double uniform,
                    int32_t *order);

#endif
