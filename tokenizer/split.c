#define PCRE2_CODE_UNIT_WIDTH 8
#include "tokenizer/split.h"

#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

#include "tokenizer/file_tokens.h"
#include "tokenizer/unicode.h"

#define KINDS (CLASS_LETTER | CLASS_NUMBER | CLASS_SPACE | CLASS_OTHER)

#define SIGN "!-/:-@\\[-`{-~\\p{P}]"

const char *const split_patterns[SPLIT_SCANNERS] = {
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
    LLAMA3_PATTERN(LLAMA3_DIGITS),
    LLAMA3_PATTERN("\\p{N}"),
    "\\p{N}|\\P{N}+",
    "\\p{N}+|\\P{N}+",
    "[" SIGN "|[^" SIGN "+",
    "[" SIGN "+|[^" SIGN "+",
    " [^ ]*|[^ ]+",
    " *[^ ]+| +",
};

/* ---- scanners ---------------------------------------------------------------------------------------------------- */

/* The class of the character at text, and where the next one begins. */
static inline uint8_t class_at(const uint8_t *classes, const uint8_t *text, const uint8_t *end, const uint8_t **next)
{
    uint32_t code;

    if (*text < 0x80) {
        *next = text + 1;
        return classes[*text];
    }
    *next = text + utf8_next(text, end, &code);
    return classes[code];
}

/* The end of the characters of this class, at most `most` of them. */
static inline const uint8_t *skip_class(const uint8_t *classes, uint8_t wanted, long most, const uint8_t *text,
                                        const uint8_t *end)
{
    const uint8_t *next;

    while (text < end && most-- > 0 && (class_at(classes, text, end, &next) & wanted))
        text = next;
    return text;
}

/* The length of 's 't 'm 'd 're 've 'll at text; 0 for none. */
static inline size_t contraction_length(const uint8_t *text, const uint8_t *end, bool any_case)
{
    size_t room = (size_t)(end - text);
    uint8_t first = room > 1 ? text[1] : 0, second = room > 2 ? text[2] : 0;

    if (*text != '\'')
        return 0;
    if (any_case && first == 0xc5 && second == 0xbf) /* the long s, whose upper case is S */
        return 3;
    if (any_case) {
        first |= first >= 'A' && first <= 'Z' ? 0x20 : 0;
        second |= second >= 'A' && second <= 'Z' ? 0x20 : 0;
    }
    if (first == 's' || first == 't' || first == 'm' || first == 'd')
        return 2;
    if ((first == 'r' && second == 'e') || (first == 'v' && second == 'e') || (first == 'l' && second == 'l'))
        return 3;
    return 0;
}

/* White space that no other alternative takes: \s+(?!\S)|\s+ leaves its last character to the word behind it. */
static const uint8_t *scan_space(const uint8_t *classes, const uint8_t *text, const uint8_t *end)
{
    const uint8_t *at = text, *last = text, *next;

    while (at < end && (class_at(classes, at, end, &next) & CLASS_SPACE)) {
        last = at;
        at = next;
    }
    return at == end || last == text ? at : last;
}

static const uint8_t *scan_gpt2(const uint8_t *classes, const uint8_t *text, const uint8_t *end)
{
    size_t contraction = contraction_length(text, end, false);
    const uint8_t *at = text, *next;
    uint8_t class;

    if (contraction > 0)
        return text + contraction;
    if (*at == ' ' && at + 1 < end)
        at++;
    class = class_at(classes, at, end, &next);
    if (class & CLASS_SPACE)
        return scan_space(classes, text, end);
    return skip_class(classes, class & KINDS, LONG_MAX, next, end);
}

/* The end of \s*[\r\n]+, or NULL. */
static const uint8_t *scan_lines(const uint8_t *classes, const uint8_t *text, const uint8_t *end)
{
    const uint8_t *found = NULL, *next;
    uint8_t class;

    for (; text < end && ((class = class_at(classes, text, end, &next)) & CLASS_SPACE); text = next)
        if (class & CLASS_NEWLINE)
            found = next;
    return found;
}

static const uint8_t *scan_llama3(const uint8_t *classes, const uint8_t *text, const uint8_t *end, long digits)
{
    const uint8_t *next, *behind, *lines;
    uint8_t class = class_at(classes, text, end, &next), second;
    size_t contraction;

    if (class & CLASS_LETTER)
        return skip_class(classes, CLASS_LETTER, LONG_MAX, next, end);
    if (class & CLASS_NUMBER)
        return skip_class(classes, CLASS_NUMBER, digits, text, end);
    contraction = contraction_length(text, end, true);
    if (contraction > 0)
        return text + contraction;
    second = next < end ? class_at(classes, next, end, &behind) : 0;
    if (!(class & CLASS_NEWLINE) && (second & CLASS_LETTER))
        return skip_class(classes, CLASS_LETTER, LONG_MAX, behind, end);
    if ((class & CLASS_OTHER) || (*text == ' ' && (second & CLASS_OTHER)))
        return skip_class(classes, CLASS_NEWLINE, LONG_MAX, skip_class(classes, CLASS_OTHER, LONG_MAX, next, end), end);
    lines = scan_lines(classes, text, end);
    return lines ? lines : scan_space(classes, text, end);
}

/* Characters of this class, at most `most` of them; or else those before the next one. */
static const uint8_t *scan_class(const uint8_t *classes, uint8_t wanted, long most, const uint8_t *text,
                                 const uint8_t *end)
{
    const uint8_t *stop = skip_class(classes, wanted, most, text, end), *next;

    if (stop == text)
        for (; stop < end && !(class_at(classes, stop, end, &next) & wanted); stop = next)
            ;
    return stop;
}

/* Blanks, at most `most` of them, and what is before the next one. */
static const uint8_t *scan_blanks(long most, const uint8_t *text, const uint8_t *end)
{
    const uint8_t *next;

    while (text < end && *text == ' ' && most-- > 0)
        text++;
    next = text < end ? memchr(text, ' ', (size_t)(end - text)) : NULL;
    return next ? next : end;
}

const uint8_t *split_scan(enum split_pattern pattern, const uint8_t *classes, const uint8_t *text, const uint8_t *end)
{
    const long most = pattern == SPLIT_DIGIT || pattern == SPLIT_SIGN || pattern == SPLIT_BLANK ? 1 : LONG_MAX;

    switch (pattern) {
    case SPLIT_GPT2:
        return scan_gpt2(classes, text, end);
    case SPLIT_DIGIT:
    case SPLIT_DIGITS:
        return scan_class(classes, CLASS_NUMBER, most, text, end);
    case SPLIT_SIGN:
    case SPLIT_SIGNS:
        return scan_class(classes, CLASS_PUNCT, most, text, end);
    case SPLIT_BLANK:
    case SPLIT_BLANKS:
        return scan_blanks(most, text, end);
    default:
        return scan_llama3(classes, text, end, pattern == SPLIT_LLAMA3 ? 3 : 1);
    }
}

static bool has_regex(const struct splitter *splitter)
{
    for (int i = 0; i < splitter->count; i++)
        if (splitter->steps[i].pattern == SPLIT_REGEX)
            return true;
    return false;
}

bool splitter_cuts(const struct splitter *splitter, uint32_t before, uint32_t behind)
{
    const uint8_t first = unicode_classes()[before], second = unicode_classes()[behind];
    bool cuts = false;

    for (int i = 0; i < splitter->count; i++) {
        if (splitter->steps[i].pattern <= SPLIT_QWEN2)
            cuts |= (first & (CLASS_LETTER | CLASS_NUMBER)) && !(first & second & KINDS);
        else if (splitter->steps[i].pattern >= SPLIT_BLANK) /* U+2581 is a blank, too */
            cuts |= behind == ' ' && before != ' ' && before != 0x2581;
    }
    return cuts && !has_regex(splitter);
}

/* ---- regular expressions ----------------------------------------------------------------------------------------- */

struct split_memory {
    pcre2_match_data *data;
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
};

static int compile_regex(struct split_step *step, const char *regex, uint32_t options, struct error *err)
{
    PCRE2_SIZE at;
    char why[128];
    int code;

    step->code = pcre2_compile((PCRE2_SPTR)regex, PCRE2_ZERO_TERMINATED, options, &code, &at, NULL);
    if (step->code)
        return 0;
    pcre2_get_error_message(code, (PCRE2_UCHAR *)why, sizeof why);
    return error_set(err, CODE_DATA, "PCRE2 refuses the pattern at its byte %zu: %s", at, why);
}

/* The pattern is compiled as it is first: a message has the place of an error in that. */
static int compile_step(struct split_step *step, uint32_t options, struct error *err)
{
    char *translated;
    int status = compile_regex(step, step->regex, options, err);

    if (status < 0 || (options & PCRE2_LITERAL))
        return status;
    translated = split_translate(step->regex, err);
    if (!translated)
        return -1;
    pcre2_code_free(step->code);
    status = compile_regex(step, translated, options, err);
    free(translated);
    return status;
}

int splitter_add(struct splitter *splitter, const char *regex, bool literal, bool matches_only, struct error *err)
{
    struct split_step *step = &splitter->steps[splitter->count];
    uint32_t options = PCRE2_UTF | PCRE2_MATCH_INVALID_UTF | (literal ? PCRE2_LITERAL : PCRE2_UCP | PCRE2_MULTILINE);
    uint32_t empty = 0;

    if (splitter->count == SPLIT_STEPS)
        return error_set(err, CODE_DATA, "more than %d splits, one after the other, are not supported", SPLIT_STEPS);
    for (int i = 0; i < SPLIT_SCANNERS && !literal; i++)
        if (strcmp(regex, split_patterns[i]) == 0) {
            *step = (struct split_step){.pattern = (enum split_pattern)i};
            splitter->count++;
            return 0;
        }
    *step = (struct split_step){.pattern = SPLIT_REGEX, .matches_only = matches_only, .regex = strdup(regex)};
    if (!step->regex)
        return error_set(err, CODE_IO, "out of memory for a split pattern");
    if (compile_step(step, options, err) < 0) {
        pcre2_code_free(step->code);
        free(step->regex);
        return -1;
    }
    splitter->count++;
    pcre2_pattern_info(step->code, PCRE2_INFO_MATCHEMPTY, &empty);
    if (empty)
        return error_set(err, CODE_DATA, "patterns that match empty text are not supported");
    pcre2_jit_compile(step->code, PCRE2_JIT_COMPLETE); /* without it the interpreter runs */
    return 0;
}

void splitter_free(struct splitter *splitter)
{
    for (int i = 0; i < splitter->count; i++) {
        pcre2_code_free(splitter->steps[i].code);
        free(splitter->steps[i].regex);
    }
}

int split_memory_create(const struct splitter *splitter, struct split_memory **memory, struct error *err)
{
    *memory = NULL;
    if (!has_regex(splitter))
        return 0;
    *memory = calloc(1, sizeof **memory);
    if (*memory) {
        (*memory)->data = pcre2_match_data_create(1, NULL);
        (*memory)->context = pcre2_match_context_create(NULL);
        (*memory)->stack = pcre2_jit_stack_create(32 << 10, 64 << 20, NULL);
    }
    if (!*memory || !(*memory)->data || !(*memory)->context || !(*memory)->stack) {
        split_memory_destroy(*memory);
        *memory = NULL;
        return error_set(err, CODE_IO, "out of memory for a split pattern");
    }
    pcre2_jit_stack_assign((*memory)->context, NULL, (*memory)->stack);
    return 0;
}

void split_memory_destroy(struct split_memory *memory)
{
    if (!memory)
        return;
    pcre2_match_data_free(memory->data);
    pcre2_match_context_free(memory->context);
    pcre2_jit_stack_free(memory->stack);
    free(memory);
}

int split_search(const struct split_step *step, struct split_memory *memory, const char *text, size_t from,
                 size_t bytes, size_t *begin, size_t *stop, struct error *err)
{
    int found = pcre2_match(step->code, (PCRE2_SPTR)text, bytes, from, 0, memory->data, memory->context);
    const PCRE2_SIZE *at;
    char why[128];

    if (found == PCRE2_ERROR_NOMATCH)
        return 0;
    if (found < 0) {
        pcre2_get_error_message(found, (PCRE2_UCHAR *)why, sizeof why);
        return error_set(err, CODE_DATA, "the split pattern '%.200s' fails %zu bytes into a text: %s", step->regex,
                         from, why);
    }
    at = pcre2_get_ovector_pointer(memory->data);
    *begin = at[0];
    *stop = at[1];
    if (*stop <= *begin || *begin < from) /* \K can do that */
        return error_set(err, CODE_DATA, "the split pattern '%.200s' has an empty match", step->regex);
    return 1;
}
