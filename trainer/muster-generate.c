/* muster-generate.c - continues text with a checkpoint's model: one prompt as it comes, or a file of prompts. */
#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/option.h"
#include "common/text.h"
#include "trainer/infer/generator.h"
#include "trainer/infer/prompts.h"

enum { MOST_STOPS = 16 };

static const char usage[] =
    "usage: muster-generate [OPTION]... CHECKPOINT\n"
    "       muster-generate --version | --help\n"
    "\n"
    "Prints a prompt and its continuation. CHECKPOINT is a step-N directory, or a directory of these: then the newest\n"
    "that can be read.\n"
    "\n"
    "  --prompt TEXT      continue this text; default: a line break\n"
    "  --prompts FILE     continue each line of a file, and print a line of JSON for each\n"
    "  --batch N          of a file, continue at most N (16) prompts at once\n"
    "  --tokens N         generate at most N (200) tokens\n"
    "  --temperature T    0: the likeliest token each time; 1: the model's distribution; default 0.8\n"
    "  --top-k K          sample from the K likeliest tokens only\n"
    "  --top-p P          sample from the likeliest tokens only, whose probabilities sum to P\n"
    "  --seed S           the same seed gives the same text; default 1\n"
    "  --stop TEXT        end where this text would come; may be repeated\n"
    "  --stop-id ID       the same for a token, besides that of the end of a document\n"
    "  --tokenizer PATH   take this tokenizer instead of the checkpoint's\n"
    "  --device D         auto (a GPU where there is one), cpu or cuda\n";

struct generate_options {
    struct inference_options model;
    struct generator_options how;
    const char *prompt, *prompts; /* prompts: NULL, or the file */
    long batch;
    const char *stops[MOST_STOPS];
    int32_t stop_ids[MOST_STOPS];
};

static void print_note(const char *line)
{
    fprintf(stderr, "muster-generate: %s\n", line);
}

/* ---- output ---- */

/* What has been printed of one prompt's text. */
struct stream {
    size_t printed;
    struct text_list utf8;
};

static int print_text(struct stream *s, const char *text, size_t bytes, struct error *err)
{
    s->utf8.count = 0;
    if (text_append_utf8(&s->utf8, text, bytes, err) < 0)
        return -1;
    if (s->utf8.count && (fwrite(s->utf8.text, 1, s->utf8.count, stdout) < s->utf8.count || fflush(stdout) != 0))
        return error_errno(err, CODE_IO, "cannot write to standard output");
    return 0;
}

static int print_growth(const struct continuation *c, void *arg, struct error *err)
{
    struct stream *s = arg;
    size_t from = s->printed;

    s->printed = c->transcript.certain;
    return print_text(s, c->transcript.text.text + from, c->transcript.certain - from, err);
}

static json_t *utf8_string(const char *text, size_t bytes)
{
    struct text_list utf8 = {0};
    json_t *string = text_append_utf8(&utf8, text, bytes, NULL) < 0 ? NULL : json_stringn(utf8.text, utf8.count);

    free(utf8.text);
    return string ? string : json_string("");
}

/* {"prompt": ..., "text": ..., "ids": [...], "ended": "length"} */
static int print_line(const struct prompt *prompt, const struct continuation *c, struct error *err)
{
    static const char *const endings[] = {
        [ENDED_LENGTH] = "length", [ENDED_DOCUMENT] = "document", [ENDED_STOP] = "stop"};
    json_t *line = json_object(), *ids = json_array();
    int result;

    for (size_t i = c->prompt; i < c->ids.count; i++)
        json_array_append_new(ids, json_integer(c->ids.ids[i]));
    json_object_set_new(line, "prompt", utf8_string(prompt->text, prompt->bytes));
    json_object_set_new(line, "text", utf8_string(c->transcript.text.text, c->transcript.text.count));
    json_object_set_new(line, "ids", ids);
    json_object_set_new(line, "ended", json_string(endings[c->ending]));
    result = json_dumpf(line, stdout, JSON_COMPACT) < 0 || putchar('\n') == EOF
                 ? error_errno(err, CODE_IO, "cannot write to standard output")
                 : 0;
    json_decref(line);
    return result;
}

/* ---- generating ---- */

static int encode_prompt(struct inference *f, const char *name, const struct prompt *prompt, struct continuation *c,
                         struct error *err)
{
    if (inference_encode(f, name, prompt->text, prompt->bytes, &c->ids, err) < 0)
        return -1;
    c->prompt = c->ids.count;
    return c->prompt > 0 ? 0 : error_set(err, CODE_DATA, "%s has no tokens", name);
}

static int load_and_run(struct inference *f, const struct generator_options *how, struct continuation *texts,
                        size_t count, int batch, struct error *err)
{
    struct decoder_sizes sizes = generator_sizes(f, how, texts, count, batch);

    if (inference_load(f, &sizes, count > 1 ? "lower --batch or --tokens" : "lower --tokens", err) < 0)
        return -1;
    return generator_run(f, how, &sizes, texts, count, err);
}

static int generate_one(struct inference *f, const struct generate_options *o, struct error *err)
{
    const struct prompt prompt = {.text = (char *)o->prompt, .bytes = strlen(o->prompt)};
    struct stream stream = {0};
    struct continuation text = {0};
    struct generator_options how = o->how;
    int result = encode_prompt(f, "--prompt", &prompt, &text, err);

    if (result < 0 && err->code == CODE_DATA)
        err->code = CODE_USAGE;
    how.grown = print_growth;
    how.arg = &stream;
    if (result == 0)
        result = print_text(&stream, prompt.text, prompt.bytes, err);
    if (result == 0)
        result = load_and_run(f, &how, &text, 1, 1, err);
    if (result == 0)
        putchar('\n');
    continuation_free(&text);
    free(stream.utf8.text);
    return result;
}

static int generate_all(struct inference *f, const struct generate_options *o, const struct prompts *prompts,
                        struct continuation *texts, struct error *err)
{
    for (size_t i = 0; i < prompts->count; i++) {
        char name[1200];

        snprintf(name, sizeof name, "%.1000s:%zu", o->prompts, prompts->prompt[i].line);
        if (encode_prompt(f, name, &prompts->prompt[i], &texts[i], err) < 0)
            return -1;
    }
    if (load_and_run(f, &o->how, texts, prompts->count, (int)o->batch, err) < 0)
        return -1;
    for (size_t i = 0; i < prompts->count; i++)
        if (print_line(&prompts->prompt[i], &texts[i], err) < 0)
            return -1;
    return 0;
}

static int generate_file(struct inference *f, const struct generate_options *o, struct error *err)
{
    struct prompts prompts;
    struct continuation *texts;
    int result = prompts_read(&prompts, o->prompts, err);

    if (result < 0)
        return -1;
    texts = error_calloc(prompts.count, sizeof *texts, err);
    result = texts ? generate_all(f, o, &prompts, texts, err) : -1;
    for (size_t i = 0; texts && i < prompts.count; i++)
        continuation_free(&texts[i]);
    free(texts);
    prompts_free(&prompts);
    return result;
}

static int generate_text(struct inference *f, const struct generate_options *o, struct error *err)
{
    for (size_t i = 0; i < o->how.nstop_ids; i++)
        if (o->stop_ids[i] >= f->tokens)
            return error_set(err, CODE_USAGE, "--stop-id %d: the model's tokens are 0 to %d", o->stop_ids[i],
                             f->tokens - 1);
    return o->prompts ? generate_file(f, o, err) : generate_one(f, o, err);
}

/* ---- the command line ---- */

/* An unsigned number of 64 bits. */
static bool parse_seed(const char *text, uint64_t *value)
{
    char *end;

    errno = 0;
    *value = strtoul(text, &end, 10);
    return isdigit((unsigned char)*text) && !*end && errno == 0;
}

static int add_stop(struct generate_options *o, const char *text)
{
    if (!*text)
        return option_fail("--stop must not be empty");
    if (o->how.nstops == MOST_STOPS)
        return option_fail("--stop can be given %d times at most", MOST_STOPS);
    o->stops[o->how.nstops++] = text;
    return -1;
}

static int add_stop_id(struct generate_options *o, const char *text)
{
    long id;

    if (!text_to_long(text, 0, INT32_MAX, &id))
        return option_fail("--stop-id needs the number of a token, not %s", text);
    if (o->how.nstop_ids == MOST_STOPS)
        return option_fail("--stop-id can be given %d times at most", MOST_STOPS);
    o->stop_ids[o->how.nstop_ids++] = (int32_t)id;
    return -1;
}

static int sampling_option(struct generate_options *o, int option)
{
    long top_k;

    if (option == 't' && !text_to_double(optarg, 0, HUGE_VAL, &o->how.sampling.temperature))
        return option_fail("--temperature needs a number of at least 0, not %s", optarg);
    if (option == 's' && !parse_seed(optarg, &o->how.seed))
        return option_fail("--seed needs a whole number of at least 0, not %s", optarg);
    if (option == 'P' && (!text_to_double(optarg, 0, 1, &o->how.sampling.top_p) || o->how.sampling.top_p == 0))
        return option_fail("--top-p needs a number above 0 and at most 1, not %s", optarg);
    if (option != 'k')
        return -1;
    if (!text_to_long(optarg, 1, INT_MAX, &top_k))
        return option_fail("--top-k needs a whole number of at least 1, not %s", optarg);
    o->how.sampling.top_k = (int)top_k;
    return -1;
}

/* Returns -1 to go on, otherwise the exit code. */
static int take_option(struct generate_options *o, int option, char **argv)
{
    switch (option) {
    case 'p':
        o->prompt = optarg;
        return *optarg ? -1 : option_fail("--prompt must not be empty");
    case 'f':
        o->prompts = optarg;
        return -1;
    case 'b':
        return text_to_long(optarg, 1, GENERATOR_MOST, &o->batch)
                   ? -1
                   : option_fail("--batch needs a whole number from 1 to %d, not %s", GENERATOR_MOST, optarg);
    case 'n':
        return text_to_long(optarg, 0, LONG_MAX, &o->how.tokens)
                   ? -1
                   : option_fail("--tokens needs a whole number of at least 0, not %s", optarg);
    case 'x':
        return add_stop(o, optarg);
    case 'i':
        return add_stop_id(o, optarg);
    case 'z':
        o->model.tokenizer = optarg;
        return -1;
    case 'd':
        return inference_parse_device(optarg, &o->model.device)
                   ? -1
                   : option_fail("--device must be auto, cpu or cuda, not %s", optarg);
    case 't':
    case 's':
    case 'k':
    case 'P':
        return sampling_option(o, option);
    default:
        return option_standard(option, argv, usage);
    }
}

/* Returns -1 to go on, otherwise the exit code. */
static int parse_options(struct generate_options *o, int argc, char **argv)
{
    static const struct option longopts[] = {
        {"prompt", required_argument, NULL, 'p'},
        {"prompts", required_argument, NULL, 'f'},
        {"batch", required_argument, NULL, 'b'},
        {"tokens", required_argument, NULL, 'n'},
        {"top-k", required_argument, NULL, 'k'},
        {"temperature", required_argument, NULL, 't'},
        {"top-p", required_argument, NULL, 'P'},
        {"seed", required_argument, NULL, 's'},
        {"stop", required_argument, NULL, 'x'},
        {"stop-id", required_argument, NULL, 'i'},
        {"tokenizer", required_argument, NULL, 'z'},
        {"device", required_argument, NULL, 'd'},
        {"version", no_argument, NULL, 'V'},
        {"help", no_argument, NULL, 'h'},
        {0},
    };
    int option, code = -1;

    opterr = 0;
    while (code < 0 && (option = getopt_long(argc, argv, ":hV", longopts, NULL)) != -1)
        code = take_option(o, option, argv);
    if (code >= 0)
        return code;
    if (optind + 1 != argc)
        return option_fail(optind >= argc ? "no checkpoint was given" : "more than one checkpoint was given");
    if (o->prompt && o->prompts)
        return option_fail("--prompt and --prompts cannot be given together");
    o->prompt = o->prompt ? o->prompt : "\n";
    o->model.checkpoint = argv[optind];
    return -1;
}

int main(int argc, char **argv)
{
    struct generate_options options = {
        .model.note = print_note,
        .batch = GENERATOR_MOST,
        .how = {.tokens = 200, .sampling = {.temperature = 0.8, .top_p = 1}, .seed = 1},
    };
    struct inference inference = {0};
    struct error err = {0};
    int code = parse_options(&options, argc, argv);

    if (code >= 0)
        return error_output(code);
    options.how.stops = options.stops;
    options.how.stop_ids = options.stop_ids;
    code = CODE_OK;
    if (inference_open(&inference, &options.model, &err) < 0 || generate_text(&inference, &options, &err) < 0)
        code = error_report(&err);
    inference_close(&inference);
    return error_output(code);
}
