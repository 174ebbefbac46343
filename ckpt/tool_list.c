/* tool_list.c - "muster-ckpt list", and how sizes, times and meshes are written. */
#include "config.h"

#include "ckpt/json_text.h"
#include "ckpt/tool.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

int tool_check_directory(const char *path, struct error *err)
{
    struct stat info;

    if (stat(path, &info) < 0)
        return error_errno(err, errno == ENOENT || errno == ENOTDIR ? CODE_DATA : CODE_IO, "%s", path);
    if (!S_ISDIR(info.st_mode))
        return error_set(err, CODE_DATA, "%s: not a directory, so no checkpoint and no directory of them", path);
    return 0;
}

bool tool_is_gone(const char *path)
{
    return access(path, F_OK) < 0 && errno == ENOENT;
}

const char *tool_flaw(const struct error *err)
{
    return err->code == CODE_CONFIG ? "unknown" : "broken";
}

void tool_format_bytes(char *text, size_t size, uint64_t bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    double value = (double)bytes;
    size_t unit = 0;

    while (value >= 1024 && unit + 1 < sizeof units / sizeof *units) {
        value /= 1024;
        unit++;
    }
    snprintf(text, size, unit == 0 ? "%.0f %s" : "%.1f %s", value, units[unit]);
}

void tool_format_time(char *text, size_t size, uint64_t seconds)
{
    time_t when = (time_t)seconds;
    struct tm parts;

    if (!localtime_r(&when, &parts) || strftime(text, size, "%Y-%m-%d %H:%M", &parts) == 0)
        snprintf(text, size, "-");
}

void tool_format_mesh(char *text, size_t size, const struct ckpt_state *state)
{
    snprintf(text, size, "dp %d x tp %d x pp %d, ZeRO %d", state->dp, state->tp, state->pp, state->zero);
}

json_t *tool_summary_json(const struct ckpt *ckpt)
{
    const struct ckpt_state *state = ckpt_state(ckpt);
    struct ckpt_origin origin = ckpt_origin(ckpt);
    char seed[24];

    snprintf(seed, sizeof seed, "%" PRIu64, state->seed); /* a string: it may not fit a JSON reader's integers */
    return json_pack(
        "{s:o, s:I, s:I, s:s, s:I, s:I, s:f, s:i, s:i, s:f, s:I, s:i, s:i, s:i, s:i, s:i, s:I, s:s, s:s, s:s, s:I}",
        "path", json_text(ckpt_path(ckpt)), "step", (json_int_t)state->step, "consumed_samples",
        (json_int_t)state->consumed_samples, "seed", seed, "skipped_steps", (json_int_t)state->skipped_steps,
        "skipped_in_a_row", (json_int_t)state->skipped_in_a_row, "loss_scale", state->loss_scale,
        "loss_scale_good_steps", state->loss_scale_good_steps, "loss_scale_hysteresis", state->loss_scale_hysteresis,
        "loss_mean", state->loss_mean, "loss_count", (json_int_t)state->loss_count, "dp", state->dp, "tp", state->tp,
        "pp", state->pp, "zero", state->zero, "shards", ckpt_shards(ckpt), "bytes", (json_int_t)ckpt_bytes(ckpt),
        "muster", origin.version, "attempt", origin.attempt, "host", origin.host, "written",
        (json_int_t)origin.written);
}

int tool_print_json(json_t *json)
{
    int result = json_dumpf(json, stdout, JSON_INDENT(2));
    struct error err;

    json_decref(json);
    if (result < 0) {
        error_set(&err, CODE_IO, "cannot print JSON: no memory, or nowhere to write");
        return error_report(&err);
    }
    putchar('\n');
    return CODE_OK;
}

static void print_row(uint64_t step, const struct ckpt *ckpt, const struct error *err)
{
    char size[32], when[32], mesh[96];
    struct ckpt_origin origin;

    if (!ckpt && !err) {
        printf("%10" PRIu64 "  removed meanwhile\n", step);
        return;
    }
    if (!ckpt) {
        printf("%10" PRIu64 "  %s: %s\n", step, tool_flaw(err), err->text);
        return;
    }
    origin = ckpt_origin(ckpt);
    tool_format_bytes(size, sizeof size, ckpt_bytes(ckpt));
    tool_format_time(when, sizeof when, origin.written);
    tool_format_mesh(mesh, sizeof mesh, ckpt_state(ckpt));
    printf("%10" PRIu64 "  %10s  %6d  %-16s  %-26s  %s\n", step, size, ckpt_shards(ckpt), when, mesh, origin.host);
}

/* A row or an object for one checkpoint, which may be broken: a list must show that and go on. */
static void list_one(const char *dir, uint64_t step, json_t *array)
{
    char path[4096];
    struct error err = {0};
    struct ckpt *ckpt;
    bool gone;

    ckpt_step_path(path, sizeof path, dir, step);
    ckpt = ckpt_open(path, &err);
    gone = !ckpt && tool_is_gone(path);
    if (!array)
        print_row(step, ckpt, gone ? NULL : &err);
    else if (ckpt)
        json_array_append_new(array, tool_summary_json(ckpt));
    else
        json_array_append_new(array,
                              json_pack("{s:o, s:I, s:o}", "path", json_text(path), "step", (json_int_t)step,
                                        gone ? "removed" : tool_flaw(&err), gone ? json_true() : json_text(err.text)));
    ckpt_close(ckpt);
}

int tool_list(char **paths, int npaths, const struct options *options)
{
    const char *dir = paths[0];
    json_t *array = options->json ? json_array() : NULL;
    uint64_t *steps;
    struct error err;
    size_t count;

    (void)npaths;
    if (tool_check_directory(dir, &err) < 0) {
        json_decref(array);
        return error_report(&err);
    }
    if (ckpt_list(dir, &steps, &count, &err) < 0) {
        json_decref(array);
        return error_report(&err);
    }
    if (!array && count == 0) {
        error_set(&err, CODE_DATA, "%s: holds no checkpoints (no step-* in it)", dir);
        free(steps);
        return error_report(&err);
    }
    if (!array)
        printf("%10s  %10s  %6s  %-16s  %-26s  %s\n", "STEP", "SIZE", "SHARDS", "WRITTEN", "BY", "ON");
    for (size_t i = 0; i < count; i++)
        list_one(dir, steps[i], array);
    free(steps);
    return array ? tool_print_json(array) : CODE_OK;
}
