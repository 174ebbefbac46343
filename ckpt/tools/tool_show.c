/* tool_show.c - "muster-ckpt show" and "muster-ckpt list". */
#include "config.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "ckpt/format/manifest.h"
#include "ckpt/format/pieces.h"
#include "ckpt/tools/tool.h"

/* What list and show have in common. */
static json_t *summary_json(const struct ckpt *ckpt)
{
    const struct ckpt_state *state = ckpt_state(ckpt);
    struct ckpt_origin origin = ckpt_origin(ckpt);
    json_t *json = json_write_fields(ckpt_state_fields, state);
    char seed[24];

    snprintf(seed, sizeof seed, "%" PRIu64, state->seed); /* a string: it may not fit a JSON reader's integers */
    json_object_set_new(json, "seed", json_string(seed));
    json_object_update_new(json, json_pack("{s:o, s:i, s:I, s:s, s:s, s:s, s:I}", "path", json_text(ckpt_path(ckpt)),
                                           "shards", ckpt_shards(ckpt), "bytes", (json_int_t)ckpt_bytes(ckpt), "muster",
                                           origin.version, "attempt", origin.attempt, "host", origin.host, "written",
                                           (json_int_t)origin.written));
    return json;
}

/* ---- show -------------------------------------------------------------------------------------------------------- */

static void format_shape(char *text, size_t size, const struct ckpt_tensor *tensor)
{
    size_t used = 0;

    for (int d = 0; d < tensor->ndim; d++)
        used += (size_t)snprintf(text + used, size - used, "%s%" PRIu64, d ? ", " : "", tensor->shape[d]);
}

static void print_kinds(const struct ckpt *ckpt)
{
    size_t count;
    const char *const *kinds = ckpt_kinds(ckpt, &count);

    printf("kinds             ");
    for (size_t k = 0; k < count; k++)
        printf("%s%s", k ? ", " : "", kinds[k]);
    printf(" (fp32)\n");
}

static void print_loss(const struct ckpt_state *state)
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
    const struct ckpt_state *state = ckpt_state(ckpt);
    struct ckpt_origin origin = ckpt_origin(ckpt);
    char size[32], when[32], mesh[96];
    size_t count;
    const struct ckpt_tensor *tensors = ckpt_tensors(ckpt, &count);
    uint64_t elements = 0;

    for (size_t t = 0; t < count; t++)
        elements += box_elements(tensors[t].shape, tensors[t].ndim);
    tool_format_bytes(size, sizeof size, ckpt_bytes(ckpt));
    tool_format_time(when, sizeof when, origin.written);
    tool_format_mesh(mesh, sizeof mesh, state);
    printf("%s\n", ckpt_path(ckpt));
    printf("step              %" PRIu64 "\n", state->step);
    printf("consumed samples  %" PRIu64 "\n", state->consumed_samples);
    printf("skipped steps     %" PRIu64 ", the last %" PRIu64 " in a row\n", state->skipped_steps,
           state->skipped_in_a_row);
    print_loss(state);
    printf("seed              %" PRIu64 "\n", state->seed);
    printf("written           %s on %s, by muster %s, attempt %s\n", when, origin.host, origin.version, origin.attempt);
    printf("written by        %s\n", mesh);
    printf("size              %s in %d shard%s\n", size, ckpt_shards(ckpt), ckpt_shards(ckpt) == 1 ? "" : "s");
    printf("tensors           %zu of %" PRIu64 " elements\n", count, elements);
    print_kinds(ckpt);
    printf("job file          %s\n", *ckpt_job_text(ckpt) ? "kept (--job prints it)" : "none");
}

static void print_tensors(const struct ckpt *ckpt)
{
    size_t count;
    const struct ckpt_tensor *tensors = ckpt_tensors(ckpt, &count);
    char shape[128];

    printf("\n");
    for (size_t t = 0; t < count; t++) {
        format_shape(shape, sizeof shape, &tensors[t]);
        printf("  %-40s [%s]\n", tensors[t].name, shape);
    }
}

static int show_json(const struct ckpt *ckpt)
{
    json_t *object = summary_json(ckpt), *array = json_array(), *names = json_array();
    size_t ntensors, nkinds;
    const struct ckpt_tensor *tensors = ckpt_tensors(ckpt, &ntensors);
    const char *const *kinds = ckpt_kinds(ckpt, &nkinds);

    for (size_t k = 0; k < nkinds; k++)
        json_array_append_new(names, json_string(kinds[k]));
    for (size_t t = 0; t < ntensors; t++) {
        json_t *shape = json_array();

        for (int d = 0; d < tensors[t].ndim; d++)
            json_array_append_new(shape, json_integer((json_int_t)tensors[t].shape[d]));
        json_array_append_new(array, json_pack("{s:s, s:o}", "name", tensors[t].name, "shape", shape));
    }
    json_object_set_new(object, "kinds", names);
    json_object_set_new(object, "tensors", array);
    json_object_set_new(object, "job", json_string(ckpt_job_text(ckpt)));
    return tool_print_json(object);
}

int tool_show(char **paths, const struct options *options)
{
    struct error err;
    struct ckpt *ckpt = tool_open(paths[0], &err);
    int code = CODE_OK;

    if (!ckpt)
        return error_report(&err);
    if (options->json) {
        code = show_json(ckpt);
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
                                               removed ? "removed" : tool_flaw(&err),
                                               removed ? json_true() : json_text(err.text)));
    ckpt_close(ckpt);
}

int tool_list(char **paths, const struct options *options)
{
    const char *dir = paths[0];
    json_t *array = options->json ? json_array() : NULL;
    uint64_t *steps;
    struct error err;
    size_t count;

    if (tool_check_directory(dir, &err) < 0 || ckpt_list(dir, &steps, &count, &err) < 0) {
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
