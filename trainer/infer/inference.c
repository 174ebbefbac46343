#include "trainer/infer/inference.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "trainer/rank_config.h"

/* ---- the checkpoint ---- */

/* The newest in the directory that can be opened. One of another release is not broken: no older one replaces it. */
static struct ckpt *open_newest(const struct inference_options *o, const uint64_t *steps, size_t count,
                                struct error *err)
{
    struct ckpt *ckpt = NULL;
    char at[JOB_PATH_SIZE + 64], line[1200];

    for (size_t i = 0; i < count && !ckpt; i++) {
        ckpt_step_path(at, sizeof at, o->checkpoint, steps[i]);
        ckpt = ckpt_open(at, err);
        if (!ckpt && err->code == CODE_CONFIG)
            break;
        if (!ckpt && i + 1 < count) {
            snprintf(line, sizeof line, "%s; trying the one before it", err->text);
            o->note(line);
        }
    }
    return ckpt;
}

static struct ckpt *open_checkpoint(const struct inference_options *o, struct error *err)
{
    uint64_t *steps = NULL;
    size_t count = 0;
    struct ckpt *ckpt = NULL;
    char at[JOB_PATH_SIZE + 64];

    snprintf(at, sizeof at, "%s/manifest.json", o->checkpoint);
    if (access(at, F_OK) == 0)
        return ckpt_open(o->checkpoint, err);
    if (ckpt_list(o->checkpoint, &steps, &count, err) < 0)
        return ckpt_open(o->checkpoint, err);
    if (count == 0 && access(o->checkpoint, F_OK) < 0)
        error_errno(err, CODE_DATA, "%s", o->checkpoint);
    else if (count == 0)
        error_set(err, CODE_DATA,
                  "%s: no checkpoint (no manifest.json in it) and no directory of checkpoints (no step-* in it)",
                  o->checkpoint);
    else
        ckpt = open_newest(o, steps, count, err);
    free(steps);
    return ckpt;
}

static int read_job(struct inference *f, struct error *err)
{
    if (job_parse(&f->job, ckpt_job_text(f->ckpt), ckpt_path(f->ckpt), NULL, 0, err) < 0)
        return -1;
    f->is_job_known = true;
    if (f->job.model.kind != MODEL_GPT)
        return error_set(err, CODE_DATA, "%s is a checkpoint of a BERT, which does not predict the next token",
                         ckpt_path(f->ckpt));
    return 0;
}

/* ---- the tokenizer ---- */

/* Which ids may occur; and the end of a document. */
static int list_tokens(struct inference *f, const char *path, struct error *err)
{
    int vocab = f->job.model.vocab;
    bool bytes = strcmp(path, "bytes") == 0;

    f->tokens = f->tokenizer ? tokenizer_size(f->tokenizer) : vocab;
    if (f->tokens > vocab && !bytes)
        return error_set(err, CODE_DATA, "%s has %d tokens, and %s a vocabulary of %d: name its own with --tokenizer",
                         path, f->tokens, ckpt_path(f->ckpt), vocab);
    f->tokens = f->tokens < vocab ? f->tokens : vocab;
    f->end = f->tokenizer ? tokenizer_special(f->tokenizer, SPECIAL_END) : -1;
    f->end = f->end < f->tokens ? f->end : -1;
    f->is_token = error_calloc((size_t)f->tokens, sizeof *f->is_token, err);
    for (int id = 0; f->is_token && id < f->tokens; id++) {
        size_t size;

        f->is_token[id] = !f->tokenizer || id == f->end || tokenizer_token(f->tokenizer, id, &size) != NULL;
    }
    return f->is_token ? 0 : -1;
}

static int open_tokenizer(struct inference *f, const struct inference_options *o, struct error *err)
{
    const char *path = o->tokenizer;
    char line[256], beside[JOB_PATH_SIZE + 64];

    ckpt_tokenizer_path(beside, sizeof beside, o->checkpoint);
    if (!path && access(beside, F_OK) == 0)
        path = beside;
    if (!path && f->job.model.vocab <= INFERENCE_BYTES)
        path = "bytes";
    if (!path) {
        snprintf(line, sizeof line,
                 "no tokenizer beside the checkpoint, and none given by --tokenizer: text is token ids, 0 to %d",
                 f->job.model.vocab - 1);
        o->note(line);
        return list_tokens(f, "", err);
    }
    f->tokenizer = tokenizer_open(path, err);
    if (f->tokenizer && tokenizer_note(f->tokenizer))
        o->note(tokenizer_note(f->tokenizer));
    f->encoder = f->tokenizer ? encoder_create(f->tokenizer, err) : NULL;
    return f->encoder ? list_tokens(f, path, err) : -1;
}

/* ---- opening ---- */

int inference_open(struct inference *f, const struct inference_options *o, struct error *err)
{
    f->ckpt = open_checkpoint(o, err);
    if (!f->ckpt || read_job(f, err) < 0 || open_tokenizer(f, o, err) < 0)
        return -1;
    f->dev = choose_device(o->device, err);
    return f->dev ? 0 : -1;
}

void inference_close(struct inference *f)
{
    forward_destroy(f->forward);
    device_destroy(f->dev);
    encoder_destroy(f->encoder);
    tokenizer_close(f->tokenizer);
    free(f->is_token);
    if (f->is_job_known)
        job_destroy(&f->job);
    ckpt_close(f->ckpt);
}

int inference_load(struct inference *f, int room, struct error *err)
{
    f->forward = forward_create(f->dev, &f->job, room, f->ckpt, err);
    return f->forward ? 0 : -1;
}

/* ---- text ---- */

int inference_append(struct token_list *ids, int32_t id, struct error *err)
{
    if (error_reserve(&ids->ids, &ids->room, ids->count, 1, sizeof id, err) < 0)
        return -1;
    ids->ids[ids->count++] = id;
    return 0;
}

/* "17 4 1002" */
static int parse_ids(const struct inference *f, const char *name, const char *text, size_t bytes,
                     struct token_list *ids, struct error *err)
{
    for (size_t i = 0; i < bytes;) {
        size_t begin;
        long id = 0;

        while (i < bytes && isspace((unsigned char)text[i]))
            i++;
        begin = i;
        while (i < bytes && isdigit((unsigned char)text[i]) && id < f->tokens)
            id = 10 * id + (text[i++] - '0');
        if (begin == bytes)
            break;
        if (i == begin || (i < bytes && !isspace((unsigned char)text[i])) || id >= f->tokens)
            return error_set(err, CODE_DATA,
                             "%s: byte %zu: no token id; without a tokenizer the text must be ids from 0 to %d with "
                             "blanks between them",
                             name, begin, f->tokens - 1);
        if (inference_append(ids, (int32_t)id, err) < 0)
            return -1;
    }
    return 0;
}

int inference_encode(struct inference *f, const char *name, const char *text, size_t bytes, struct token_list *ids,
                     struct error *err)
{
    size_t first = ids->count;

    if (!f->tokenizer)
        return parse_ids(f, name, text, bytes, ids, err);
    if (encoder_encode(f->encoder, text, bytes, 0, ids, err) < 0)
        return error_prefix(err, "%s", name);
    for (size_t i = first; i < ids->count; i++)
        if (ids->ids[i] >= f->tokens)
            return error_set(err, CODE_DATA, "%s has token %d (%s); with model.vocab = %d the model knows 0 to %d",
                             name, ids->ids[i], tokenizer_kind(f->tokenizer), f->job.model.vocab,
                             f->job.model.vocab - 1);
    return 0;
}

bool inference_parse_device(const char *text, enum device_choice *device)
{
    static const char *const names[] = {[DEVICE_AUTO] = "auto", [DEVICE_CPU] = "cpu", [DEVICE_CUDA] = "cuda"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(text, names[i]) == 0) {
            *device = (enum device_choice)i;
            return true;
        }
    return false;
}
