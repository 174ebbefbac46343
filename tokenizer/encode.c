/* encode.c - from text to ids: added tokens, normalization, words, a cache of words; and where text can be cut. */
#include "tokenizer/tokenizer_impl.h"

#include <stdlib.h>

/*
 * The cache: one entry for each hash, the last word that had it. Most words of a text are short, few and frequent: on
 * English 97% are found.
 */
#define CACHE_ENTRIES (1 << 14)
#define CACHED_BYTES  46
#define CACHED_IDS    20

#define PIECE_BYTES 4096 /* of SentencePiece's texts */

struct cached_word {
    uint8_t bytes, count; /* 0 bytes: empty */
    char word[CACHED_BYTES];
    int32_t ids[CACHED_IDS];
};

struct encoder {
    const struct tokenizer *tokenizer;
    const uint8_t *classes;
    struct cached_word *cache; /* [CACHE_ENTRIES] */
    struct word_scratch scratch;
    struct split_memory *memory;
    struct added_matches raw, normalized; /* matches in the text, and in a part of it */
    struct text_list prefixed, form;      /* a part of the text: with a blank before it; normalized */
};

struct encoder *encoder_create(const struct tokenizer *tokenizer, struct error *err)
{
    struct encoder *encoder = error_calloc(1, sizeof *encoder, err);

    if (!encoder)
        return NULL;
    encoder->tokenizer = tokenizer;
    encoder->classes = unicode_classes();
    encoder->cache = error_calloc(CACHE_ENTRIES, sizeof *encoder->cache, err);
    if (encoder->cache && split_memory_create(&tokenizer->splitter, &encoder->memory, err) == 0)
        return encoder;
    encoder_destroy(encoder);
    return NULL;
}

void encoder_destroy(struct encoder *encoder)
{
    if (!encoder)
        return;
    split_memory_destroy(encoder->memory);
    free(encoder->cache);
    free(encoder->scratch.numbers);
    free(encoder->scratch.heap);
    free(encoder->raw.matches);
    free(encoder->normalized.matches);
    free(encoder->prefixed.text);
    free(encoder->form.text);
    free(encoder);
}

/* ---- words ------------------------------------------------------------------------------------------------------- */

/* A word that is not in the cache, of which `entry` is the place. */
static int encode_new_word(struct encoder *encoder, struct cached_word *entry, const char *word, size_t bytes,
                           struct token_list *ids, struct error *err)
{
    const struct tokenizer *tokenizer = encoder->tokenizer;
    const uint64_t lost = encoder->scratch.loss.bytes;
    size_t first = ids->count;

    if ((tokenizer->kind == KIND_WORDPIECE ? wordpiece_word(tokenizer, word, bytes, ids, err)
                                           : bpe_word(tokenizer, &encoder->scratch, word, bytes, ids, err)) < 0)
        return -1;
    if (bytes <= CACHED_BYTES && ids->count - first <= CACHED_IDS && encoder->scratch.loss.bytes == lost) {
        entry->bytes = (uint8_t)bytes;
        entry->count = (uint8_t)(ids->count - first);
        memcpy(entry->word, word, bytes);
        memcpy(entry->ids, ids->ids + first, entry->count * sizeof *ids->ids);
    }
    return 0;
}

static inline int encode_word(struct encoder *encoder, const char *word, size_t bytes, struct token_list *ids,
                              struct error *err)
{
    struct cached_word *entry = &encoder->cache[hash_bytes(word, bytes) & (CACHE_ENTRIES - 1)];

    if (entry->bytes != bytes || memcmp(entry->word, word, bytes) != 0)
        return encode_new_word(encoder, entry, word, bytes, ids, err);
    if (ids->room - ids->count < CACHED_IDS && token_list_reserve(ids, CACHED_IDS, err) < 0)
        return -1;
    for (int i = 0; i < entry->count; i++)
        ids->ids[ids->count + (size_t)i] = entry->ids[i];
    ids->count += entry->count;
    return 0;
}

/* A text through the steps of the splitter from `level` on. */
static int encode_split(struct encoder *encoder, int level, const char *text, size_t bytes, struct token_list *ids,
                        struct error *err)
{
    const struct splitter *splitter = &encoder->tokenizer->splitter;
    const struct split_step *step = &splitter->steps[level];
    const uint8_t *at = (const uint8_t *)text, *end = at + bytes;
    size_t begin = 0, match = 0, stop = 0;
    int found = 1;

    if (level == splitter->count)
        return bytes > 0 ? encode_word(encoder, text, bytes, ids, err) : 0;
    if (step->pattern != SPLIT_REGEX) {
        for (const uint8_t *next; at < end; at = next) {
            next = split_scan(step->pattern, encoder->classes, at, end);
            if (encode_split(encoder, level + 1, (const char *)at, (size_t)(next - at), ids, err) < 0)
                return -1;
        }
        return 0;
    }
    while (begin < bytes && (found = split_search(step, encoder->memory, text, begin, bytes, &match, &stop, err)) > 0) {
        if (match > begin && !step->matches_only &&
            encode_split(encoder, level + 1, text + begin, match - begin, ids, err) < 0)
            return -1;
        if (encode_split(encoder, level + 1, text + match, stop - match, ids, err) < 0)
            return -1;
        begin = stop;
    }
    if (found < 0 || begin == bytes || step->matches_only)
        return found < 0 ? -1 : 0;
    return encode_split(encoder, level + 1, text + begin, bytes - begin, ids, err);
}

/* ---- parts of a text between added tokens ------------------------------------------------------------------------ */

static int append_id(struct token_list *ids, int32_t id, struct error *err)
{
    if (token_list_reserve(ids, 1, err) < 0)
        return -1;
    ids->ids[ids->count++] = id;
    return 0;
}

static int encode_wordpiece(struct encoder *encoder, const char *text, size_t bytes, struct token_list *ids,
                            struct error *err)
{
    const char *end = text + bytes, *next;

    for (const char *word = text; word < end; word = next) {
        next = wordpiece_next(&word, end);
        if (next > word && encode_word(encoder, word, (size_t)(next - word), ids, err) < 0)
            return -1;
    }
    return 0;
}

/* `first`: it is not the rest of a part. `opens`: nothing of its document is before it. */
static int encode_bpe(struct encoder *encoder, const char *text, size_t bytes, bool first, bool opens,
                      struct token_list *ids, struct error *err)
{
    const struct tokenizer *tokenizer = encoder->tokenizer;

    if (tokenizer->prefix_space && (tokenizer->prefix_first ? opens : first) && text[0] != ' ') {
        encoder->prefixed.count = 0;
        if (text_list_append(&encoder->prefixed, " ", 1, err) < 0 ||
            text_list_append(&encoder->prefixed, text, bytes, err) < 0)
            return -1;
        text = encoder->prefixed.text;
        bytes++;
    }
    return encode_split(encoder, 0, text, bytes, ids, err);
}

/* Long texts in pieces if they can be cut: libsentencepiece's time for BPE grows faster than the text. */
static int encode_sentencepiece(struct encoder *encoder, const char *text, size_t bytes, bool first,
                                struct token_list *ids, struct error *err)
{
    const struct tokenizer *tokenizer = encoder->tokenizer;

    for (size_t piece; bytes > 0; text += piece, bytes -= piece, first = false) {
        size_t blank = !first && tokenizer->adds_blank && *text == ' ';

        piece = 0;
        for (size_t window = PIECE_BYTES; tokenizer->cuttable && piece == 0 && window < bytes; window *= 2)
            piece = tokenizer_cut(tokenizer, text, window);
        piece = piece > 0 ? piece : bytes;
        if ((piece == blank ? append_id(ids, tokenizer->blank, err)
                            : piece_model_encode(tokenizer->pieces, text + blank, piece - blank, ids, err)) < 0)
            return -1;
    }
    return 0;
}

static int encode_part(struct encoder *encoder, const char *text, size_t bytes, bool first, bool opens,
                       struct token_list *ids, struct error *err)
{
    switch (encoder->tokenizer->kind) {
    case KIND_BPE:
        return encode_bpe(encoder, text, bytes, first, opens, ids, err);
    case KIND_WORDPIECE:
        return encode_wordpiece(encoder, text, bytes, ids, err);
    case KIND_SENTENCEPIECE:
        return encoder->tokenizer->characters ? encode_split(encoder, 0, text, bytes, ids, err)
                                              : encode_sentencepiece(encoder, text, bytes, first, ids, err);
    default:
        break;
    }
    if (token_list_reserve(ids, bytes, err) < 0)
        return -1;
    for (size_t i = 0; i < bytes; i++)
        ids->ids[ids->count++] = (uint8_t)text[i];
    return 0;
}

/* Writes blanks for U+2581, and one before the text, and returns 1; or 0 if that changes nothing. */
static int normalize_blanks(const char *text, size_t bytes, bool prepend, struct text_list *out, struct error *err)
{
    const char *end = text + bytes, *next = memmem(text, bytes, BLANK, 3);

    if (bytes == 0 || (!prepend && !next))
        return 0;
    if (prepend && text_list_append(out, " ", 1, err) < 0)
        return -1;
    for (; next; next = memmem(text, (size_t)(end - text), BLANK, 3)) {
        if (text_list_append(out, text, (size_t)(next - text), err) < 0 || text_list_append(out, " ", 1, err) < 0)
            return -1;
        text = next + 3;
    }
    return text_list_append(out, text, (size_t)(end - text), err) < 0 ? -1 : 1;
}

int tokenizer_normalize(const struct tokenizer *tokenizer, bool first, const char **text, size_t *bytes,
                        struct text_list *room, struct error *err)
{
    int changed = 0;

    room->count = 0;
    if (tokenizer->kind == KIND_WORDPIECE)
        changed = wordpiece_normalize(tokenizer, *text, *bytes, room, err) < 0 ? -1 : 1;
    else if (tokenizer->nfc)
        changed = unicode_nfc(*text, *bytes, room, err);
    else if (tokenizer->characters)
        changed = normalize_blanks(*text, *bytes, first && tokenizer->prepend, room, err);
    if (changed > 0) {
        *text = room->text;
        *bytes = room->count;
    }
    return changed < 0 ? -1 : 0;
}

/* A part without raw added tokens: normalization, and the added tokens that are found after it. `opens`: nothing of its
 * document is before it. */
static int encode_normalized(struct encoder *encoder, const char *text, size_t bytes, unsigned flags, bool opens,
                             struct token_list *ids, struct error *err)
{
    const struct tokenizer *tokenizer = encoder->tokenizer;
    bool first = !(flags & ENCODE_CONTINUES);
    int result;

    if (tokenizer_normalize(tokenizer, first, &text, &bytes, &encoder->form, err) < 0)
        return -1;
    if (bytes == 0)
        return 0;
    result = added_find(&tokenizer->normalized, text, bytes, flags & ENCODE_ORDINARY, &encoder->normalized, err);
    for (size_t i = 0; i < encoder->normalized.count && result == 0; i++) {
        struct added_match match = encoder->normalized.matches[i];

        if (match.token >= 0)
            result = append_id(ids, tokenizer->normalized.tokens[match.token].id, err);
        else
            result = encode_part(encoder, text + match.begin, match.end - match.begin, first, opens, ids, err);
        first = true;
        opens = false;
    }
    return result;
}

int encoder_encode(struct encoder *encoder, const char *text, size_t bytes, unsigned flags, struct token_list *ids,
                   struct error *err)
{
    const struct tokenizer *tokenizer = encoder->tokenizer;
    bool opens = !(flags & ENCODE_CONTINUES);
    size_t before = ids->count;
    int result;

    if (bytes == 0)
        return 0;
    if (bytes > ENCODE_MOST)
        return error_set(err, CODE_DATA,
                         "a text of %zu bytes has no place to cut it: at most %zu can be encoded at once", bytes,
                         ENCODE_MOST);
    result = added_find(&tokenizer->raw, text, bytes, flags & ENCODE_ORDINARY, &encoder->raw, err);
    for (size_t i = 0; i < encoder->raw.count && result == 0; i++) {
        struct added_match match = encoder->raw.matches[i];

        result = match.token >= 0
                     ? append_id(ids, tokenizer->raw.tokens[match.token].id, err)
                     : encode_normalized(encoder, text + match.begin, match.end - match.begin, flags, opens, ids, err);
        flags &= ~(unsigned)ENCODE_CONTINUES;
        opens = false;
    }
    if (result < 0)
        ids->count = before;
    return result;
}

struct encode_loss encoder_take_loss(struct encoder *encoder)
{
    struct encode_loss loss = encoder->scratch.loss;

    encoder->scratch.loss = (struct encode_loss){0};
    return loss;
}

/* ---- cuts -------------------------------------------------------------------------------------------------------- */

/* True if no added token of the set can reach to or over the place, nor begin there. */
static bool is_clear(const struct added_set *set, const char *text, size_t place, size_t bytes)
{
    size_t from = place > set->longest ? place - set->longest : 0;

    if (set->count == 0)
        return true;
    if (place + set->longest >= bytes) /* one may follow whose end is not here yet */
        return false;
    for (size_t at = from; at <= place; at++)
        for (int i = set->first[(uint8_t)text[at]]; i < set->first[(uint8_t)text[at] + 1]; i++)
            if (at + set->tokens[i].bytes >= place && memcmp(set->tokens[i].text, text + at, set->tokens[i].bytes) == 0)
                return false;
    return true;
}

/* True if this character does not combine with those before it in NFC: most that text is cut at. */
static bool begins_form(uint32_t code)
{
    return code < 0x300 || (code >= 0x3000 && code <= 0x3029) || (code >= 0xff01 && code <= 0xff65);
}

/* Whether no word reaches over the place between two characters, whatever else the text has. */
static bool words_end(const struct tokenizer *tokenizer, uint32_t before, uint32_t behind)
{
    const uint8_t *classes = unicode_classes();

    if (tokenizer->kind == KIND_BPE || tokenizer->characters)
        return splitter_cuts(&tokenizer->splitter, before, behind);
    if (tokenizer->kind == KIND_WORDPIECE)
        return wordpiece_cuts(tokenizer, behind);
    return tokenizer->cuttable && behind == ' ' && before < 0x80 && (classes[before] & (CLASS_LETTER | CLASS_NUMBER));
}

size_t tokenizer_cut(const struct tokenizer *tokenizer, const char *text, size_t bytes)
{
    const uint8_t *start = (const uint8_t *)text, *end = start + bytes;

    if (tokenizer->kind == KIND_BYTES)
        return bytes > 1 ? bytes - 1 : 0;
    if (tokenizer->never_cut)
        return 0;
    /* The character behind the cut must be all there. */
    for (size_t place = bytes > 4 ? bytes - 4 : 0; place > 0; place--) {
        uint32_t before, behind;

        if ((start[place] & 0xc0) == 0x80)
            continue;
        utf8_next(start + place, end, &behind);
        utf8_previous(start, start + place, &before);
        if (words_end(tokenizer, before, behind) && (!tokenizer->nfc || begins_form(behind)) &&
            is_clear(&tokenizer->raw, text, place, bytes) && is_clear(&tokenizer->normalized, text, place, bytes))
            return place;
    }
    return 0;
}
