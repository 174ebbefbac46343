/* tool_check.c - "muster-ckpt verify" and "muster-ckpt diff". */

#include "config.h"

#include <stdio.h>
#include <stdlib.h>

#include "ckpt/format/json_fields.h"
#include "ckpt/tools/tool.h"

/* The result of verifying one checkpoint: a line, or an object in `array`. Returns the exit code. */

static int report_removed(const char *path, json_t *array)
{
    if (array)
        json_array_append_new(array, json_pack("{s:o, s:b}", "path", json_text(path), "removed", 1));
    else
        printf("%s: removed meanwhile\n", path);
    return CODE_OK;
}

static int report_broken(const char *path, const struct error *err, json_t *array)
{
    if (array)
        json_array_append_new(array, json_pack("{s:o, s:b, s:o}", "path", json_text(path), "whole", 0, tool_flaw(err),
                                               json_text(err->text)));
    return error_report(err);
}

static int report_whole(const struct ckpt *ckpt, double seconds, json_t *array)
{
    char rate[96];

    tool_format_rate(rate, sizeof rate, ckpt_bytes(ckpt), seconds);
    if (array)
        json_array_append_new(array, json_pack("{s:o, s:b, s:I, s:f}", "path", json_text(ckpt_path(ckpt)), "whole", 1,
                                               "bytes", (json_int_t)ckpt_bytes(ckpt), "seconds", seconds));
    else
        printf("%s: whole, %s\n", ckpt_path(ckpt), rate);
    return CODE_OK;
}

static int verify_open(struct ckpt *ckpt, const struct options *options, json_t *array)
{
    struct bar bar = tool_bar(options);
    struct error err;
    int result = ckpt_verify(ckpt, options->threads, tool_bar_draw, &bar, &err);
    double seconds = tool_bar_end(&bar);

    if (result == 0)
        return report_whole(ckpt, seconds, array);
    return options->all && tool_is_removed(ckpt_path(ckpt)) ? report_removed(ckpt_path(ckpt), array)
                                                            : report_broken(ckpt_path(ckpt), &err, array);
}

static int verify_all(const char *dir, const struct options *options, json_t *array)
{
    uint64_t *steps;
    struct error err;
    size_t count;
    int code = CODE_OK;

    if (tool_check_directory(dir, &err) < 0 || ckpt_list(dir, &steps, &count, &err) < 0)
        return error_report(&err);
    if (count == 0) {
        error_set(&err, CODE_DATA, "%s: not a directory of checkpoints (no step-* in it)", dir);
        code = error_report(&err);
    }
    for (size_t i = 0; i < count; i++) {
        char path[4096];
        struct ckpt *ckpt;
        int one;

        ckpt_step_path(path, sizeof path, dir, steps[i]);
        ckpt = ckpt_open(path, &err);
        one = ckpt                    ? verify_open(ckpt, options, array)
              : tool_is_removed(path) ? report_removed(path, array)
                                      : report_broken(path, &err, array);
        if (code == CODE_OK)
            code = one;
        ckpt_close(ckpt);
    }
    free(steps);
    return code;
}

static int verify_one(const char *path, const struct options *options, json_t *array)
{
    struct error err;
    struct ckpt *ckpt = tool_open(path, &err);
    int code = ckpt ? verify_open(ckpt, options, array) : report_broken(path, &err, array);

    ckpt_close(ckpt);
    return code;
}

int tool_verify(char **paths, const struct options *options)
{
    json_t *array = options->json ? json_array() : NULL;
    int code = options->all ? verify_all(paths[0], options, array) : verify_one(paths[0], options, array), printed = 0;

    if (array)
        printed = tool_print_json(array);
    return code == CODE_OK ? printed : code;
}

static void print_difference(const char *tensor, const char *kind, const char *reason, void *arg)
{
    json_t *array = arg;

    if (array)
        json_array_append_new(array,
                              json_pack("{s:s, s:s, s:s}", "tensor", tensor, "kind", kind, "difference", reason));
    else
        printf("%s %s: %s\n", tensor, kind, reason);
}

int tool_diff(char **paths, const struct options *options)
{
    json_t *array = options->json ? json_array() : NULL;
    struct ckpt *first = NULL, *second = NULL;
    struct error err;
    int code, result = -1;

    first = tool_open(paths[0], &err);
    if (first)
        second = tool_open(paths[1], &err);
    if (second)
        result = ckpt_diff(first, second, print_difference, array, &err);
    code = result < 0 ? error_report(&err) : result > 0 ? 1 : CODE_OK;
    ckpt_close(first);
    ckpt_close(second);
    if (array && result >= 0 && tool_print_json(array) != CODE_OK)
        return CODE_IO;
    if (array && result < 0)
        json_decref(array);
    return code;
}
