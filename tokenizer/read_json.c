/*
 * read_json.c - Hugging Face's tokenizer.json: BPE of bytes and of characters, and WordPiece. What is not supported is
 * refused with its JSON path: ignoring a key that changes ids would give wrong ids silently.
 */
#include "tokenizer/tokenizer_impl.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/foreign/foreign_json.h"

/* The file, and where in it: for messages. */
struct json_place {
    const char *path;
    char where[128];
};

static struct json_place place_in(const struct json_place *outer, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static struct json_place place_in(const struct json_place *outer, const char *format, ...)
{
    struct json_place place = {.path = outer->path};
    int used = snprintf(place.where, sizeof place.where, "%s%s", outer->where, outer->where[0] ? "." : "");
    va_list args;

    va_start(args, format);
    if (used >= 0 && (size_t)used < sizeof place.where)
        vsnprintf(place.where + used, sizeof place.where - (size_t)used, format, args);
    va_end(args);
    return place;
}

static int refuse_value(const struct json_place *place, const char *key, json_t *value, const char *right,
                        struct error *err)
{
    char *text = value ? json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
    int result =
        error_set(err, CODE_DATA, "%s: %s%s%s: %.80s is not supported%s%s", place->path, place->where,
                  place->where[0] ? "." : "", key, text ? text : "a missing value", *right ? "; expected " : "", right);

    free(text);
    return result;
}

/* ---- objects of which all keys are known ------------------------------------------------------------------------- */

/*
 * Refuses a key that is not in `keys`, which are separated by blanks. A key with "=" has one value only, which may be
 * missing, as a JSON text: "dropout=null". Several are allowed: "dropout=null|0.0".
 */
static int check_keys(json_t *object, const struct json_place *place, const char *keys, struct error *err)
{
    const char *key;
    json_t *value;

    json_object_foreach(object, key, value)
    {
        size_t length = strlen(key);
        const char *at = keys;
        char *text = NULL;
        bool good = false;

        while (*at && !(strncmp(at, key, length) == 0 && strchr(" =", at[length]))) /* strchr finds the 0 at the end */
            at += strcspn(at, " ") + (at[strcspn(at, " ")] == ' ');
        if (*at && at[length] == '=') {
            text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
            for (at += length + 1; text && !good; at++) {
                size_t one = strcspn(at, "| ");

                good = one == strlen(text) && strncmp(at, text, one) == 0;
                at += one;
                if (*at != '|')
                    break;
            }
            free(text);
        } else {
            good = *at;
        }
        if (!good)
            return refuse_value(place, key, value, "", err);
    }
    return 0;
}

/* The value of a key that is true, false or missing. */
static int read_bool(json_t *object, const struct json_place *place, const char *key, bool otherwise, bool *result,
                     struct error *err)
{
    json_t *value = json_object_get(object, key);

    if (value && !json_is_boolean(value))
        return refuse_value(place, key, value, "true or false", err);
    *result = value ? json_is_true(value) : otherwise;
    return 0;
}

static const char *type_of(json_t *object)
{
    const char *type = json_string_value(json_object_get(object, "type"));

    return type ? type : "";
}

/* ---- normalizers of BPE ------------------------------------------------------------------------------------------ */

static int read_normalizer(struct tokenizer *tokenizer, json_t *form, const struct json_place *place, struct error *err)
{
    const char *type = type_of(form), *from, *to;
    json_t *steps = json_object_get(form, "normalizers"), *step;
    size_t i;

    if (!form || json_is_null(form))
        return 0;
    from = json_string_value(json_object_get(json_object_get(form, "pattern"), "String"));
    to = json_string_value(json_object_get(form, strcmp(type, "Prepend") == 0 ? "prepend" : "content"));
    if (strcmp(type, "NFC") == 0) {
        tokenizer->nfc = true;
    } else if (strcmp(type, "Prepend") == 0 && to && strcmp(to, BLANK) == 0) {
        tokenizer->prepend = true;
    } else if (strcmp(type, "Replace") == 0 && from && strcmp(from, " ") == 0 && to && strcmp(to, BLANK) == 0) {
        tokenizer->characters = true;
    } else if (strcmp(type, "Sequence") != 0 || !json_is_array(steps)) {
        return refuse_value(place, *type ? "type" : "", json_object_get(form, "type"),
                            "no normalizer, \"NFC\", or \"Prepend\" and \"Replace\" with " BLANK " for blanks", err);
    }
    json_array_foreach(steps, i, step)
    {
        struct json_place here = place_in(place, "normalizers[%zu]", i);

        if (read_normalizer(tokenizer, step, &here, err) < 0)
            return -1;
    }
    return check_keys(form, place, "type normalizers prepend pattern content", err);
}

/* ---- pre-tokenizers ---------------------------------------------------------------------------------------------- */

static int read_split(struct tokenizer *tokenizer, json_t *step, const struct json_place *place, struct error *err)
{
    json_t *pattern = json_object_get(step, "pattern"), *regex = json_object_get(pattern, "Regex");
    json_t *literal = json_object_get(pattern, "String"), *behavior = json_object_get(step, "behavior");
    const char *text = json_string_value(regex ? regex : literal), *how = json_string_value(behavior);
    bool invert = false;

    if (check_keys(step, place, "type pattern behavior invert", err) < 0 ||
        read_bool(step, place, "invert", false, &invert, err) < 0)
        return -1;
    if (!text || json_object_size(pattern) != 1 || strlen(text) != json_string_length(regex ? regex : literal) ||
        !*text)
        return refuse_value(place, "pattern", pattern, "{\"Regex\": ...} or {\"String\": ...}", err);
    if (!how || !((strcmp(how, "Isolated") == 0 && !invert) || (strcmp(how, "Removed") == 0 && invert)))
        return refuse_value(place, "behavior", behavior, "\"Isolated\", or \"Removed\" with invert", err);
    if (splitter_add(&tokenizer->splitter, text, !regex, invert, err) < 0)
        return error_prefix(err, "%s: %s.pattern", place->path, place->where);
    return 0;
}

static int read_byte_level(struct tokenizer *tokenizer, json_t *step, const struct json_place *place, struct error *err)
{
    bool prefix = true, regex = true;

    if (check_keys(step, place, "type add_prefix_space trim_offsets use_regex", err) < 0 ||
        read_bool(step, place, "add_prefix_space", true, &prefix, err) < 0 ||
        read_bool(step, place, "use_regex", true, &regex, err) < 0)
        return -1;
    if (prefix && tokenizer->splitter.count > 0)
        return refuse_value(place, "add_prefix_space", json_true(), "false behind a Split", err);
    tokenizer->prefix_space = prefix;
    return regex ? splitter_add(&tokenizer->splitter, split_patterns[SPLIT_GPT2], false, false, err) : 0;
}

static int read_digits(struct tokenizer *tokenizer, json_t *step, const struct json_place *place, struct error *err)
{
    bool single = false;

    if (check_keys(step, place, "type individual_digits", err) < 0 ||
        read_bool(step, place, "individual_digits", false, &single, err) < 0)
        return -1;
    return splitter_add(&tokenizer->splitter, split_patterns[single ? SPLIT_DIGIT : SPLIT_DIGITS], false, false, err);
}

static int read_punctuation(struct tokenizer *tokenizer, json_t *step, const struct json_place *place,
                            struct error *err)
{
    json_t *behavior = json_object_get(step, "behavior");
    const char *how = behavior ? json_string_value(behavior) : "Isolated";
    bool runs = how && strcmp(how, "Contiguous") == 0;

    if (check_keys(step, place, "type behavior", err) < 0)
        return -1;
    if (!how || !(runs || strcmp(how, "Isolated") == 0))
        return refuse_value(place, "behavior", behavior, "\"Isolated\" or \"Contiguous\"", err);
    return splitter_add(&tokenizer->splitter, split_patterns[runs ? SPLIT_SIGNS : SPLIT_SIGN], false, false, err);
}

static int read_metaspace(struct tokenizer *tokenizer, json_t *step, const struct json_place *place, struct error *err)
{
    json_t *scheme = json_object_get(step, "prepend_scheme");
    bool prefix = true, split = true;
    const char *name;

    if (check_keys(step, place,
                   "type replacement=\"" BLANK "\" str_rep=\"" BLANK "\" add_prefix_space prepend_scheme split",
                   err) < 0 ||
        read_bool(step, place, "add_prefix_space", true, &prefix, err) < 0 ||
        read_bool(step, place, "split", true, &split, err) < 0)
        return -1;
    name = scheme ? json_string_value(scheme) : prefix ? "always" : "never";
    if (!name || (strcmp(name, "always") != 0 && strcmp(name, "first") != 0 && strcmp(name, "never") != 0))
        return refuse_value(place, "prepend_scheme", scheme, "\"always\", \"first\" or \"never\"", err);
    tokenizer->characters = true;
    tokenizer->prefix_space = strcmp(name, "never") != 0;
    tokenizer->prefix_first = strcmp(name, "first") == 0;
    return split ? splitter_add(&tokenizer->splitter, split_patterns[SPLIT_BLANK], false, false, err) : 0;
}

/* The last step must be ByteLevel. */
static int read_steps(struct tokenizer *tokenizer, json_t *steps, const struct json_place *place, struct error *err)
{
    size_t count = json_array_size(steps);

    for (size_t i = 0; i < count; i++) {
        json_t *step = json_array_get(steps, i);
        struct json_place here = place_in(place, "pretokenizers[%zu]", i);
        int result;

        if (i + 1 == count && strcmp(type_of(step), "ByteLevel") == 0)
            return read_byte_level(tokenizer, step, &here, err);
        if (strcmp(type_of(step), "Split") == 0)
            result = read_split(tokenizer, step, &here, err);
        else if (strcmp(type_of(step), "Digits") == 0)
            result = read_digits(tokenizer, step, &here, err);
        else if (strcmp(type_of(step), "Punctuation") == 0)
            result = read_punctuation(tokenizer, step, &here, err);
        else
            result = refuse_value(&here, "type", json_object_get(step, "type"),
                                  "\"Split\", \"Digits\" or \"Punctuation\", and \"ByteLevel\" as the last", err);
        if (result < 0)
            return -1;
    }
    return refuse_value(place, "pretokenizers", steps, "\"ByteLevel\" as the last", err);
}

static int read_pre_tokenizer(struct tokenizer *tokenizer, json_t *root, struct json_place place, struct error *err)
{
    json_t *pre = json_object_get(root, "pre_tokenizer");

    place = place_in(&place, "pre_tokenizer");
    if (tokenizer->characters && (!pre || json_is_null(pre)))
        return 0;
    if (strcmp(type_of(pre), "Metaspace") == 0)
        return read_metaspace(tokenizer, pre, &place, err);
    if (tokenizer->characters)
        return refuse_value(&place, "type", json_object_get(pre, "type"), "no pre-tokenizer, or \"Metaspace\"", err);
    if (strcmp(type_of(pre), "ByteLevel") == 0)
        return read_byte_level(tokenizer, pre, &place, err);
    if (strcmp(type_of(pre), "Sequence") == 0)
        return check_keys(pre, &place, "type pretokenizers", err) < 0
                   ? -1
                   : read_steps(tokenizer, json_object_get(pre, "pretokenizers"), &place, err);
    return refuse_value(&place, "type", json_object_get(pre, "type"),
                        "\"Metaspace\", \"ByteLevel\" or a \"Sequence\" that ends with it", err);
}

/* ---- models ------------------------------------------------------------------------------------------------------ */

static int read_merges(struct tokenizer *tokenizer, json_t *merges, const struct json_place *place, struct error *err)
{
    size_t count = json_array_size(merges);

    if (!json_is_array(merges))
        return refuse_value(place, "merges", merges, "a list", err);
    if (merge_table_create(&tokenizer->merges, (uint32_t)count, err) < 0)
        return -1;
    for (size_t i = 0; i < count; i++) {
        json_t *merge = json_array_get(merges, i), *left = json_array_get(merge, 0), *right = json_array_get(merge, 1);
        char where[160];
        int result;

        snprintf(where, sizeof where, "%.80s: model.merges[%zu]", place->path, i);
        if (json_is_string(merge))
            result =
                add_merge_text(tokenizer, json_string_value(merge), json_string_length(merge), (uint32_t)i, where, err);
        else if (json_array_size(merge) == 2 && json_is_string(left) && json_is_string(right))
            result = add_merge(tokenizer, json_string_value(left), json_string_length(left), json_string_value(right),
                               json_string_length(right), (uint32_t)i, where, err);
        else
            result = error_set(err, CODE_DATA, "%s is not \"LEFT RIGHT\" or [\"LEFT\", \"RIGHT\"]", where);
        if (result < 0)
            return -1;
    }
    return 0;
}

/* unk_token, which must be in the vocabulary if there is something unknown. */
static int read_unknown(struct tokenizer *tokenizer, json_t *model, bool needed, const struct json_place *place,
                        struct error *err)
{
    json_t *unknown = json_object_get(model, "unk_token");

    if (json_is_string(unknown))
        tokenizer->unknown = find_written(tokenizer, json_string_value(unknown), json_string_length(unknown));
    return needed && tokenizer->unknown < 0
               ? refuse_value(place, "unk_token", unknown, "a token of the vocabulary", err)
               : 0;
}

/* The vocabulary and what becomes of characters that it lacks. */
static int read_bpe_tokens(struct tokenizer *tokenizer, json_t *model, const struct json_place *place,
                           struct error *err)
{
    json_t *unknown = json_object_get(model, "unk_token");
    bool lacks = false;

    if (read_vocab_object(tokenizer, json_object_get(model, "vocab"), place->path, ": model.vocab", err) < 0)
        return -1;
    for (int byte = 0; byte < 256; byte++)
        lacks |= tokenizer->byte_ids[byte] < 0;
    if (lacks && tokenizer->fallback && !tokenizer->characters)
        return refuse_value(place, "byte_fallback", json_true(), "false with \"ByteLevel\"", err);
    return read_unknown(tokenizer, model, lacks && unknown && !json_is_null(unknown), place, err);
}

static int read_bpe(struct tokenizer *tokenizer, json_t *root, json_t *model, const struct json_place *place,
                    struct error *err)
{
    struct json_place here = place_in(place, "model"), form = place_in(place, "normalizer");
    json_t *normalizer = json_object_get(root, "normalizer");

    tokenizer->kind = KIND_BPE;
    if (check_keys(model, &here,
                   "type dropout=null|0.0|0 unk_token continuing_subword_prefix=null|\"\" end_of_word_suffix=null|\"\" "
                   "fuse_unk "
                   "byte_fallback ignore_merges vocab merges",
                   err) < 0 ||
        read_bool(model, &here, "ignore_merges", false, &tokenizer->whole_words, err) < 0 ||
        read_bool(model, &here, "fuse_unk", false, &tokenizer->fuse_unknown, err) < 0 ||
        read_bool(model, &here, "byte_fallback", false, &tokenizer->fallback, err) < 0 ||
        read_normalizer(tokenizer, normalizer, &form, err) < 0 || read_pre_tokenizer(tokenizer, root, *place, err) < 0)
        return -1;
    if (tokenizer->characters ? tokenizer->nfc : tokenizer->prepend)
        return refuse_value(place, "normalizer", normalizer, "", err);
    if (read_bpe_tokens(tokenizer, model, &here, err) < 0 ||
        read_merges(tokenizer, json_object_get(model, "merges"), &here, err) < 0)
        return -1;
    tokenizer->drop_blank = tokenizer->characters && (tokenizer->prepend || tokenizer->prefix_space);
    return tokenizer->characters && tokenizer->splitter.count == 0 && blanks_begin_tokens(tokenizer)
               ? splitter_add(&tokenizer->splitter, split_patterns[SPLIT_BLANKS], false, false, err)
               : 0;
}

static int read_wordpiece(struct tokenizer *tokenizer, json_t *root, json_t *model, const struct json_place *place,
                          struct error *err)
{
    json_t *normalizer = json_object_get(root, "normalizer"), *pre = json_object_get(root, "pre_tokenizer");
    json_t *strip = json_object_get(normalizer, "strip_accents");
    struct json_place here = place_in(place, "model"), form = place_in(place, "normalizer");
    struct json_place words = place_in(place, "pre_tokenizer");

    tokenizer->kind = KIND_WORDPIECE;
    if (strcmp(type_of(normalizer), "BertNormalizer") != 0)
        return refuse_value(&form, "type", json_object_get(normalizer, "type"), "\"BertNormalizer\"", err);
    if (strcmp(type_of(pre), "BertPreTokenizer") != 0)
        return refuse_value(&words, "type", json_object_get(pre, "type"), "\"BertPreTokenizer\"", err);
    if (check_keys(model, &here, "type unk_token continuing_subword_prefix=\"##\" max_input_chars_per_word=100 vocab",
                   err) < 0 ||
        check_keys(normalizer, &form, "type clean_text handle_chinese_chars strip_accents lowercase", err) < 0 ||
        check_keys(pre, &words, "type", err) < 0 ||
        read_bool(normalizer, &form, "clean_text", true, &tokenizer->clean, err) < 0 ||
        read_bool(normalizer, &form, "handle_chinese_chars", true, &tokenizer->chinese, err) < 0 ||
        read_bool(normalizer, &form, "lowercase", true, &tokenizer->lower, err) < 0)
        return -1;
    if (strip && !json_is_boolean(strip) && !json_is_null(strip))
        return refuse_value(&form, "strip_accents", strip, "true, false or null", err);
    tokenizer->strip = json_is_boolean(strip) ? json_is_true(strip) : tokenizer->lower;
    if (read_vocab_object(tokenizer, json_object_get(model, "vocab"), place->path, ": model.vocab", err) < 0)
        return -1;
    return read_unknown(tokenizer, model, true, &here, err);
}

/* ---- the post-processor ------------------------------------------------------------------------------------------ */

/* The name of the token that it puts before a text. */
static json_t *template_begin(json_t *post)
{
    const char *type = type_of(post);
    json_t *found = NULL, *step;
    size_t i;

    json_array_foreach(json_object_get(post, "processors"), i, step) found = found ? found : template_begin(step);
    if (strcmp(type, "TemplateProcessing") == 0)
        found =
            json_object_get(json_object_get(json_array_get(json_object_get(post, "single"), 0), "SpecialToken"), "id");
    if (strcmp(type, "RobertaProcessing") == 0 || strcmp(type, "BertProcessing") == 0)
        found = json_array_get(json_object_get(post, "cls"), 0);
    return json_is_string(found) ? found : NULL;
}

/* ---- added tokens ------------------------------------------------------------------------------------------------ */

int read_added_token(struct tokenizer *tokenizer, json_t *object, int64_t id, const char *path, const char *where,
                     struct error *err)
{
    struct json_place place = {.path = path};
    json_t *content = json_object_get(object, "content");
    struct added_token token = {.text = (char *)(uintptr_t)json_string_value(content),
                                .bytes = json_string_length(content)};

    snprintf(place.where, sizeof place.where, "%s", where);
    if (!json_is_string(content))
        return refuse_value(&place, "content", content, "a string", err);
    if (check_keys(object, &place, "id content single_word lstrip rstrip normalized special __type=\"AddedToken\"",
                   err) < 0 ||
        read_bool(object, &place, "single_word", false, &token.single_word, err) < 0 ||
        read_bool(object, &place, "lstrip", false, &token.left, err) < 0 ||
        read_bool(object, &place, "rstrip", false, &token.right, err) < 0 ||
        read_bool(object, &place, "special", false, &token.special, err) < 0 ||
        read_bool(object, &place, "normalized", !token.special, &token.normalized, err) < 0)
        return -1;
    if (id < 0 || id >= TOKENS_MOST)
        return refuse_value(&place, "id", json_object_get(object, "id"), "a small number", err);
    token.id = (int32_t)id;
    if (tokenizer_add_token(tokenizer, &token, err) < 0)
        return error_prefix(err, "%s: %s", path, where);
    return 0;
}

/*
 * The reference does not take the ids of added tokens from the file: one of the model's vocabulary has its id there,
 * any other the next free one. `vocab` is the number of tokens in the model.
 */
static int read_added_tokens(struct tokenizer *tokenizer, json_t *list, int64_t vocab, const struct json_place *top,
                             struct error *err)
{
    int64_t next = vocab;
    json_t *item;
    size_t index;

    if (list && !json_is_array(list))
        return refuse_value(top, "added_tokens", list, "a list", err);
    json_array_foreach(list, index, item)
    {
        struct json_place place = place_in(top, "added_tokens[%zu]", index);
        json_t *value = json_object_get(item, "id"), *content = json_object_get(item, "content");
        int64_t id = json_is_integer(value) ? json_integer_value(value) : -1;
        bool known = json_is_string(content) &&
                     find_written(tokenizer, json_string_value(content), json_string_length(content)) == id;

        if (read_added_token(tokenizer, item, id, place.path, place.where, err) < 0)
            return -1;
        if (!known && id != next)
            return error_set(err, CODE_DATA, "%s: %s.id: %lld is not the id that tokenizers gives it, %lld", place.path,
                             place.where, (long long)id, (long long)next);
        next = id >= next ? id + 1 : next;
    }
    return 0;
}

int read_tokenizer_json(struct tokenizer *tokenizer, const struct tokenizer_files *files, struct error *err)
{
    struct json_place top = {.path = files->paths[0]}, model_place = place_in(&top, "model");
    json_t *root = foreign_json_read(top.path, TOKENIZER_FILE_MOST, err), *model = json_object_get(root, "model"),
           *begin;
    const char *type = type_of(model);
    int result = -1;

    if (!root)
        return -1;
    if (check_keys(
            root, &top,
            "version=\"1.0\" truncation padding added_tokens normalizer pre_tokenizer model post_processor decoder",
            err) < 0)
        result = -1;
    else if (strcmp(type, "BPE") == 0 || (*type == '\0' && json_is_array(json_object_get(model, "merges"))))
        result = read_bpe(tokenizer, root, model, &top, err);
    else if (strcmp(type, "WordPiece") == 0)
        result = read_wordpiece(tokenizer, root, model, &top, err);
    else
        refuse_value(&model_place, "type", json_object_get(model, "type"),
                     "\"BPE\" or \"WordPiece\"; of a SentencePiece model give the .model file", err);
    if (result == 0)
        result = read_added_tokens(tokenizer, json_object_get(root, "added_tokens"), tokenizer->table.known, &top, err);
    begin = template_begin(json_object_get(root, "post_processor"));
    if (result == 0 && begin)
        tokenizer->begin_token = find_written(tokenizer, json_string_value(begin), json_string_length(begin));
    json_decref(root);
    return result;
}
