/*
 * wordpiece.c - BERT's tokens: text is cleaned, divided into words at white space and around punctuation, and each word
 * is covered from the left by the longest tokens that fit (Devlin et al., arXiv 1810.04805).
 */
#include "tokenizer/tokenizer_impl.h"

#include <utf8proc.h>

/* The blocks that BERT takes for Chinese: each character is a word. */
static bool is_chinese(uint32_t code)
{
    return (code >= 0x4e00 && code <= 0x9fff) || (code >= 0x3400 && code <= 0x4dbf) ||
           (code >= 0x20000 && code <= 0x2a6df) || (code >= 0x2a700 && code <= 0x2b73f) ||
           (code >= 0x2b740 && code <= 0x2b81f) || (code >= 0x2b920 && code <= 0x2ceaf) ||
           (code >= 0xf900 && code <= 0xfaff) || (code >= 0x2f800 && code <= 0x2fa1f);
}

bool wordpiece_cuts(const struct tokenizer *tokenizer, uint32_t behind)
{
    return behind == ' ' || behind == '\n' || behind == '\t' ||
           (tokenizer->chinese && behind >= 0x4e00 && behind <= 0x9fff);
}

/* The canonical decomposition (NFD) of a code point: 1 to 4 code points, Hangul too. Returns their number. */
static int decompose_code(uint32_t code, int32_t out[4])
{
    utf8proc_ssize_t length;
    int boundary = 0;

    out[0] = (int32_t)code;
    if (code < 0xc0)
        return 1;
    length = utf8proc_decompose_char(out[0], out, 4, UTF8PROC_DECOMPOSE, &boundary);
    return length >= 1 && length <= 4 ? (int)length : 1;
}

/* The combining class of a mark, by which NFD orders the marks of a character; 0 for other characters. */
static int mark_order(uint32_t code)
{
    return utf8proc_get_property((utf8proc_int32_t)code)->combining_class;
}

/* The text as it is built. NFD orders the marks behind a character: those that are not removed wait here. */
struct folding {
    const struct tokenizer *tokenizer;
    struct text_list *out;
    uint32_t marks[32]; /* a longer run is ordered in parts */
    int count;
};

static int append_code(struct folding *folding, uint32_t code, struct error *err)
{
    bool lower = folding->tokenizer->lower;
    char bytes[4];

    if (lower && code == 0x130) /* the only one whose lower case is two code points */
        return text_list_append(folding->out, "i\xcc\x87", 3, err);
    code = lower ? (uint32_t)utf8proc_tolower((utf8proc_int32_t)code) : code;
    return text_list_append(folding->out, bytes, (size_t)utf8_write(code, bytes), err);
}

static int flush_marks(struct folding *folding, struct error *err)
{
    int count = folding->count, result = 0;

    folding->count = 0;
    for (int i = 0; i < count && result == 0; i++)
        result = append_code(folding, folding->marks[i], err);
    return result;
}

static int append_mark(struct folding *folding, uint32_t code, struct error *err)
{
    int at, order = mark_order(code);

    if (folding->count == (int)(sizeof folding->marks / sizeof folding->marks[0]) && flush_marks(folding, err) < 0)
        return -1;
    for (at = folding->count++; at > 0 && mark_order(folding->marks[at - 1]) > order; at--)
        folding->marks[at] = folding->marks[at - 1];
    folding->marks[at] = code;
    return 0;
}

/* One character without its accents, in lower case, whichever of the two is asked for. */
static int append_folded(struct folding *folding, uint32_t code, struct error *err)
{
    int32_t parts[4] = {(int32_t)code};
    bool strip = folding->tokenizer->strip;
    int count = strip ? decompose_code(code, parts) : 1, result = 0;

    for (int i = 0; i < count && result == 0; i++) {
        uint32_t part = (uint32_t)parts[i];
        bool mark = strip && mark_order(part) > 0;

        if (!mark)
            result = flush_marks(folding, err);
        if (result < 0 || (strip && (unicode_classes()[part] & CLASS_ACCENT)))
            continue;
        result = mark ? append_mark(folding, part, err) : append_code(folding, part, err);
    }
    return result;
}

int wordpiece_normalize(const struct tokenizer *tokenizer, const char *text, size_t bytes, struct text_list *out,
                        struct error *err)
{
    const uint8_t *classes = unicode_classes(), *at = (const uint8_t *)text, *end = at + bytes;
    struct folding folding = {.tokenizer = tokenizer, .out = out};
    uint32_t code;

    while (at < end) {
        const uint8_t *begin = at;
        bool chinese;

        for (; at < end && *at >= ' ' && *at < 0x7f && !(tokenizer->lower && *at >= 'A' && *at <= 'Z'); at++)
            ; /* nothing becomes of these */
        if (at > begin && (flush_marks(&folding, err) < 0 ||
                           text_list_append(out, (const char *)begin, (size_t)(at - begin), err) < 0))
            return -1;
        if (at == end)
            break;
        at += utf8_next(at, end, &code);
        if (tokenizer->clean) {
            bool line = code == '\t' || code == '\n' || code == '\r';

            if (!line && (code == 0 || code == REPLACEMENT || (classes[code] & CLASS_CONTROL)))
                continue;
            if (classes[code] & CLASS_SPACE)
                code = ' ';
        }
        chinese = tokenizer->chinese && is_chinese(code);
        if ((chinese && append_folded(&folding, ' ', err) < 0) || append_folded(&folding, code, err) < 0 ||
            (chinese && append_folded(&folding, ' ', err) < 0))
            return -1;
    }
    return flush_marks(&folding, err);
}

/* The end of the word at *text, after white space; *text moves to its beginning. Punctuation is a word of its own. */
const char *wordpiece_next(const char **text, const char *end)
{
    const uint8_t *classes = unicode_classes(), *at = (const uint8_t *)*text, *stop = (const uint8_t *)end;
    uint32_t code;
    int length;

    while (at < stop) {
        length = utf8_next(at, stop, &code);
        if (!(classes[code] & CLASS_SPACE))
            break;
        at += length;
    }
    *text = (const char *)at;
    for (const uint8_t *begin = at; at < stop; at += length) {
        length = utf8_next(at, stop, &code);
        if (classes[code] & CLASS_PUNCT)
            return (const char *)(at == begin ? at + length : at);
        if (classes[code] & CLASS_SPACE)
            break;
    }
    return (const char *)at;
}

/* The longest token that begins text, where `inside` a word it is written with "##"; its length in *taken. */
static int32_t longest_token(const struct tokenizer *tokenizer, const char *text, size_t bytes, bool inside,
                             size_t *taken)
{
    char piece[4 * BERT_WORD_MOST + 2] = "##";
    size_t prefix = inside ? 2 : 0, most = tokenizer->longest > prefix ? tokenizer->longest - prefix : 0;

    *taken = bytes < most ? bytes : most;
    memcpy(piece + prefix, text, *taken);
    for (; *taken > 0; --*taken) {
        bool whole = *taken == bytes || ((uint8_t)text[*taken] & 0xc0) != 0x80; /* characters */
        int32_t id = whole ? token_table_own(&tokenizer->table, piece, prefix + *taken) : -1;

        if (id >= 0)
            return id;
    }
    return -1;
}

int wordpiece_word(const struct tokenizer *tokenizer, const char *word, size_t bytes, struct token_list *ids,
                   struct error *err)
{
    size_t count = ids->count, at = 0, characters = 0, taken;

    if (token_list_reserve(ids, bytes + 1, err) < 0)
        return -1;
    for (size_t i = 0; i < bytes; i++)
        characters += ((uint8_t)word[i] & 0xc0) != 0x80;
    for (; characters <= BERT_WORD_MOST && at < bytes; at += taken) {
        int32_t id = longest_token(tokenizer, word + at, bytes - at, at > 0, &taken);

        if (id < 0)
            break;
        ids->ids[count++] = id;
    }
    if (at < bytes) {
        count = ids->count;
        ids->ids[count++] = tokenizer->unknown;
    }
    ids->count = count;
    return 0;
}
