/* tool_show.c - the commands that only read: show, list, verify and diff checkpoints. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "ckpt/format/pieces.h"
#include "ckpt/models/hf.h"
#include "ckpt/tools/tool.h"
#include "common/option.h"
#include "common/text.h"

/* "2026-01-31 12:34", local time */
static void format_time(char *text, size_t size, uint64_t seconds)
{
    time_t when = (time_t)seconds;
    struct tm parts;

    if (!localtime_r(&when, &parts) || strftime(text, size, "%Y-%m-%d %H:%M", &parts) == 0)
        snprintf(text, size, "-");
}

/* "dp 4 x tp 2 x pp 1, ZeRO 3" */
static void format_mesh(char *text, size_t size, const struct ckpt_progress *state)
{
    snprintf(text, size, "dp %d x tp %d x pp %d, ZeRO %d", state->dp, state->tp, state->pp, state->zero);
}

/* Why a checkpoint did not open: "broken" by its contents, "unknown" where another release wrote it (json_fields.h),
 * or "unreadable": it may be whole. */
static const char *flaw_of(const struct error *err)
{
    return err->code == CODE_CONFIG ? "unknown" : err->code == CODE_DATA ? "broken" : "unreadable";
}

/* What list and show have in common. */
static json_t *summary_json(const struct ckpt *ckpt)
{
    const struct ckpt_progress *state = ckpt_progress(ckpt);
    struct ckpt_summary summary = ckpt_summary(ckpt);
    json_t *json = json_write_fields(ckpt_state_fields, state);
    char seed[24];

    snprintf(seed, sizeof seed, "%" PRIu64, state->seed); /* a string: it may not fit a JSON reader's integers */
    json_object_set_new(json, "seed", json_string(seed));
    json_object_update_new(json, json_pack("{s:o, s:i, s:I, s:s, s:s, s:s, s:I}", "path", json_text(ckpt_path(ckpt)),
                                           "shards", summary.shards, "bytes", (json_int_t)summary.bytes, "muster",
                                           summary.version, "attempt", summary.attempt, "host", summary.host, "written",
                                           (json_int_t)summary.written));
    return json;
}

/* ---- show -------------------------------------------------------------------------------------------------------- */

static void print_loss(const struct ckpt_progress *state)
{
    printf("loss scale        %g", state->loss_scale);
    if (state->loss_scale_hysteresis > 0)
        printf(", dynamic: %d good steps, halves after %d overflow%s", state->loss_scale_good_steps,
               state->loss_scale_hysteresis, state->loss_scale_hysteresis == 1 ? "" : "s");
    printf("\n");
    if (state->loss_count > 0)
        printf("running loss      %.6g, the mean of %" PRIu64 " steps, for detecting spikes\n", state->loss_mean,
               state->loss_count);
}

static void print_summary(const struct ckpt *ckpt)
{
    const struct ckpt_progress *state = ckpt_progress(ckpt);
    struct ckpt_summary summary = ckpt_summary(ckpt);
    char size[TEXT_BYTES_SIZE], when[32], mesh[96];
    size_t count;
    const struct ckpt_tensor *tensors = ckpt_tensors(ckpt, &count);
    uint64_t elements = 0;

    for (size_t t = 0; t < count; t++)
        elements += box_elements(tensors[t].shape, tensors[t].ndim);
    format_time(when, sizeof when, summary.written);
    format_mesh(mesh, sizeof mesh, state);
    printf("%s\n", ckpt_path(ckpt));
    printf("step              %" PRIu64 "\n", state->step);
    printf("consumed samples  %" PRIu64 "\n", state->consumed_samples);
    printf("skipped steps     %" PRIu64 ", the last %" PRIu64 " in a row\n", state->skipped_steps,
           state->skipped_in_a_row);
    print_loss(state);
    printf("seed              %" PRIu64 "\n", state->seed);
    printf("written           %s on %s, by muster %s, attempt %s\n", when, summary.host, summary.version,
           summary.attempt);
    printf("written by        %s\n", mesh);
    printf("size              %s in %d shard%s\n", text_bytes(size, summary.bytes), summary.shards,
           summary.shards == 1 ? "" : "s");
    printf("tensors           %zu of %" PRIu64 " elements\n", count, elements);
    printf("kinds             ");
    for (size_t k = 0; k < summary.nkinds; k++)
        printf("%s%s", k ? ", " : "", summary.kinds[k]);
    printf(" (fp32)\n");
    printf("job file          %s\n", *ckpt_job_text(ckpt) ? "kept (--job prints it)" : "none");
}

static void print_tensors(const struct ckpt *ckpt)
{
    size_t count;
    const struct ckpt_tensor *tensors = ckpt_tensors(ckpt, &count);

    printf("\n");
    for (size_t t = 0; t < count; t++) {
        printf("  %-40s [", tensors[t].name);
        for (int d = 0; d < tensors[t].ndim; d++)
            printf("%s%" PRIu64, d ? ", " : "", tensors[t].shape[d]);
        printf("]\n");
    }
}

static int show_json(const struct ckpt *ckpt, struct error *err)
{
    json_t *object = summary_json(ckpt), *array = json_array(), *names = json_array();
    struct ckpt_summary summary = ckpt_summary(ckpt);
    size_t ntensors;
    const struct ckpt_tensor *tensors = ckpt_tensors(ckpt, &ntensors);

    for (size_t k = 0; k < summary.nkinds; k++)
        json_array_append_new(names, json_string(summary.kinds[k]));
    for (size_t t = 0; t < ntensors; t++) {
        json_t *shape = json_array();

        for (int d = 0; d < tensors[t].ndim; d++)
            json_array_append_new(shape, json_integer((json_int_t)tensors[t].shape[d]));
        json_array_append_new(array, json_pack("{s:s, s:o}", "name", tensors[t].name, "shape", shape));
    }
    json_object_set_new(object, "kinds", names);
    json_object_set_new(object, "tensors", array);
    json_object_set_new(object, "job", json_string(ckpt_job_text(ckpt)));
    return tool_print_json(object, err);
}

/* The saves that nobody has committed, on standard error: they are no checkpoints. Returns how many. */
static size_t say_complete(const char *dir)
{
    uint64_t *steps;
    size_t count;

    if (ckpt_list_complete(dir, &steps, &count, NULL) < 0)
        return 0;
    for (size_t i = 0; i < count; i++)
        fprintf(stderr, "step %" PRIu64 " is complete, not committed: if no run does it, muster-ckpt recover %s\n",
                steps[i], dir);
    free(steps);
    return count;
}

/* What a job file says of a model of Hugging Face's, for checkpoint.init. */
static int show_folder(const char *path, struct error *err)
{
    struct hf_model *model = hf_model_open(path, 0, err);
    char text[JOB_MODEL_SIZE];

    if (!model)
        return -1;
    job_model_text(text, hf_model_shape(model));
    fputs(text, stdout);
    hf_model_close(model);
    return CODE_OK;
}

int tool_show(char **paths, const struct options *options, struct error *err)
{
    struct ckpt *ckpt;
    int code = CODE_OK;

    if (options->job && hf_is_model(paths[0]))
        return show_folder(paths[0], err);
    say_complete(paths[0]);
    ckpt = tool_open(paths[0], err);
    if (!ckpt)
        return -1;
    if (options->json) {
        code = show_json(ckpt, err);
    } else if (options->job) {
        fputs(ckpt_job_text(ckpt), stdout);
    } else {
        print_summary(ckpt);
        if (options->tensors)
            print_tensors(ckpt);
    }
    ckpt_close(ckpt);
    return code;
}

/* ---- list -------------------------------------------------------------------------------------------------------- */

static void print_row(uint64_t step, const struct ckpt *ckpt, const struct error *err)
{
    char size[TEXT_BYTES_SIZE], when[32], mesh[96];
    struct ckpt_summary summary;

    if (!ckpt && !err) {
        printf("%10" PRIu64 "  removed meanwhile\n", step);
        return;
    }
    if (!ckpt) {
        printf("%10" PRIu64 "  %s: %s\n", step, flaw_of(err), err->text);
        return;
    }
    summary = ckpt_summary(ckpt);
    format_time(when, sizeof when, summary.written);
    format_mesh(mesh, sizeof mesh, ckpt_progress(ckpt));
    printf("%10" PRIu64 "  %10s  %6d  %-16s  %-26s  %s\n", step, text_bytes(size, summary.bytes), summary.shards, when,
           mesh, summary.host);
}

/* A row or an object for one checkpoint, which may be broken: a list must show that and go on. */
static void list_one(const char *dir, uint64_t step, json_t *array)
{
    char path[4096];
    struct error err = {0};
    struct ckpt *ckpt;
    bool removed;

    ckpt_step_path(path, sizeof path, dir, step);
    ckpt = ckpt_open(path, &err);
    removed = !ckpt && tool_is_removed(path);
    if (!array)
        print_row(step, ckpt, removed ? NULL : &err);
    else if (ckpt)
        json_array_append_new(array, summary_json(ckpt));
    else
        json_array_append_new(array, json_pack("{s:o, s:I, s:o}", "path", json_text(path), "step", (json_int_t)step,
                                               removed ? "removed" : flaw_of(&err),
                                               removed ? json_true() : json_text(err.text)));
    ckpt_close(ckpt);
}

int tool_list(char **paths, const struct options *options, struct error *err)
{
    json_t *array;
    uint64_t *steps;
    size_t count;

    if (tool_list_steps(paths[0], &steps, &count, err) < 0)
        return -1;
    if (say_complete(paths[0]) == 0 && !options->json && count == 0) {
        free(steps);
        return error_set(err, CODE_DATA, "%s: holds no checkpoints (no step-* in it)", paths[0]);
    }
    array = options->json ? json_array() : NULL;
    if (!array && count > 0)
        printf("%10s  %10s  %6s  %-16s  %-26s  %s\n", "STEP", "SIZE", "SHARDS", "WRITTEN", "BY", "ON");
    for (size_t i = 0; i < count; i++)
        list_one(paths[0], steps[i], array);
    free(steps);
    return array ? tool_print_json(array, err) : CODE_OK;
}

/* ---- verify and diff --------------------------------------------------------------------------------------------- */

/*
 * Prints a line, or appends an object to `array`, and returns the exit code. One of a directory (`listed`) may be
 * removed meanwhile.
 */
static int verify_one(const char *path, bool listed, const struct options *options, json_t *array)
{
    struct error err;
    struct ckpt *ckpt = listed ? ckpt_open(path, &err) : tool_open(path, &err);
    struct bar bar = bar_begin(options->quiet);
    int result = ckpt ? ckpt_verify(ckpt, options->threads, bar_draw, &bar, &err) : -1, code = CODE_OK;
    double seconds = bar_erase(&bar);
    char rate[TOOL_RATE_SIZE], line[128] = "removed meanwhile";
    json_t *json;

    if (ckpt)
        path = ckpt_path(ckpt);
    if (result == 0) {
        uint64_t bytes = ckpt_summary(ckpt).bytes;

        snprintf(line, sizeof line, "whole, %s", tool_format_rate(rate, bytes, seconds));
        json = json_pack("{s:o, s:b, s:I, s:f}", "path", json_text(path), "whole", 1, "bytes", (json_int_t)bytes,
                         "seconds", seconds);
    } else if (listed && tool_is_removed(path)) {
        json = json_pack("{s:o, s:b}", "path", json_text(path), "removed", 1);
    } else {
        json = json_pack("{s:o, s:b, s:o}", "path", json_text(path), "whole", 0, flaw_of(&err), json_text(err.text));
        code = error_report(&err);
    }
    if (array)
        json_array_append_new(array, json);
    else if (code == CODE_OK)
        printf("%s: %s\n", path, line);
    if (!array)
        json_decref(json);
    ckpt_close(ckpt);
    return code;
}

static int verify_all(const char *dir, const struct options *options, json_t *array)
{
    char path[4096];
    uint64_t *steps;
    struct error err;
    size_t count;
    int code = CODE_OK;

    if (tool_list_steps(dir, &steps, &count, &err) < 0)
        return error_report(&err);
    if (count == 0) {
        error_set(&err, CODE_DATA, "%s: not a directory of checkpoints (no step-* in it)", dir);
        code = error_report(&err);
    }
    for (size_t i = 0; i < count; i++) {
        int one;

        ckpt_step_path(path, sizeof path, dir, steps[i]);
        one = verify_one(path, true, options, array);
        code = code == CODE_OK ? one : code;
    }
    free(steps);
    return code;
}

int tool_verify(char **paths, const struct options *options, struct error *err)
{
    json_t *array = options->json ? json_array() : NULL;
    int code = options->all ? verify_all(paths[0], options, array) : verify_one(paths[0], false, options, array);

    if (!array)
        return code;
    return tool_print_json(array, err) < 0 && code == CODE_OK ? -1 : code;
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

int tool_diff(char **paths, const struct options *options, struct error *err)
{
    json_t *array = options->json ? json_array() : NULL;
    struct ckpt *first = tool_open(paths[0], err), *second = first ? tool_open(paths[1], err) : NULL;
    int result = second ? ckpt_diff(first, second, print_difference, array, err) : -1;

    ckpt_close(first);
    ckpt_close(second);
    if (array && result >= 0 && tool_print_json(array, err) < 0)
        return -1;
    if (array && result < 0)
        json_decref(array);
    return result > 0 ? 1 : result;
}
