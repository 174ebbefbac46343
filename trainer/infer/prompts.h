/*
 * prompts.h - a file of prompts, one a line. A line that begins with a quotation mark is a JSON string, which may have
 * any text, line breaks as "\n" too; any other line is the prompt as it is.
 */
#ifndef MUSTER_TRAINER_INFER_PROMPTS_H
#define MUSTER_TRAINER_INFER_PROMPTS_H

#include <stddef.h>

#include "common/error.h"

struct prompt {
    char *text; /* zero-terminated, but may have zeros */
    size_t bytes;
    size_t line; /* from 1 */
};

struct prompts {
    struct prompt *prompt;
    size_t count;
};

/* CODE_DATA, with file and line, for a line that is no JSON string or is empty, and for a file without lines. On
 * failure there is nothing to free. */
int prompts_read(struct prompts *prompts, const char *path, struct error *err);
void prompts_free(struct prompts *prompts);

#endif
