#include "common/text.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
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

bool text_to_seconds(const char *text, double *seconds)
{
    static const struct {
        char name;
        double seconds;
    } units[] = {{'s', 1}, {'m', 60}, {'h', 3600}, {'d', 86400}};
    size_t length = strlen(text);
    char number[32];
    double unit = 1;

    for (size_t i = 0; length > 1 && i < sizeof units / sizeof units[0]; i++)
        if (text[length - 1] == units[i].name) {
            unit = units[i].seconds;
            length--;
            break;
        }
    if (snprintf(number, sizeof number, "%.*s", (int)length, text) >= (int)sizeof number ||
        !text_to_double(number, 1e-3, 36525.0 * 86400 / unit, seconds))
        return false;
    *seconds *= unit;
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

void (*text_notice)(const char *line);

size_t text_mark(const char *text, size_t bytes, const char *name)
{
    char line[400];

    if (bytes < 3 || memcmp(text, "\xef\xbb\xbf", 3) != 0)
        return 0;
    if (name && text_notice) {
        snprintf(line, sizeof line, "%.300s begins with a byte order mark: such marks are dropped", name);
        error_tame(line);
        text_notice(line);
    }
    return 3;
}

char *text_load(const char *path, size_t most, size_t *bytes, struct error *err)
{
    size_t size = 0, mark;
    char *text = text_read_file(path, most, &size, err);

    if (!text)
        return NULL;
    mark = text_mark(text, size, path);
    memmove(text, text + mark, size - mark + 1);
    if (bytes)
        *bytes = size - mark;
    return text;
}

bool text_add_line(char ***lines, size_t *count, const char *format, ...)
{
    bool full = (*count & (*count - 1)) == 0; /* the room doubles at 0, 1, 2, 4, 8, ... lines */
    char **grown = full ? reallocarray(*lines, *count ? 2 * *count : 1, sizeof *grown) : *lines;
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

const char *text_bytes(char text[TEXT_BYTES_SIZE], uint64_t bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    double value = (double)bytes;
    size_t unit = 0;

    while (value >= 1024 && unit + 1 < sizeof units / sizeof *units) {
        value /= 1024;
        unit++;
    }
    snprintf(text, TEXT_BYTES_SIZE, unit == 0 ? "%.0f %s" : "%.1f %s", value, units[unit]);
    return text;
}

bool text_ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), tail = strlen(end);

    return length >= tail && strcmp(text + length - tail, end) == 0;
}

bool text_begins_with(const char *text, const char *const *beginnings)
{
    for (; beginnings && *beginnings; beginnings++)
        if (strncmp(text, *beginnings, strlen(*beginnings)) == 0)
            return true;
    return false;
}

size_t text_name_length(const char *text)
{
    size_t length = 0;

    while (isalnum((unsigned char)text[length]) || text[length] == '_')
        length++;
    return isdigit((unsigned char)text[0]) ? 0 : length;
}

int utf16_read(const char *at, const char *end)
{
    int code = 0;

    if (end - at < 6 || at[0] != '\\' || at[1] != 'u')
        return -1;
    for (int i = 2; i < 6; i++) {
        if (!isxdigit((unsigned char)at[i]))
            return -1;
        code = code << 4 | (isdigit((unsigned char)at[i]) ? at[i] - '0' : (at[i] | 32) - 'a' + 10);
    }
    return code;
}

int utf8_write(uint32_t code, char *out)
{
    static const uint8_t lead[] = {0, 0, 0xc0, 0xe0, 0xf0};
    int bytes = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;

    for (int i = bytes - 1; i > 0; i--, code >>= 6)
        out[i] = (char)(0x80 | (code & 0x3f));
    out[0] = (char)(lead[bytes] | code);
    return bytes;
}

/* utf8_next reads nothing behind the zero that ends the text. */
size_t text_utf8_length(const char *text)
{
    const uint8_t *bytes = (const uint8_t *)text;
    uint32_t code;
    int length = utf8_next(bytes, bytes + 4, &code);

    return length == 1 && code == REPLACEMENT ? 0 : (size_t)length;
}

size_t text_utf8_end(const char *text, size_t bytes)
{
    size_t at = 0;

    while (at < bytes) {
        char last[5] = {0};
        uint64_t eight;
        size_t length;

        if (bytes - at >= 8) {
            memcpy(&eight, text + at, 8);
            if ((eight & 0x8080808080808080u) == 0) {
                at += 8;
                continue;
            }
        } else if (bytes - at < 4) {
            memcpy(last, text + at, bytes - at);
        }
        length = text_utf8_length(bytes - at < 4 ? last : text + at);
        if (length == 0)
            break;
        at += length;
    }
    return at;
}

void json_quote(FILE *out, const char *text)
{
    if (!text) {
        fputs("null", out);
        return;
    }
    fputc('"', out);
    while (*text) {
        size_t length = text_utf8_length(text);

        if (*text == '"' || *text == '\\')
            fprintf(out, "\\%c", *text);
        else if ((unsigned char)*text < ' ')
            fprintf(out, "\\u%04x", (unsigned)*text);
        else if (length == 0)
            fputs("\\ufffd", out);
        else
            fwrite(text, 1, length, out);
        text += length ? length : 1;
    }
    fputc('"', out);
}

void json_string_member(FILE *out, const char *key, const char *value)
{
    fprintf(out, ",\"%s\":", key);
    json_quote(out, value);
}

void json_real_member(FILE *out, const char *key, double value)
{
    fprintf(out, isfinite(value) ? ",\"%s\":%.12g" : ",\"%s\":null", key, value);
}

void json_number_member(FILE *out, const char *key, long value)
{
    fprintf(out, ",\"%s\":%ld", key, value);
}
