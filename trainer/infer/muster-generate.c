/* muster-generate.c - continues a text with a checkpoint's model. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/option.h"
#include "common/philox.h"
#include "common/text.h"
#include "tokenizer/tokenizer.h"
#include "trainer/infer/inference.h"
#include "trainer/choose.h"

static const char usage[] =
    "usage: muster-generate [OPTION]... CHECKPOINT\n"
    "       muster-generate --version | --help\n"
    "\n"
    "Prints a prompt and its continuation. CHECKPOINT is a step-N directory, or a directory of these: then the newest\n"
    "that can be read.\n"
    "\n"
    "  --prompt TEXT      continue this text; default: a line break\n"
    "  --tokens N         generate at most N (200) tokens\n"
    "  --temperature T    0: the likeliest token each time; 1: the model's distribution; default 0.8\n"
    "  --top-k K          sample from the K likeliest tokens only\n"
    "  --top-p P          sample from the likeliest tokens only, whose probabilities sum to P\n"
    "  --seed S           the same seed gives the same text; default 1\n"
    "  --tokenizer PATH   take this tokenizer instead of the checkpoint's\n"
    "  --device D         auto (a GPU where there is one), cpu or cuda\n";

enum { BYTES_MOST = 512 }; /* tokens of a vocabulary that is taken for bytes: their 257 may be padded */

struct generate_options {
    const char *checkpoint, *tokenizer, *prompt;
    enum device_choice device;
    long tokens; /* most to generate */
    struct sampling sampling;
    long top_k, seed;
};

/* A text that grows, and what continues it. */
struct generator {
    const struct generate_options *o;
    struct ckpt *ckpt;
    struct job job;
    struct device *dev;
    struct tokenizer *tokenizer;
    struct encoder *encoder;
    int tokens;     /* ids from 0 to tokens - 1 may occur: those of the tokenizer that the model has */
    int32_t end;    /* of a document; -1: none */
    bool *is_token; /* [tokens]: some ids below that have no token */
    struct forward_pass *forward;
    struct token_list ids;
    size_t prompt; /* how many are the prompt's */
    struct decode_state decoding;
    float *logits;  /* [vocab] */
    int32_t *order; /* [vocab], for sampling */
};

/* ---- the checkpoint ---- */

/* The newest in the directory that can be opened. One of another release is not broken: no older one replaces it. */
static struct ckpt *open_newest(const struct generate_options *o, const uint64_t *steps, size_t count,
                                struct error *err)
{
    struct ckpt *ckpt = NULL;
    char at[JOB_PATH_SIZE + 64];

    for (size_t i = 0; i < count && !ckpt; i++) {
        ckpt_step_path(at, sizeof at, o->checkpoint, steps[i]);
        ckpt = ckpt_open(at, err);
        if (!ckpt && err->code == CODE_CONFIG)
            break;
        if (!ckpt && i + 1 < count)
            fprintf(stderr, "muster-generate: %s; trying the one before it\n", err->text);
    }
    return ckpt;
}

static struct ckpt *open_checkpoint(const struct generate_options *o, struct error *err)
{
    uint64_t *steps = NULL;
    size_t count = 0;
    struct ckpt *ckpt = NULL;
    char at[JOB_PATH_SIZE + 64];

    snprintf(at, sizeof at, "%s/manifest.json", o->checkpoint);
    if (access(at, F_OK) == 0 || ckpt_list(o->checkpoint, &steps, &count, err) < 0)
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

static int read_job(struct generator *g, struct error *err)
{
    if (job_parse(&g->job, ckpt_job_text(g->ckpt), ckpt_path(g->ckpt), NULL, 0, err) < 0)
        return -1;
    if (g->job.model.objective != OBJECTIVE_CAUSAL)
        return error_set(err, CODE_DATA, "%s is a checkpoint of a BERT, which does not predict the next token",
                         ckpt_path(g->ckpt));
    return 0;
}

/* ---- the tokenizer ---- */

/* Which ids may occur; and the end of a document. */
static int list_tokens(struct generator *g, const char *path, struct error *err)
{
    int vocab = g->job.model.vocab;
    bool bytes = strcmp(path, "bytes") == 0;

    g->tokens = tokenizer_size(g->tokenizer);
    if (g->tokens > vocab && !bytes)
        return error_set(err, CODE_DATA, "%s has %d tokens, and %s a vocabulary of %d: name its own with --tokenizer",
                         path, g->tokens, ckpt_path(g->ckpt), vocab);
    g->tokens = g->tokens < vocab ? g->tokens : vocab;
    g->end = tokenizer_special(g->tokenizer, SPECIAL_END);
    g->end = g->end < g->tokens ? g->end : -1;
    g->is_token = error_calloc((size_t)g->tokens, sizeof *g->is_token, err);
    for (int id = 0; g->is_token && id < g->tokens; id++) {
        size_t size;

        g->is_token[id] = id == g->end || tokenizer_token(g->tokenizer, id, &size) != NULL;
    }
    return g->is_token ? 0 : -1;
}

static int open_tokenizer(struct generator *g, struct error *err)
{
    const char *path = g->o->tokenizer;
    char beside[JOB_PATH_SIZE + 64];

    ckpt_tokenizer_path(beside, sizeof beside, g->o->checkpoint);
    if (!path && access(beside, F_OK) == 0)
        path = beside;
    if (!path && g->job.model.vocab <= BYTES_MOST)
        path = "bytes";
    if (!path)
        return error_set(err, CODE_DATA, "there is no %s: name the model's tokenizer by --tokenizer", beside);
    g->tokenizer = tokenizer_open(path, err);
    if (g->tokenizer && tokenizer_note(g->tokenizer))
        fprintf(stderr, "muster-generate: %s\n", tokenizer_note(g->tokenizer));
    g->encoder = g->tokenizer ? encoder_create(g->tokenizer, err) : NULL;
    return g->encoder ? list_tokens(g, path, err) : -1;
}

/* ---- the prompt ---- */

static int encode_prompt(struct generator *g, struct error *err)
{
    const char *prompt = g->o->prompt;

    if (encoder_encode(g->encoder, prompt, strlen(prompt), 0, &g->ids, err) < 0) {
        err->code = err->code == CODE_DATA ? CODE_USAGE : err->code;
        return error_prefix(err, "--prompt");
    }
    for (size_t i = 0; i < g->ids.count; i++)
        if (g->ids.ids[i] >= g->tokens)
            return error_set(err, CODE_USAGE,
                             "--prompt has token %d (%s); with model.vocab = %d the model knows 0 to %d", g->ids.ids[i],
                             tokenizer_kind(g->tokenizer), g->job.model.vocab, g->job.model.vocab - 1);
    g->prompt = g->ids.count;
    return g->prompt > 0 ? 0 : error_set(err, CODE_USAGE, "--prompt has no tokens");
}

/* ---- output ---- */

/* What is not UTF-8 is printed as U+FFFD. */
static int print_text(const char *text, size_t bytes, struct error *err)
{
    const uint8_t *at = (const uint8_t *)text, *end = at + bytes;
    char character[4];
    uint32_t code;

    while (at < end) {
        at += utf8_next(at, end, &code);
        fwrite(character, 1, (size_t)utf8_write(code, character), stdout);
    }
    return fflush(stdout) == 0 ? 0 : error_errno(err, CODE_IO, "cannot write to standard output");
}

/* more: other tokens follow, so an incomplete character is kept for them. */
static int print_tokens(struct generator *g, const int32_t *ids, size_t count, bool more, struct error *err)
{
    struct text_list text = {0};
    int result = tokenizer_decode(g->tokenizer, &g->decoding, ids, count, more, &text, err);

    if (result == 0)
        result = print_text(text.text, text.count, err);
    free(text.text);
    return result;
}

/* ---- generating ---- */

/* -1 as *id: the text ends here. */
static int next_token(struct generator *g, int32_t *id, struct error *err)
{
    struct philox_stream stream = {.seed = (uint64_t)g->o->seed, .site = philox_site("generate")};
    size_t seq = (size_t)g->job.model.seq_length, dropped = seq - seq / 2, count = g->ids.count;
    /* The first token of the context: each time it is full, its older half is dropped. */
    size_t start = count <= seq ? 0 : (count - seq + dropped - 1) / dropped * dropped;

    if (forward_logits(g->forward, g->ids.ids + start, (int)(g->ids.count - start), g->logits, err) < 0)
        return -1;
    *id = sample_next(&g->o->sampling, g->logits, g->is_token, g->tokens,
                      philox_uniform(stream, g->ids.count - g->prompt), g->order);
    if (*id < 0)
        return error_set(err, CODE_DATA, "%s: no logit is a finite number after %zu tokens: the model has NaN weights",
                         ckpt_path(g->ckpt), g->ids.count);
    if (*id == g->end)
        *id = -1;
    return 0;
}

static int generate_tokens(struct generator *g, struct error *err)
{
    struct token_list *ids = &g->ids;
    int32_t id = 0;

    for (long i = 0; i < g->o->tokens; i++) {
        if (next_token(g, &id, err) < 0)
            return -1;
        if (id < 0)
            break;
        if (error_reserve(&ids->ids, &ids->room, ids->count, 1, sizeof id, err) < 0)
            return -1;
        ids->ids[ids->count++] = id;
        if (print_tokens(g, &id, 1, true, err) < 0)
            return -1;
    }
    return print_tokens(g, NULL, 0, false, err);
}

static int load_model(struct generator *g, struct error *err)
{
    long seq = g->job.model.seq_length, prompt = (long)g->prompt, tokens = g->o->tokens;
    size_t vocab = (size_t)g->job.model.vocab;

    g->logits = error_calloc(vocab, sizeof *g->logits, err);
    g->order = error_calloc(vocab, sizeof *g->order, err);
    if (g->logits && g->order)
        g->forward = forward_create(
            g->dev, &g->job, (int)(prompt >= seq || tokens >= seq - prompt ? seq : prompt + tokens), g->ckpt, err);
    return g->forward ? 0 : -1;
}

static int generate_text(struct generator *g, struct error *err)
{
    g->ckpt = open_checkpoint(g->o, err);
    if (!g->ckpt || read_job(g, err) < 0 || open_tokenizer(g, err) < 0)
        return -1;
    g->dev = choose_device(g->o->device, err);
    if (!g->dev || encode_prompt(g, err) < 0 || print_text(g->o->prompt, strlen(g->o->prompt), err) < 0 ||
        load_model(g, err) < 0 || generate_tokens(g, err) < 0)
        return -1;
    putchar('\n');
    return 0;
}

static void free_generator(struct generator *g)
{
    forward_destroy(g->forward);
    device_destroy(g->dev);
    encoder_destroy(g->encoder);
    tokenizer_close(g->tokenizer);
    free(g->is_token);
    job_destroy(&g->job);
    ckpt_close(g->ckpt);
    free(g->ids.ids);
    free(g->logits);
    free(g->order);
}

/* ---- the command line ---- */

static int take_device(const char *text, void *device)
{
    static const char *const names[] = {[DEVICE_AUTO] = "auto", [DEVICE_CPU] = "cpu", [DEVICE_CUDA] = "cuda"};

    for (int i = 0; i < 3; i++)
        if (strcmp(text, names[i]) == 0) {
            *(enum device_choice *)device = (enum device_choice)i;
            return -1;
        }
    return option_fail("--device must be auto, cpu or cuda, not %s", text);
}

/* Returns -1 to go on, otherwise the exit code. */
static int parse_options(struct generate_options *o, int argc, char **argv)
{
    const struct option_row rows[] = {
        {"prompt", OPTION_TEXT, .to = &o->prompt},
        {"tokens", OPTION_WHOLE, .to = &o->tokens},
        {"top-k", OPTION_WHOLE, .to = &o->top_k, .least = 1, .most = INT_MAX},
        {"temperature", OPTION_REAL, .to = &o->sampling.temperature},
        {"top-p", OPTION_REAL, .to = &o->sampling.top_p, .most = 1},
        {"seed", OPTION_WHOLE, .to = &o->seed},
        {"tokenizer", OPTION_TEXT, .to = &o->tokenizer},
        {"device", OPTION_TAKE, .to = &o->device, .take = take_device},
        {0},
    };
    int code = options_read(rows, argc, argv, usage);

    if (code >= 0)
        return code;
    if (!*o->prompt)
        return option_fail("--prompt must not be empty");
    if (optind + 1 != argc)
        return option_fail(optind >= argc ? "no checkpoint was given" : "more than one checkpoint was given");
    o->sampling.top_k = (int)o->top_k;
    o->checkpoint = argv[optind];
    return -1;
}

int main(int argc, char **argv)
{
    struct generate_options options = {
        .prompt = "\n",
        .tokens = 200,
        .sampling = {.temperature = 0.8, .top_p = 1},
        .seed = 1,
    };
    struct generator generator = {.o = &options, .decoding.begun = true};
    struct error err = {0};
    int code = parse_options(&options, argc, argv);

    if (code >= 0)
        return error_output(code);
    code = generate_text(&generator, &err) < 0 ? error_report(&err) : CODE_OK;
    free_generator(&generator);
    return error_output(code);
}
