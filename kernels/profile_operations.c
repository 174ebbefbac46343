/*
 * profile_operations.c - every operation of kernels.h between two marks. Bytes are those of large operands, each once;
 * products are told apart by their shape, since each has a rate of its own.
 */
#include <stdio.h>

#include "kernels/profile.h"

static double elements(int rows, int cols)
{
    return (double)rows * cols;
}

static double size_of(enum dtype dtype)
{
    return (double)dtype_size(dtype);
}

static void matmul(struct device *dev, const struct matmul *op)
{
    static const char *const epilogues[] = {
        [EPILOGUE_NONE] = "", [EPILOGUE_BIAS] = " bias", [EPILOGUE_BIAS_GELU] = " gelu", [EPILOGUE_DGELU] = " dgelu"};
    double c = elements(op->m, op->n), e = size_of(op->dtype);
    double bytes = e * (elements(op->m, op->k) + elements(op->k, op->n)) +
                   c * (op->c_fp32 ? 4 : e) * (op->accumulate ? 2 : 1) +
                   (op->epilogue >= EPILOGUE_BIAS_GELU ? c * e : 0);
    char name[DEVICE_TIME_NAME];

    snprintf(name, sizeof name, "matmul %dx%dx%d %c%c%s%s%s", op->m, op->n, op->k, op->transpose_a ? 't' : 'n',
             op->transpose_b ? 't' : 'n', op->accumulate ? " +=" : "", epilogues[op->epilogue],
             op->sums ? " sums" : "");
    profile_begin(dev, name, 2.0 * c * op->k, bytes);
    profile_inner(dev)->matmul(dev, op);
    profile_end(dev);
}

static void bias_backward(struct device *dev, enum dtype dtype, float *db, const void *dy, int rows, int n,
                          bool accumulate)
{
    profile_begin(dev, "bias_backward", 0, size_of(dtype) * elements(rows, n));
    profile_inner(dev)->bias_backward(dev, dtype, db, dy, rows, n, accumulate);
    profile_end(dev);
}

/* `arrays` of [rows, cols] are read or written. */
#define ROWS_OPERATION(operation, type, arrays)                                                                        \
    static void operation(struct device *dev, const struct type *op)                                                   \
    {                                                                                                                  \
        profile_begin(dev, #operation, 0, (arrays)*size_of(op->dtype) * elements(op->rows, op->cols));                 \
        profile_inner(dev)->operation(dev, op);                                                                        \
        profile_end(dev);                                                                                              \
    }

ROWS_OPERATION(layernorm_forward, layernorm, op->residual ? 4 : 2)
ROWS_OPERATION(layernorm_backward, layernorm_backward, op->dresidual ? 4 : 3)
ROWS_OPERATION(residual, residual, op->x ? 3 : 2)
ROWS_OPERATION(embedding_forward, embedding, 2)
ROWS_OPERATION(embedding_backward, embedding, 3)
ROWS_OPERATION(positions_forward, positions, 2)
ROWS_OPERATION(positions_backward, positions, 2)

static void dropout_backward(struct device *dev, enum dtype dtype, void *dx, const void *dy, size_t count,
                             const struct dropout *dropout)
{
    profile_begin(dev, "dropout_backward", 0, 2 * size_of(dtype) * (double)count);
    profile_inner(dev)->dropout_backward(dev, dtype, dx, dy, count, dropout);
    profile_end(dev);
}

/* Of one product over all heads; a causal mask leaves half of it. */
static double attention_product(int batch, int seq, int heads, int head_size, bool causal)
{
    return (causal ? 1.0 : 2.0) * elements(seq, seq) * batch * heads * head_size;
}

static void attention_forward(struct device *dev, const struct attention *op)
{
    double product = attention_product(op->batch, op->seq, op->heads, op->head_size, op->causal);

    profile_begin(dev, "attention_forward", 2 * product,
                  4 * size_of(op->dtype) * elements(op->batch * op->seq, op->heads * op->head_size));
    profile_inner(dev)->attention_forward(dev, op);
    profile_end(dev);
}

/* Five products are needed, however many a kernel computes. */
static void attention_backward(struct device *dev, const struct attention_backward *op)
{
    double product = attention_product(op->batch, op->seq, op->heads, op->head_size, op->causal);

    profile_begin(dev, "attention_backward", 5 * product,
                  8 * size_of(op->dtype) * elements(op->batch * op->seq, op->heads * op->head_size));
    profile_inner(dev)->attention_backward(dev, op);
    profile_end(dev);
}

static void cross_entropy(struct device *dev, const struct cross_entropy *op)
{
    profile_begin(dev, "cross_entropy", 0, 2 * size_of(op->dtype) * elements(op->rows, op->stride));
    profile_inner(dev)->cross_entropy(dev, op);
    profile_end(dev);
}

static void cross_entropy_stats(struct device *dev, const struct cross_entropy *op)
{
    profile_begin(dev, "cross_entropy_stats", 0, size_of(op->dtype) * elements(op->rows, op->stride));
    profile_inner(dev)->cross_entropy_stats(dev, op);
    profile_end(dev);
}

static void cross_entropy_combine(struct device *dev, const struct cross_entropy_combine *op)
{
    profile_begin(dev, "cross_entropy_combine", 0, 0);
    profile_inner(dev)->cross_entropy_combine(dev, op);
    profile_end(dev);
}

static void cross_entropy_finish(struct device *dev, const struct cross_entropy *op)
{
    profile_begin(dev, "cross_entropy_finish", 0, 2 * size_of(op->dtype) * elements(op->rows, op->stride));
    profile_inner(dev)->cross_entropy_finish(dev, op);
    profile_end(dev);
}

static void adamw(struct device *dev, const struct adamw *op)
{
    profile_begin(dev, "adamw", 0, (7 * 4 + (op->copy ? size_of(op->copy_dtype) : 0)) * (double)op->count);
    profile_inner(dev)->adamw(dev, op);
    profile_end(dev);
}

static void gelu_backward(struct device *dev, enum dtype dtype, void *dx, const void *dy, const void *x, size_t count)
{
    profile_begin(dev, "gelu_backward", 0, 3 * size_of(dtype) * (double)count);
    profile_inner(dev)->gelu_backward(dev, dtype, dx, dy, x, count);
    profile_end(dev);
}

static void tanh_forward(struct device *dev, enum dtype dtype, void *y, const void *x, size_t count)
{
    profile_begin(dev, "tanh_forward", 0, 2 * size_of(dtype) * (double)count);
    profile_inner(dev)->tanh_forward(dev, dtype, y, x, count);
    profile_end(dev);
}

static void tanh_backward(struct device *dev, enum dtype dtype, void *dx, const void *dy, const void *y, size_t count)
{
    profile_begin(dev, "tanh_backward", 0, 3 * size_of(dtype) * (double)count);
    profile_inner(dev)->tanh_backward(dev, dtype, dx, dy, y, count);
    profile_end(dev);
}

static void copy(struct device *dev, void *y, const void *x, size_t bytes)
{
    profile_begin(dev, "copy", 0, 2 * (double)bytes);
    profile_inner(dev)->copy(dev, y, x, bytes);
    profile_end(dev);
}

static void add(struct device *dev, enum dtype dtype, void *y, const void *x, size_t count)
{
    profile_begin(dev, "add", 0, 3 * size_of(dtype) * (double)count);
    profile_inner(dev)->add(dev, dtype, y, x, count);
    profile_end(dev);
}

static void accumulate(struct device *dev, float *y, enum dtype dtype, const void *x, size_t count)
{
    profile_begin(dev, "accumulate", 0, (8 + size_of(dtype)) * (double)count);
    profile_inner(dev)->accumulate(dev, y, dtype, x, count);
    profile_end(dev);
}

static void cast(struct device *dev, enum dtype to, void *y, enum dtype from, const void *x, size_t count)
{
    profile_begin(dev, "cast", 0, (size_of(to) + size_of(from)) * (double)count);
    profile_inner(dev)->cast(dev, to, y, from, x, count);
    profile_end(dev);
}

static void zero(struct device *dev, void *y, size_t bytes)
{
    profile_begin(dev, "zero", 0, (double)bytes);
    profile_inner(dev)->zero(dev, y, bytes);
    profile_end(dev);
}

static void sum_of_squares(struct device *dev, double *result, const float *x, size_t count)
{
    profile_begin(dev, "sum_of_squares", 0, 4 * (double)count);
    profile_inner(dev)->sum_of_squares(dev, result, x, count);
    profile_end(dev);
}

struct kernels profile_operations(void)
{
    return (struct kernels){
        .matmul = matmul,
        .bias_backward = bias_backward,
        .layernorm_forward = layernorm_forward,
        .layernorm_backward = layernorm_backward,
        .residual = residual,
        .dropout_backward = dropout_backward,
        .attention_forward = attention_forward,
        .attention_backward = attention_backward,
        .embedding_forward = embedding_forward,
        .embedding_backward = embedding_backward,
        .positions_forward = positions_forward,
        .positions_backward = positions_backward,
        .cross_entropy = cross_entropy,
        .cross_entropy_stats = cross_entropy_stats,
        .cross_entropy_combine = cross_entropy_combine,
        .cross_entropy_finish = cross_entropy_finish,
        .adamw = adamw,
        .gelu_backward = gelu_backward,
        .tanh_forward = tanh_forward,
        .tanh_backward = tanh_backward,
        .copy = copy,
        .add = add,
        .accumulate = accumulate,
        .cast = cast,
        .zero = zero,
        .sum_of_squares = sum_of_squares,
    };
}
