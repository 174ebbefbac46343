/* tool_show.c - "muster-ckpt show", and how a path is opened. */
#include "config.h"

#include "ckpt/tool.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct ckpt *tool_open(const char *path, struct error *err)
{
    char inside[4096];
    uint64_t *steps;
    size_t count;

    if (snprintf(inside, sizeof inside, "%s/manifest.json", path) < (int)sizeof inside && access(inside, F_OK) == 0)
        return ckpt_open(path, err);
    if (tool_check_directory(path, err) < 0 || ckpt_list(path, &steps, &count, err) < 0)
        return NULL;
    if (count == 0) {
        error_set(err, CODE_DATA,
                  "%s: no checkpoint (no manifest.json in it) and no directory of checkpoints (no step-* in it)", path);
        free(steps);
        return NULL;
    }
    ckpt_step_path(inside, sizeof inside, path, steps[0]);
    free(steps);
    return ckpt_open(inside, err);
}

static void format_shape(char *text, size_t size, const struct ckpt_tensor *tensor)
{
    size_t used = 0;

    for (int d = 0; d < tensor->ndim; d++)
        used += (size_t)snprintf(text + used, size - used, "%s%" PRIu64, d ? ", " : "", tensor->shape[d]);
}

static uint64_t elements_of(const struct ckpt_tensor *tensor)
{
    uint64_t elements = 1;

    for (int d = 0; d < tensor->ndim; d++)
        elements *= tensor->shape[d];
    return elements;
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
        printf("running loss      %.6g, the mean that a spike is told by, of %" PRIu64 " steps\n", state->loss_mean,
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
        elements += elements_of(&tensors[t]);
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
    json_t *object = tool_summary_json(ckpt), *array = json_array(), *names = json_array();
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

int tool_show(char **paths, int count, const struct options *options)
{
    struct error err;
    struct ckpt *ckpt = tool_open(paths[0], &err);
    int code = CODE_OK;

    (void)count;
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
