/*
 * inference.h - a GPT of a checkpoint, ready to continue a text: device, parameters and tokenizer. For muster-generate.
 *
 *     inference_open(&inference, &options, &err);          // reads the manifest and the tokenizer: quick
 *     inference_encode(&inference, text, bytes, &ids, &err);
 *     inference_load(&inference, room, &err);              // checks the memory, and reads the parameters
 *     forward_logits(inference.forward, ...);
 *     inference_close(&inference);
 *
 * The tokenizer is the first of these:
 *   1. options.tokenizer, which tokenizer_open takes;
 *   2. the directory "tokenizer" beside the step-N directories of the checkpoint, if there is one;
 *   3. "bytes", if the vocabulary has at most INFERENCE_BYTES tokens: the 257 tokens of bytes may be padded;
 *   4. none: then text is a list of ids, decimal and with blanks between them, in both directions.
 */
#ifndef MUSTER_TRAINER_INFER_INFERENCE_H
#define MUSTER_TRAINER_INFER_INFERENCE_H

#include <stdbool.h>
#include <stdint.h>

#include "ckpt/ckpt.h"
#include "common/job.h"
#include "kernels/kernels.h"
#include "tokenizer/tokenizer.h"

/* ---- forward.c --------------------------------------------------------------------------------------------------- */

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

/* ---- sampling.c -------------------------------------------------------------------------------------------------- */

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

/* ---- inference.c ------------------------------------------------------------------------------------------------- */

enum { INFERENCE_BYTES = 512 };

struct inference_options {
    const char *checkpoint; /* step-N, or a directory of these: then the newest that can be opened */
    const char *tokenizer;  /* NULL: as above */
    enum device_choice device;
    void (*note)(const char *line); /* gets what the user should know: a checkpoint that was skipped, no tokenizer */
};

struct inference {
    struct ckpt *ckpt;
    struct job job;
    bool is_job_known; /* it is to be destroyed */
    struct device *dev;
    struct tokenizer *tokenizer; /* NULL: none */
    struct encoder *encoder;
    int tokens;     /* ids from 0 to tokens - 1 may occur: those of the tokenizer that the model has */
    int32_t end;    /* of a document; -1: none */
    bool *is_token; /* [tokens]: some ids below that have no token */
    struct forward_pass *forward;
};

/*
 * *inference begins as zeros, and is to be closed also after a failure. CODE_DATA: no checkpoint, or not of a GPT, or
 * the tokenizer has more tokens than the model; CODE_CONFIG: the device is missing, or another release's checkpoint.
 */
int inference_open(struct inference *inference, const struct inference_options *options, struct error *err);
void inference_close(struct inference *inference);

/* Appends the ids of a text. CODE_DATA, with `name` in front, for what the model does not know. */
int inference_encode(struct inference *inference, const char *name, const char *text, size_t bytes,
                     struct token_list *ids, struct error *err);

/* Appends one id. */
int inference_append(struct token_list *ids, int32_t id, struct error *err);

/* Allocates for a text of `room` tokens and reads the parameters, once (forward_create). */
int inference_load(struct inference *inference, int room, struct error *err);

/* For options: "auto", "cpu" or "cuda". */
bool inference_parse_device(const char *text, enum device_choice *device);

#endif
