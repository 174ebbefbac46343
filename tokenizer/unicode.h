/*
 * unicode.h - classes of code points, UTF-8, and normal forms, over libutf8proc.
 *
 * One small library (300 KB, no dependencies) has all that tokenizers need: categories, NFC and NFD, lower case.
 * PCRE2 knows categories only; ICU and GLib are 100 and 5 times as large; libunistring has no way to normalize
 * a character at a time.
 *
 * The references' tables are of other Unicode versions. Up to Unicode 14 they agree on letters, digits and white space
 * with the 15 of Debian 12's utf8proc. Ids may differ on these code points:
 *
 *   assigned in 15 (4,489)         "other" to `tokenizers` 0.19; letters, ... to 0.23, to tiktoken 0.14 and here
 *   assigned in 15.1 and 16        "other" here; letters, ... to `tokenizers` 0.23 and to tiktoken 0.14
 *   (627 and 5,185)
 *   BERT: Mn, Cf and P of 9 to 14  `tokenizers` has Unicode 8 here: it does not remove 386 accents and 13 control
 *   (504)                          characters, and does not split at 105 signs. U+166D and U+111C9 are the reverse.
 *                                  The BertTokenizer of transformers agrees with us.
 *   NFC: marks of 10 to 14 (98),   `tokenizers` has Unicode 9 here: it does not order these marks, nor compose
 *   U+11938                        U+11935 U+11930
 *   U+180E, PCRE2 before 10.40     white space in a split pattern that PCRE2 runs (split.h); not in the references
 */
#ifndef MUSTER_TOKENIZER_UNICODE_H
#define MUSTER_TOKENIZER_UNICODE_H

#include <stddef.h>
#include <stdint.h>

#include "tokenizer/tokenizer.h"

/* Each code point has exactly one of the first four. */
enum {
    CLASS_LETTER = 1,   /* category L */
    CLASS_NUMBER = 2,   /* N */
    CLASS_SPACE = 4,    /* property White_Space, which is \s in regular expressions */
    CLASS_OTHER = 8,    /* all others, also unassigned ones */
    CLASS_NEWLINE = 16, /* \r and \n */
    CLASS_ACCENT = 32,  /* Mn */
    CLASS_CONTROL = 64, /* Cc, Cf, Co, Cs */
    CLASS_PUNCT = 128,  /* P, and the signs of ASCII: BERT's punctuation */
};

#define CODE_POINTS 0x110000
#define REPLACEMENT 0xfffd

/* The class of each code point; filled once in a process. */
const uint8_t *unicode_classes(void);

/* True for a character of a word in the sense of \w: letters, marks, decimal digits, connectors, joiners. */
int unicode_in_word(uint32_t code);

/*
 * The code point at text, which is before end. Returns its length. A byte that begins no valid sequence is REPLACEMENT,
 * with length 1.
 */
static inline int utf8_next(const uint8_t *text, const uint8_t *end, uint32_t *code)
{
    uint32_t first = text[0];
    long room = end - text;

    if (first < 0x80) {
        *code = first;
        return 1;
    }
    if (first >= 0xc2 && first < 0xe0 && room >= 2 && (text[1] & 0xc0) == 0x80) {
        *code = (first & 0x1f) << 6 | (text[1] & 0x3f);
        return 2;
    }
    if (first >= 0xe0 && first < 0xf0 && room >= 3 && (text[1] & 0xc0) == 0x80 && (text[2] & 0xc0) == 0x80) {
        *code = (first & 0xf) << 12 | (uint32_t)(text[1] & 0x3f) << 6 | (text[2] & 0x3f);
        if (*code >= 0x800 && (*code < 0xd800 || *code > 0xdfff))
            return 3;
    }
    if (first >= 0xf0 && first < 0xf5 && room >= 4 && (text[1] & 0xc0) == 0x80 && (text[2] & 0xc0) == 0x80 &&
        (text[3] & 0xc0) == 0x80) {
        *code =
            (first & 7) << 18 | (uint32_t)(text[1] & 0x3f) << 12 | (uint32_t)(text[2] & 0x3f) << 6 | (text[3] & 0x3f);
        if (*code >= 0x10000 && *code < CODE_POINTS)
            return 4;
    }
    *code = REPLACEMENT;
    return 1;
}

/* The code point that ends at text, which is behind begin. Returns its length. Finds the characters of utf8_next. */
int utf8_previous(const uint8_t *begin, const uint8_t *text, uint32_t *code);

/* Writes a code point, at most 4 bytes. Returns their number. */
int utf8_write(uint32_t code, char *out);

/* Appends a text in normal form NFC, with invalid bytes kept, and returns 1; or 0 if a quick look shows that the text is
 * in that form. -1 with CODE_IO when out of memory. */
int unicode_nfc(const char *text, size_t bytes, struct text_list *out, struct error *err);

/* The canonical decomposition (NFD) of a code point: 1 to 4 code points, Hangul too. Returns their number. */
int unicode_decompose(uint32_t code, int32_t out[4]);

/* The combining class of a mark, by which NFD orders the marks of a character; 0 for other characters. */
int unicode_mark_order(uint32_t code);

/* The lower case of a code point: 1 or 2 code points. Returns their number. */
int unicode_lower(uint32_t code, int32_t out[2]);

#endif
