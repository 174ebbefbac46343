/*
 * split_pattern.c - a split pattern from the syntax of Oniguruma, which the references use, into that of PCRE2. Only
 * what means the same to both is taken, and what can be written so that it does; anything else is refused by its name.
 * (Oniguruma: doc/RE and doc/UNICODE_PROPERTIES of its sources, syntax Ruby; PCRE2: pcre2pattern(3).)
 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "tokenizer/split.h"

/* PCRE2 has the properties that are written below from 10.40 on. From then on, a script's name also means the
 * characters that are used with it, which Oniguruma's does not. */
#define HAS_PROPERTIES (PCRE2_MAJOR * 100 + PCRE2_MINOR >= 1040)

/* Oniguruma's \w in a class. Outside, it has six numbers of Latin-1 as well. */
#define WORD   "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}"
#define LATIN1 "\xc2\xb2\xc2\xb3\xc2\xb9\xc2\xbc\xc2\xbd\xc2\xbe"

struct translation {
    const char *at; /* in the pattern */
    FILE *out;
    bool in_class, ignores_case;
    char refused[32]; /* what is not taken; "" so far */
};

static void refuse_part(struct translation *t, size_t bytes)
{
    snprintf(t->refused, sizeof t->refused, "%.*s", (int)bytes, t->at);
}

static void take_bytes(struct translation *t, size_t bytes)
{
    fwrite(t->at, 1, bytes, t->out);
    t->at += bytes;
}

static bool is_script(const char *name, size_t length)
{
    char text[80];
    PCRE2_SIZE offset;
    pcre2_code *code;
    int why;

    snprintf(text, sizeof text, "\\p{sc:%.*s}", (int)length, name);
    code = pcre2_compile((PCRE2_SPTR)text, PCRE2_ZERO_TERMINATED, PCRE2_UTF, &why, &offset, NULL);
    pcre2_code_free(code);
    return code != NULL;
}

/* \p{...}, \P{...}, or with a "^" before the name. */
static void take_property(struct translation *t)
{
    const char *name = t->at + 3 + (t->at[2] == '{' && t->at[3] == '^');
    size_t length = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_ ");

    if (t->at[2] != '{' || name[length] != '}' || toupper((unsigned char)name[0]) == 'X') { /* \p{Xwd} is PCRE2's own */
        refuse_part(t, 2);
        return;
    }
    take_bytes(t, (size_t)(name - t->at));
    if (HAS_PROPERTIES && length > 2 && is_script(name, length))
        fputs("sc:", t->out);
    take_bytes(t, length + 1);
}

static void take_word(struct translation *t)
{
    if (!HAS_PROPERTIES || (t->in_class && t->at[1] == 'W')) {
        refuse_part(t, 2);
        return;
    }
    fputs(t->in_class ? WORD : t->at[1] == 'w' ? "[" WORD LATIN1 "]" : "[^" WORD LATIN1 "]", t->out);
    t->at += 2;
}

static void take_escape(struct translation *t)
{
    const char next = t->at[1];

    if (next == 'p' || next == 'P')
        take_property(t);
    else if (next == 'w' || next == 'W')
        take_word(t);
    else if ((next == 's' || next == 'S') && HAS_PROPERTIES) { /* PCRE2's \s has U+180E, too */
        fprintf(t->out, "\\%c{White_Space}", next == 's' ? 'p' : 'P');
        t->at += 2;
    } else if (next == 'x' && t->at[2] == '{')
        take_bytes(t, 3 + strcspn(t->at + 3, "}"));
    else if (strchr("sSdDrntfae", next) || (!t->in_class && strchr("AzZ", next)) || (ispunct((unsigned char)next)))
        take_bytes(t, 2);
    else
        refuse_part(t, 2);
}

/* Oniguruma takes "[" in a class for a class, and "&&" for what two have in common. */
static void take_in_class(struct translation *t)
{
    if (*t->at == '[' || strncmp(t->at, "&&", 2) == 0)
        refuse_part(t, *t->at == '[' ? 1 : 2);
    else if (*t->at == '\\')
        take_escape(t);
    else {
        t->in_class = *t->at != ']';
        take_bytes(t, 1);
    }
}

/* "X{1,3}+" is (X{1,3})+ and "X{2}?" is (X{2})? to Oniguruma, and "{,3}" is "{0,3}". */
static void take_repeat(struct translation *t)
{
    size_t digits = strspn(t->at + 1, "0123456789"), length = 1 + strspn(t->at + 1, "0123456789,");

    if (t->at[length] == '}' && (t->at[1] == ',' || (length > 1 && t->at[length + 1] == '+')))
        snprintf(t->refused, sizeof t->refused, t->at[length + 1] == '+' ? "{...}+" : "{,n}");
    else if (t->at[length] == '}' && digits && digits + 1 == length && t->at[length + 1] == '?')
        snprintf(t->refused, sizeof t->refused, "{n}?");
    else
        take_bytes(t, length);
}

/* "(?i)" in the middle reaches over a "|" to Oniguruma, and not to PCRE2. */
static void take_group(struct translation *t, bool first)
{
    static const char *const known[] = {"(?:", "(?i:", "(?-i:", "(?=", "(?!", "(?<=", "(?<!", "(?>"};
    size_t length = strncmp(t->at, "(?i)", 4) == 0 && first ? 4 : t->at[1] != '?' ? 1 : 0;

    for (size_t i = 0; i < sizeof known / sizeof *known && length == 0; i++)
        if (strncmp(t->at, known[i], strlen(known[i])) == 0)
            length = strlen(known[i]);
    t->ignores_case = t->ignores_case || strncmp(t->at, "(?i", 3) == 0;
    if (length)
        take_bytes(t, length);
    else
        refuse_part(t, 3);
}

/* Where case is ignored, Oniguruma lets two letters match one: "ss" also matches U+00DF. PCRE2 does not. */
static void check_case(struct translation *t, const char *regex)
{
    static const char *const pairs[] = {"ss", "st", "ff", "fi", "fl"};

    for (; *regex && !t->refused[0]; regex++) {
        if ((unsigned char)*regex >= 0x80)
            snprintf(t->refused, sizeof t->refused, "(?i and letters beyond ASCII");
        for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
            if (strncasecmp(regex, pairs[i], 2) == 0)
                snprintf(t->refused, sizeof t->refused, "(?i and \"%s\"", pairs[i]);
    }
}

static void translate_pattern(struct translation *t, const char *regex)
{
    for (t->at = regex; *t->at && !t->refused[0];) {
        if (t->in_class) {
            take_in_class(t);
        } else if (*t->at == '\\') {
            take_escape(t);
        } else if (*t->at == '[') {
            take_bytes(t, 1 + (t->at[1] == '^'));
            t->in_class = true;
            if (*t->at == ']')
                refuse_part(t, 1);
        } else if (*t->at == '{') {
            take_repeat(t);
        } else if (*t->at == '(') {
            take_group(t, t->at == regex);
        } else {
            take_bytes(t, 1);
        }
    }
    if (t->ignores_case)
        check_case(t, regex);
}

char *split_translate(const char *regex, struct error *err)
{
    struct translation t = {.at = regex};
    char *text = NULL;
    size_t size;

    t.out = open_memstream(&text, &size);
    if (t.out)
        translate_pattern(&t, regex);
    if (!t.out || fclose(t.out) != 0) {
        error_set(err, CODE_IO, "out of memory for a split pattern");
    } else if (t.refused[0]) {
        error_set(err, CODE_DATA, "patterns with %s are not supported: PCRE2 interprets it differently", t.refused);
    } else {
        return text;
    }
    free(text);
    return NULL;
}
