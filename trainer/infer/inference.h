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

#include "ckpt/ckpt.h"
#include "common/job.h"
#include "tokenizer/tokenizer.h"
#include "trainer/infer/forward.h"

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
