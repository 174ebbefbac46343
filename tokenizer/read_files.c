/* read_files.c - vocabularies that are not one tokenizer.json: GPT-2's pairs of files, BERT's vocab.txt, and the files
 * beside them that name special tokens. */
#include "tokenizer/tokenizer_impl.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/foreign/foreign_json.h"
#include "common/text.h"

/* ---- the alphabet of byte-level BPE ------------------------------------------------------------------------------ */

/* Files have a printable character for each byte: those of Latin-1 for themselves, U+0100 and up for the others. */
static void fill_alphabet(int16_t bytes[ALPHABET])
{
    int next = 256;

    memset(bytes, 0xff, ALPHABET * sizeof *bytes);
    for (int byte = 0; byte < 256; byte++) {
        bool shown = (byte > ' ' && byte < 0x7f) || (byte > 0xa0 && byte != 0xad);

        bytes[shown ? byte : next++] = (int16_t)byte;
    }
}

/* Writes the bytes of a token that is written in the alphabet. False if it is not. */
static bool take_bytes(const int16_t alphabet[ALPHABET], const char *token, size_t bytes, char *out, size_t *count)
{
    const uint8_t *at = (const uint8_t *)token, *end = at + bytes;
    uint32_t code;

    for (*count = 0; at < end; (*count)++) {
        at += utf8_next(at, end, &code);
        if (code >= ALPHABET || alphabet[code] < 0)
            return false;
        out[*count] = (char)alphabet[code];
    }
    return true;
}

bool token_in_alphabet(const int16_t alphabet[ALPHABET], const char *name, size_t bytes, const char *token,
                       size_t length)
{
    struct text_list text = {0};
    size_t count;
    bool same = bytes > 0 && text_list_append(&text, name, bytes, NULL) == 0 &&
                take_bytes(alphabet, name, bytes, text.text, &count) && count == length &&
                memcmp(text.text, token, length) == 0;

    free(text.text);
    return same;
}

/* ---- vocabularies ------------------------------------------------------------------------------------------------ */

/* Adds the tokens that are, or are not, written in the alphabet: these last, so that they never hide another. */
static int add_tokens(struct tokenizer *tokenizer, json_t *vocab, bool in_alphabet, struct error *err)
{
    struct text_list bytes = {0};
    const char *key;
    size_t length;
    json_t *id;
    int result = 0;

    json_object_keylen_foreach(vocab, key, length, id)
    {
        bool written;
        size_t count = length;

        bytes.count = 0;
        if (text_list_append(&bytes, key, length, err) < 0)
            result = -1;
        written = result == 0 && tokenizer->kind == KIND_BPE &&
                  take_bytes(tokenizer->alphabet, key, length, bytes.text, &count);
        if (result == 0 && written == in_alphabet) {
            result = json_is_integer(id) ? token_table_add(&tokenizer->table, json_integer_value(id),
                                                           written ? bytes.text : key, written ? count : length, err)
                                         : error_set(err, CODE_DATA, "its id is not a number");
            if (result == 0 && !written && tokenizer->kind == KIND_BPE)
                tokenizer->table.entries[json_integer_value(id)].flags |= TOKEN_ADDED;
        }
        if (result < 0) {
            error_prefix(err, "token \"%.100s\"", key);
            break;
        }
    }
    free(bytes.text);
    return result;
}

int read_vocab_object(struct tokenizer *tokenizer, json_t *vocab, const char *path, const char *where,
                      struct error *err)
{
    if (!json_is_object(vocab))
        return error_set(err, CODE_DATA, "%s: %s%sexpected an object of tokens and their ids", path, where,
                         *where ? ": " : "");
    fill_alphabet(tokenizer->alphabet);
    if (add_tokens(tokenizer, vocab, true, err) < 0 || add_tokens(tokenizer, vocab, false, err) < 0)
        return error_prefix(err, "%s: %s", path, where);
    for (int byte = 0; byte < 256 && tokenizer->kind == KIND_BPE; byte++) {
        char text = (char)byte;

        tokenizer->byte_ids[byte] = token_table_find(&tokenizer->table, &text, 1);
        if (tokenizer->byte_ids[byte] < 0 || (tokenizer->table.entries[tokenizer->byte_ids[byte]].flags & TOKEN_ADDED))
            return error_set(err, CODE_DATA, "%s: %s%sno token for byte 0x%02x: not a byte-level BPE", path, where,
                             *where ? ": " : "", byte);
    }
    return 0;
}

int add_merge(struct tokenizer *tokenizer, const char *left, size_t left_bytes, const char *right, size_t right_bytes,
              uint32_t rank, const char *place, struct error *err)
{
    const struct token_table *table = &tokenizer->table;
    char *both = malloc(left_bytes + right_bytes + 1);
    size_t first_bytes = 0, second_bytes = 0;
    int32_t first = -1, second = -1, id = -1;

    if (!both)
        return error_set(err, CODE_IO, "out of memory for a merge");
    if (take_bytes(tokenizer->alphabet, left, left_bytes, both, &first_bytes) &&
        take_bytes(tokenizer->alphabet, right, right_bytes, both + first_bytes, &second_bytes)) {
        first = token_table_find(table, both, first_bytes);
        second = token_table_find(table, both + first_bytes, second_bytes);
        id = token_table_find(table, both, first_bytes + second_bytes);
    }
    if (first >= 0 && second >= 0 && id >= 0) {
        merge_table_add(&tokenizer->merges, first, second, rank, id);
        if (first_bytes == 1 && second_bytes == 1)
            tokenizer->merges.byte_pairs[(uint8_t)both[0] << 8 | (uint8_t)both[1]] = (struct pair_merge){rank, id};
    }
    free(both);
    if (first < 0 || second < 0 || id < 0)
        return error_set(err, CODE_DATA, "%s: '%.*s' and '%.*s', or what they merge to, is not in the vocabulary",
                         place, (int)(left_bytes < 100 ? left_bytes : 100), left,
                         (int)(right_bytes < 100 ? right_bytes : 100), right);
    return 0;
}

/* The line at *text: its length without its end; *text moves to the next one. */
static size_t take_line(const char **text, const char *end)
{
    const char *line = *text, *stop = memchr(line, '\n', (size_t)(end - line));

    *text = stop ? stop + 1 : end;
    stop = stop ? stop : end;
    return (size_t)(stop - line) - (stop > line && stop[-1] == '\r');
}

/* The first line may be "#version: 0.2". */
int read_merge_lines(struct tokenizer *tokenizer, const char *text, size_t bytes, const char *path, struct error *err)
{
    const char *end = text + bytes, *at = text;
    uint32_t lines = 0, number = 0, rank = 0;

    while (at < end) {
        take_line(&at, end);
        lines++;
    }
    if (merge_table_create(&tokenizer->merges, lines, err) < 0)
        return -1;
    for (at = text; at < end;) {
        const char *line = at, *blank;
        size_t length = take_line(&at, end);
        char place[300];

        number++;
        if (length == 0 || (number == 1 && length >= 8 && memcmp(line, "#version", 8) == 0))
            continue;
        snprintf(place, sizeof place, "%.280s:%u", path, (unsigned)number);
        blank = memchr(line, ' ', length);
        if (!blank || memchr(blank + 1, ' ', length - (size_t)(blank + 1 - line)))
            return error_set(err, CODE_DATA, "%s: not two tokens with a blank between them", place);
        if (add_merge(tokenizer, line, (size_t)(blank - line), blank + 1, length - (size_t)(blank + 1 - line), rank++,
                      place, err) < 0)
            return -1;
    }
    return 0;
}

int read_bpe_files(struct tokenizer *tokenizer, const char *vocab, const char *merges, struct error *err)
{
    json_t *root = foreign_json_read(vocab, TOKENIZER_FILE_MOST, err);
    size_t bytes;
    char *text = root ? text_read_file(merges, TOKENIZER_FILE_MOST, &bytes, err) : NULL;
    int result = -1;

    tokenizer->kind = KIND_BPE;
    if (text && read_vocab_object(tokenizer, root, vocab, "", err) == 0 &&
        splitter_add(&tokenizer->splitter, split_patterns[SPLIT_GPT2], false, false, err) == 0)
        result = read_merge_lines(tokenizer, text, bytes, merges, err);
    for (int byte = 0; byte < 256 && result == 0; byte++) {
        char suffixed[8] = {(char)byte, '<', '/', 'w', '>'};

        if (byte >= 'a' && byte <= 'z' && token_table_find(&tokenizer->table, suffixed, 5) >= 0)
            result = error_set(err, CODE_DATA, "%s: tokens that end with </w> are not supported", vocab);
    }
    free(text);
    json_decref(root);
    return result;
}

int read_vocab_lines(struct tokenizer *tokenizer, const char *text, size_t bytes, const char *path, struct error *err)
{
    const char *end = text + bytes;

    for (int64_t id = 0; text < end; id++) {
        const char *line = text;
        size_t length = take_line(&text, end);

        if (length > 0 && token_table_find(&tokenizer->table, line, length) >= 0)
            return error_set(err, CODE_DATA, "%s:%lld: this token is also on line %d", path, (long long)id + 1,
                             (int)token_table_find(&tokenizer->table, line, length) + 1);
        if (length > 0 && token_table_add(&tokenizer->table, id, line, length, err) < 0)
            return error_prefix(err, "%s:%lld", path, (long long)id + 1);
    }
    tokenizer->unknown = token_table_find(&tokenizer->table, "[UNK]", 5);
    return tokenizer->unknown >= 0 ? 0
                                   : error_set(err, CODE_DATA, "%s: has no [UNK]: not a vocabulary of WordPiece", path);
}

int read_vocab_txt(struct tokenizer *tokenizer, const char *path, struct error *err)
{
    size_t bytes;
    char *text = text_read_file(path, TOKENIZER_FILE_MOST, &bytes, err);
    int result;

    tokenizer->kind = KIND_WORDPIECE;
    tokenizer->clean = tokenizer->chinese = tokenizer->lower = tokenizer->strip = true;
    result = text ? read_vocab_lines(tokenizer, text, bytes, path, err) : -1;
    free(text);
    return result;
}

/* ---- special tokens ---------------------------------------------------------------------------------------------- */

/* The file of that name beside `path`, if there is one: *root is NULL if not. */
static int read_neighbour(const char *path, const char *name, json_t **root, char file[PATH_MAX], struct error *err)
{
    *root = NULL;
    if (tokenizer_neighbour(path, name, file) < 0)
        return 0;
    *root = foreign_json_read(file, TOKENIZER_FILE_MOST, err);
    return *root ? 0 : -1;
}

/* Makes a token that already has an id one that is found in text. A name alone does not change how it is found. */
static int add_special(struct tokenizer *tokenizer, const char *text, size_t bytes, json_t *object, const char *path,
                       const char *where, struct error *err)
{
    int32_t id = token_table_find(&tokenizer->table, text, bytes);
    struct added_token token = {.text = (char *)(uintptr_t)text, .bytes = bytes, .id = id, .special = true};

    if (id < 0 || bytes == 0)
        return 0;
    if (object && json_object_set_new(object, "special", json_true()) == 0) /* most objects do not say so */
        return read_added_token(tokenizer, object, id, path, where, err);
    return tokenizer->table.entries[id].flags & TOKEN_FOUND ? 0 : tokenizer_add_token(tokenizer, &token, err);
}

#define NO_TOKEN (-2) /* in `special`: a file names a token that is not in the vocabulary */

/* The special tokens that a file names. `add`: they are not found in text yet. */
static int take_names(struct tokenizer *tokenizer, json_t *root, const char *path, bool add, struct error *err)
{
    for (int i = 0; i < SPECIAL_TOKENS; i++) {
        json_t *value = json_object_get(root, tokenizer_special_keys[i]);
        json_t *name = json_is_object(value) ? json_object_get(value, "content") : value;
        int32_t id = name ? token_table_find(&tokenizer->table, json_string_value(name), json_string_length(name)) : -1;

        if (json_is_string(name) && id < 0 && i == SPECIAL_END)
            tokenizer->special[i] = NO_TOKEN;
        if (!json_is_string(name) || id < 0)
            continue;
        tokenizer->special[i] = id;
        if (add && add_special(tokenizer, json_string_value(name), json_string_length(name),
                               json_is_object(value) ? value : NULL, path, tokenizer_special_keys[i], err) < 0)
            return -1;
    }
    return 0;
}

/* additional_special_tokens: names, or objects with their flags. */
static int take_others(struct tokenizer *tokenizer, json_t *names, const char *path, struct error *err)
{
    json_t *value;
    size_t index;

    json_array_foreach(names, index, value)
    {
        json_t *name = json_is_object(value) ? json_object_get(value, "content") : value;

        if (json_is_string(name) &&
            add_special(tokenizer, json_string_value(name), json_string_length(name),
                        json_is_object(value) ? value : NULL, path, "additional_special_tokens", err) < 0)
            return -1;
    }
    return 0;
}

/* added_tokens_decoder: {"50256": {"content": "<|endoftext|>", ...}, ...} */
static int take_decoder(struct tokenizer *tokenizer, json_t *decoder, const char *path, struct error *err)
{
    const char *key;
    json_t *value;

    json_object_foreach(decoder, key, value)
    {
        char where[100];
        long id;

        snprintf(where, sizeof where, "added_tokens_decoder.%.60s", key);
        if (!text_to_long(key, 0, TOKENS_MOST - 1, &id))
            return error_set(err, CODE_DATA, "%s: %s: the key is not an id", path, where);
        if (read_added_token(tokenizer, value, id, path, where, err) < 0)
            return -1;
    }
    return 0;
}

/* added_tokens.json, {"<mask>": 50257}, does not say how its tokens are found: the other files must have them all. */
static int check_added(const struct tokenizer *tokenizer, const char *path, struct error *err)
{
    char file[PATH_MAX];
    const char *key;
    json_t *root, *id;
    int result = read_neighbour(path, "added_tokens.json", &root, file, err);

    json_object_foreach(root, key, id)
    {
        if (result == 0 && token_table_find(&tokenizer->table, key, strlen(key)) < 0)
            result = error_set(err, CODE_DATA,
                               "%s: '%.100s' is in none of the other files: save the tokenizer as a tokenizer.json",
                               file, key);
    }
    json_decref(root);
    return result;
}

/* The classes of transformers that read these files as this program does, without "Fast" at the end. */
static const char *const pair_classes[] = {
    "GPT2Tokenizer", "RobertaTokenizer", "BartTokenizer",    "CodeGenTokenizer",    "LongformerTokenizer",
    "LEDTokenizer",  "DebertaTokenizer", "GPTNeoXTokenizer", "PreTrainedTokenizer", NULL};
static const char *const line_classes[] = {"BertTokenizer",
                                           "DistilBertTokenizer",
                                           "ElectraTokenizer",
                                           "MobileBertTokenizer",
                                           "ConvBertTokenizer",
                                           "SqueezeBertTokenizer",
                                           "LxmertTokenizer",
                                           "FunnelTokenizer",
                                           "LayoutLMTokenizer",
                                           "PreTrainedTokenizer",
                                           NULL};

/* Other classes split the text in other ways, of which these files say nothing. */
static int check_class(const struct tokenizer *tokenizer, json_t *root, const char *path, struct error *err)
{
    const char *const *classes = tokenizer->kind == KIND_BPE ? pair_classes : line_classes;
    const char *name = json_string_value(json_object_get(root, "tokenizer_class"));
    size_t length = name ? strlen(name) : 0;

    if (!name)
        return 0;
    length -= text_ends_with(name, "Fast") ? 4 : 0;
    for (; *classes; classes++)
        if (strlen(*classes) == length && strncmp(name, *classes, length) == 0)
            return 0;
    return error_set(err, CODE_DATA,
                     "%s: tokenizer_class is %.100s, which may split text in another way: save the tokenizer as a "
                     "tokenizer.json",
                     path, name);
}

/* BERT's options, which tokenizer.json has in its normalizer. */
static int take_options(struct tokenizer *tokenizer, json_t *root, const char *path, struct error *err)
{
    json_t *lower = json_object_get(root, "do_lower_case"), *strip = json_object_get(root, "strip_accents");

    if (json_is_false(json_object_get(root, "do_basic_tokenize")))
        return error_set(err, CODE_DATA, "%s: do_basic_tokenize: false is not supported", path);
    tokenizer->lower = !lower || json_is_true(lower);
    tokenizer->strip = json_is_boolean(strip) ? json_is_true(strip) : tokenizer->lower;
    tokenizer->chinese = !json_is_false(json_object_get(root, "tokenize_chinese_chars"));
    return 0;
}

int read_special_tokens(struct tokenizer *tokenizer, const char *path, bool add, struct error *err)
{
    static const char *const files[] = {"special_tokens_map.json", "tokenizer_config.json"};
    char file[PATH_MAX];
    json_t *root;
    int result = 0;

    for (int i = 0; i < 2 && result == 0; i++) {
        if (read_neighbour(path, files[i], &root, file, err) < 0)
            return -1;
        if (i == 1 && root && add)
            result = check_class(tokenizer, root, file, err);
        if (i == 1 && root && result == 0 && add)
            result = take_decoder(tokenizer, json_object_get(root, "added_tokens_decoder"), file, err);
        if (i == 1 && root && result == 0 && add && tokenizer->kind == KIND_WORDPIECE)
            result = take_options(tokenizer, root, file, err);
        if (i == 1 && root && add && tokenizer->kind == KIND_BPE)
            tokenizer->prefix_space = json_is_true(json_object_get(root, "add_prefix_space"));
        if (root && result == 0)
            result = take_names(tokenizer, root, file, add, err);
        if (root && result == 0 && add)
            result = take_others(tokenizer, json_object_get(root, "additional_special_tokens"), file, err);
        json_decref(root);
    }
    if (result == 0 && tokenizer->special[SPECIAL_END] == NO_TOKEN)
        return error_set(err, CODE_DATA, "%s: the eos_token that the files beside it name is not in the vocabulary",
                         path);
    for (int i = 0; i < SPECIAL_TOKENS && result == 0; i++)
        for (const char *name = tokenizer_special_names[i]; *name && tokenizer->special[i] < 0;) {
            size_t length = strcspn(name, " ");

            tokenizer->special[i] = token_table_find(&tokenizer->table, name, length);
            if (add)
                result = add_special(tokenizer, name, length, NULL, path, tokenizer_special_keys[i], err);
            name += length + (name[length] == ' ');
        }
    return add && result == 0 ? check_added(tokenizer, path, err) : result;
}
