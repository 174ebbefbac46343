/* muster-eval.c - scores a checkpoint's model: the perplexity of a text, or how often it guesses last words. */
#include <getopt.h>
#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/option.h"
#include "common/text.h"
#include "trainer/infer/last_word.h"

static const char usage[] =
    "usage: muster-eval [--stride N] [--tokenizer PATH] [--device D] CHECKPOINT TEXT\n"
    "       muster-eval --last-word [--tokenizer PATH] [--device D] CHECKPOINT LINES\n"
    "       muster-eval --version | --help\n"
    "\n"
    "Prints one line of JSON: the perplexity of a text by token and by word; or, with --last-word, how often the "
    "model\n"
    "guesses the last word of {\"text\": ...} lines (LAMBADA), and its perplexity. CHECKPOINT is a step-N directory, "
    "or a\n"
    "directory of these: then the newest that can be read. With --stride N, windows of the context's length begin N\n"
    "tokens apart, and each token is asked for once; without, windows do not overlap. D is auto (a GPU where there is\n"
    "one), cpu or cuda.\n";

struct eval_options {
    struct inference_options model;
    const char *file;
    long stride;
    bool last_word;
};

static void print_note(const char *line)
{
    fprintf(stderr, "muster-eval: %s\n", line);
}

/* ---- the bar ---- */

struct eval_bar {
    size_t total;
    double start;
};

static void draw_bar(size_t done, void *arg)
{
    const struct eval_bar *bar = arg;
    double elapsed = clock_monotonic() - bar->start, left = elapsed * (double)(bar->total - done) / (double)done;
    int filled = (int)(30 * done / bar->total);

    fprintf(stderr, "\r[%.*s%*s] %3zu%%, %.0f s left \033[K%s", filled, "##############################", 30 - filled,
            "", 100 * done / bar->total, ceil(left), done == bar->total ? "\n" : "");
}

/* With a bar, if standard error is a terminal. */
static int score_all(struct inference *f, struct span *spans, size_t count, struct error *err)
{
    struct decoder_sizes sizes = score_sizes(spans, count);
    struct eval_bar bar = {.total = count};

    if (inference_load(f, &sizes, "take a device with more memory", err) < 0)
        return -1;
    bar.start = clock_monotonic();
    return score_spans(f, &sizes, spans, count, isatty(STDERR_FILENO) ? draw_bar : NULL, &bar, err);
}

/* ---- the results ---- */

static int print_result(json_t *result, struct error *err)
{
    int code = json_dumpf(result, stdout, JSON_REAL_PRECISION(10)) < 0 || putchar('\n') == EOF
                   ? error_errno(err, CODE_IO, "cannot write to standard output")
                   : 0;

    json_decref(result);
    return code;
}

/* A number that JSON may not have (an infinite perplexity) is null. */
static json_t *finite_number(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

static json_t *begin_result(const struct inference *f, const struct eval_options *o, const char *task)
{
    json_t *result = json_object();

    json_object_set_new(result, "task", json_string(task));
    json_object_set_new(result, "checkpoint", json_string(ckpt_path(f->ckpt)));
    json_object_set_new(result, "file", json_string(o->file));
    json_object_set_new(result, "context", json_integer(f->job.model.seq_length));
    return result;
}

/* ---- perplexity ---- */

static int print_perplexity(const struct inference *f, const struct eval_options *o, const struct span *spans,
                            size_t count, const char *text, size_t bytes, struct error *err)
{
    json_t *result = begin_result(f, o, "perplexity");
    double words = (double)score_words(text, bytes), loss = 0, tokens = 0;

    for (size_t i = 0; i < count; i++) {
        loss += spans[i].loss;
        tokens += spans[i].length - spans[i].first;
    }
    json_object_set_new(result, "stride", json_integer(o->stride ? o->stride : f->job.model.seq_length));
    json_object_set_new(result, "tokens", json_integer((json_int_t)tokens));
    json_object_set_new(result, "loss", finite_number(loss / tokens));
    json_object_set_new(result, "perplexity", finite_number(exp(loss / tokens)));
    if (f->tokenizer) {
        json_object_set_new(result, "words", json_integer((json_int_t)words));
        json_object_set_new(result, "word_perplexity", finite_number(exp(loss / words)));
        json_object_set_new(result, "bytes", json_integer((json_int_t)bytes));
        json_object_set_new(result, "bits_per_byte", finite_number(loss / (double)bytes / log(2)));
    }
    return print_result(result, err);
}

static int eval_text(struct inference *f, const struct eval_options *o, const char *text, size_t bytes,
                     struct token_list *ids, struct error *err)
{
    struct span *spans;
    size_t count, before;
    int result;

    /* Without a stride the text's first token is asked for too, after the end of a document if there is one. */
    if (o->stride == 0 && f->end >= 0 && inference_append(ids, f->end, err) < 0)
        return -1;
    before = ids->count;
    if (inference_encode(f, o->file, text, bytes, ids, err) < 0)
        return -1;
    if (ids->count < 2)
        return error_set(err, CODE_DATA, "%s: %zu tokens; at least %zu needed", o->file, ids->count - before,
                         2 - before);
    count = score_windows(ids->ids, ids->count, f->job.model.seq_length, (int)o->stride, &spans, err);
    if (count == 0)
        return -1;
    result = score_all(f, spans, count, err);
    if (result == 0)
        result = print_perplexity(f, o, spans, count, text, bytes, err);
    free(spans);
    return result;
}

static int eval_perplexity(struct inference *f, const struct eval_options *o, struct error *err)
{
    struct token_list ids = {0};
    size_t bytes;
    char *text;
    int result;

    if (o->stride > f->job.model.seq_length)
        return error_set(err, CODE_USAGE, "--stride %ld is more than the context of %d tokens", o->stride,
                         f->job.model.seq_length);
    text = text_read_file(o->file, ENCODE_MOST, &bytes, err);
    result = text ? eval_text(f, o, text, bytes, &ids, err) : -1;

    free(ids.ids);
    free(text);
    return result;
}

/* ---- last words ---- */

static int print_last_words(const struct inference *f, const struct eval_options *o, const struct last_words *words,
                            struct error *err)
{
    json_t *result = begin_result(f, o, "last_word");
    double loss = 0, right = 0, count = (double)words->count;

    for (size_t i = 0; i < words->count; i++) {
        loss += words->spans[i].loss;
        right += words->spans[i].greedy;
    }
    json_object_set_new(result, "samples", json_integer((json_int_t)words->count));
    json_object_set_new(result, "accuracy", finite_number(right / count));
    json_object_set_new(result, "perplexity", finite_number(exp(loss / count)));
    return print_result(result, err);
}

static int eval_last_words(struct inference *f, const struct eval_options *o, struct error *err)
{
    struct last_words words;
    int result;

    if (!f->tokenizer)
        return error_set(err, CODE_USAGE, "--last-word needs words, so a tokenizer: name it with --tokenizer");
    if (last_words_read(&words, f, o->file, err) < 0)
        return -1;
    result = score_all(f, words.spans, words.count, err);
    if (result == 0)
        result = print_last_words(f, o, &words, err);
    last_words_free(&words);
    return result;
}

/* ---- the command line ---- */

/* Returns -1 to go on, otherwise the exit code. */
static int take_option(struct eval_options *o, int option, char **argv)
{
    switch (option) {
    case 'l':
        o->last_word = true;
        return -1;
    case 's':
        return text_to_long(optarg, 1, INT_MAX, &o->stride)
                   ? -1
                   : option_fail("--stride needs a number of tokens of at least 1, not %s", optarg);
    case 'z':
        o->model.tokenizer = optarg;
        return -1;
    case 'd':
        return inference_parse_device(optarg, &o->model.device)
                   ? -1
                   : option_fail("--device must be auto, cpu or cuda, not %s", optarg);
    default:
        return option_standard(option, argv, usage);
    }
}

static int parse_options(struct eval_options *o, int argc, char **argv)
{
    static const struct option longopts[] = {
        {"last-word", no_argument, NULL, 'l'},
        {"stride", required_argument, NULL, 's'},
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
    if (optind + 2 != argc)
        return option_fail("a checkpoint and a file are needed, and nothing else");
    if (o->last_word && o->stride)
        return option_fail("--stride is for the perplexity of a text, not for --last-word");
    o->model.checkpoint = argv[optind];
    o->file = argv[optind + 1];
    return -1;
}

int main(int argc, char **argv)
{
    struct eval_options options = {.model.note = print_note};
    struct inference inference = {0};
    struct error err = {0};
    int code = parse_options(&options, argc, argv);

    if (code >= 0)
        return error_output(code);
    code = CODE_OK;
    if (inference_open(&inference, &options.model, &err) < 0 ||
        (options.last_word ? eval_last_words(&inference, &options, &err)
                           : eval_perplexity(&inference, &options, &err)) < 0)
        code = error_report(&err);
    inference_close(&inference);
    return error_output(code);
}
