/* data_merge.c - muster-data merge: the documents of several data sets, in order, in one. */
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "common/option.h"
#include "tokenizer/tokenizer.h"
#include "trainer/data/data_tool.h"
#include "trainer/data/indexed.h"

#define CHUNK ((size_t)1 << 14)

struct merging {
    struct indexed_writer *out;
    data_progress_function *progress;
    size_t width;
    uint64_t done, total; /* bytes of tokens */
};

/* The fingerprint of a set's tokenizer. */
static int read_fingerprint(const char *prefix, uint32_t *fingerprint, struct error *err)
{
    char folder[PATH_MAX];
    struct tokenizer *tokenizer = tokenizer_open(indexed_tokenizer(prefix, folder), err);

    if (!tokenizer)
        return -1;
    *fingerprint = tokenizer_fingerprint(tokenizer);
    tokenizer_close(tokenizer);
    return 0;
}

/* Refuses sets whose tokens mean different things; *type is theirs, and *tokens the sum. */
static int check_sets(char *const *prefixes, int count, enum indexed_type *type, uint64_t *tokens, struct error *err)
{
    uint32_t first = 0, other;

    *tokens = 0;
    for (int i = 0; i < count; i++) {
        struct indexed *indexed = indexed_open(prefixes[i], err);
        struct indexed_facts facts;

        if (!indexed)
            return -1;
        facts = indexed_facts(indexed);
        indexed_close(indexed);
        *tokens += facts.tokens;
        if (i == 0)
            *type = facts.type;
        if (facts.type != *type)
            return error_set(err, CODE_DATA, "%s has tokens of type %s and %s of %s: make them with the same tokenizer",
                             prefixes[0], indexed_type_name(*type), prefixes[i], indexed_type_name(facts.type));
        if (read_fingerprint(prefixes[i], i == 0 ? &first : &other, err) < 0)
            return -1;
        if (i > 0 && other != first)
            return error_set(err, CODE_DATA, "%s and %s have different tokenizers: make them with the same one",
                             prefixes[0], prefixes[i]);
    }
    return 0;
}

static int copy_tokens(struct merging *m, const struct indexed *from, uint64_t position, uint64_t count,
                       struct error *err)
{
    int32_t ids[CHUNK];
    char tokens[4 * CHUNK];

    while (count > 0) {
        size_t here = count < CHUNK ? (size_t)count : CHUNK;

        if (data_stop)
            return error_set(err, CODE_STOPPED, "stopped by a signal; nothing was kept");
        if (indexed_read(from, position, here, INT_MAX, ids, err) < 0)
            return -1;
        indexed_pack(indexed_facts(from).type, ids, here, tokens);
        if (indexed_writer_append(m->out, tokens, here, err) < 0)
            return -1;
        position += here;
        count -= here;
        m->done += here * m->width;
        if (m->progress)
            m->progress(m->done, m->total);
    }
    return 0;
}

/* Lengths and boundaries are read a chunk at a time. */
static int copy_set(struct merging *m, const struct indexed *from, struct error *err)
{
    const struct indexed_facts facts = indexed_facts(from);
    uint64_t document = 0, end = 0, position = 0;
    int32_t lengths[CHUNK];

    if (indexed_boundaries(from, 1, 1, &end, err) < 0)
        return -1;
    for (uint64_t i = 0; i < facts.sequences; i++) {
        uint64_t left = facts.sequences - i;
        int32_t length;

        if (i % CHUNK == 0 && indexed_lengths(from, i, left < CHUNK ? (size_t)left : CHUNK, lengths, err) < 0)
            return -1;
        length = lengths[i % CHUNK];
        while (document + 1 < facts.documents && i >= end) /* documents may be empty */
            if (indexed_boundaries(from, ++document + 1, 1, &end, err) < 0)
                return -1;
        if (copy_tokens(m, from, position, (uint64_t)length, err) < 0)
            return -1;
        position += (uint64_t)length;
        if (i + 1 < end ? indexed_writer_end_sequence(m->out, err) < 0 : indexed_writer_end_document(m->out, err) < 0)
            return -1;
    }
    return 0;
}

static int merge_sets(char *const *prefixes, int count, const char *out, struct error *err)
{
    struct merging m = {.progress = data_progress()};
    char folder[PATH_MAX];
    enum indexed_type type = INDEXED_U8;
    struct indexed_facts facts;
    int status = 0;

    if (check_sets(prefixes, count, &type, &m.total, err) < 0 ||
        !(m.out = indexed_writer_create(out, type, indexed_tokenizer(prefixes[0], folder), err)))
        return -1;
    m.width = indexed_width(type);
    m.total *= m.width;
    for (int i = 0; i < count && status == 0; i++) {
        struct indexed *from = indexed_open(prefixes[i], err);

        status = from ? copy_set(&m, from, err) : -1;
        indexed_close(from);
    }
    facts = indexed_writer_facts(m.out);
    if (status == 0)
        status = indexed_writer_commit(m.out, err);
    indexed_writer_destroy(m.out);
    data_end_progress();
    if (status < 0)
        return -1;
    data_print_written(out, &facts, facts.longest_document > 1);
    return 0;
}

int data_merge(int argc, char **argv)
{
    const char *out = NULL;
    const struct option_row rows[] = {{"out", OPTION_TEXT, .to = &out}, {0}};
    int code = options_read(rows, argc, argv, data_usage);
    struct error err;

    if (code >= 0)
        return code;
    if (optind == argc)
        return option_fail("merge: no prefix was given");
    if (!out)
        return option_fail("merge: no --out PREFIX was given");
    if (data_is_nameless(out))
        return option_fail("the prefix \"%s\" names no file", out);
    data_catch_signals();
    return merge_sets(argv + optind, argc - optind, out, &err) < 0 ? data_fail(&err) : CODE_OK;
}
