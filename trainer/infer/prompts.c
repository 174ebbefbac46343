#include "trainer/infer/prompts.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "common/text.h"

#define BYTE_ORDER_MARK "\xef\xbb\xbf"

enum { MOST_BYTES = 1 << 30 };

static int copy_text(struct prompt *p, const char *text, size_t bytes, struct error *err)
{
    p->text = error_calloc(bytes + 1, 1, err);
    if (!p->text)
        return -1;
    memcpy(p->text, text, bytes);
    p->bytes = bytes;
    return 0;
}

static int copy_string(struct prompt *p, const char *path, const char *line, size_t bytes, struct error *err)
{
    json_error_t why;
    json_t *string = json_loadb(line, bytes, JSON_DECODE_ANY | JSON_ALLOW_NUL, &why);
    int result;

    if (!string)
        return error_set(err, CODE_DATA,
                         "%s:%zu: column %d: a line that begins with a quotation mark must be one JSON string: %s",
                         path, p->line, why.column, why.text);
    result = copy_text(p, json_string_value(string), json_string_length(string), err);
    json_decref(string);
    return result;
}

static int read_line(struct prompts *prompts, const char *path, const char *line, size_t bytes, struct error *err)
{
    struct prompt *grown = realloc(prompts->prompt, (prompts->count + 1) * sizeof *grown), *p;
    int result;

    if (!grown)
        return error_errno(err, CODE_IO, "%s", path);
    prompts->prompt = grown;
    p = &grown[prompts->count];
    *p = (struct prompt){.line = prompts->count + 1};
    result = bytes > 0 && line[0] == '"' ? copy_string(p, path, line, bytes, err) : copy_text(p, line, bytes, err);
    if (result < 0)
        return -1;
    prompts->count++;
    if (p->bytes == 0)
        return error_set(err, CODE_DATA, "%s:%zu: an empty prompt; the least is \"\\n\"", path, p->line);
    return 0;
}

int prompts_read(struct prompts *prompts, const char *path, struct error *err)
{
    size_t bytes;
    char *text = text_read_file(path, MOST_BYTES, &bytes, err);
    int result = text ? 0 : -1;

    *prompts = (struct prompts){0};
    for (size_t at = text && strncmp(text, BYTE_ORDER_MARK, 3) == 0 ? 3 : 0; result == 0 && at < bytes;) {
        const char *end = memchr(text + at, '\n', bytes - at);
        size_t length = end ? (size_t)(end - text) - at : bytes - at;
        bool windows = length > 0 && text[at + length - 1] == '\r';

        result = read_line(prompts, path, text + at, length - windows, err);
        at += length + 1;
    }
    if (result == 0 && prompts->count == 0)
        result = error_set(err, CODE_DATA, "%s: no prompts; one a line is expected", path);
    if (result < 0)
        prompts_free(prompts);
    free(text);
    return result;
}

void prompts_free(struct prompts *prompts)
{
    for (size_t i = 0; i < prompts->count; i++)
        free(prompts->prompt[i].text);
    free(prompts->prompt);
    *prompts = (struct prompts){0};
}
