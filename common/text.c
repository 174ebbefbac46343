#include "common/text.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

bool text_to_long(const char *text, long least, long most, long *value)
{
    char *end;
    long number;

    if (isspace((unsigned char)*text))
        return false;
    errno = 0;
    number = strtol(text, &end, 10);
    if (end == text || *end || errno || number < least || number > most)
        return false;
    *value = number;
    return true;
}

bool text_to_double(const char *text, double least, double most, double *value)
{
    char *end;
    double number;

    if (isspace((unsigned char)*text))
        return false;
    number = strtod(text, &end);
    if (end == text || *end || !isfinite(number) || number < least || number > most)
        return false;
    *value = number;
    return true;
}

bool text_take_number(const char **text, long most, long *value)
{
    const char *at = *text;
    long number = 0;

    for (; isdigit((unsigned char)*at); at++) {
        int digit = *at - '0';

        if (digit > most || number > (most - digit) / 10)
            return false;
        number = 10 * number + digit;
    }
    if (at == *text)
        return false;
    *text = at;
    *value = number;
    return true;
}

/* Read to the end of the file, at most `most` + 1 bytes into text. Returns how many, or -1 with errno. */
static ssize_t read_to_end(int fd, char **text, size_t most)
{
    size_t room = 0, length = 0;

    for (;;) {
        ssize_t got;

        if (length == room) {
            char *larger = realloc(*text, (room = room ? 2 * room : 4096) + 1);

            if (!larger)
                return -1;
            *text = larger;
        }
        got = read(fd, *text + length, room - length);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -1;
        length += (size_t)got;
        (*text)[length] = '\0';
        if (got == 0 || length > most)
            return (ssize_t)length;
    }
}

char *text_read_file(const char *path, size_t most, size_t *bytes, struct error *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO without a writer must not hang us */
    struct stat info;
    char *text = NULL;
    ssize_t length = -1;

    if (fd < 0 || fstat(fd, &info) < 0)
        error_errno(err, CODE_IO, "%s", path);
    else if (!S_ISREG(info.st_mode))
        error_set(err, CODE_DATA, "%s: not a regular file", path);
    else if ((length = read_to_end(fd, &text, most)) < 0)
        error_errno(err, CODE_IO, "%s", path);
    else if ((size_t)length > most)
        length = error_set(err, CODE_DATA, "%s: larger than %zu bytes", path, most);
    if (fd >= 0) {
        int saved = errno;

        close(fd);
        errno = saved;
    }
    if (length < 0) {
        free(text);
        return NULL;
    }
    if (bytes)
        *bytes = (size_t)length;
    return text;
}

bool text_add_line(char ***lines, size_t *count, const char *format, ...)
{
    char **grown = reallocarray(*lines, *count + 1, sizeof *grown);
    va_list arguments;
    int length;

    if (!grown)
        return false;
    *lines = grown;
    va_start(arguments, format);
    length = vasprintf(&grown[*count], format, arguments);
    va_end(arguments);
    *count += length >= 0;
    return length >= 0;
}

void text_free_lines(char **lines, size_t count)
{
    for (size_t i = 0; i < count; i++)
        free(lines[i]);
    free(lines);
}
