/* read_files.c - vocabularies that are not one tokenizer.json: GPT-2's pairs of files, BERT's vocab.txt, and the files
 * beside them that name special tokens. */
#include "tokenizer/tokenizer_impl.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/foreign/foreign_json.h"
#include "common/text.h"

/* ---- the alphabet of byte-level BPE ------------------------------------------------------------------------------ */

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

static int read_vocab(struct tokenizer *tokenizer, json_t *vocab, struct error *err)
{
    if (!json_is_object(vocab))
        return error_set(err, CODE_DATA, "expected an object of tokens and their ids");
    fill_byte_alphabet(tokenizer->alphabet);
    if (add_tokens(tokenizer, vocab, true, err) < 0 || add_tokens(tokenizer, vocab, false, err) < 0)
        return -1;
    for (int byte = 0; byte < 256 && tokenizer->kind == KIND_BPE; byte++) {
        char text = (char)byte;

        tokenizer->byte_ids[byte] = token_table_find(&tokenizer->table, &text, 1);
        if (tokenizer->byte_ids[byte] < 0 || (tokenizer->table.entries[tokenizer->byte_ids[byte]].flags & TOKEN_ADDED))
            return error_set(err, CODE_DATA, "no token for byte 0x%02x: not a byte-level BPE", byte);
    }
    return 0;
}

int read_vocab_object(struct tokenizer *tokenizer, json_t *vocab, const char *path, const char *where,
                      struct error *err)
{
    if (read_vocab(tokenizer, vocab, err) == 0)
        return 0;
    if (*where)
        error_prefix(err, "%s", where);
    return error_prefix(err, "%s", path);
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

int add_merge_text(struct tokenizer *tokenizer, const char *text, size_t bytes, uint32_t rank, const char *place,
                   struct error *err)
{
    const char *end = text + bytes, *blank = memchr(text, ' ', bytes);

    if (!blank || memchr(blank + 1, ' ', (size_t)(end - blank - 1)))
        return error_set(err, CODE_DATA, "%s: not two tokens with a blank between them", place);
    return add_merge(tokenizer, text, (size_t)(blank - text), blank + 1, (size_t)(end - blank - 1), rank, place, err);
}

/* The first line may be "#version: 0.2". */
static int read_merge_lines(struct tokenizer *tokenizer, const char *text, size_t bytes, const char *path,
                            struct error *err)
{
    const char *end = text + bytes, *at = text;
    uint32_t lines = 0, number = 0, rank = 0;

    while (at < end) {
        file_line(&at, end);
        lines++;
    }
    if (merge_table_create(&tokenizer->merges, lines, err) < 0)
        return -1;
    for (at = text; at < end;) {
        const char *line = at;
        size_t length = file_line(&at, end);
        char place[300];

        number++;
        if (length == 0 || (number == 1 && length >= 8 && memcmp(line, "#version", 8) == 0))
            continue;
        snprintf(place, sizeof place, "%.280s:%u", path, (unsigned)number);
        if (add_merge_text(tokenizer, line, length, rank++, place, err) < 0)
            return -1;
    }
    return 0;
}

int read_bpe_files(struct tokenizer *tokenizer, const struct tokenizer_files *files, struct error *err)
{
    const char *vocab = files->paths[0], *merges = files->paths[1];
    json_t *root = foreign_json_read(vocab, TOKENIZER_FILE_MOST, err);
    size_t bytes;
    char *text = root ? text_load(merges, TOKENIZER_FILE_MOST, &bytes, err) : NULL;
    int result = -1;

    tokenizer->kind = KIND_BPE;
    if (text && read_vocab_object(tokenizer, root, vocab, "", err) == 0 &&
        splitter_add(&tokenizer->splitter, split_patterns[SPLIT_GPT2], false, false, err) == 0)
        result = read_merge_lines(tokenizer, text, bytes, merges, err);
    for (char suffixed[] = "a</w>"; *suffixed <= 'z' && result == 0; ++*suffixed)
        if (token_table_find(&tokenizer->table, suffixed, 5) >= 0)
            result = error_set(err, CODE_DATA, "%s: tokens that end with </w> are not supported", vocab);
    free(text);
    json_decref(root);
    return result;
}

static int add_line(void *arg, const struct file_token *token, struct error *err)
{
    struct token_table *table = arg;
    int32_t other = token_table_find(table, token->text, token->bytes);

    return other >= 0 ? error_set(err, CODE_DATA, "this token is also on line %d", (int)other + 1)
                      : token_table_add(table, token->id, token->text, token->bytes, err);
}

int read_vocab_txt(struct tokenizer *tokenizer, const struct tokenizer_files *files, struct error *err)
{
    tokenizer->kind = KIND_WORDPIECE;
    tokenizer->clean = true;
    if (file_tokens_read(files, add_line, &tokenizer->table, err) < 0)
        return -1;
    if (token_table_find(&tokenizer->table, "[UNK]", 5) >= 0)
        return 0;
    return error_set(err, CODE_DATA, "%s: has no [UNK]: not a vocabulary of WordPiece", files->paths[0]);
}

/* ---- special tokens ---------------------------------------------------------------------------------------------- */

/* Makes a token one that is found in text, unless it is one: as `value` says, if that is an object, which the file at
 * `path` has under `key`. */
static int add_special(struct tokenizer *tokenizer, int32_t id, json_t *value, const char *path, const char *key,
                       struct error *err)
{
    const struct token_entry *entry = &tokenizer->table.entries[id];
    struct added_token token = {
        .text = tokenizer->table.bytes + entry->at, .bytes = entry->length, .id = id, .special = true};

    if (entry->flags & TOKEN_FOUND)
        return 0;
    if (json_is_object(value) && json_object_set_new(value, "special", json_true()) == 0) /* most do not say so */
        return read_added_token(tokenizer, value, id, path, key, err);
    return tokenizer_add_token(tokenizer, &token, err);
}

static int32_t find_named(const struct tokenizer *tokenizer, json_t *value)
{
    json_t *text = special_token_text(value);

    return text ? token_table_find(&tokenizer->table, json_string_value(text), json_string_length(text)) : -1;
}

/* A special token: the file at `path` names it with `value`, or else a usual name counts. `add`: it is not yet found in
 * text. */
static int take_special(struct tokenizer *tokenizer, enum special_token special, json_t *value, bool add,
                        const char *path, struct error *err)
{
    int32_t id = find_named(tokenizer, value), *known = &tokenizer->special[special];
    const char *const *usual = special_token_names[special];

    if (id >= 0)
        *known = id;
    else if (special == SPECIAL_END && special_token_text(value))
        return error_set(err, CODE_DATA, "%s: its eos_token is not in the vocabulary", path);
    for (; *usual && *known < 0; usual++)
        *known = token_table_find(&tokenizer->table, *usual, strlen(*usual));
    return add && *known >= 0
               ? add_special(tokenizer, *known, id >= 0 ? value : NULL, path, special_token_keys[special], err)
               : 0;
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
static int check_added(void *table, const struct file_token *token, struct error *err)
{
    if (token_table_find(table, token->text, token->bytes) >= 0)
        return 0;
    return error_set(err, CODE_DATA, "'%.100s' is in none of the other files: save the tokenizer as a tokenizer.json",
                     token->text);
}

/* The classes of transformers that read these files as this program does, without "Tokenizer" or "TokenizerFast". */
static const char pair_classes[] = " GPT2 Roberta Bart CodeGen Longformer LED Deberta GPTNeoX PreTrained ";
static const char line_classes[] =
    " Bert DistilBert Electra MobileBert ConvBert SqueezeBert Lxmert Funnel LayoutLM PreTrained ";

/* Other classes split the text in other ways, of which these files say nothing. */
static int check_class(const struct tokenizer *tokenizer, json_t *root, const char *path, struct error *err)
{
    const char *name = json_string_value(json_object_get(root, "tokenizer_class"));
    char word[100];
    int end;

    if (!name)
        return 0;
    end = text_ends_with(name, "TokenizerFast") ? 13 : text_ends_with(name, "Tokenizer") ? 9 : 0;
    snprintf(word, sizeof word, " %.*s ", (int)strlen(name) - end, name);
    if (end > 0 && strstr(tokenizer->kind == KIND_BPE ? pair_classes : line_classes, word))
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

static int take_config(struct tokenizer *tokenizer, json_t *config, const char *path, struct error *err)
{
    tokenizer->prefix_space = tokenizer->kind == KIND_BPE && json_is_true(json_object_get(config, "add_prefix_space"));
    return check_class(tokenizer, config, path, err) < 0 ||
                   take_decoder(tokenizer, json_object_get(config, "added_tokens_decoder"), path, err) < 0 ||
                   (tokenizer->kind == KIND_WORDPIECE && take_options(tokenizer, config, path, err) < 0)
               ? -1
               : 0;
}

int read_special_tokens(struct tokenizer *tokenizer, const char *path, bool add, struct error *err)
{
    static const char others[] = "additional_special_tokens";
    char config_path[PATH_MAX], map_path[PATH_MAX];
    json_t *config, *named, *list, *value;
    size_t index;
    int result = special_tokens_read(path, &config, &named, err);

    tokenizer_neighbour(path, TOKENIZER_CONFIG, config_path);
    tokenizer_neighbour(path, TOKENIZER_MAP, map_path);
    if (result == 0 && add)
        result = take_config(tokenizer, config, config_path, err);
    for (int i = 0; i < SPECIAL_TOKENS && result == 0; i++) {
        value = json_object_get(named, special_token_keys[i]);
        result = take_special(tokenizer, i, value, add,
                              json_object_get(config, special_token_keys[i]) == value ? config_path : map_path, err);
    }
    list = json_object_get(named, others);
    json_array_foreach(list, index, value)
    {
        int32_t id = find_named(tokenizer, value);

        if (add && id >= 0 && result == 0)
            result = add_special(tokenizer, id, value, json_object_get(config, others) == list ? config_path : map_path,
                                 others, err);
    }
    json_decref(config);
    json_decref(named);
    if (add)
        tokenizer->unknown = tokenizer->special[SPECIAL_UNKNOWN];
    return add && result == 0 ? file_tokens_read_added(path, check_added, &tokenizer->table, err) : result;
}
