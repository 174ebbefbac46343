/* tokenizer.c - answers questions about a tokenizer and its tokens; from ids to text, all at once or as they come. */
#include "tokenizer/tokenizer_impl.h"

#include <stdlib.h>

#include "common/crc32c.h"

const char *tokenizer_kind(const struct tokenizer *tokenizer)
{
    static const char *const kinds[] = {"bytes", "byte-level BPE", "WordPiece", "SentencePiece"};

    return tokenizer->kind == KIND_BPE && tokenizer->characters ? "BPE" : kinds[tokenizer->kind];
}

const char *tokenizer_path(const struct tokenizer *tokenizer)
{
    return tokenizer->path;
}

const char *tokenizer_note(const struct tokenizer *tokenizer)
{
    return tokenizer->note[0] ? tokenizer->note : NULL;
}

int32_t tokenizer_size(const struct tokenizer *tokenizer)
{
    return tokenizer->table.size;
}

uint32_t tokenizer_fingerprint(const struct tokenizer *tokenizer)
{
    return tokenizer->fingerprint;
}

const char *tokenizer_token(const struct tokenizer *tokenizer, int32_t id, size_t *bytes)
{
    const struct token_table *table = &tokenizer->table;

    if (id < 0 || id >= table->size || !table->entries[id].flags)
        return NULL;
    *bytes = table->entries[id].length;
    return table->bytes + table->entries[id].at;
}

int32_t tokenizer_special(const struct tokenizer *tokenizer, enum special_token special)
{
    return tokenizer->special[special];
}

int32_t tokenizer_find(const struct tokenizer *tokenizer, const char *token)
{
    return find_written(tokenizer, token, strlen(token));
}

int32_t tokenizer_begin(const struct tokenizer *tokenizer)
{
    return tokenizer->begin_token;
}

/* Whether files of byte-level BPE write the text as it is. */
static bool is_shown(const char *text)
{
    while (*text > ' ' && *text < 0x7f)
        text++;
    return !*text;
}

int tokenizer_add_token(struct tokenizer *tokenizer, const struct added_token *token, struct error *err)
{
    struct token_table *table = &tokenizer->table;
    bool known = token->id < table->size && table->entries[token->id].flags;
    int32_t other = find_written(tokenizer, token->text, token->bytes);

    if (token->bytes == 0)
        return 0;
    if (known && other != token->id &&
        (table->entries[token->id].length != token->bytes ||
         memcmp(table->bytes + table->entries[token->id].at, token->text, token->bytes) != 0))
        return error_set(err, CODE_DATA, "the id %d of '%.100s' has another token in the vocabulary", (int)token->id,
                         token->text);
    if (other >= 0 && other != token->id && is_shown(token->text))
        return error_set(err, CODE_DATA, "'%.100s' has the id %d here and %d in the vocabulary", token->text,
                         (int)token->id, (int)other);
    if (!known) {
        if (token_table_add(table, token->id, token->text, token->bytes, TOKEN_ADDED, err) < 0)
            return -1;
    }
    table->entries[token->id].flags |= TOKEN_FOUND | (token->special ? TOKEN_SPECIAL : 0);
    return added_set_add(token->normalized ? &tokenizer->normalized : &tokenizer->raw, token, err);
}

/* ---- the fingerprint --------------------------------------------------------------------------------------------- */

static uint32_t sum_number(uint32_t crc, uint64_t number)
{
    uint8_t bytes[8];

    for (int i = 0; i < 8; i++)
        bytes[i] = (uint8_t)(number >> 8 * i);
    return crc32c(crc, bytes, 8);
}

static uint32_t sum_text(uint32_t crc, const char *text, size_t bytes)
{
    return crc32c(sum_number(crc, bytes), text, bytes);
}

static uint32_t sum_added(uint32_t crc, const struct added_set *set)
{
    for (int i = 0; i < set->count; i++) {
        const struct added_token *token = &set->tokens[i];

        crc = sum_text(sum_number(crc, (uint64_t)token->id), token->text, token->bytes);
        crc = sum_number(crc, (uint64_t)token->single_word << 3 | (uint64_t)token->left << 2 |
                                  (uint64_t)token->right << 1 | (uint64_t)token->special);
    }
    return crc;
}

static uint32_t sum_tokenizer(const struct tokenizer *tokenizer)
{
    const struct token_table *table = &tokenizer->table;
    const char *kind = tokenizer_kind(tokenizer);
    uint32_t crc = sum_text(tokenizer->fingerprint, kind, strlen(kind));
    uint64_t merges = 0; /* a sum, because their order in the table depends on the order of adding */

    for (int32_t id = 0; id < table->size; id++)
        if (table->entries[id].flags)
            crc = sum_text(sum_number(crc, (uint64_t)id), table->bytes + table->entries[id].at,
                           table->entries[id].length);
    for (uint32_t i = 0; tokenizer->merges.slots && i <= tokenizer->merges.mask; i++) {
        const struct merge_slot *slot = &tokenizer->merges.slots[i];

        if (slot->pair != UINT64_MAX)
            merges += (slot->pair ^ (uint64_t)slot->merge.rank << 20) * 0x9e3779b97f4a7c15u ^ (uint64_t)slot->merge.id
                                                                                                  << 7;
    }
    crc = sum_number(crc, merges);
    for (int i = 0; i < tokenizer->splitter.count; i++) {
        const struct split_step *step = &tokenizer->splitter.steps[i];
        const char *regex = step->regex ? step->regex : split_patterns[step->pattern];

        crc = sum_text(sum_number(crc, step->matches_only), regex, strlen(regex));
    }
    crc = sum_added(sum_added(crc, &tokenizer->raw), &tokenizer->normalized);
    return sum_number(crc, (uint64_t)tokenizer->nfc | (uint64_t)tokenizer->prefix_space << 1 |
                               (uint64_t)tokenizer->whole_words << 2 | (uint64_t)tokenizer->clean << 3 |
                               (uint64_t)tokenizer->chinese << 4 | (uint64_t)tokenizer->lower << 5 |
                               (uint64_t)tokenizer->strip << 6 | (uint64_t)tokenizer->prepend << 7 |
                               (uint64_t)tokenizer->prefix_first << 8 | (uint64_t)tokenizer->fuse_unknown << 9);
}

/* ---- decoding ---------------------------------------------------------------------------------------------------- */

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

/* ---- added tokens that are found in normalized text -------------------------------------------------------------- */

/* Whether cuts, which are in text as it is written, could be in a token: one that has more than one word, or a character
 * that can be written in two ways. */
static bool hides_cuts(const struct tokenizer *tokenizer, const char *text, size_t bytes)
{
    bool hides = false;

    for (size_t i = 0; i < bytes; i++)
        hides |= tokenizer->kind == KIND_WORDPIECE ? strchr(" \n\t", text[i]) != NULL
                 : tokenizer->characters           ? i > 0 && text[i] == ' '
                                                   : tokenizer->nfc && (text[i] & 0x80);
    return hides;
}

static int normalize_token(struct tokenizer *tokenizer, struct added_token *token, struct error *err)
{
    struct text_list room = {0};
    const char *text = token->text;
    size_t bytes = token->bytes;
    int result = tokenizer_normalize(tokenizer, true, &text, &bytes, &room, err);

    if (result == 0 && text != token->text) {
        result = text_list_append(&room, "", 1, err);
        free(token->text);
        token->text = room.text;
        token->bytes = bytes;
    } else {
        free(room.text);
    }
    if (result == 0)
        tokenizer->never_cut |= hides_cuts(tokenizer, token->text, token->bytes);
    return result;
}

static int normalize_tokens(struct tokenizer *tokenizer, struct error *err)
{
    struct added_set *set = &tokenizer->normalized;

    for (int i = 0; i < set->count;) {
        if (normalize_token(tokenizer, &set->tokens[i], err) < 0)
            return -1;
        if (set->tokens[i].bytes > 0) {
            i++;
        } else {
            free(set->tokens[i].text);
            set->tokens[i] = set->tokens[--set->count];
        }
    }
    return 0;
}

/* ---- opening and closing ----------------------------------------------------------------------------------------- */

int tokenizer_finish(struct tokenizer *tokenizer, struct error *err)
{
    const struct token_table *table = &tokenizer->table;

    if (normalize_tokens(tokenizer, err) < 0)
        return -1;
    added_set_close(&tokenizer->raw);
    added_set_close(&tokenizer->normalized);
    for (int i = 0; i < SPECIAL_TOKENS; i++)
        if (tokenizer->special[i] >= 0)
            table->entries[tokenizer->special[i]].flags |= TOKEN_SPECIAL;
    for (int32_t id = 0; id < table->size; id++)
        if (table->entries[id].length > tokenizer->longest)
            tokenizer->longest = table->entries[id].length;
    tokenizer->fingerprint = sum_tokenizer(tokenizer);
    return 0;
}

void tokenizer_close(struct tokenizer *tokenizer)
{
    if (!tokenizer)
        return;
    token_table_free(&tokenizer->table);
    added_set_free(&tokenizer->raw);
    added_set_free(&tokenizer->normalized);
    splitter_free(&tokenizer->splitter);
    free(tokenizer->merges.slots);
    free(tokenizer->merges.seen);
    piece_model_destroy(tokenizer->pieces);
    free(tokenizer);
}
