/*
 * Any bytes as a line of JSON lines: its text is what jansson finds, or it is refused with one line and a place in it.
 * Ours also takes Python's NaN and Infinity and numbers of any size, and no more than JSON_DEPTH_MOST brackets. Of a key
 * that occurs twice, both take the last value; ours refuses the line if another one is not a string.
 */
#include "trainer/data/json_text.h"

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

static int has(const char *line, size_t size, const char *word)
{
    return memmem(line, size, word, strlen(word)) != NULL;
}

static int has_key_twice(const char *line, size_t size)
{
    json_error_t error;
    json_t *root = json_loadb(line, size, JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, &error);

    json_decref(root);
    return !root && json_error_code(&error) == json_error_duplicate_key;
}

static void compare_texts(const char *line, size_t size, const struct text_list *text, int taken, const char *why)
{
    json_error_t error;
    json_t *root = json_loadb(line, size, JSON_ALLOW_NUL, &error);
    const json_t *value = json_object_get(root, "text");

    if (root && taken)
        check_that(json_is_string(value) && json_string_length(value) == text->count &&
                       memcmp(json_string_value(value), text->text, text->count) == 0,
                   "the text is jansson's");
    /* jansson overlooks a NUL after a number or a word. */
    if (root && !taken && !memchr(line, 0, size))
        check_that(!json_is_string(value) || strstr(why, "too many brackets") ||
                       (strstr(why, "is not a string") && has_key_twice(line, size)),
                   "what jansson takes is taken");
    if (!root && taken)
        check_that(has(line, size, "NaN") || has(line, size, "Infinity") ||
                       json_error_code(&error) == json_error_numeric_overflow ||
                       json_error_code(&error) == json_error_null_byte_in_key,
                   "what jansson refuses is refused");
    json_decref(root);
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
    taken = json_text(line, size, "text", &text, &at, &err) == 0;
    if (taken)
        check_that(at == size, "all of the line was read");
    else
        check_that(err.text[0] && !strchr(err.text, '\n') && at <= size, "a line is refused with one line, at a place");
    compare_texts(line, size, &text, taken, err.text);
    free(text.text);
    free(line);
    return 0;
}
