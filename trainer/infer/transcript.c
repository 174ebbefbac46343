#include "trainer/infer/transcript.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/text.h"

static int append_bytes(struct text_list *to, const char *text, size_t bytes, struct error *err)
{
    if (to->room - to->count < bytes) {
        size_t room = 2 * to->room + bytes + 64;
        char *grown = realloc(to->text, room);

        if (!grown)
            return error_errno(err, CODE_IO, "%zu bytes of text", room);
        to->text = grown;
        to->room = room;
    }
    memcpy(to->text + to->count, text, bytes);
    to->count += bytes;
    return 0;
}

int text_append_utf8(struct text_list *to, const char *text, size_t bytes, struct error *err)
{
    for (size_t i = 0; i < bytes;) {
        char character[5] = {0}; /* zero-terminated, since the text is not */
        size_t length;

        memcpy(character, text + i, bytes - i < 4 ? bytes - i : 4);
        length = character[0] ? text_utf8_length(character) : 1;
        if (append_bytes(to, length ? character : "\xef\xbf\xbd", length ? length : 3, err) < 0)
            return -1;
        i += length ? length : 1;
    }
    return 0;
}

/* ---- stop texts ---- */

/* Where a stop text begins that ends behind byte `from`; text.count if there is none. */
static size_t find_stop(const struct text_list *text, size_t from, const char *const *stops, size_t nstops)
{
    size_t first = text->count;

    for (size_t i = 0; i < nstops; i++) {
        size_t length = strlen(stops[i]), at = from < length ? 0 : from - length + 1;
        const char *found =
            at + length <= text->count ? memmem(text->text + at, text->count - at, stops[i], length) : NULL;

        if (found && (size_t)(found - text->text) < first)
            first = (size_t)(found - text->text);
    }
    return first;
}

/* The longest end of the text that is the beginning of a stop text. */
static size_t begun_stop(const struct text_list *text, const char *const *stops, size_t nstops)
{
    size_t longest = 0;

    for (size_t i = 0; i < nstops; i++) {
        size_t length = strlen(stops[i]) - 1;

        length = length < text->count ? length : text->count;
        while (length > longest && memcmp(text->text + text->count - length, stops[i], length) != 0)
            length--;
        longest = length > longest ? length : longest;
    }
    return longest;
}

/* ---- the text ---- */

static int append_token(struct transcript *t, const struct tokenizer *tokenizer, int32_t id, struct error *err)
{
    char number[16];

    if (tokenizer)
        return tokenizer_decode(tokenizer, &t->state, &id, 1, DECODE_MORE, &t->text, err);
    snprintf(number, sizeof number, " %d", id);
    return append_bytes(&t->text, number, strlen(number), err);
}

int transcript_add(struct transcript *t, const struct tokenizer *tokenizer, int32_t id, const char *const *stops,
                   size_t nstops, struct error *err)
{
    size_t before = t->text.count, end;

    if (append_token(t, tokenizer, id, err) < 0)
        return -1;
    end = find_stop(&t->text, before, stops, nstops);
    t->stopped = end < t->text.count;
    t->text.count = end;
    t->certain = t->stopped ? end : end - begun_stop(&t->text, stops, nstops);
    return 0;
}

int transcript_finish(struct transcript *t, const struct tokenizer *tokenizer, struct error *err)
{
    if (tokenizer && !t->stopped && tokenizer_decode(tokenizer, &t->state, NULL, 0, 0, &t->text, err) < 0)
        return -1;
    t->certain = t->text.count;
    return 0;
}
