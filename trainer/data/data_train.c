/* data_train.c - muster-data train-tokenizer: a SentencePiece vocabulary of texts. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/text.h"
#include "trainer/data/convert.h"
#include "trainer/data/data_tool.h"

/* The lines of texts, one after the other. */
struct line_reader {
    struct text_reader *reader;
    struct parcel_worker *worker;
    struct parcel parcel;
    size_t piece;           /* the next one of the parcel */
    const char *text, *end; /* what is left of the current one */
    struct error err;       /* its code is CODE_OK until reading fails */
};

static int next_piece(struct line_reader *lines)
{
    size_t bytes;
    int filled = 1;

    if (lines->piece == lines->parcel.piece_count) {
        parcel_clear(&lines->parcel);
        lines->piece = 0;
        filled = text_reader_fill(lines->reader, &lines->parcel, &lines->err);
        if (filled <= 0)
            return filled;
    }
    if (parcel_text(lines->worker, &lines->parcel, lines->piece++, &lines->text, &bytes, &lines->err) < 0)
        return -1;
    if (lines->parcel.bad_count > 0)
        return error_set(&lines->err, CODE_DATA, "%s", lines->parcel.bad[0].line);
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

    while (lines->err.code == CODE_OK) {
        while (lines->text < lines->end && *lines->text == '\n')
            lines->text++;
        if (lines->text < lines->end) {
            line = lines->text;
            *bytes = line_length(line, (size_t)(lines->end - line));
            lines->text += *bytes;
            return line;
        }
        if (next_piece(lines) <= 0)
            return NULL;
    }
    return NULL;
}

static int train_model(const struct text_inputs *texts, const char *key, struct tokenizer_training *training,
                       const char *folder, struct error *err)
{
    const struct encoding encoding = {.key = key, .type = INDEXED_U8, .utf8 = true};
    struct line_reader lines = {0};
    char *model = NULL;
    size_t bytes = 0;
    int status = -1;

    training->next_line = next_line;
    training->arg = &lines;
    if ((lines.reader = text_reader_create(texts, &encoding, err)) &&
        (lines.worker = parcel_worker_create(&encoding, err)))
        status = tokenizer_train(training, &model, &bytes, err);
    bar_erase(&data_bar);
    if (lines.err.code != CODE_OK) {
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

static int take_kind(const char *text, void *to)
{
    struct tokenizer_training *training = to;

    training->unigram = strcmp(text, "unigram") == 0;
    return training->unigram || strcmp(text, "bpe") == 0 ? -1 : option_fail("--kind %s: expected bpe or unigram", text);
}

int data_train_tokenizer(int argc, char **argv)
{
    struct tokenizer_training training = {.threads = data_processors()};
    struct text_inputs texts = {0};
    const char *out = NULL, *list = NULL, *key = NULL;
    const struct option_row rows[] = {
        {"out", OPTION_TEXT, .to = &out},
        {"files-from", OPTION_TEXT, .to = &list},
        {"key", OPTION_TEXT, .to = &key},
        {"vocab-size", OPTION_WHOLE, .to = &training.vocab_size, .least = 300, .most = 1 << 20},
        {"kind", OPTION_TAKE, .to = &training, .take = take_kind},
        {"workers", OPTION_WHOLE, .to = &training.threads, .least = 1, .most = CONVERT_WORKERS_MOST},
        {"raw", OPTION_FLAG, .to = &texts.raw},
        {0},
    };
    int code = options_read(rows, argc, argv, data_usage);
    struct error err;

    if (code >= 0)
        return code;
    if (optind == argc && !list)
        return option_fail("train-tokenizer: no text was given");
    if (!out)
        return option_fail("train-tokenizer: no --out FOLDER was given");
    if (!training.vocab_size)
        return option_fail("train-tokenizer: no --vocab-size was given");
    if (key && texts.raw)
        return option_fail("--key and --raw were both given");
    if (access(out, F_OK) == 0)
        return option_fail("%s exists; remove it or choose another folder", out);
    texts.json_input = key;
    code = data_read_texts(&texts, argv + optind, argc - optind, list);
    if (code == CODE_OK && train_model(&texts, key ? key : "text", &training, out, &err) < 0)
        code = error_report(&err);
    else if (code == CODE_OK)
        printf("%s: a %s vocabulary of %ld tokens\n", out, training.unigram ? "Unigram" : "BPE", training.vocab_size);
    data_free_texts(&texts);
    return code;
}
