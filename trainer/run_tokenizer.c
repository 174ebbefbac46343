/*
 * run_tokenizer.c - finds the tokenizer of a run's data, compares it and copies it to checkpoint.dir, so that the ids
 * of its checkpoints can be turned into text. Tokenizers are compared by their fingerprints: the same vocabulary in
 * files of another format is the same tokenizer.
 */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/job_data.h"
#include "ckpt/models/hf.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_files.h"
#include "trainer/data/indexed.h"
#include "trainer/run.h"
#include "trainer/watch/recorder.h"

/* data.tokenizer, or the one beside the first data set that has one. False if there is neither. */
static bool find_tokenizer(const struct job *job, char path[PATH_MAX])
{
    const char *const data[] = {job->data.train, job->data.valid};
    struct job_data sets;
    struct error err;

    if (job->data.tokenizer[0])
        return snprintf(path, PATH_MAX, "%s", job->data.tokenizer) < PATH_MAX;
    for (int k = 0; k < 2; k++)
        for (int i = 0; data[k][0] && job_data_parse(&sets, data[k], &err) == 0 && i < sets.count; i++)
            if (indexed_tokenizer(sets.sets[i].prefix, path) == path)
                return true;
    return false;
}

static int check_size(const struct run *run, const char *path, const struct tokenizer *tokenizer, struct error *err)
{
    int size = tokenizer_size(tokenizer), vocab = run->job->model.vocab;

    if (strcmp(tokenizer_kind(tokenizer), "bytes") == 0)
        size = BYTES_END; /* a text of bytes need not have it */
    if (size <= vocab)
        return 0;
    return error_set(err, CODE_CONFIG,
                     "the tokenizer %.300s has %d tokens, and model.vocab = %d: at least %d would fit", path, size,
                     vocab, size);
}

/* Fails if the tokenizer in the directory `other` is not that of `path`; "bytes" is one without a directory. */
static int compare_with(const char *path, const struct tokenizer *tokenizer, const char *other, const char *advice,
                        struct error *err)
{
    struct tokenizer *there = tokenizer_open(other, err);
    int result = 0;

    if (!there)
        return -1;
    if (!tokenizer_matches(tokenizer, other) && !tokenizer_matches(there, path))
        result =
            error_set(err, CODE_CONFIG, "%.300s (%s, %d tokens) is another tokenizer than %.300s (%s, %d tokens): %s",
                      other, tokenizer_kind(there), tokenizer_size(there), path, tokenizer_kind(tokenizer),
                      tokenizer_size(tokenizer), advice);
    tokenizer_close(there);
    return result;
}

/* A set without a folder is of bytes, unless data.tokenizer names what made it. A set of uint8 is of bytes. */
static int compare_set(const struct run *run, const char *path, const struct tokenizer *tokenizer,
                       const struct blend_set *set, struct error *err)
{
    const char *kind = tokenizer_kind(tokenizer);
    bool uint8 = set->facts.type == INDEXED_U8;
    char beside[PATH_MAX];

    if (indexed_tokenizer(set->prefix, beside) == beside)
        return strcmp(beside, path) == 0
                   ? 0
                   : compare_with(path, tokenizer, beside, "make all data of a run with one tokenizer", err);
    if (strcmp(kind, "bytes") == 0 || (!uint8 && run->job->data.tokenizer[0]))
        return 0;
    return error_set(err, CODE_CONFIG,
                     "data set %.300s is of bytes (%s), and %.300s is another tokenizer (%s, %d tokens): make all data "
                     "of a run with one tokenizer%s",
                     set->prefix, uint8 ? "uint8" : "there is no folder PREFIX.tokenizer", path, kind,
                     tokenizer_size(tokenizer), uint8 ? "" : ", or name the one that made this set in data.tokenizer");
}

static int compare_sets(const struct run *run, const char *path, const struct tokenizer *tokenizer, struct error *err)
{
    const struct blend *const data[] = {run->engine->train, run->engine->valid};

    for (int k = 0; k < 2; k++)
        for (int i = 0; data[k] && i < blend_sets(data[k]); i++) {
            struct blend_set set = blend_set(data[k], i);

            if (compare_set(run, path, tokenizer, &set, err) < 0)
                return -1;
        }
    return 0;
}

/* Where a checkpoint or a Hugging Face folder has its tokenizer; false if it has none. */
static bool find_theirs(const char *path, char theirs[PATH_MAX])
{
    struct tokenizer_files files;
    struct error ignored;

    if (!hf_is_model(path)) {
        ckpt_tokenizer_path(theirs, PATH_MAX, path);
        return access(theirs, F_OK) == 0;
    }
    snprintf(theirs, PATH_MAX, "%s", path);
    return tokenizer_find_files(path, 0, &files, &ignored) == 0;
}

/* The tokenizer of the data or, if that names none, the one that is kept in `dir`. */
static int take_tokenizer(const struct run *run, const char *dir, bool ours, struct error *err)
{
    static const char advice[] = "give this run the former, or a checkpoint.dir of its own";
    char path[PATH_MAX], copy[PATH_MAX] = "";
    struct tokenizer *tokenizer;
    bool kept;
    int result = -1;

    kept = dir[0] && find_theirs(dir, copy);
    if (!find_tokenizer(run->job, path)) {
        if (!kept || hf_is_model(dir)) /* a folder's may be the same as "bytes", in another form */
            return 0;
        memcpy(path, copy, sizeof path);
    }
    tokenizer = tokenizer_open(path, err);
    if (!tokenizer)
        return error_prefix(err, "data.tokenizer");
    if (check_size(run, path, tokenizer, err) == 0 && compare_sets(run, path, tokenizer, err) == 0) {
        if (kept)
            result = compare_with(path, tokenizer, copy, advice, err);
        else
            result = ours && run->claim ? tokenizer_save(tokenizer_path(tokenizer), copy, err) : 0;
    }
    if (result == 0 && ours) {
        if (tokenizer_note(tokenizer))
            run_log(run, "%s", tokenizer_note(tokenizer));
        run_log(run, "tokenizer: %s, %s, %" PRId32 " tokens", path, tokenizer_kind(tokenizer),
                tokenizer_size(tokenizer));
    }
    tokenizer_close(tokenizer);
    return result;
}

int run_tokenizer_check(const struct run *run, struct error *err)
{
    return take_tokenizer(run, run->job->checkpoint.dir, true, err);
}

int run_tokenizer_start(struct run *run, const char *dir, bool ours, struct error *err)
{
    recorder_phase("opening its tokenizer");
    return comm_agree(run->world, run->leader ? take_tokenizer(run, dir, ours, err) : 0, err);
}

/* The end of a document in the tokenizer at `path`; -1 for none that the model has. */
static int read_end(const char *path, int vocab, int32_t *end, struct error *err)
{
    struct tokenizer *tokenizer = tokenizer_open(path, err);

    if (!tokenizer)
        return error_prefix(err, "data.tokenizer");
    *end = tokenizer_special(tokenizer, SPECIAL_END);
    if (*end >= vocab) /* bytes without the end of a document */
        *end = -1;
    tokenizer_close(tokenizer);
    return 0;
}

int run_tokenizer_eod(struct run *run, struct error *err)
{
    const struct job *job = run->job;
    char path[PATH_MAX];
    int32_t end = -1;
    int result = 0;

    run->job_of_engine = *job;
    if (job->data.reset == RESET_NONE || job->data.eod >= 0)
        return 0;
    recorder_phase("opening its tokenizer");
    if (run->leader && find_tokenizer(job, path))
        result = read_end(path, job->model.vocab, &end, err);
    if (comm_agree(run->world, result, err) < 0 || comm_broadcast(run->world, &end, sizeof end, 0, err) < 0)
        return -1;
    run->job_of_engine.data.eod = end;
    return 0;
}

void run_tokenizer_loaded(const struct run *run, const char *key, const char *dir)
{
    static const char advice[] = "the model has learned the ids of the former";
    struct tokenizer *tokenizer;
    char path[PATH_MAX], theirs[PATH_MAX];
    struct error err;

    if (!run->leader || !find_theirs(dir, theirs))
        return;
    if (!find_tokenizer(run->job, path)) {
        run_log(
            run,
            "warning: %s has a tokenizer, %s, and the data has none: set data.tokenizer to it if the data's ids are "
            "its own",
            key, theirs);
        return;
    }
    tokenizer = tokenizer_open(path, &err);
    if (!tokenizer || compare_with(path, tokenizer, theirs, advice, &err) < 0)
        run_log(run, "warning: %s", err.text);
    tokenizer_close(tokenizer);
}
