/*
 * split.h - divides text into the words whose bytes byte-level BPE then merges.
 *
 * Some patterns have scanners, many times as fast as any regular expression: those of GPT-2 (also GPT-NeoX, RoBERTa,
 * OPT), Llama 3, and Qwen 2, which is Llama 3's with single digits; the steps Digits, Punctuation and Metaspace of
 * Hugging Face's `tokenizers`. Every other pattern is PCRE2's with JIT, translated from the references' syntax. A test
 * holds the scanners against PCRE2.
 */
#ifndef MUSTER_TOKENIZER_SPLIT_H
#define MUSTER_TOKENIZER_SPLIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

#define SPLIT_STEPS 8

enum split_pattern {
    SPLIT_GPT2,
    SPLIT_LLAMA3,
    SPLIT_QWEN2,
    SPLIT_DIGIT,  /* Digits: each number is a word */
    SPLIT_DIGITS, /* runs of numbers are words */
    SPLIT_SIGN,   /* Punctuation: each sign is a word */
    SPLIT_SIGNS,  /* runs of signs are words */
    SPLIT_BLANK,  /* Metaspace: a word begins with each blank */
    SPLIT_BLANKS, /* a word begins with each run of blanks */
    SPLIT_REGEX
};
#define SPLIT_SCANNERS SPLIT_REGEX

/* The regular expressions of the scanners. */
extern const char *const split_patterns[SPLIT_SCANNERS];

/* One after the other, each step divides the words of the step before. */
struct split_step {
    enum split_pattern pattern;
    bool matches_only; /* leaves out text that the pattern does not match; otherwise it is a word, too */
    char *regex;       /* of SPLIT_REGEX */
    void *code;        /* compiled */
};

struct splitter {
    struct split_step steps[SPLIT_STEPS];
    int count; /* with 0 steps the whole text is a word */
};

/* Adds a step with a scanner if the pattern has one. CODE_DATA for a pattern that PCRE2 refuses, or that split_translate
 * does. `literal`: no regular expression, but text to be found. */
int splitter_add(struct splitter *splitter, const char *regex, bool literal, bool matches_only, struct error *err);
void splitter_free(struct splitter *splitter);

/*
 * The pattern in PCRE2's syntax, to be freed. NULL and *err: CODE_DATA if it has something that the references'
 * Oniguruma understands in another way, such as a class in a class (split_pattern.c has all of them); CODE_IO.
 */
char *split_translate(const char *regex, struct error *err);

/* What PCRE2 needs for each thread; NULL without SPLIT_REGEX. */
struct split_memory;
int split_memory_create(const struct splitter *splitter, struct split_memory **memory, struct error *err);
void split_memory_destroy(struct split_memory *memory);

/* The end of the word at text, which is before end. Not for SPLIT_REGEX. `classes` as in unicode.h. */
const uint8_t *split_scan(enum split_pattern pattern, const uint8_t *classes, const uint8_t *text, const uint8_t *end);

/* The next match of a regular expression at or behind `from`: 1, 0 if there is none, or -1. */
int split_search(const struct split_step *step, struct split_memory *memory, const char *text, size_t from,
                 size_t bytes, size_t *begin, size_t *stop, struct error *err);

/*
 * Whether a word ends between two characters whatever is before and behind them: true only if all steps are scanners,
 * and for one of them the second is a blank, or the first is a letter or digit and the second of another class.
 */
bool splitter_cuts(const struct splitter *splitter, uint32_t before, uint32_t behind);

#endif
