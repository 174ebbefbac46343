/* tool_hf.c - "muster-ckpt export" and "muster-ckpt import". */
#include "config.h"

#include "ckpt/hf.h"
#include "ckpt/tool.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static int check_format(const char *command, const struct options *options, struct error *err)
{
    if (options->format && strcmp(options->format, "hf") == 0)
        return 0;
    return error_set(err, CODE_USAGE, "%s: in which format? There is one: --format hf", command);
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

int tool_export(char **paths, int count, const struct options *options)
{
    struct bar bar = tool_bar(options);
    struct hf_export how = {
        .shard_bytes = options->shard_size, .heads = options->heads, .progress = tool_bar_draw, .arg = &bar};
    struct ckpt *ckpt;
    struct error err;
    char rate[96];
    double seconds;
    int result;

    (void)count;
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

int tool_import(char **paths, int count, const struct options *options)
{
    struct bar bar = tool_bar(options);
    struct hf_import how = {.heads = options->heads, .progress = tool_bar_draw, .arg = &bar};
    struct hf_nonfinite nonfinite;
    struct model_shape shape;
    struct tool_mesh to;
    struct error err;
    char path[4096], text[256];
    int result;

    (void)count;
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
