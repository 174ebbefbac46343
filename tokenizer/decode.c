/* decode.c - from ids to text, all at once or as they come. */
#include "tokenizer/tokenizer_impl.h"

/* BERT's words are separated by blanks, and pieces within a word begin with "##". */
static int append_wordpiece(const char *token, size_t bytes, bool first, struct text_list *text, struct error *err)
{
    if (bytes > 2 && token[0] == '#' && token[1] == '#' && !first)
        return text_list_append(text, token + 2, bytes - 2, err);
    if (!first && text_list_append(text, " ", 1, err) < 0)
        return -1;
    return text_list_append(text, token, bytes, err);
}

static int append_token(const struct tokenizer *tokenizer, struct decode_state *state, int32_t id,
                        struct text_list *text, struct error *err)
{
    const struct token_entry *entry = &tokenizer->table.entries[id];
    const char *token = tokenizer->table.bytes + entry->at;
    size_t bytes = entry->length;
    bool first = !state->begun;

    if (tokenizer->kind == KIND_SENTENCEPIECE && id != tokenizer->unknown && (entry->flags & TOKEN_SPECIAL))
        return 0; /* they have no text, and do not begin it */
    if (tokenizer->kind == KIND_SENTENCEPIECE && id == tokenizer->unknown) {
        token = " \xe2\x81\x87 "; /* what the library prints: " U+2047 " */
        bytes = strlen(token);
    } else if (first && tokenizer->drop_blank && bytes > 0 && *token == ' ') {
        token++;
        bytes--;
    }
    state->begun = true;
    if (tokenizer->kind == KIND_WORDPIECE)
        return append_wordpiece(token, bytes, first, text, err);
    return text_list_append(text, token, bytes, err);
}

/* How many bytes at the end of the text begin a character whose other bytes are not there: 0 to 3. */
static size_t open_character(const char *text, size_t bytes)
{
    for (size_t back = 1; back <= 3 && back <= bytes; back++) {
        uint8_t byte = (uint8_t)text[bytes - back];
        size_t length = byte >= 0xf0 && byte < 0xf5   ? 4
                        : byte >= 0xe0 && byte < 0xf0 ? 3
                        : byte >= 0xc2 && byte < 0xe0 ? 2
                                                      : 0;

        if ((byte & 0xc0) != 0x80)
            return length > back ? back : 0;
    }
    return 0;
}

int tokenizer_decode(const struct tokenizer *tokenizer, struct decode_state *state, const int32_t *ids, size_t count,
                     bool more, struct text_list *text, struct error *err)
{
    size_t begin = text->count, held;

    if (text_list_append(text, state->bytes, (size_t)state->held, err) < 0)
        return -1;
    state->held = 0;
    for (size_t i = 0; i < count; i++) {
        size_t bytes;

        if (!tokenizer_token(tokenizer, ids[i], &bytes))
            return error_set(err, CODE_DATA, "token %d is not in the vocabulary, which has the ids 0 to %d",
                             (int)ids[i], (int)tokenizer->table.size - 1);
        if (append_token(tokenizer, state, ids[i], text, err) < 0)
            return -1;
    }
    held = more && text->count > begin ? open_character(text->text + begin, text->count - begin) : 0;
    text->count -= held;
    if (held > 0)
        memcpy(state->bytes, text->text + text->count, held);
    state->held = (int)held;
    return 0;
}
