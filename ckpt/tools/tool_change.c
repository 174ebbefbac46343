/* tool_change.c - the commands that write or remove checkpoints: reshard, export, import, prune, rm. */
#include "config.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt/models/hf.h"
#include "ckpt/models/rewrite.h"
#include "ckpt/tools/tool.h"
#include "common/text.h"

/* Reads one "name=number" and returns the rest of the text; NULL if it is none. */
static const char *parse_size(const char *text, struct tool_mesh *to)
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

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        size_t length = strlen(sizes[i].name);
        const char *at = text + length;
        long value;

        if (strncmp(text, sizes[i].name, length) != 0)
            continue;
        if (!text_take_number(&at, sizes[i].most, &value) || (*at && *at != ',') || value < sizes[i].least)
            return NULL;
        *sizes[i].size = (int)value;
        return *at ? at + 1 : at;
    }
    return NULL;
}

int tool_parse_mesh(const char *text, struct tool_mesh *to, struct error *err)
{
    *to = (struct tool_mesh){.mesh = {1, 1, 1}, .zero = -1};
    for (const char *at = text; at && *at;) {
        at = parse_size(at, to);
        if (!at)
            return error_set(err, CODE_USAGE,
                             "--to %s: must be like dp=4,tp=2,pp=1,zero=1 (and chunks=1), sizes that "
                             "are not named being 1",
                             text);
    }
    return 0;
}

int tool_reshard(char **paths, const struct options *options)
{
    struct tool_mesh to;
    struct bar bar = tool_bar(options);
    struct ckpt *source;
    struct error err;
    char rate[96], path[4096];
    double seconds;
    int result;

    if (!options->to || !*options->to) {
        error_set(&err, CODE_USAGE, "reshard: missing --to MESH, like --to dp=4,tp=2,pp=1");
        return error_report(&err);
    }
    if (tool_parse_mesh(options->to, &to, &err) < 0)
        return error_report(&err);
    source = tool_open(paths[0], &err);
    if (!source)
        return error_report(&err);
    result = ckpt_reshard(source, paths[1], &to.mesh, to.chunks, to.zero < 0 ? ckpt_state(source)->zero : to.zero,
                          tool_bar_draw, &bar, &err);
    seconds = tool_bar_end(&bar);
    if (result == 0) {
        ckpt_step_path(path, sizeof path, paths[1], ckpt_state(source)->step);
        tool_format_rate(rate, sizeof rate, ckpt_bytes(source), seconds);
        printf("%s: %d shards, %s\n", path, mesh_world(&to.mesh), rate);
    }
    ckpt_close(source);
    return result < 0 ? error_report(&err) : CODE_OK;
}

/* ---- export and import ------------------------------------------------------------------------------------------- */

static int check_format(const char *command, const struct options *options, struct error *err)
{
    if (options->format && strcmp(options->format, "hf") == 0)
        return 0;
    return error_set(err, CODE_USAGE, "%s: missing --format hf, the only format", command);
}

static int parse_dtype(const char *name, enum dtype *dtype, struct error *err)
{
    if (!name || strcmp(name, "fp32") == 0)
        *dtype = DTYPE_F32;
    else if (strcmp(name, "bf16") == 0)
        *dtype = DTYPE_BF16;
    else if (strcmp(name, "fp16") == 0)
        *dtype = DTYPE_F16;
    else
        return error_set(err, CODE_USAGE, "--dtype %s: must be fp32, bf16 or fp16", name);
    return 0;
}

int tool_export(char **paths, const struct options *options)
{
    struct bar bar = tool_bar(options);
    struct hf_export how = {
        .shard_bytes = options->shard_size, .heads = options->heads, .progress = tool_bar_draw, .arg = &bar};
    struct ckpt *ckpt;
    struct error err;
    char rate[96];
    double seconds;
    int result;

    if (check_format("export", options, &err) < 0 || parse_dtype(options->dtype, &how.dtype, &err) < 0)
        return error_report(&err);
    ckpt = tool_open(paths[0], &err);
    if (!ckpt)
        return error_report(&err);
    result = hf_export(ckpt, paths[1], &how, &err);
    seconds = tool_bar_end(&bar);
    if (result == 0) {
        size_t nkinds;

        ckpt_kinds(ckpt, &nkinds);
        tool_format_rate(rate, sizeof rate, ckpt_bytes(ckpt) / nkinds, seconds);
        printf("%s: the parameters of %s, %s\n", paths[1], ckpt_path(ckpt), rate);
    }
    ckpt_close(ckpt);
    return result < 0 ? error_report(&err) : CODE_OK;
}

int tool_import(char **paths, const struct options *options)
{
    struct bar bar = tool_bar(options);
    struct hf_import how = {.heads = options->heads, .progress = tool_bar_draw, .arg = &bar};
    struct hf_nonfinite nonfinite;
    struct model_shape shape;
    struct tool_mesh to;
    struct error err;
    char path[4096], text[256];
    int result;

    if (check_format("import", options, &err) < 0 || tool_parse_mesh(options->to, &to, &err) < 0)
        return error_report(&err);
    how.mesh = to.mesh;
    how.chunks = to.chunks;
    how.zero = to.zero < 0 ? 0 : to.zero;
    result = hf_import(paths[0], paths[1], &how, &shape, &nonfinite, &err);
    tool_bar_end(&bar);
    if (result < 0)
        return error_report(&err);
    ckpt_step_path(path, sizeof path, paths[1], 0);
    hf_model_text(text, sizeof text, &shape);
    fprintf(stderr, "%s: made of %s; a job file that starts from it has checkpoint.load = \"%s\" and:\n", path,
            paths[0], paths[1]);
    if (nonfinite.count > 0)
        fprintf(stderr, "muster-ckpt: warning: %s: %" PRIu64 " weight%s NaN or infinite; the first: %s\n", paths[0],
                nonfinite.count, nonfinite.count == 1 ? " is" : "s are", nonfinite.first);
    fputs(text, stdout);
    return CODE_OK;
}

/* ---- prune and rm ------------------------------------------------------------------------------------------------ */

static bool is_listed(uint64_t step, const uint64_t *steps, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (steps[i] == step)
            return true;
    return false;
}

int tool_prune(char **paths, const struct options *options)
{
    uint64_t *before = NULL, *after = NULL;
    size_t nbefore = 0, nafter = 0;
    struct error err;
    int code = CODE_OK;

    if (options->keep < 1) {
        error_set(&err, CODE_USAGE, "prune: missing --keep N, the number of newest checkpoints to keep");
        return error_report(&err);
    }
    if (tool_check_directory(paths[0], &err) < 0 || ckpt_list(paths[0], &before, &nbefore, &err) < 0)
        return error_report(&err);
    if (ckpt_prune(paths[0], options->keep, (uint64_t)options->keep_every, &err) < 0)
        code = error_report(&err); /* others may have been removed */
    if (ckpt_list(paths[0], &after, &nafter, &err) < 0)
        code = error_report(&err);
    else
        for (size_t i = 0; i < nbefore; i++)
            if (!is_listed(before[i], after, nafter))
                printf("%s: removed step %" PRIu64 "\n", paths[0], before[i]);
    free(before);
    free(after);
    return code;
}

static int remove_one(const char *path, bool force)
{
    char dir[4096];
    uint64_t step;
    struct error err;
    int result;

    if (ckpt_split_step_path(dir, sizeof dir, &step, path))
        result = ckpt_remove(dir, step, force, &err);
    else
        result = error_set(&err, CODE_USAGE, "%s: not the name of a checkpoint, like .../step-00000100", path);
    return result < 0 ? error_report(&err) : CODE_OK;
}

int tool_rm(char **paths, const struct options *options)
{
    int code = CODE_OK;

    for (; *paths; paths++) {
        int one = remove_one(*paths, options->force);

        code = code == CODE_OK ? one : code;
    }
    return code;
}
