/* added_tokens.c - finds added tokens, such as "<|endoftext|>", in text before it is split into words. */
#include "tokenizer/tokenizer_impl.h"

#include <stdlib.h>

static int compare_tokens(const void *left, const void *right)
{
    const struct added_token *a = left, *b = right;
    size_t common = a->bytes < b->bytes ? a->bytes : b->bytes;
    int order = memcmp(a->text, b->text, common);

    order = order ? order : (a->bytes < b->bytes) - (a->bytes > b->bytes);
    return order ? order : b->order - a->order;
}

int added_set_add(struct added_set *set, const struct added_token *token, struct error *err)
{
    char *text = error_calloc(token->bytes + 1, 1, err);

    if (!text || error_reserve(&set->tokens, &set->room, (size_t)set->count, 1, sizeof *token, err) < 0) {
        free(text);
        return -1;
    }
    memcpy(text, token->text, token->bytes);
    set->tokens[set->count] = *token;
    set->tokens[set->count].order = set->count;
    set->tokens[set->count++].text = text;
    return 0;
}

void added_set_close(struct added_set *set)
{
    if (set->count > 0)
        qsort(set->tokens, (size_t)set->count, sizeof *set->tokens, compare_tokens);
    for (int i = 0; i < set->count; i++) {
        const uint8_t *text = (const uint8_t *)set->tokens[i].text;

        set->first[text[0] + 1] = i + 1;
        set->longest = set->tokens[i].bytes > set->longest ? set->tokens[i].bytes : set->longest;
        for (int second = 0; second < 256; second++)
            if (set->tokens[i].bytes == 1 || text[1] == second)
                set->pairs[(text[0] << 8 | second) >> 3] |= (uint8_t)(1 << (second & 7));
    }
    for (int i = 1; i <= 256; i++) /* bytes that begin no token: an empty range */
        set->first[i] = set->first[i] ? set->first[i] : set->first[i - 1];
}

void added_set_free(struct added_set *set)
{
    for (int i = 0; i < set->count; i++)
        free(set->tokens[i].text);
    free(set->tokens);
}

/* The index of the token that begins at `at`, of several the longest; -1 for none. */
static int token_at(const struct added_set *set, const char *at, const char *end)
{
    unsigned first = (uint8_t)*at, second = at + 1 < end ? (uint8_t)at[1] : 0;

    if (at + 1 < end && !(set->pairs[(first << 8 | second) >> 3] & 1 << (second & 7)))
        return -1;
    for (int i = set->first[first]; i < set->first[first + 1]; i++)
        if (set->tokens[i].bytes <= (size_t)(end - at) && memcmp(set->tokens[i].text, at, set->tokens[i].bytes) == 0)
            return i;
    return -1;
}

/* Whether single words end at both ends of text[begin, stop). */
static bool is_single(const char *text, size_t bytes, size_t begin, size_t stop)
{
    const uint8_t *start = (const uint8_t *)text, *end = start + bytes;
    uint32_t code;

    if (begin > 0) {
        utf8_previous(start, start + begin, &code);
        if (unicode_in_word(code))
            return false;
    }
    if (stop < bytes) {
        utf8_next(start + stop, end, &code);
        return !unicode_in_word(code);
    }
    return true;
}

/* A token with `left` takes the white space before it, one with `right` that behind it. */
static void take_space(const struct added_token *token, const char *text, size_t bytes, struct added_match *match)
{
    const uint8_t *classes = unicode_classes(), *start = (const uint8_t *)text, *end = start + bytes;
    uint32_t code;
    int length;

    for (; token->left && match->begin > 0; match->begin -= (size_t)length) {
        length = utf8_previous(start, start + match->begin, &code);
        if (!(classes[code] & CLASS_SPACE))
            break;
    }
    for (; token->right && match->end < bytes; match->end += (size_t)length) {
        length = utf8_next(start + match->end, end, &code);
        if (!(classes[code] & CLASS_SPACE))
            break;
    }
}

static int add_match(struct added_matches *found, int token, size_t begin, size_t end, struct error *err)
{
    if (error_reserve(&found->matches, &found->room, found->count, 1, sizeof *found->matches, err) < 0)
        return -1;
    found->matches[found->count++] = (struct added_match){token, begin, end};
    return 0;
}

int added_find(const struct added_set *set, const char *text, size_t bytes, bool plain, struct added_matches *found,
               struct error *err)
{
    const char *end = text + bytes;
    size_t taken = 0;

    found->count = 0;
    for (const char *at = text; set->count > 0 && at < end;) {
        int index = token_at(set, at, end);
        const struct added_token *token;
        struct added_match match;

        if (index < 0) {
            at++;
            continue;
        }
        token = &set->tokens[index];
        match = (struct added_match){index, (size_t)(at - text), (size_t)(at - text) + token->bytes};
        at += token->bytes; /* passed over even if it does not count */
        if ((plain && token->special) || (token->single_word && !is_single(text, bytes, match.begin, match.end)))
            continue;
        take_space(token, text, bytes, &match);
        if (token->left && match.begin < taken) /* otherwise both tokens count, as in the references */
            match.begin = taken;
        if (match.end <= match.begin)
            continue;
        if (match.begin > taken && add_match(found, -1, taken, match.begin, err) < 0)
            return -1;
        if (add_match(found, index, match.begin, match.end, err) < 0)
            return -1;
        taken = match.end;
    }
    return taken < bytes ? add_match(found, -1, taken, bytes, err) : 0;
}
