/* read_files.c - vocabularies that are not one tokenizer.json: GPT-2's pairs of files, Llama 3's ranks, BERT's vocab.txt,
 * and the files beside them that name special tokens. */
#include "tokenizer/tokenizer_impl.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/foreign/foreign_json.h"
#include "common/text.h"

/* ---- how files write tokens -------------------------------------------------------------------------------------- */

/* Writes the text of a token: its bytes are characters of the alphabet, or its blanks are U+2581. False if it is not
 * written so. */
static bool take_text(const struct tokenizer *tokenizer, const char *token, size_t bytes, char *out, size_t *count)
{
    const uint8_t *at = (const uint8_t *)token, *end = at + bytes;
    uint32_t code;

    for (*count = 0; at < end;) {
        int length = utf8_next(at, end, &code);
        bool written = tokenizer->characters ? code != ' ' : code < ALPHABET && tokenizer->alphabet[code] >= 0;

        if (!written)
            return false;
        if (tokenizer->characters && code != 0x2581) {
            memcpy(out + *count, at, (size_t)length);
            *count += (size_t)length;
        } else {
            out[(*count)++] = tokenizer->characters ? ' ' : (char)tokenizer->alphabet[code];
        }
        at += length;
    }
    return true;
}

int32_t find_written(const struct tokenizer *tokenizer, const char *name, size_t bytes)
{
    int32_t id = token_table_find(&tokenizer->table, name, bytes);
    char *text = id < 0 && tokenizer->kind == KIND_BPE ? malloc(bytes + 1) : NULL;
    size_t count;

    if (text && take_text(tokenizer, name, bytes, text, &count))
        id = token_table_find(&tokenizer->table, text, count);
    free(text);
    return id;
}

/* ---- vocabularies ------------------------------------------------------------------------------------------------ */

/* The byte of a token of byte_fallback, "<0x0A>"; -1 for other tokens. */
static int fallback_byte(const struct tokenizer *tokenizer, const char *name, size_t bytes)
{
    char text[8] = "";
    unsigned byte = 0;

    if (tokenizer->characters && tokenizer->fallback && bytes == 6 && sscanf(name, "<0x%2X>", &byte) == 1)
        snprintf(text, sizeof text, "<0x%02X>", byte);
    return memcmp(text, name, bytes < 6 ? bytes : 6) == 0 && *text ? (int)byte : -1;
}

/* `text` has room for the name's bytes. */
static int add_token(struct tokenizer *tokenizer, const char *name, size_t bytes, json_t *id, bool written, char *text,
                     struct error *err)
{
    const bool bpe = tokenizer->kind == KIND_BPE;
    const int byte = fallback_byte(tokenizer, name, bytes);
    size_t count = bytes;
    bool is = !bpe || byte >= 0 || take_text(tokenizer, name, bytes, text, &count);

    if (is != written)
        return 0;
    if (!json_is_integer(id))
        return error_set(err, CODE_DATA, "its id is not a number");
    if (byte >= 0) {
        tokenizer->byte_ids[byte] = (int32_t)json_integer_value(id);
        return token_table_add(&tokenizer->table, json_integer_value(id), &(char){(char)byte}, 1, TOKEN_BYTE, err);
    }
    return bpe && written
               ? token_table_add(&tokenizer->table, json_integer_value(id), text, count, 0, err)
               : token_table_add(&tokenizer->table, json_integer_value(id), name, bytes, bpe ? TOKEN_ADDED : 0, err);
}

/* Adds the tokens that are, or are not, written in this way: these last, so that they never hide another. */
static int add_tokens(struct tokenizer *tokenizer, json_t *vocab, bool written, struct error *err)
{
    struct text_list text = {0};
    const char *key;
    size_t length;
    json_t *id;
    int result = 0;

    json_object_keylen_foreach(vocab, key, length, id)
    {
        result = error_reserve(&text.text, &text.room, 0, length + 1, 1, err) < 0
                     ? -1
                     : add_token(tokenizer, key, length, id, written, text.text, err);
        if (result < 0) {
            error_prefix(err, "token \"%.100s\"", key);
            break;
        }
    }
    free(text.text);
    return result;
}

bool blanks_begin_tokens(const struct tokenizer *tokenizer)
{
    const struct token_table *table = &tokenizer->table;

    for (int32_t id = 0; id < table->size; id++) {
        const char *text = table->bytes + table->entries[id].at;

        for (uint32_t i = 1; i < table->entries[id].length && !(table->entries[id].flags & TOKEN_ADDED); i++)
            if (text[i] == ' ' && text[i - 1] != ' ')
                return false;
    }
    return token_table_find(table, " ", 1) >= 0;
}

static void fill_byte_ids(struct tokenizer *tokenizer)
{
    for (int byte = 0; byte < 256; byte++)
        tokenizer->byte_ids[byte] = token_table_own(&tokenizer->table, &(char){(char)byte}, 1);
}

static int read_vocab(struct tokenizer *tokenizer, json_t *vocab, struct error *err)
{
    if (!json_is_object(vocab))
        return error_set(err, CODE_DATA, "expected an object of tokens and their ids");
    fill_byte_alphabet(tokenizer->alphabet);
    memset(tokenizer->byte_ids, 0xff, sizeof tokenizer->byte_ids);
    if (add_tokens(tokenizer, vocab, true, err) < 0 || add_tokens(tokenizer, vocab, false, err) < 0)
        return -1;
    if (tokenizer->kind == KIND_BPE && !tokenizer->characters)
        fill_byte_ids(tokenizer);
    if (tokenizer->kind == KIND_BPE && !tokenizer->characters && tokenizer->byte_ids[' '] < 0)
        return error_set(err, CODE_DATA, "no token for a blank: not a byte-level BPE");
    return 0;
}

int read_vocab_object(struct tokenizer *tokenizer, json_t *vocab, const char *path, const char *where,
                      struct error *err)
{
    return read_vocab(tokenizer, vocab, err) < 0 ? error_prefix(err, "%s%s", path, where) : 0;
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
    if (take_text(tokenizer, left, left_bytes, both, &first_bytes) &&
        take_text(tokenizer, right, right_bytes, both + first_bytes, &second_bytes)) {
        first = token_table_find(table, both, first_bytes);
        second = token_table_find(table, both + first_bytes, second_bytes);
        id = token_table_find(table, both, first_bytes + second_bytes);
    }
    if (first >= 0 && second >= 0 && id >= 0)
        merge_table_add(&tokenizer->merges, first, second, rank, id);
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

static int add_ranked(void *arg, const struct file_token *token, struct error *err)
{
    struct tokenizer *tokenizer = arg;
    struct added_token special = {
        .text = (char *)(uintptr_t)token->text, .bytes = token->bytes, .id = (int32_t)token->id, .special = true};

    return token->type == PIECE_CONTROL
               ? tokenizer_add_token(tokenizer, &special, err)
               : token_table_add(&tokenizer->table, token->id, token->text, token->bytes, 0, err);
}

int read_ranks(struct tokenizer *tokenizer, const struct tokenizer_files *files, struct error *err)
{
    tokenizer->kind = KIND_BPE;
    tokenizer->whole_words = true;
    fill_byte_alphabet(tokenizer->alphabet);
    if (file_tokens_read(files, add_ranked, tokenizer, err) < 0 || merge_any_pairs(tokenizer, NULL, err) < 0)
        return -1;
    fill_byte_ids(tokenizer);
    tokenizer->begin_token = LLAMA3_RANKS; /* Meta's programs put it before a text */
    return splitter_add(&tokenizer->splitter, split_patterns[SPLIT_LLAMA3], false, false, err);
}

static int add_line(void *arg, const struct file_token *token, struct error *err)
{
    struct token_table *table = arg;
    int32_t other = token_table_find(table, token->text, token->bytes);

    return other >= 0 ? error_set(err, CODE_DATA, "this token is also on line %d", (int)other + 1)
                      : token_table_add(table, token->id, token->text, token->bytes, 0, err);
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

    return text ? find_written(tokenizer, json_string_value(text), json_string_length(text)) : -1;
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
    value = json_object_get(config, "add_bos_token");
    if (json_is_boolean(value))
        tokenizer->begin_token = json_is_true(value) ? tokenizer->special[SPECIAL_BEGIN] : -1;
    json_decref(config);
    json_decref(named);
    if (tokenizer->kind == KIND_WORDPIECE && add)
        tokenizer->unknown = tokenizer->special[SPECIAL_UNKNOWN];
    return add && result == 0 ? file_tokens_read_added(path, check_added, &tokenizer->table, err) : result;
}
