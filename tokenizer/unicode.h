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

#include "common/text.h"
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

/* The class of each code point; filled once in a process. */
const uint8_t *unicode_classes(void);

/* True for a character of a word in the sense of \w: letters, marks, decimal digits, connectors, joiners. */
int unicode_in_word(uint32_t code);

/* The code point that ends at text, which is behind begin. Returns its length. Finds the characters of utf8_next. */
int utf8_previous(const uint8_t *begin, const uint8_t *text, uint32_t *code);

/* Appends a text in normal form NFC, with invalid bytes kept, and returns 1; or 0 if a quick look shows that the text is
 * in that form. -1 with CODE_IO when out of memory. */
int unicode_nfc(const char *text, size_t bytes, struct text_list *out, struct error *err);

#endif
