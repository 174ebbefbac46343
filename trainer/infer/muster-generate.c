/* muster-generate.c - continues a text with a checkpoint's model. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/option.h"
#include "common/philox.h"
#include "common/text.h"
#include "trainer/infer/inference.h"

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

struct generate_options {
    struct inference_options model;
    const char *prompt;
    long tokens; /* most to generate */
    struct sampling sampling;
    long top_k, seed;
};

/* A text that grows. */
struct generator {
    struct inference *f;
    const struct generate_options *o;
    struct token_list ids;
    size_t prompt; /* how many are the prompt's */
    struct decode_state decoding;
    float *logits;  /* [vocab] */
    int32_t *order; /* [vocab], for sampling */
};

static void print_note(const char *line)
{
    fprintf(stderr, "muster-generate: %s\n", line);
}

/* ---- output ---- */

/* What is not UTF-8 is printed as U+FFFD. */
static int print_text(const char *text, size_t bytes, struct error *err)
{
    for (size_t i = 0; i < bytes;) {
        char character[5] = {0}; /* zero-terminated, since the text is not */
        size_t length;

        memcpy(character, text + i, bytes - i < 4 ? bytes - i : 4);
        length = character[0] ? text_utf8_length(character) : 1;
        fwrite(length ? character : "\xef\xbf\xbd", 1, length ? length : 3, stdout);
        i += length ? length : 1;
    }
    return fflush(stdout) == 0 ? 0 : error_errno(err, CODE_IO, "cannot write to standard output");
}

/* Without a tokenizer, a blank and the id. more: other tokens follow, so an incomplete character is kept for them. */
static int print_tokens(struct generator *g, const int32_t *ids, size_t count, bool more, struct error *err)
{
    struct text_list text = {0};
    int result = 0;

    if (!g->f->tokenizer)
        for (size_t i = 0; i < count; i++)
            printf(" %d", ids[i]);
    else
        result = tokenizer_decode(g->f->tokenizer, &g->decoding, ids, count, more ? DECODE_MORE : 0, &text, err);
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
    size_t seq = (size_t)g->f->job.model.seq_length, dropped = seq - seq / 2, count = g->ids.count;
    /* The first token of the context: each time it is full, its older half is dropped. */
    size_t start = count <= seq ? 0 : (count - seq + dropped - 1) / dropped * dropped;

    if (forward_logits(g->f->forward, g->ids.ids + start, (int)(g->ids.count - start), g->logits, err) < 0)
        return -1;
    *id = sample_next(&g->o->sampling, g->logits, g->f->is_token, g->f->tokens,
                      philox_uniform(stream, g->ids.count - g->prompt), g->order);
    if (*id < 0)
        return error_set(err, CODE_DATA, "%s: no logit is a finite number after %zu tokens: the model has NaN weights",
                         ckpt_path(g->f->ckpt), g->ids.count);
    if (*id == g->f->end)
        *id = -1;
    return 0;
}

static int generate_tokens(struct generator *g, struct error *err)
{
    int32_t id = 0;

    for (long i = 0; i < g->o->tokens; i++) {
        if (next_token(g, &id, err) < 0)
            return -1;
        if (id < 0)
            break;
        if (inference_append(&g->ids, id, err) < 0 || print_tokens(g, &id, 1, true, err) < 0)
            return -1;
    }
    return print_tokens(g, NULL, 0, false, err);
}

static int encode_prompt(struct generator *g, struct error *err)
{
    const char *prompt = g->o->prompt;

    if (inference_encode(g->f, "--prompt", prompt, strlen(prompt), &g->ids, err) < 0) {
        err->code = err->code == CODE_DATA ? CODE_USAGE : err->code;
        return -1;
    }
    g->prompt = g->ids.count;
    return g->prompt > 0 ? 0 : error_set(err, CODE_USAGE, "--prompt has no tokens");
}

static int load_model(struct generator *g, struct error *err)
{
    long seq = g->f->job.model.seq_length, prompt = (long)g->prompt;
    size_t vocab = (size_t)g->f->job.model.vocab;

    g->logits = error_calloc(vocab, sizeof *g->logits, err);
    g->order = error_calloc(vocab, sizeof *g->order, err);
    if (!g->logits || !g->order)
        return -1;
    return inference_load(g->f, prompt >= seq || g->o->tokens >= seq - prompt ? (int)seq : (int)(prompt + g->o->tokens),
                          err);
}

static int generate_text(struct inference *f, const struct generate_options *o, struct error *err)
{
    struct generator g = {.f = f, .o = o, .decoding.begun = true};
    int result = -1;

    if (encode_prompt(&g, err) == 0 && print_text(o->prompt, strlen(o->prompt), err) == 0 && load_model(&g, err) == 0)
        result = generate_tokens(&g, err);
    if (result == 0)
        putchar('\n');
    free(g.ids.ids);
    free(g.logits);
    free(g.order);
    return result;
}

/* ---- the command line ---- */

static int take_device(const char *text, void *device)
{
    return inference_parse_device(text, device) ? -1 : option_fail("--device must be auto, cpu or cuda, not %s", text);
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
        {"tokenizer", OPTION_TEXT, .to = &o->model.tokenizer},
        {"device", OPTION_TAKE, .to = &o->model.device, .take = take_device},
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
    o->model.checkpoint = argv[optind];
    return -1;
}

int main(int argc, char **argv)
{
    struct generate_options options = {
        .model.note = print_note,
        .prompt = "\n",
        .tokens = 200,
        .sampling = {.temperature = 0.8, .top_p = 1},
        .seed = 1,
    };
    struct inference inference = {0};
    struct error err = {0};
    int code = parse_options(&options, argc, argv);

    if (code >= 0)
        return error_output(code);
    code = CODE_OK;
    if (inference_open(&inference, &options.model, &err) < 0 || generate_text(&inference, &options, &err) < 0)
        code = error_report(&err);
    inference_close(&inference);
    return error_output(code);
}
