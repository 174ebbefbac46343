#include "trainer/prediction.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "trainer/data/feed.h"
#include "trainer/rank_config.h"
#include "trainer/model/vocabulary.h"

static int larger_int(int a, int b)
{
    return a > b ? a : b;
}

size_t predict_workspace(const struct job *job, const struct rank_config *l, const struct device_traits *device)
{
    const struct model_shape *m = &job->model;
    int tp = l->context.tp_size, wide = 4 * m->hidden / tp;
    int rows = l->model.max_samples * m->seq_length;
    bool layers = units_largest_block(l->units) > 0, embedding = l->units->units[UNIT_POSITION].here;
    bool head = l->units->units[units_head(l->units)].here, bert_head = m->kind == MODEL_BERT && head;
    struct workspace sizes = {
        .gpu = device->gpu,
        .threads = device->threads,
        .dtype = l->context.dtype,
        .widens = device->widens,
        .backward = true,
        .products = layers || head,
        .rows = rows,
        .norm_cols = layers || head || (embedding && device->gpu) ? m->hidden : 0,
        .bias_cols = larger_int(layers || bert_head ? m->hidden : 0,
                                larger_int(layers ? wide : 0, bert_head ? l->units->vocab_padded : 0)),
        .gelu_cols = layers                     ? wide
                     : bert_head && device->gpu ? m->hidden
                                                : 0,
        .seq = m->seq_length,
        .head_size = layers ? m->hidden / m->heads : 0,
        .heads = layers ? m->heads / tp : 0,
        .accumulated = head && rows > l->context.product_rows ? (size_t)l->units->vocab_padded * (size_t)m->hidden : 0,
    };

    for (int i = 0; i < l->units->nunits; i++)
        if (l->units->units[i].count > sizes.squares)
            sizes.squares = l->units->units[i].count;
    return kernels_workspace_bytes(&sizes);
}

int predict_footprint(const struct job *job, const struct mesh *mesh, int rank, const struct device_traits *device,
                      struct footprint *bytes, struct error *err)
{
    struct rank_config *l = rank_config_create(job, mesh, rank, true, device, err);

    *bytes = (struct footprint){0};
    if (!l)
        return -1;
    zero_footprint(l->units, &l->zero, bytes);
    model_footprint(&l->context, l->units, &l->model, bytes);
    tensor_footprint(mesh->tp, l->context.dtype, l->model.max_samples * job->model.seq_length, job->model.hidden,
                     l->tensor_gradients, bytes);
    bytes->workspace += predict_workspace(job, l, device);
    if (!device->is_host)
        feed_footprint(&job->model, most_samples(job, mesh), bytes);
    rank_config_destroy(l);
    return 0;
}

/* ---- the table ---- */

enum { COLUMNS = 6 }; /* stages shown: the first ones, the largest and the last */

static size_t footprint_field(const struct footprint *b, int row)
{
    const size_t fields[] = {b->parameters,    b->gradients,        b->optimizer,      b->activations, b->workspace,
                             b->communication, footprint_device(b), b->host_optimizer, b->host_staging};

    return fields[row];
}

static const char *const rows[] = {"parameters",        "gradients",          "optimizer",
                                   "activations",       "workspace",          "communication",
                                   "in all, on device", "optimizer, on host", "staging, on host"};

static void append_text(char *text, size_t *used, const char *format, ...) __attribute__((format(printf, 3, 4)));

static void append_text(char *text, size_t *used, const char *format, ...)
{
    va_list args;
    int n;

    va_start(args, format);
    n = vsnprintf(text + *used, PREDICT_TABLE_SIZE - *used, format, args);
    va_end(args);
    *used += (size_t)n;
    if (*used >= PREDICT_TABLE_SIZE)
        *used = PREDICT_TABLE_SIZE - 1;
}

static size_t total_bytes(const struct footprint *b, const struct device_traits *device)
{
    return footprint_device(b) + (device->is_host ? footprint_host(b) : 0);
}

/* The first stages, the largest and the last, in order. Returns their number. */
static int choose_columns(const struct footprint *bytes, int stages, const struct device_traits *device,
                          int column[COLUMNS], int *largest)
{
    int columns = stages < COLUMNS ? stages : COLUMNS;

    *largest = 0;
    for (int stage = 1; stage < stages; stage++)
        if (total_bytes(&bytes[stage], device) > total_bytes(&bytes[*largest], device))
            *largest = stage;
    for (int i = 0; i < columns; i++)
        column[i] = i;
    column[columns - 1] = stages - 1;
    if (columns > 1 && *largest > column[columns - 2] && *largest < stages - 1)
        column[columns - 2] = *largest;
    return columns;
}

int predict_table(char text[static PREDICT_TABLE_SIZE], const struct job *job, const struct mesh *mesh,
                  const struct device_traits *device, struct error *err)
{
    struct footprint *bytes = calloc((size_t)mesh->pp, sizeof *bytes);
    int column[COLUMNS], columns, largest, result = bytes ? 0 : error_set(err, CODE_IO, "out of memory");
    size_t used = 0;

    for (int stage = 0; stage < mesh->pp && result == 0; stage++)
        result =
            predict_footprint(job, mesh, mesh_rank(mesh, (struct mesh_place){.pp = stage}), device, &bytes[stage], err);
    if (result < 0)
        goto out;
    columns = choose_columns(bytes, mesh->pp, device, column, &largest);
    append_text(text, &used, "%-22s", "memory a rank, in MiB");
    for (int i = 0; i < columns && mesh->pp > 1; i++) {
        char label[24];

        snprintf(label, sizeof label, "stage %d", column[i]);
        append_text(text, &used, " %11s", label);
    }
    for (int row = 0; row < (int)(sizeof rows / sizeof *rows) - device->is_host; row++) {
        append_text(text, &used, "\n  %-20s", rows[row]);
        for (int i = 0; i < columns; i++)
            append_text(text, &used, " %11.1f", (double)footprint_field(&bytes[column[i]], row) / (1 << 20));
    }
    if (mesh->pp > COLUMNS)
        append_text(text, &used, "\n  largest: stage %d of %d", largest, mesh->pp);
    result = (int)used;
out:
    free(bytes);
    return result;
}
