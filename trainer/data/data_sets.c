/* data_sets.c - muster-data show, verify and decode: what is in data sets. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/text.h"
#include "tokenizer/tokenizer.h"
#include "trainer/data/data_tool.h"

#define CHUNK ((size_t)1 << 16) /* tokens read at once */

static int32_t chunk[CHUNK];

/* "5 sentences, 2 documents", or only the documents where sequences are documents. */
static void print_documents(const struct indexed_facts *facts, bool sentences)
{
    if (sentences)
        printf("%" PRIu64 " sentence%s, ", facts->sequences, data_plural(facts->sequences));
    printf("%" PRIu64 " document%s", facts->documents, data_plural(facts->documents));
}

void data_print_written(const char *prefix, const struct indexed_facts *facts, bool sentences)
{
    printf("%s: %" PRIu64 " token%s, ", prefix, facts->tokens, data_plural(facts->tokens));
    print_documents(facts, sentences);
    printf("; wrote %s.bin and %s.idx\n", prefix, prefix);
}

/* ---- show, verify ------------------------------------------------------------------------------------------------ */

/* The least and the largest token. */
struct token_range {
    int32_t least, most;
};

/* Refuses a token that is not below `vocab`, the tokenizer's size or INDEXED_ANY. */
static int read_tokens(const struct indexed *indexed, int32_t vocab, struct token_range *range, struct error *err)
{
    const uint64_t tokens = indexed_facts(indexed).tokens;

    *range = (struct token_range){INT32_MAX, 0};
    for (uint64_t at = 0; at < tokens; at += CHUNK) {
        size_t count = tokens - at < CHUNK ? (size_t)(tokens - at) : CHUNK;

        if (indexed_read(indexed, at, count, INDEXED_ANY, chunk, err) < 0)
            return -1;
        for (size_t i = 0; i < count; i++) {
            if (chunk[i] >= vocab)
                return indexed_refuse(indexed, at + i, chunk[i], err, "the tokenizer has 0 to %d", vocab - 1);
            range->least = chunk[i] < range->least ? chunk[i] : range->least;
            range->most = chunk[i] > range->most ? chunk[i] : range->most;
        }
    }
    return 0;
}

static const char *type_name(const struct indexed_facts *facts)
{
    return facts->type == INDEXED_U8 ? "uint8" : facts->type == INDEXED_U16 ? "uint16" : "int32";
}

static void print_set(const char *prefix, const struct indexed_facts *facts, const struct token_range *range,
                      const struct tokenizer *tokenizer)
{
    const bool sentences = facts->longest_document > 1;

    printf("%s: %" PRIu64 " tokens (%s), ", prefix, facts->tokens, type_name(facts));
    print_documents(facts, sentences);
    printf(", longest %s %" PRIu64, sentences ? "sentence" : "sequence", facts->longest);
    if (range && facts->tokens)
        printf("; tokens are %" PRId32 " to %" PRId32 ": model.vocab must be at least %" PRId64, range->least,
               range->most, (int64_t)range->most + 1);
    if (tokenizer)
        printf("; tokenizer: %s, %" PRId32 " tokens", tokenizer_kind(tokenizer), tokenizer_size(tokenizer));
    putchar('\n');
}

static void write_set(const char *prefix, const struct indexed_facts *facts, const struct token_range *range,
                      const struct tokenizer *tokenizer)
{
    fputs("{\"prefix\":", stdout);
    json_quote(stdout, prefix);
    json_number_member(stdout, "tokens", (long)facts->tokens);
    json_string_member(stdout, "type", type_name(facts));
    json_number_member(stdout, "sequences", (long)facts->sequences);
    json_number_member(stdout, "documents", (long)facts->documents);
    json_number_member(stdout, "longest_sequence", (long)facts->longest);
    if (range && facts->tokens) {
        json_number_member(stdout, "least_token", range->least);
        json_number_member(stdout, "largest_token", range->most);
    }
    if (tokenizer) {
        json_string_member(stdout, "tokenizer", tokenizer_kind(tokenizer));
        json_number_member(stdout, "tokenizer_size", tokenizer_size(tokenizer));
    }
    puts("}");
}

static int print_one(const char *prefix, bool every_token, bool json, struct error *err)
{
    char folder[PATH_MAX];
    struct indexed *indexed = indexed_open(prefix, err);
    struct tokenizer *tokenizer = NULL;
    struct token_range range;
    struct indexed_facts facts;
    int status = -1;

    if (!indexed)
        return -1;
    facts = indexed_facts(indexed);
    if (indexed_tokenizer(prefix, folder) == folder && !(tokenizer = tokenizer_open(folder, err)))
        goto done;
    if (every_token && read_tokens(indexed, tokenizer ? tokenizer_size(tokenizer) : INDEXED_ANY, &range, err) < 0) {
        if (tokenizer && err->code == CODE_DATA)
            error_prefix(err, "%s does not fit", folder);
        goto done;
    }
    (json ? write_set : print_set)(prefix, &facts, every_token ? &range : NULL, tokenizer);
    status = 0;

done:
    tokenizer_close(tokenizer);
    indexed_close(indexed);
    return status;
}

int data_show(int argc, char **argv)
{
    const bool every_token = strcmp(argv[0], "verify") == 0;
    bool json = false;
    const struct option_row rows[] = {{"json", OPTION_FLAG, .to = &json}, {0}};
    int code = options_read(rows, argc, argv, data_usage);
    struct error err;

    if (code >= 0)
        return code;
    if (optind == argc)
        return option_fail("%s: no prefix was given", argv[0]);
    code = CODE_OK;
    for (int i = optind; i < argc; i++)
        if (print_one(argv[i], every_token, json, &err) < 0)
            code = error_report(&err);
    return code;
}

/* ---- decode ------------------------------------------------------------------------------------------------------ */

struct decoding {
    const char *prefix;
    struct indexed *indexed;
    struct tokenizer *tokenizer;
    struct text_list text;
};

static int print_document(struct decoding *d, uint64_t document, struct error *err)
{
    struct decode_state state = {0};
    uint64_t at, end;

    if (indexed_document_begin(d->indexed, document, &at, err) < 0 ||
        indexed_document_begin(d->indexed, document + 1, &end, err) < 0)
        return -1;
    while (at < end) {
        size_t count = end - at < CHUNK ? (size_t)(end - at) : CHUNK;

        if (indexed_read(d->indexed, at, count, INDEXED_ANY, chunk, err) < 0)
            return -1;
        at += count;
        d->text.count = 0;
        if (tokenizer_decode(d->tokenizer, &state, chunk, count, at < end, &d->text, err) < 0)
            return error_prefix(err, "%s, document %" PRIu64, d->prefix, document);
        fwrite(d->text.text, 1, d->text.count, stdout);
    }
    return 0;
}

static int decode_documents(const char *prefix, const char *tokenizer, uint64_t first, uint64_t last, struct error *err)
{
    struct decoding d = {.prefix = prefix, .indexed = indexed_open(prefix, err)};
    char folder[PATH_MAX];
    uint64_t documents;
    int status = -1;

    if (!d.indexed)
        return -1;
    documents = indexed_facts(d.indexed).documents;
    last = last == UINT64_MAX ? documents - 1 : last;
    if (last >= documents) {
        error_set(err, CODE_USAGE, "%s has documents 0 to %" PRIu64, prefix, documents - 1);
        goto done;
    }
    d.tokenizer = tokenizer_open(tokenizer ? tokenizer : indexed_tokenizer(prefix, folder), err);
    if (d.tokenizer && tokenizer_note(d.tokenizer))
        text_notice(tokenizer_note(d.tokenizer));
    status = d.tokenizer ? 0 : -1;
    for (uint64_t i = first; i <= last && status == 0; i++)
        status = print_document(&d, i, err);

done:
    free(d.text.text);
    tokenizer_close(d.tokenizer);
    indexed_close(d.indexed);
    return status;
}

struct documents {
    uint64_t first, last;
};

/* "7" or "7-9". */
static int take_documents(const char *text, void *to)
{
    struct documents *documents = to;
    const char *at = text;
    long first, last;
    bool good = text_take_number(&at, LONG_MAX - 1, &first);

    last = first;
    if (good && *at == '-')
        good = (at++, text_take_number(&at, LONG_MAX - 1, &last));
    if (!good || *at || first > last)
        return option_fail("--documents %s: expected a number or two, as 3-5", text);
    *documents = (struct documents){(uint64_t)first, (uint64_t)last};
    return -1;
}

int data_decode(int argc, char **argv)
{
    struct documents documents = {0, UINT64_MAX};
    const char *tokenizer = NULL;
    const struct option_row rows[] = {
        {"documents", OPTION_TAKE, .to = &documents, .take = take_documents},
        {"tokenizer", OPTION_TEXT, .to = &tokenizer},
        {0},
    };
    int code = options_read(rows, argc, argv, data_usage);
    struct error err;

    if (code >= 0)
        return code;
    if (argc - optind != 1)
        return option_fail("decode: expected one prefix");
    return decode_documents(argv[optind], tokenizer, documents.first, documents.last, &err) < 0 ? error_report(&err)
                                                                                                : CODE_OK;
}
