#include "common/error.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void error_tame(char *text)
{
    for (; *text; text++) {
        if (*text == '\n' || *text == '\r' || *text == '\t')
            *text = ' ';
        else if ((unsigned char)*text < ' ' || *text == '\177')
            *text = '?';
        else if (text[0] == '\302' && (unsigned char)text[1] >= 0x80 && (unsigned char)text[1] < 0xa0)
            text[0] = text[1] = '?'; /* the other control characters, in UTF-8 */
    }
}

int error_set(struct error *err, enum exit_code code, const char *format, ...)
{
    va_list args;

    if (!err)
        return -1;
    err->code = code;
    va_start(args, format);
    vsnprintf(err->text, sizeof err->text, format, args);
    va_end(args);
    error_tame(err->text);
    return -1;
}

int error_errno(struct error *err, enum exit_code code, const char *format, ...)
{
    const char *why = strerror(errno);
    char text[sizeof err->text];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return error_set(err, code, "%s: %s", text, why);
}

void *error_calloc(size_t count, size_t size, struct error *err)
{
    void *memory = calloc(count, size);

    if (!memory)
        error_errno(err, CODE_IO, "no memory for %zu bytes", count * size);
    return memory;
}

int error_reserve(void *array, size_t *room, size_t count, size_t more, size_t size, struct error *err)
{
    size_t wanted = *room ? *room : 64;
    void **pointer = array, *larger;

    if (*room - count >= more)
        return 0;
    while (wanted - count < more)
        wanted *= 2;
    larger = realloc(*pointer, wanted * size);
    if (!larger)
        return error_errno(err, CODE_IO, "no memory for %zu bytes", wanted * size);
    *pointer = larger;
    *room = wanted;
    return 0;
}

int error_prefix(struct error *err, const char *format, ...)
{
    char context[sizeof err->text], rest[901];
    va_list args;

    if (!err)
        return -1;
    va_start(args, format);
    vsnprintf(context, sizeof context, format, args);
    va_end(args);
    snprintf(rest, sizeof rest, "%.900s", err->text);
    return error_set(err, err->code, "%s: %s", context, rest);
}

struct error *error_first(struct error *kept)
{
    static _Thread_local struct error later; /* a consequence of the first, as a rule */

    return kept->code ? &later : kept;
}

int error_take(struct error *kept, struct error *err)
{
    if (!kept->code)
        return 0;
    *err = *kept;
    kept->code = CODE_OK;
    return -1;
}

int error_output(int code)
{
    struct error err;

    if ((fflush(stdout) == 0 && !ferror(stdout)) || code >= CODE_USAGE)
        return code;
    error_errno(&err, CODE_IO, "cannot write to standard output");
    return error_report(&err);
}

int error_report(const struct error *err)
{
    fprintf(stderr, "%s: %s\n", program_invocation_short_name, err->text);
    return err->code ? (int)err->code : CODE_INTERNAL;
}
