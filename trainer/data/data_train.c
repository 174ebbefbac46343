/* data_train.c - muster-data train-tokenizer: a SentencePiece vocabulary of texts. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/option.h"
#include "common/text.h"
#include "trainer/data/convert.h"
#include "trainer/data/data_tool.h"
#include "trainer/data/text_reader.h"

/* The lines of texts, one after the other. */
struct line_reader {
    struct text_reader *reader;
    struct parcel_worker *worker;
    struct parcel parcel;
    size_t piece;           /* the next one of the parcel */
    const char *text, *end; /* what is left of the current one */
    struct error err;
    bool failed;
    data_progress_function *progress;
};

static int next_piece(struct line_reader *lines, struct error *err)
{
    const struct bad_place *bad;
    size_t bytes;
    int filled = 1;

    if (lines->piece == lines->parcel.piece_count) {
        parcel_clear(&lines->parcel);
        lines->piece = 0;
        filled = text_reader_fill(lines->reader, &lines->parcel, err);
        if (lines->progress)
            lines->progress(text_reader_done(lines->reader), text_reader_total(lines->reader));
        if (filled <= 0)
            return filled;
    }
    if (parcel_text(lines->worker, &lines->parcel, lines->piece++, &lines->text, &bytes, err) < 0)
        return -1;
    if (lines->parcel.bad_count > 0) {
        bad = &lines->parcel.bad[0];
        return error_set(err, CODE_DATA, "%.200s:%" PRIu64 ", offset %" PRIu64 ": %s", bad->place.name, bad->place.line,
                         bad->place.offset, bad->what);
    }
    lines->end = lines->text + bytes;
    return 1;
}

/* Long lines are divided at a blank, or before a character. */
static size_t line_length(const char *text, size_t bytes)
{
    const char *end = memchr(text, '\n', bytes);
    size_t length = end ? (size_t)(end - text) : bytes;

    if (length <= TRAINING_LINE_MOST)
        return length;
    end = memrchr(text + 1, ' ', TRAINING_LINE_MOST - 1);
    if (end)
        return (size_t)(end - text);
    for (length = TRAINING_LINE_MOST; length > 1 && ((uint8_t)text[length] & 0xc0) == 0x80; length--)
        ;
    return length;
}

static const char *next_line(void *arg, size_t *bytes)
{
    struct line_reader *lines = arg;
    const char *line;

    while (!lines->failed) {
        while (lines->text < lines->end && *lines->text == '\n')
            lines->text++;
        if (lines->text < lines->end) {
            line = lines->text;
            *bytes = line_length(line, (size_t)(lines->end - line));
            lines->text += *bytes;
            return line;
        }
        switch (next_piece(lines, &lines->err)) {
        case 0:
            return NULL;
        case -1:
            lines->failed = true;
        }
    }
    return NULL;
}

static int train_model(const struct text_inputs *texts, const char *key, struct tokenizer_training *training,
                       const char *folder, struct error *err)
{
    const struct encoding encoding = {.key = key, .type = INDEXED_U8, .utf8 = true};
    struct line_reader lines = {.progress = data_progress()};
    char *model = NULL;
    size_t bytes = 0;
    int status = -1;

    training->next_line = next_line;
    training->arg = &lines;
    if ((lines.reader = text_reader_create(texts, &encoding, err)) &&
        (lines.worker = parcel_worker_create(&encoding, err)))
        status = tokenizer_train(training, &model, &bytes, err);
    data_end_progress();
    if (lines.failed) {
        *err = lines.err;
        status = -1;
    }
    if (status == 0)
        status = tokenizer_save_model(model, bytes, folder, err);
    free(model);
    parcel_free(&lines.parcel);
    parcel_worker_destroy(lines.worker);
    text_reader_destroy(lines.reader);
    return status;
}

/* ---- options ----------------------------------------------------------------------------------------------------- */

struct training_options {
    const char *out, *list, *key, *kind;
    long size, workers;
    bool raw;
};

static int check_options(const struct training_options *options, struct tokenizer_training *training)
{
    if (!options->out)
        return option_fail("train-tokenizer: no --out FOLDER was given");
    if (!options->size)
        return option_fail("train-tokenizer: no --vocab-size was given");
    if (options->kind && strcmp(options->kind, "bpe") != 0 && strcmp(options->kind, "unigram") != 0)
        return option_fail("--kind %s: expected bpe or unigram", options->kind);
    if (options->key && options->raw)
        return option_fail("--key and --raw were both given");
    if (access(options->out, F_OK) == 0)
        return option_fail("%s exists; remove it or choose another folder", options->out);
    training->unigram = options->kind && strcmp(options->kind, "unigram") == 0;
    training->vocab_size = (int)options->size;
    training->threads = options->workers ? (int)options->workers : data_processors();
    return CODE_OK;
}

static int run_training(char *const *given, int count, const struct training_options *options,
                        struct tokenizer_training *training)
{
    struct text_inputs texts = {.raw = options->raw, .json_input = options->key, .notice = data_notice};
    char **names;
    size_t total;
    struct error err;
    int code = data_read_names(given, count, options->list, &names, &total);

    if (code == CODE_OK) {
        texts.paths = names;
        texts.count = (int)total;
        if (train_model(&texts, options->key ? options->key : "text", training, options->out, &err) < 0)
            code = error_report(&err);
        else
            printf("%s: a %s vocabulary of %d tokens\n", options->out, training->unigram ? "Unigram" : "BPE",
                   training->vocab_size);
    }
    text_free_lines(names, total);
    return code;
}

int data_train_tokenizer(int argc, char **argv)
{
    struct training_options options = {0};
    struct tokenizer_training training = {0};
    const struct option_row rows[] = {
        {"out", OPTION_TEXT, .to = &options.out},
        {"files-from", OPTION_TEXT, .to = &options.list},
        {"key", OPTION_TEXT, .to = &options.key},
        {"vocab-size", OPTION_WHOLE, .to = &options.size, .least = 300, .most = 1 << 20},
        {"kind", OPTION_TEXT, .to = &options.kind},
        {"workers", OPTION_WHOLE, .to = &options.workers, .least = 1, .most = CONVERT_WORKERS_MOST},
        {"raw", OPTION_FLAG, .to = &options.raw},
        {0},
    };
    int code = options_read(rows, argc, argv, data_usage);

    if (code >= 0)
        return code;
    if (optind == argc && !options.list)
        return option_fail("train-tokenizer: no text was given");
    code = check_options(&options, &training);
    return code ? code : run_training(argv + optind, argc - optind, &options, &training);
}
