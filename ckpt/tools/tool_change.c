/* tool_change.c - the commands that write or remove checkpoints: reshard, export, import, recover, prune, rm. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ckpt/models/hf.h"
#include "ckpt/tools/tool.h"
#include "common/clock.h"
#include "common/option.h"
#include "common/text.h"
#include "tokenizer/tokenizer_files.h"

/* Reads the value of --to: "name=number", with commas between. */
static int parse_mesh(const char *text, struct rewrite_to *to, struct error *err)
{
    const struct {
        const char *name;
        int *size;
        int least, most;
    } sizes[] = {{"dp=", &to->mesh.dp, 1, 99999},
                 {"tp=", &to->mesh.tp, 1, 99999},
                 {"pp=", &to->mesh.pp, 1, 99999},
                 {"zero=", &to->zero, 0, 3},
                 {"chunks=", &to->chunks, 1, 64}};
    const size_t count = sizeof sizes / sizeof *sizes;

    for (const char *at = text; at && *at; at += *at == ',') {
        size_t i = 0;
        long value;

        while (i < count && strncmp(at, sizes[i].name, strlen(sizes[i].name)) != 0)
            i++;
        at += i < count ? strlen(sizes[i].name) : 0;
        if (i == count || !text_take_number(&at, sizes[i].most, &value) || value < sizes[i].least ||
            (*at && *at != ','))
            return error_set(err, CODE_USAGE,
                             "--to %s: must be like dp=4,tp=2,pp=1,zero=1 (and chunks=1), sizes that "
                             "are not named being 1",
                             text);
        *sizes[i].size = (int)value;
    }
    return 0;
}

int tool_reshard(char **paths, const struct options *options, struct error *err)
{
    struct bar bar = bar_begin(options->quiet);
    struct rewrite_to to = {.mesh = {1, 1, 1}, .zero = -1, .progress = bar_draw, .arg = &bar};
    struct ckpt *source;
    char rate[TOOL_RATE_SIZE], path[4096];
    double seconds;
    int result;

    if (!options->to || !*options->to)
        return error_set(err, CODE_USAGE, "reshard: missing --to MESH, like --to dp=4,tp=2,pp=1");
    if (parse_mesh(options->to, &to, err) < 0 || !(source = tool_open(paths[0], err)))
        return -1;
    if (to.zero < 0)
        to.zero = ckpt_progress(source)->zero;
    result = ckpt_reshard(source, paths[1], &to, err);
    seconds = bar_erase(&bar);
    if (result == 0) {
        ckpt_step_path(path, sizeof path, paths[1], ckpt_progress(source)->step);
        printf("%s: %d shards, %s\n", path, mesh_world(&to.mesh),
               tool_format_rate(rate, ckpt_summary(source).bytes, seconds));
    }
    ckpt_close(source);
    return result;
}

/* ---- export and import ------------------------------------------------------------------------------------------- */

static int check_format(const char *command, const struct options *options, struct error *err)
{
    if (!options->format || strcmp(options->format, "hf") == 0)
        return 0;
    return error_set(err, CODE_USAGE, "%s --format %s: the only format is hf", command, options->format);
}

static int parse_dtype(const char *name, enum dtype *dtype, struct error *err)
{
    for (*dtype = 0; name && *dtype < HF_DTYPES; ++*dtype)
        if (strcmp(name, hf_dtypes[*dtype].option) == 0)
            return 0;
    return name ? error_set(err, CODE_USAGE, "--dtype %s: must be fp32, bf16 or fp16", name) : 0;
}

static void warn_of_nonfinite(const char *path, const struct hf_nonfinite *nonfinite)
{
    if (nonfinite->count > 0)
        fprintf(stderr, "muster-ckpt: warning: %s: %" PRIu64 " weight%s NaN or infinite; the first: %s\n", path,
                nonfinite->count, nonfinite->count == 1 ? " is" : "s are", nonfinite->first);
}

int tool_export(char **paths, const struct options *options, struct error *err)
{
    struct bar bar = bar_begin(options->quiet);
    struct hf_nonfinite nonfinite = {0};
    struct hf_export how = {.nonfinite = &nonfinite,
                            .shard_bytes = options->shard_size,
                            .tokenizer = options->tokenizer,
                            .progress = bar_draw,
                            .arg = &bar};
    struct ckpt *ckpt;
    char rate[TOOL_RATE_SIZE], tokenizer[4096 + 16];
    double seconds;
    int result;

    if (check_format("export", options, err) < 0 || parse_dtype(options->dtype, &how.dtype, err) < 0 ||
        !(ckpt = tool_open(paths[0], err)))
        return -1;
    ckpt_tokenizer_path(tokenizer, sizeof tokenizer, ckpt_path(ckpt));
    if (!how.tokenizer && access(tokenizer, F_OK) == 0)
        how.tokenizer = tokenizer;
    result = hf_export(ckpt, paths[1], &how, err);
    seconds = bar_erase(&bar);
    if (result == 0) {
        struct ckpt_summary summary = ckpt_summary(ckpt);

        printf("%s: the parameters of %s, %s\n", paths[1], ckpt_path(ckpt),
               tool_format_rate(rate, summary.bytes / summary.nkinds, seconds));
        warn_of_nonfinite(paths[1], &nonfinite);
        if (!how.tokenizer)
            fprintf(stderr,
                    "muster-ckpt: %s: without a tokenizer, since there is no folder tokenizer beside the checkpoint; "
                    "--tokenizer PATH (or bytes) adds one\n",
                    paths[1]);
    }
    ckpt_close(ckpt);
    return result;
}

/*
 * The tokenizer to import: the given one, or the model's. Sets "" if the model has none, and *none to the reason. -1 if
 * the given one is none, or if `folder` is there and is another one: the directory's other checkpoints may have its
 * ids. Also if `folder` is there and the model has none: it would be taken for the model's.
 */
static int choose_tokenizer(char path[static 4096], char **paths, const char *folder, const struct options *options,
                            struct error *none, struct error *err)
{
    const char *slash = strrchr(paths[0], '/');
    struct tokenizer_files files;
    struct stat info;

    if (options->tokenizer || stat(paths[0], &info) < 0 || S_ISDIR(info.st_mode))
        snprintf(path, 4096, "%s", options->tokenizer ? options->tokenizer : paths[0]);
    else
        snprintf(path, 4096, "%.*s", slash ? (int)(slash + 1 - paths[0]) : 1, slash ? paths[0] : ".");
    if (tokenizer_find_files(path, 0, &files, options->tokenizer ? err : none) < 0) {
        *path = '\0';
        if (!options->tokenizer && access(folder, F_OK) == 0)
            return error_set(err, CODE_USAGE, "%s is there, but %s has no tokenizer: name another directory", folder,
                             paths[0]);
        return options->tokenizer ? -1 : 0;
    }
    return access(folder, F_OK) < 0 ? 0 : tokenizer_save(path, folder, err);
}

/* Says what was imported, and copies the tokenizer if there is one. */
static int finish_import(char **paths, const char *tokenizer, const char *folder, const struct error *none,
                         const struct hf_model *model, struct error *err)
{
    char path[4096], text[JOB_MODEL_SIZE];

    ckpt_step_path(path, sizeof path, paths[1], 0);
    if (*tokenizer && tokenizer_save(tokenizer, folder, err) < 0)
        return error_prefix(err, "%s was imported, but its tokenizer was not", path);
    fprintf(stderr, "%s: imported from %s. To train from it, set checkpoint.init = \"%s\" and:\n", path, paths[0],
            paths[1]);
    if (!*tokenizer)
        fprintf(stderr, "muster-ckpt: %s; imported without a tokenizer\n", none->text);
    warn_of_nonfinite(paths[0], hf_model_nonfinite(model));
    job_model_text(text, hf_model_shape(model));
    fputs(text, stdout);
    return CODE_OK;
}

int tool_import(char **paths, const struct options *options, struct error *err)
{
    struct bar bar = bar_begin(options->quiet);
    struct rewrite_to to = {.mesh = {1, 1, 1}, .progress = bar_draw, .arg = &bar};
    struct hf_model *model;
    char tokenizer[4096], folder[4096 + 16];
    struct error none;
    int result;

    snprintf(folder, sizeof folder, "%s/tokenizer", paths[1]);
    if (check_format("import", options, err) < 0 || parse_mesh(options->to, &to, err) < 0 ||
        choose_tokenizer(tokenizer, paths, folder, options, &none, err) < 0 ||
        !(model = hf_model_open(paths[0], options->heads, err)))
        return -1;
    result = hf_import(model, paths[1], &to, err);
    bar_erase(&bar);
    if (result == 0)
        result = finish_import(paths, tokenizer, folder, &none, model, err);
    hf_model_close(model);
    return result;
}

/* ---- recover, prune and rm --------------------------------------------------------------------------------------- */

#define HEARTBEAT_SECONDS 60.0 /* a run writes it every 10 s, and clocks differ */

/* A run that lives commits what it saves. */
static int check_no_run(const char *dir, struct error *err)
{
    struct ckpt_claim owner = {0};
    int result = ckpt_claim_read(dir, &owner, err);
    double age = clock_realtime() - owner.heartbeat;
    char who[512];

    if (result > 0) {
        result = 0;
        ckpt_claim_describe(who, sizeof who, &owner);
        if (owner.released == 0 && age < HEARTBEAT_SECONDS)
            result = error_set(err, CODE_CONFIG,
                               "%s: %s trains, or ended less than %.0f s ago: it commits its saves itself; try again "
                               "when it has ended",
                               dir, who, HEARTBEAT_SECONDS);
    }
    ckpt_claim_clear(&owner);
    return result;
}

int tool_recover(char **paths, const struct options *options, struct error *err)
{
    char path[4096];
    uint64_t *steps;
    size_t count;
    int result;

    (void)options;
    if (tool_is_removed(paths[0]))
        return error_errno(err, CODE_DATA, "%s", paths[0]);
    if (ckpt_list_complete(paths[0], &steps, &count, err) < 0)
        return -1;
    result = count > 0 ? check_no_run(paths[0], err) : 0;
    if (result == 0 && count > 0)
        result = ckpt_recover(paths[0], err) < 0 ? -1 : 0;
    for (size_t i = 0; result >= 0 && i < count; i++) {
        ckpt_step_path(path, sizeof path, paths[0], steps[i]);
        if (tool_is_removed(path))
            result =
                error_set(err, CODE_DATA, "%s: its shards are damaged, or do not fit together: left as they are", path);
        else
            printf("%s: committed\n", path);
    }
    if (result == 0 && count == 0)
        printf("%s: nothing is left to commit\n", paths[0]);
    free(steps);
    return result;
}

int tool_prune(char **paths, const struct options *options, struct error *err)
{
    char path[4096];
    uint64_t *steps;
    size_t count;
    int code = CODE_OK;

    if (options->keep < 1)
        return error_set(err, CODE_USAGE, "prune: missing --keep N, the number of newest checkpoints to keep");
    if (tool_list_steps(paths[0], &steps, &count, err) < 0)
        return -1;
    if (ckpt_prune(paths[0], options->keep, (uint64_t)options->keep_every, err) < 0)
        code = error_report(err); /* others may have been removed */
    for (size_t i = 0; i < count; i++) {
        ckpt_step_path(path, sizeof path, paths[0], steps[i]);
        if (tool_is_removed(path))
            printf("%s: removed step %" PRIu64 "\n", paths[0], steps[i]);
    }
    free(steps);
    return code;
}

int tool_rm(char **paths, const struct options *options, struct error *err)
{
    char dir[4096];
    uint64_t step;
    int code = CODE_OK;

    for (; *paths; paths++) {
        int result;

        if (ckpt_split_step_path(dir, sizeof dir, &step, *paths))
            result = ckpt_remove(dir, step, options->force, err);
        else
            result = error_set(err, CODE_USAGE, "%s: not the name of a checkpoint, like .../step-00000100", *paths);
        if (result < 0)
            result = error_report(err);
        code = code == CODE_OK ? result : code;
    }
    return code;
}
