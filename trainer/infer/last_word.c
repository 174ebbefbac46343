#include "trainer/infer/last_word.h"

#include <ctype.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/foreign/foreign_json.h"
#include "common/text.h"

enum { MOST_BYTES = 1 << 30 };

/* Encodes the text and finds the tokens of its last word. name: file and line. */
static int read_text(struct inference *f, const char *name, const char *text, size_t bytes, struct token_list *whole,
                     struct span *span, struct error *err)
{
    struct token_list before = {0};
    const char *blank = memrchr(text, ' ', bytes);
    size_t context = blank ? (size_t)(blank - text) : 0, most = (size_t)f->job.model.seq_length + 1, kept;
    int result;

    if (blank && context + 1 == bytes)
        return error_set(err, CODE_DATA, "%s: \"text\" ends with a blank, where its last word should be", name);
    while (context > 0 && isspace((unsigned char)text[context - 1]))
        context--;
    if (context == 0)
        return error_set(err, CODE_DATA, "%s: \"text\" has fewer than two words", name);
    result = inference_encode(f, name, text, context, &before, err);
    if (result == 0)
        result = inference_encode(f, name, text, bytes, whole, err);
    free(before.ids);
    if (result < 0)
        return -1;
    kept = whole->count < most ? whole->count : most;
    if (before.count >= whole->count || whole->count - before.count >= kept)
        return error_set(err, CODE_DATA, "%s: the last word has %zu of %zu tokens; 1 to %d can be asked for", name,
                         before.count < whole->count ? whole->count - before.count : 0, whole->count,
                         f->job.model.seq_length);
    *span = (struct span){.tokens = whole->ids + (whole->count - kept),
                          .length = (int)kept,
                          .first = (int)(kept - (whole->count - before.count))};
    return 0;
}

static int read_object(struct inference *f, const char *name, const char *line, size_t bytes, struct token_list *whole,
                       struct span *span, struct error *err)
{
    json_error_t why;
    json_t *object = foreign_json_load(line, bytes, JSON_ALLOW_NUL, &why);
    const json_t *text = json_object_get(object, "text");
    int result;

    if (!object)
        result =
            error_set(err, CODE_DATA, "%s: column %d: %s; {\"text\": \"...\"} is expected", name, why.column, why.text);
    else if (!json_is_string(text))
        result = error_set(err, CODE_DATA, "%s: no string \"text\"; {\"text\": \"...\"} is expected", name);
    else
        result = read_text(f, name, json_string_value(text), json_string_length(text), whole, span, err);
    json_decref(object);
    return result;
}

static int read_line(struct last_words *w, struct inference *f, const char *path, size_t number, const char *line,
                     size_t bytes, struct error *err)
{
    struct span *spans = realloc(w->spans, (w->count + 1) * sizeof *spans);
    struct token_list *texts = spans ? realloc(w->texts, (w->count + 1) * sizeof *texts) : NULL;
    char name[1200];

    w->spans = spans ? spans : w->spans;
    w->texts = texts ? texts : w->texts;
    if (!texts)
        return error_errno(err, CODE_IO, "%s", path);
    snprintf(name, sizeof name, "%.1000s:%zu", path, number);
    texts[w->count] = (struct token_list){0};
    w->count++;
    return read_object(f, name, line, bytes, &texts[w->count - 1], &spans[w->count - 1], err);
}

int last_words_read(struct last_words *w, struct inference *f, const char *path, struct error *err)
{
    size_t bytes;
    char *text = text_read_file(path, MOST_BYTES, &bytes, err);
    int result = text ? 0 : -1;

    *w = (struct last_words){0};
    for (size_t at = 0, line = 1; result == 0 && at < bytes; line++) {
        const char *end = memchr(text + at, '\n', bytes - at);
        size_t length = end ? (size_t)(end - text) - at : bytes - at;

        if (strspn(text + at, " \t\r") < length)
            result = read_line(w, f, path, line, text + at, length, err);
        at += length + 1;
    }
    if (result == 0 && w->count == 0)
        result = error_set(err, CODE_DATA, "%s: empty; lines of {\"text\": \"...\"} are expected", path);
    if (result < 0)
        last_words_free(w);
    free(text);
    return result;
}

void last_words_free(struct last_words *w)
{
    for (size_t i = 0; i < w->count; i++)
        free(w->texts[i].ids);
    free(w->texts);
    free(w->spans);
    *w = (struct last_words){0};
}
