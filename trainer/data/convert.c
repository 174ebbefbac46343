#include "trainer/data/convert.h"

#include <inttypes.h>
#include <math.h>
#include <omp.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/text.h"

#define LONG_PARCEL (16 * PARCEL_SIZE) /* bytes of text: of a long piece, which is seldom */

struct conversion {
    const struct convert *convert;
    struct converted *converted;
    struct tokenizer *tokenizer; /* NULL for bytes */
    struct encoding encoding;
    struct indexed_writer *sets[CONVERT_SETS]; /* all goes to the first; what others get is moved at the end */
    struct text_reader *reader;
    int threads;                    /* convert->workers, and one more that reads */
    struct parcel_worker **workers; /* [threads] */
    struct parcel *parcels;         /* [2 * threads] on their way from the reader to the sets */
    atomic_bool failed;             /* `failure` is set */
    struct error failure;
    uint64_t in_document;  /* tokens of the current document */
    char begin[4], end[4]; /* the tokens around a document, if there are any */
};

/* ---- what was encoded, in order ---------------------------------------------------------------------------------- */

static int take_bad(struct conversion *c, const char *bad, struct error *err)
{
    struct converted *converted = c->converted;
    char more[80] = "";

    if (converted->bad == (uint64_t)c->convert->skip_bad) {
        if (converted->bad > 0)
            snprintf(more, sizeof more, " (after %" PRIu64 " skipped by --skip-bad)", converted->bad);
        return error_set(err, CODE_DATA, "%s%s", bad, more);
    }
    if (converted->bad++ == 0)
        snprintf(converted->first_bad, sizeof converted->first_bad, "%s", bad);
    return 0;
}

static int end_document(struct conversion *c, const struct text_piece *piece, struct error *err)
{
    struct converted *converted = c->converted;
    uint64_t tokens = c->in_document;

    c->in_document = 0;
    converted->documents++;
    if (tokens == 0 && converted->empty++ == 0)
        snprintf(converted->first_empty, sizeof converted->first_empty,
                 piece->flags & PIECE_JSON ? "%.250s:%" PRIu64 : "%.250s", piece->place.name, piece->place.line);
    if (tokens == 0)
        return 0;
    if (c->convert->append_end && indexed_writer_append(c->sets[0], c->end, 1, err) < 0)
        return -1;
    return indexed_writer_end_document(c->sets[0], err);
}

static int take_parcel(struct conversion *c, const struct parcel *parcel, struct error *err)
{
    const size_t width = indexed_width(c->encoding.type);
    const char *tokens = parcel->tokens;

    for (size_t i = 0; i < parcel->bad_count; i++)
        if (take_bad(c, parcel->bad[i].line, err) < 0)
            return -1;
    if (parcel->failed)
        return error_set(err, parcel->err.code, "%s", parcel->err.text);
    if (parcel->lost > 0 && c->converted->lost == 0)
        memcpy(c->converted->first_lost, parcel->first_lost, sizeof parcel->first_lost);
    c->converted->lost += parcel->lost;
    for (size_t i = 0; i < parcel->run_count; i++) {
        const struct token_run *run = &parcel->runs[i];

        if (c->convert->begin && c->in_document == 0 && run->count > 0 &&
            indexed_writer_append(c->sets[0], c->begin, 1, err) < 0)
            return -1;
        if (indexed_writer_append(c->sets[0], tokens, run->count, err) < 0)
            return -1;
        tokens += run->count * width;
        c->in_document += run->count;
        if ((run->end == RUN_ENDS_SEQUENCE && indexed_writer_end_sequence(c->sets[0], err) < 0) ||
            (run->end == RUN_ENDS_DOCUMENT && end_document(c, &parcel->pieces[run->piece], err) < 0))
            return -1;
    }
    return 0;
}

/* Parcels come here in order. After a failure all others are left out. */
static void write_parcel(struct conversion *c, struct parcel *parcel)
{
    if (!c->failed && take_parcel(c, parcel, &c->failure) < 0)
        c->failed = true;
    if (parcel->text.room > LONG_PARCEL) {
        parcel_free(parcel);
        *parcel = (struct parcel){0};
    }
    parcel_clear(parcel);
}

/*
 * One thread reads. Any thread encodes a parcel. Any thread writes it, after the parcel before it. Before a parcel
 * is filled again, the reader waits until it is written; and after a long one, until all are: so memory is bounded.
 * Returns 0 at the end of the texts, or -1 with the reader's error.
 */
static int read_all(struct conversion *c, struct error *reading)
{
    int filled = 1;

#pragma omp parallel num_threads(c->threads)
#pragma omp single
    for (int at = 0; filled > 0 && !c->failed; at = (at + 1) % (2 * c->threads)) {
        struct parcel *parcel = &c->parcels[at];
        bool is_long;

#pragma omp taskwait depend(inout : *parcel)
        filled = text_reader_fill(c->reader, parcel, reading);
        is_long = parcel->text.room > LONG_PARCEL;
#pragma omp task depend(inout : *parcel)
        parcel_encode(c->workers[omp_get_thread_num()], parcel);
#pragma omp task depend(inout : *parcel, c->sets[0])
        write_parcel(c, parcel);
        if (is_long) {
#pragma omp taskwait
        }
    }
    return filled;
}

/* An error in the text comes before a later one in reading, whatever the number of workers. */
static int run_all(struct conversion *c, struct error *err)
{
    struct error reading;

    c->threads = (int)c->convert->workers + 1;
    c->workers = error_calloc((size_t)c->threads, sizeof *c->workers, err);
    c->parcels = error_calloc(2 * (size_t)c->threads, sizeof *c->parcels, err);
    if (!c->workers || !c->parcels)
        return -1;
    for (int i = 0; i < c->threads; i++)
        if (!(c->workers[i] = parcel_worker_create(&c->encoding, err)))
            return -1;
    if (read_all(c, &reading) == 0 && !c->failed)
        return 0;
    *err = c->failed ? c->failure : reading;
    return -1;
}

/* ---- the sets ---------------------------------------------------------------------------------------------------- */

bool convert_is_split(const struct convert *convert)
{
    return convert->split[0] > 0 || convert->split[1] > 0 || convert->split[2] > 0;
}

/* "-" is standard input. */
static bool is_same_file(const char *text, const struct stat *own)
{
    struct stat info;
    int failed = strcmp(text, "-") == 0 ? fstat(STDIN_FILENO, &info) : stat(text, &info);

    return failed == 0 && info.st_dev == own->st_dev && info.st_ino == own->st_ino;
}

/* Fails if a file of the set would overwrite an input text. */
static int refuse_own_texts(const struct text_inputs *texts, const char *prefix, struct error *err)
{
    static const char *const ends[] = {".bin", ".bin.tmp", ".idx.tmp"};
    char path[PATH_MAX + 16];
    struct stat own;

    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        snprintf(path, sizeof path, "%s%s", prefix, ends[i]);
        for (int k = 0; stat(path, &own) == 0 && k < texts->count; k++)
            if (is_same_file(texts->paths[k], &own))
                return error_set(err, CODE_USAGE, "%s is an input text and would be overwritten; choose another prefix",
                                 path);
    }
    return 0;
}

static int add_set(struct conversion *c, const char *prefix, const char *end, struct error *err)
{
    struct converted_set *set = &c->converted->sets[c->converted->count];

    if (snprintf(set->prefix, sizeof set->prefix, "%s%s", prefix, end) >= PATH_MAX)
        return error_set(err, CODE_USAGE, "%.200s...: this prefix is too long", prefix);
    if (refuse_own_texts(&c->convert->texts, set->prefix, err) < 0)
        return -1;
    c->sets[c->converted->count] = indexed_writer_create(
        set->prefix, c->encoding.type, c->convert->tokenizer ? tokenizer_path(c->tokenizer) : NULL, err);
    if (!c->sets[c->converted->count])
        return -1;
    c->converted->count++;
    return 0;
}

static int create_sets(struct conversion *c, struct error *err)
{
    static const char *const ends[CONVERT_SETS] = {"_train", "_valid", "_test"};
    const struct convert *convert = c->convert;

    if (!convert_is_split(convert))
        return add_set(c, convert->out, "", err) < 0 ||
                       (convert->valid_out && add_set(c, convert->valid_out, "", err) < 0)
                   ? -1
                   : 0;
    for (int i = 0; i < CONVERT_SETS; i++)
        if (convert->split[i] > 0 && add_set(c, convert->out, ends[i], err) < 0)
            return -1;
    return 0;
}

static int move_percent(struct conversion *c, struct error *err)
{
    const double percent = c->convert->valid_percent;
    const uint64_t tokens = indexed_writer_facts(c->sets[0]).tokens;
    const uint64_t valid = (uint64_t)((double)tokens * percent / 100);

    if (valid == 0 || valid >= tokens)
        return error_set(err, CODE_DATA, "%g percent of %" PRIu64 " tokens leaves nothing for %s; give more text",
                         percent, tokens, valid ? "training" : "validation");
    return indexed_writer_move(c->sets[0], UINT64_MAX, tokens - valid, c->sets[1], err);
}

/* Moves documents to the second set and from there to the third, since only the end of a set can be moved. */
static int move_split(struct conversion *c, struct error *err)
{
    const double *weights = c->convert->split;
    const double sum = weights[0] + weights[1] + weights[2];
    const uint64_t documents = indexed_writer_facts(c->sets[0]).documents;
    uint64_t begins[CONVERT_SETS + 1] = {0};
    double before = 0;
    int set = 0;

    for (int i = 0; i < CONVERT_SETS; i++) {
        before += weights[i];
        if (weights[i] > 0)
            begins[++set] = (uint64_t)llround((double)documents * before / sum);
    }
    for (int i = 0; i < set; i++)
        if (begins[i + 1] <= begins[i])
            return error_set(err, CODE_DATA, "--split %g,%g,%g of %" PRIu64 " document%s leaves none for %s; give more",
                             weights[0], weights[1], weights[2], documents, documents == 1 ? "" : "s",
                             c->converted->sets[i].prefix);
    for (int i = 1; i < set; i++)
        if (indexed_writer_move(c->sets[i - 1], begins[i] - begins[i - 1], UINT64_MAX, c->sets[i], err) < 0)
            return -1;
    return 0;
}

static int commit_sets(struct conversion *c, struct error *err)
{
    struct converted *converted = c->converted;

    if (indexed_writer_facts(c->sets[0]).tokens == 0)
        return converted->bad
                   ? error_set(err, CODE_DATA, "no good document; the first bad place: %s", converted->first_bad)
               : converted->documents
                   ? error_set(err, CODE_DATA, "%s is empty; leave it out or give it text", converted->first_empty)
                   : error_set(err, CODE_DATA, "%s has no document; give it text", c->convert->texts.paths[0]);
    if (c->convert->valid_out && move_percent(c, err) < 0)
        return -1;
    if (convert_is_split(c->convert) && move_split(c, err) < 0)
        return -1;
    for (int i = converted->count - 1; i >= 0; i--) {
        converted->sets[i].facts = indexed_writer_facts(c->sets[i]);
        if (indexed_writer_commit(c->sets[i], err) < 0)
            return -1;
    }
    return 0;
}

/* ---- the conversion ---------------------------------------------------------------------------------------------- */

/* The tokens around a document. */
static int find_ends(struct conversion *c, const char *path, struct error *err)
{
    const char *name = c->convert->begin;
    int32_t end = tokenizer_special(c->tokenizer, SPECIAL_END), begin = tokenizer_begin(c->tokenizer);
    char line[PATH_MAX + 300];
    const char *token;
    size_t bytes;

    if (c->convert->append_end && end < 0)
        return error_set(err, CODE_CONFIG,
                         "%s has no token that ends a document: name eos_token in its special_tokens_map.json", path);
    if (!name && begin >= 0 && !c->convert->sentences && text_notice) { /* a BERT's sampler puts it there */
        token = tokenizer_token(c->tokenizer, begin, &bytes);
        snprintf(line, sizeof line,
                 "%s begins each text with %.*s by its template, which is left out; --bos template puts it there", path,
                 (int)(bytes < 100 ? bytes : 100), token);
        text_notice(line);
    }
    if (name && strcmp(name, CONVERT_TEMPLATE) != 0)
        begin = tokenizer_find(c->tokenizer, name);
    if (name && begin < 0)
        return strcmp(name, CONVERT_TEMPLATE) == 0
                   ? error_set(err, CODE_CONFIG, "%s has no template that begins a text: give --bos the token", path)
                   : error_set(err, CODE_CONFIG, "--bos %s: %s has no such token", name, path);
    indexed_pack(c->encoding.type, &begin, 1, c->begin);
    indexed_pack(c->encoding.type, &end, 1, c->end);
    return 0;
}

static int open_tokenizer(struct conversion *c, struct error *err)
{
    const struct convert *convert = c->convert;
    const char *path = convert->tokenizer    ? convert->tokenizer
                       : convert->append_end ? "bytes" /* 257 tokens do not fit into uint8 */
                                             : NULL;

    c->encoding = (struct encoding){.key = convert->key, .sentences = convert->sentences, .type = INDEXED_U8};
    if (!path)
        return 0;
    c->tokenizer = tokenizer_open(path, err);
    if (!c->tokenizer)
        return -1;
    if (tokenizer_note(c->tokenizer) && text_notice)
        text_notice(tokenizer_note(c->tokenizer));
    c->encoding.tokenizer = c->tokenizer;
    c->encoding.utf8 = strcmp(path, "bytes") != 0;
    c->encoding.type = tokenizer_size(c->tokenizer) <= 1 << 16 ? INDEXED_U16 : INDEXED_I32;
    return find_ends(c, path, err);
}

int convert_texts(const struct convert *convert, struct converted *converted, struct error *err)
{
    struct conversion c = {.convert = convert, .converted = converted};
    int status = -1;

    *converted = (struct converted){0};
    if (open_tokenizer(&c, err) < 0 || !(c.reader = text_reader_create(&convert->texts, &c.encoding, err)) ||
        create_sets(&c, err) < 0)
        goto done;
    if (run_all(&c, err) == 0)
        status = commit_sets(&c, err);

done:
    for (int i = 0; c.workers && i < c.threads; i++)
        parcel_worker_destroy(c.workers[i]);
    for (int i = 0; c.parcels && i < 2 * c.threads; i++)
        parcel_free(&c.parcels[i]);
    free(c.workers);
    free(c.parcels);
    for (int i = CONVERT_SETS - 1; i >= 0; i--)
        indexed_writer_destroy(c.sets[i]);
    text_reader_destroy(c.reader);
    tokenizer_close(c.tokenizer);
    return status;
}
