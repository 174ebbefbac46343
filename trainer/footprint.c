#include "trainer/footprint.h"

#include <stdio.h>

#include "trainer/layout.h"

size_t footprint_device(const struct footprint *b)
{
    return b->parameters + b->gradients + b->optimizer + b->activations + b->workspace + b->communication;
}

size_t footprint_host(const struct footprint *b)
{
    return b->host_optimizer;
}

static int larger(int a, int b)
{
    return a > b ? a : b;
}

/* What the kernels hold for themselves: the most that any operation of the model asks for. */
static size_t workspace(const struct job *job, const struct layout *l, int threads, bool widens)
{
    const struct model_shape *m = &job->model;
    int tp = l->context.tp_size, wide = 4 * m->hidden / tp;
    bool bert_head = m->kind == MODEL_BERT && l->units->units[units_head(l->units)].here;
    struct workspace sizes = {
        .threads = threads,
        .dtype = l->context.dtype,
        .widens = widens,
        .backward = true,
        .rows = l->model.max_samples * m->seq_length,
        .norm_cols = m->hidden,
        .bias_cols = larger(m->hidden, larger(wide, bert_head ? l->units->vocab_padded : 0)),
        .gelu_cols = wide,
        .seq = m->seq_length,
        .head_size = m->hidden / m->heads,
    };

    return kernels_workspace_bytes(&sizes);
}

int footprint_predict(const struct job *job, const struct mesh *mesh, int rank, int threads, bool widens,
                      struct footprint *bytes, struct error *err)
{
    struct layout *l = layout_create(job, mesh, rank, true, err);

    *bytes = (struct footprint){0};
    if (!l)
        return -1;
    zero_footprint(l->units, &l->zero, bytes);
    model_footprint(&l->context, l->units, &l->model, bytes);
    tensor_footprint(mesh->tp, l->context.dtype, l->model.max_samples * job->model.seq_length, job->model.hidden,
                     l->tensor_gradients, bytes);
    bytes->workspace += workspace(job, l, threads, widens);
    layout_destroy(l);
    return 0;
}

static double mib(size_t bytes)
{
    return (double)bytes / (1 << 20);
}

int footprint_format(char *text, size_t size, const struct footprint *b)
{
    return snprintf(text, size,
                    "%.1f MiB = parameters %.1f + gradients %.1f + optimizer %.1f + activations %.1f + workspace %.1f "
                    "+ communication %.1f; host %.1f MiB",
                    mib(footprint_device(b)), mib(b->parameters), mib(b->gradients), mib(b->optimizer),
                    mib(b->activations), mib(b->workspace), mib(b->communication), mib(footprint_host(b)));
}
