/*
 * Any bytes as a line of JSON lines: its text is what foreign_json_load finds, or it is refused with one line and a
 * place in it. Both take what Python takes; json_line_text takes no byte order mark, no half of a surrogate pair in the text,
 * and no more than JSON_DEPTH_MOST brackets. What jansson takes, foreign_json_load takes without a change.
 */
#include "trainer/data/parcel.h"

#include "common/foreign/foreign_json.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_that(int good, const char *what)
{
    if (good)
        return;
    fprintf(stderr, "not true: %s\n", what);
    abort();
}

static void compare_texts(const char *line, size_t size, const struct text_list *text, int taken, const char *why)
{
    json_error_t error, strict;
    json_t *root = foreign_json_load(line, size, JSON_ALLOW_NUL, &error);
    json_t *janssons = json_loadb(line, size, JSON_ALLOW_NUL, &strict);
    const json_t *value = json_object_get(root, "text");

    check_that(!janssons || json_equal(root, janssons), "what jansson takes is the same");
    check_that(root || (error.position >= 0 && (size_t)error.position <= size), "a line is refused at a place");
    if (root && taken)
        check_that(json_is_string(value) && json_string_length(value) == text->count &&
                       memcmp(json_string_value(value), text->text, text->count) == 0,
                   "the text is the same");
    /* jansson overlooks a NUL after a number or a word. */
    if (root && !taken && !memchr(line, 0, size))
        check_that(!json_is_string(value) || strstr(why, "too many brackets") || strstr(why, "surrogate") ||
                       strstr(why, "byte order mark"),
                   "what the one takes, the other takes");
    check_that(root || !taken, "what the one refuses, the other refuses");
    json_decref(root);
    json_decref(janssons);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct text_list text = {0};
    struct error err = {0};
    char *line = malloc(size + (size == 0)); /* no byte behind it: reading there is a finding */
    size_t at;
    int taken;

    check_that(line != NULL, "there is memory");
    if (size > 0)
        memcpy(line, data, size);
    taken = json_line_text(line, size, "text", &text, &at, &err) == 0;
    if (taken)
        check_that(at == size, "all of the line was read");
    else
        check_that(err.text[0] && !strchr(err.text, '\n') && at <= size, "a line is refused with one line, at a place");
    if (taken && !memchr(line, '\n', size) && memchr(line, '{', size / 3 * 2))
        check_that(json_text_begins(line, size, true) && json_text_begins(line, size / 3 * 2, false),
                   "the beginning of a line is known");
    compare_texts(line, size, &text, taken, err.text);
    free(text.text);
    free(line);
    return 0;
}
