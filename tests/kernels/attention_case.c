#include "tests/kernels/attention_case.h"

#include <math.h>

struct attention_buffers attention_make(struct device *dev, enum dtype dtype, const struct attention_case *x,
                                        double spread)
{
    size_t count = (size_t)x->batch * (size_t)x->seq * (size_t)x->heads * (size_t)x->head_size;
    struct attention_buffers b = {
        .qkv = random_tensor(dev, dtype, attention_qkv_count(x), "qkv"),
        .out = poisoned_tensor(dev, dtype, count),
        .dout = random_tensor(dev, dtype, count, "dout"),
        .dqkv = poisoned_tensor(dev, dtype, attention_qkv_count(x)),
        .lse = poisoned_floats(dev, (size_t)x->batch * (size_t)x->heads * (size_t)x->seq),
    };

    for (size_t i = 0; i < b.qkv.count && spread != 1; i++)
        tensor_set(b.qkv, i, spread * tensor_get(b.qkv, i));
    if (x->lengths) {
        b.lengths = int_buffer(dev, (size_t)x->batch);
        memcpy(b.lengths, x->lengths, (size_t)x->batch * sizeof *b.lengths);
    }
    if (x->document_start) {
        size_t rows = (size_t)x->batch * (size_t)x->seq;

        b.document_start = int_buffer(dev, rows);
        memcpy(b.document_start, x->document_start, rows * sizeof *b.document_start);
    }
    return b;
}

void attention_forward_on(struct device *dev, const struct attention_case *x, const struct attention_buffers *b)
{
    device_kernels(dev)->attention_forward(dev, &(struct attention){.batch = x->batch,
                                                                    .seq = x->seq,
                                                                    .heads = x->heads,
                                                                    .kv_heads = attention_kv_heads(x),
                                                                    .window = x->window,
                                                                    .head_size = x->head_size,
                                                                    .causal = x->causal,
                                                                    .dtype = b->qkv.dtype,
                                                                    .qkv = b->qkv.at,
                                                                    .lengths = b->lengths,
                                                                    .document_start = b->document_start,
                                                                    .dropout = x->dropout,
                                                                    .dropout_stride = x->dropout_stride,
                                                                    .out = b->out.at,
                                                                    .lse = b->lse});
}

void attention_backward_on(struct device *dev, const struct attention_case *x, const struct attention_buffers *b)
{
    device_kernels(dev)->attention_backward(dev, &(struct attention){.batch = x->batch,
                                                                     .seq = x->seq,
                                                                     .heads = x->heads,
                                                                     .kv_heads = attention_kv_heads(x),
                                                                     .window = x->window,
                                                                     .head_size = x->head_size,
                                                                     .causal = x->causal,
                                                                     .dtype = b->qkv.dtype,
                                                                     .qkv = b->qkv.at,
                                                                     .out = b->out.at,
                                                                     .dout = b->dout.at,
                                                                     .lse = b->lse,
                                                                     .lengths = b->lengths,
                                                                     .document_start = b->document_start,
                                                                     .dropout = x->dropout,
                                                                     .dropout_stride = x->dropout_stride,
                                                                     .dqkv = b->dqkv.at});
}

void attention_expect_lse(const float *got, const double *want, size_t count, double size)
{
    for (size_t i = 0; i < count; i++)
        if (!(got[i] == want[i] || fabs(got[i] - want[i]) <= 1e-5 * (size + fabs(want[i]))))
            fail_msg("lse[%zu] is %.9g, should be %.9g", i, got[i], want[i]);
}

static const struct {
    double each, whole;
} tolerance[] = {[DTYPE_F32] = {1e-4, 1e-6}, [DTYPE_BF16] = {1.6e-2, 4e-3}, [DTYPE_F16] = {2e-3, 5e-4}};

void attention_expect_rows(const char *name, struct tensor got, const double *want, int size, int rounded)
{
    double error = 0, all = root_mean_square(want, got.count), row = 0;

    for (size_t i = 0; i < got.count; i++) {
        double difference = tensor_get(got, i) - want[i];

        if (i % (size_t)size == 0)
            row = root_mean_square(want + i, (size_t)size);
        if (!(fabs(difference) <= rounded * tolerance[got.dtype].each * (fabs(want[i]) + row + 0.1 * all)))
            fail_msg("%s[%zu], of type %d, is %.9g, should be %.9g (rms %.3g, of its row %.3g)", name, i,
                     (int)got.dtype, tensor_get(got, i), want[i], all, row);
        error += difference * difference;
    }
    error = sqrt(error / (double)got.count);
    if (error > rounded * tolerance[got.dtype].whole * all)
        fail_msg("%s, of type %d, is wrong by %.3g of its norm", name, (int)got.dtype, error / all);
}
