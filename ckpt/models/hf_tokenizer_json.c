/* hf_tokenizer_json.c - a tokenizer.json for a vocabulary that has none. See hf_internal.h. */
#include <stdlib.h>

#include "ckpt/models/hf_internal.h"
#include "common/text.h"
#include "tokenizer/file_tokens.h"

/* Adds a token that is found in text before the rest is divided. */
static void add_found(json_t *added, int64_t id, const char *text, bool special)
{
    json_array_append_new(added,
                          json_pack("{s:I, s:s, s:b, s:b, s:b, s:b, s:b}", "id", (json_int_t)id, "content", text,
                                    "single_word", 0, "lstrip", 0, "rstrip", 0, "normalized", 0, "special", special));
}

/* ---- bytes ------------------------------------------------------------------------------------------------------- */

/* Of byte-level BPE: {"character of the alphabet": byte, ...}. There are no merges. */
static json_t *make_byte_vocab(void)
{
    json_t *vocab = json_object();
    int16_t bytes[ALPHABET];

    fill_byte_alphabet(bytes);
    for (int code = 0; code < ALPHABET; code++) {
        char text[5] = {0};

        utf8_write((uint32_t)code, text);
        if (bytes[code] >= 0)
            json_object_set_new(vocab, text, json_integer(bytes[code]));
    }
    return vocab;
}

static json_t *make_byte_level(void)
{
    return json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel", "add_prefix_space", 0, "trim_offsets", 0, "use_regex",
                     0);
}

json_t *hf_make_byte_json(const struct model_shape *shape)
{
    json_t *root = json_pack("{s:s, s:[], s:o, s:o, s:{s:s, s:o, s:[]}}", "version", "1.0", "added_tokens",
                             "pre_tokenizer", make_byte_level(), "decoder", make_byte_level(), "model", "type", "BPE",
                             "vocab", make_byte_vocab(), "merges");

    if (shape->vocab > BYTES_END)
        add_found(json_object_get(root, "added_tokens"), BYTES_END, "<|endoftext|>", true);
    return root;
}

/* ---- SentencePiece ----------------------------------------------------------------------------------------------- */

struct piece_lists {
    json_t *ids;    /* {"piece": id, ...}: BPE's vocabulary */
    json_t *scored; /* [["piece", score], ...]: Unigram's vocabulary */
    json_t *added;  /* what is found in text: unknown, control and user-defined pieces */
    json_t *merges; /* of BPE: ["left right", ...] */
    const char *unknown;
    float last; /* the score of the last piece that has merges */
};

static int add_piece(void *arg, const struct file_token *token, struct error *err)
{
    struct piece_lists *lists = arg;
    json_t *scored = json_pack("[s#, f]", token->text, (int)token->bytes, (double)token->score);
    const char *text = json_string_value(json_array_get(scored, 0));

    if (json_array_append_new(lists->scored, scored) < 0)
        return error_set(err, CODE_DATA, "it is not UTF-8");
    json_object_set_new(lists->ids, text, json_integer(token->id));
    if (token->type >= PIECE_UNKNOWN && token->type <= PIECE_USER)
        add_found(lists->added, token->id, text, token->type != PIECE_USER);
    if (token->type == PIECE_UNKNOWN)
        lists->unknown = text;
    return 0;
}

/* Adds all pairs of pieces that make this piece. libsentencepiece merges the pair whose piece has the highest score first,
 * tokenizers merges the first of the list: so no score may be higher than the one before it. */
static int add_merges(void *arg, const struct file_token *token, struct error *err)
{
    struct piece_lists *lists = arg;
    const char *text = json_string_value(json_array_get(json_array_get(lists->scored, (size_t)token->id), 0));
    size_t before = json_array_size(lists->merges);

    for (size_t cut = text_utf8_length(text); token->type == PIECE_NORMAL && text[cut];
         cut += text_utf8_length(text + cut))
        if (json_object_getn(lists->ids, text, cut) && json_object_get(lists->ids, text + cut))
            json_array_append_new(lists->merges, json_sprintf("%.*s %s", (int)cut, text, text + cut));
    if (json_array_size(lists->merges) == before)
        return 0;
    if (before > 0 && token->score > lists->last)
        return error_set(err, CODE_DATA,
                         "its score is higher than that of the piece before it: tokenizers cannot do that");
    lists->last = token->score;
    return 0;
}

static json_t *make_replace(const char *kind, const char *pattern, const char *content)
{
    return json_pack("{s:s, s:{s:s}, s:s}", "type", "Replace", "pattern", kind, pattern, "content", content);
}

/* The string of these bytes in base64 (RFC 4648). */
static json_t *make_base64(const char *bytes, size_t count)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char *text = calloc(count / 3 + 1, 4), *out = text;
    json_t *result;

    for (size_t at = 0; text && at < count; at += 3) {
        uint32_t group = 0;

        for (size_t i = at; i < at + 3; i++)
            group = group << 8 | (i < count ? (uint8_t)bytes[i] : 0);
        for (int i = 0; i < 4; i++)
            *out++ = at + (size_t)i <= count ? digits[group >> (18 - 6 * i) & 63] : '=';
    }
    result = json_stringn(text ? text : "", (size_t)(out - text));
    free(text);
    return result;
}

static json_t *make_normalizer(const struct piece_options *options)
{
    const char *blank = options->escape ? BLANK : " ";
    json_t *steps = json_array();

    if (options->map_size > 0)
        json_array_append_new(steps, json_pack("{s:s, s:o}", "type", "Precompiled", "precompiled_charsmap",
                                               make_base64(options->map, options->map_size)));
    if (options->remove) {
        json_array_append_new(steps, make_replace("Regex", "^ +| +$", ""));
        json_array_append_new(steps, make_replace("Regex", " {2,}", " "));
    }
    if (options->prefix)
        json_array_append_new(steps, json_pack("{s:s, s:s}", "type", "Prepend", "prepend", blank));
    json_array_append_new(steps, make_replace("String", " ", blank));
    return json_pack("{s:s, s:o}", "type", "Sequence", "normalizers", steps);
}

/* libsentencepiece decodes the unknown piece as a blank, U+2047 and a blank. */
static json_t *make_decoder(const struct piece_options *options, const char *unknown)
{
    return json_pack("{s:s, s:[o, o, {s:s}, {s:s}, {s:s, s:s, s:i, s:i}]}", "type", "Sequence", "decoders",
                     make_replace("String", unknown, " \xe2\x81\x87 "), make_replace("String", BLANK, " "), "type",
                     "ByteFallback", "type", "Fuse", "type", "Strip", "content", " ", "start",
                     options->prefix || options->remove, "stop", 0);
}

static json_t *make_model(const struct piece_lists *lists, const struct piece_options *options)
{
    if (options->bpe)
        return json_pack("{s:s, s:s, s:b, s:b, s:O, s:O}", "type", "BPE", "unk_token", lists->unknown, "fuse_unk", 1,
                         "byte_fallback", options->fallback, "vocab", lists->ids, "merges", lists->merges);
    return json_pack("{s:s, s:O, s:O, s:b}", "type", "Unigram", "unk_id", json_object_get(lists->ids, lists->unknown),
                     "vocab", lists->scored, "byte_fallback", options->fallback);
}

static void free_lists(struct piece_lists *lists)
{
    json_decref(lists->ids);
    json_decref(lists->scored);
    json_decref(lists->added);
    json_decref(lists->merges);
}

json_t *hf_make_piece_json(const char *path, struct error *err)
{
    struct piece_lists lists = {json_object(), json_array(), json_array(), json_array(), .unknown = NULL};
    struct piece_options options;
    json_t *root = NULL;
    size_t bytes;
    char *text = text_read_file(path, TOKENIZER_FILE_MOST, &bytes, err);

    if (text && (piece_options_read(text, bytes, &options, err) < 0 ||
                 file_tokens_take_pieces(text, bytes, add_piece, &lists, err) < 0 ||
                 (options.bpe && file_tokens_take_pieces(text, bytes, add_merges, &lists, err) < 0)))
        error_prefix(err, "%s", path);
    else if (text && (options.suffix || !lists.unknown))
        error_set(err, CODE_DATA, "%s: %s: tokenizers cannot do that", path,
                  options.suffix ? "blanks end words" : "no piece is the unknown one");
    else if (text)
        root = json_pack("{s:s, s:O, s:o, s:o, s:o}", "version", "1.0", "added_tokens", lists.added, "normalizer",
                         make_normalizer(&options), "decoder", make_decoder(&options, lists.unknown), "model",
                         make_model(&lists, &options));
    free(text);
    free_lists(&lists);
    return root;
}

/* ---- Llama 3's ranks --------------------------------------------------------------------------------------------- */

struct ranked_lists {
    struct piece_lists lists;
    token_taker take;   /* add_piece, then add_merges */
    char names[256][3]; /* the characters of the alphabet, by their bytes */
};

static int take_ranked(void *arg, const struct file_token *token, struct error *err)
{
    struct ranked_lists *ranked = arg;
    struct file_token piece = *token;
    char text[2 * RANKED_MOST + 1] = "";
    size_t used = 0;

    if (token->type != PIECE_CONTROL) {
        for (size_t i = 0; i < token->bytes; i++)
            used = (size_t)(stpcpy(text + used, ranked->names[(uint8_t)token->text[i]]) - text);
        piece = (struct file_token){text, used, token->id, PIECE_NORMAL, (float)-token->id};
    }
    return ranked->take(&ranked->lists, &piece, err);
}

json_t *hf_make_rank_json(const struct tokenizer_files *files, struct error *err)
{
    struct ranked_lists ranked = {.lists = {json_object(), json_array(), json_array(), json_array(), .unknown = NULL}};
    struct piece_lists *lists = &ranked.lists;
    json_t *root = NULL;
    int16_t bytes[ALPHABET];

    fill_byte_alphabet(bytes);
    for (int code = 0; code < ALPHABET; code++)
        if (bytes[code] >= 0)
            utf8_write((uint32_t)code, ranked.names[bytes[code]]);
    ranked.take = add_piece;
    if (file_tokens_read(files, take_ranked, &ranked, err) == 0) {
        ranked.take = add_merges;
        if (file_tokens_read(files, take_ranked, &ranked, err) == 0)
            root = json_pack("{s:s, s:O, s:{s:s, s:[{s:s, s:{s:s}, s:s, s:b}, o]}, s:o, s:{s:s, s:b, s:O, s:O}}",
                             "version", "1.0", "added_tokens", lists->added, "pre_tokenizer", "type", "Sequence",
                             "pretokenizers", "type", "Split", "pattern", "Regex", LLAMA3_PATTERN(LLAMA3_DIGITS),
                             "behavior", "Isolated", "invert", 0, make_byte_level(), "decoder", make_byte_level(),
                             "model", "type", "BPE", "ignore_merges", 1, "vocab", lists->ids, "merges", lists->merges);
    }
    free_lists(lists);
    return root;
}
