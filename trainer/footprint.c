#include "trainer/footprint.h"

#include <stdarg.h>
#include <stdio.h>

#include "trainer/feed.h"
#include "trainer/layout.h"
#include "trainer/model/vocabulary.h"

static int larger(int a, int b)
{
    return a > b ? a : b;
}

size_t footprint_workspace(const struct job *job, const struct layout *l, const struct device_traits *device)
{
    const struct model_shape *m = &job->model;
    int tp = l->context.tp_size, wide = 4 * m->hidden / tp;
    int rows = l->model.max_samples * m->seq_length;
    bool head = l->units->units[units_head(l->units)].here, bert_head = m->kind == MODEL_BERT && head;
    struct workspace sizes = {
        .gpu = device->gpu,
        .threads = device->threads,
        .dtype = l->context.dtype,
        .widens = device->widens,
        .backward = true,
        .rows = rows,
        .norm_cols = m->hidden,
        .bias_cols = larger(m->hidden, larger(wide, bert_head ? l->units->vocab_padded : 0)),
        .gelu_cols = wide,
        .seq = m->seq_length,
        .head_size = m->hidden / m->heads,
        .heads = m->heads / tp,
        .accumulated = head && rows > l->context.product_rows ? (size_t)l->units->vocab_padded * (size_t)m->hidden : 0,
    };

    for (int i = 0; i < l->units->nunits; i++)
        if (l->units->units[i].count > sizes.squares)
            sizes.squares = l->units->units[i].count;
    return kernels_workspace_bytes(&sizes);
}

int footprint_predict(const struct job *job, const struct mesh *mesh, int rank, const struct device_traits *device,
                      struct footprint *bytes, struct error *err)
{
    struct layout *l = layout_create(job, mesh, rank, true, device, err);

    *bytes = (struct footprint){0};
    if (!l)
        return -1;
    zero_footprint(l->units, &l->zero, bytes);
    model_footprint(&l->context, l->units, &l->model, bytes);
    tensor_footprint(mesh->tp, l->context.dtype, l->model.max_samples * job->model.seq_length, job->model.hidden,
                     l->tensor_gradients, bytes);
    bytes->workspace += footprint_workspace(job, l, device);
    if (!device->is_host)
        feed_footprint(&job->model, layout_most_samples(job, mesh), bytes);
    layout_destroy(l);
    return 0;
}

/* ---- the table ---- */

enum { COLUMNS = 6 }; /* stages shown: the first ones and the last */

static size_t field(const struct footprint *b, int row)
{
    const size_t fields[] = {b->parameters,    b->gradients,        b->optimizer,      b->activations, b->workspace,
                             b->communication, footprint_device(b), b->host_optimizer, b->host_staging};

    return fields[row];
}

static const char *const rows[] = {"parameters",        "gradients",          "optimizer",
                                   "activations",       "workspace",          "communication",
                                   "in all, on device", "optimizer, on host", "staging, on host"};

static void append(char *text, size_t *used, const char *format, ...) __attribute__((format(printf, 3, 4)));

static void append(char *text, size_t *used, const char *format, ...)
{
    va_list args;
    int n;

    va_start(args, format);
    n = vsnprintf(text + *used, FOOTPRINT_TABLE_SIZE - *used, format, args);
    va_end(args);
    *used += (size_t)n;
    if (*used >= FOOTPRINT_TABLE_SIZE)
        *used = FOOTPRINT_TABLE_SIZE - 1;
}

int footprint_table(char text[static FOOTPRINT_TABLE_SIZE], const struct job *job, const struct mesh *mesh,
                    const struct device_traits *device, struct error *err)
{
    int columns = mesh->pp < COLUMNS ? mesh->pp : COLUMNS;
    struct footprint bytes[COLUMNS];
    size_t used = 0;

    append(text, &used, "%-22s", "memory a rank, in MiB");
    for (int i = 0; i < columns; i++) {
        int stage = i + 1 == columns ? mesh->pp - 1 : i;

        if (footprint_predict(job, mesh, mesh_rank(mesh, (struct mesh_place){.pp = stage}), device, &bytes[i], err) < 0)
            return -1;
        if (mesh->pp > 1)
            append(text, &used, "    stage %2d", stage);
    }
    for (int row = 0; row < (int)(sizeof rows / sizeof *rows) - device->is_host; row++) {
        append(text, &used, "\n  %-20s", rows[row]);
        for (int i = 0; i < columns; i++)
            append(text, &used, " %11.1f", (double)field(&bytes[i], row) / (1 << 20));
    }
    return (int)used;
}
