#include "common/json_write.h"

#include <stdint.h>
#include <string.h>

/* How many bytes the UTF-8 character at `text` has; 0 where it is none. RFC 3629, section 4. */
static size_t utf8_length(const unsigned char *text)
{
    static const struct {
        unsigned char first, last, low, high; /* of the first byte, and of the second */
        size_t length;
    } kinds[] = {{0x00, 0x7f, 0, 0, 1},       {0xc2, 0xdf, 0x80, 0xbf, 2}, {0xe0, 0xe0, 0xa0, 0xbf, 3},
                 {0xe1, 0xec, 0x80, 0xbf, 3}, {0xed, 0xed, 0x80, 0x9f, 3}, {0xee, 0xef, 0x80, 0xbf, 3},
                 {0xf0, 0xf0, 0x90, 0xbf, 4}, {0xf1, 0xf3, 0x80, 0xbf, 4}, {0xf4, 0xf4, 0x80, 0x8f, 4}};

    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        size_t at = 2;

        if (text[0] < kinds[i].first || text[0] > kinds[i].last)
            continue;
        if (kinds[i].length == 1)
            return 1;
        if (text[1] < kinds[i].low || text[1] > kinds[i].high)
            return 0;
        while (at < kinds[i].length && text[at] >= 0x80 && text[at] <= 0xbf)
            at++;
        return at == kinds[i].length ? at : 0;
    }
    return 0;
}

void json_quote(FILE *out, const char *text)
{
    if (!text) {
        fputs("null", out);
        return;
    }
    fputc('"', out);
    while (*text) {
        size_t length = utf8_length((const unsigned char *)text);

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

void json_number_member(FILE *out, const char *key, long value)
{
    fprintf(out, ",\"%s\":%ld", key, value);
}
