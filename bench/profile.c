/*
 * profile.c - every operation of kernels.h between two marks. Bytes count each large operand once. Products are told
 * apart by their shape, because each shape has its own rate.
 */
#include "config.h"

#include "bench/profile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#ifdef HAVE_CUDA
#include <cuda_runtime_api.h>

#include "kernels/cuda/cuda.h"
#endif

struct profile {
    struct kernels inner;
    struct profile_row rows[PROFILE_ROWS];
    size_t nrows;
    size_t row_of[PROFILE_PAIRS]; /* of marks not yet read */
    int pending;
    double clock[2 * PROFILE_PAIRS]; /* where the device has no stream */
#ifdef HAVE_CUDA
    cudaEvent_t event[2 * PROFILE_PAIRS]; /* on its stream; created when first needed, and kept */
#endif
};

static struct profile *profile; /* NULL: nothing is measured */

int profile_start(struct device *dev, struct error *err)
{
    const char *text = getenv("MUSTER_PROFILE");

    if (!text || strcmp(text, "1") != 0)
        return 0;
    if (!device_is_host(dev) && !device_stream(dev))
        return error_set(err, CODE_CONFIG, "MUSTER_PROFILE=1: device \"%s\" cannot be measured; use cpu or cuda",
                         dev->backend->kind);
    profile = calloc(1, sizeof *profile);
    if (!profile)
        return error_errno(err, CODE_IO, "MUSTER_PROFILE=1");
    profile->inner = dev->kernels;
    dev->kernels = profile_operations();
    return 0;
}

#ifdef HAVE_CUDA
static void set_event(struct device *dev, int which)
{
    cudaEvent_t *event = &profile->event[which];

    if (!dev->failed && (*event || CUDA_OK(dev, cudaEventCreate(event))))
        CUDA_OK(dev, cudaEventRecord(*event, device_stream(dev)));
}

static double event_seconds(struct device *dev, int first)
{
    float milliseconds = 0;

    if (dev->failed || !CUDA_OK(dev, cudaEventSynchronize(profile->event[first + 1])) ||
        !CUDA_OK(dev, cudaEventElapsedTime(&milliseconds, profile->event[first], profile->event[first + 1])))
        return 0;
    return milliseconds * 1e-3;
}

static void destroy_events(struct device *dev)
{
    for (int i = 0; i < 2 * PROFILE_PAIRS; i++)
        if (profile->event[i])
            CUDA_OK(dev, cudaEventDestroy(profile->event[i]));
}
#else
static void set_event(struct device *dev, int which)
{
    (void)dev, (void)which;
}

static double event_seconds(struct device *dev, int first)
{
    (void)dev, (void)first;
    return 0;
}

static void destroy_events(struct device *dev)
{
    (void)dev;
}
#endif

static void set_mark(struct device *dev, int which)
{
    if (device_stream(dev))
        set_event(dev, which);
    else
        profile->clock[which] = clock_monotonic();
}

static double mark_seconds(struct device *dev, int first)
{
    return device_stream(dev) ? event_seconds(dev, first) : profile->clock[first + 1] - profile->clock[first];
}

void profile_stop(struct device *dev)
{
    if (profile) {
        dev->kernels = profile->inner;
        destroy_events(dev);
    }
    free(profile);
    profile = NULL;
}

static size_t row_named(const char *name)
{
    for (size_t i = 0; i < profile->nrows; i++)
        if (strcmp(profile->rows[i].name, name) == 0)
            return i;
    if (profile->nrows < PROFILE_ROWS) {
        snprintf(profile->rows[profile->nrows].name, PROFILE_NAME, "%s",
                 profile->nrows + 1 < PROFILE_ROWS ? name : "others");
        profile->nrows++;
    }
    return profile->nrows - 1;
}

static void read_marks(struct device *dev)
{
    for (int i = 0; i < profile->pending; i++)
        profile->rows[profile->row_of[i]].seconds += mark_seconds(dev, 2 * i);
    profile->pending = 0;
}

void profile_begin(struct device *dev, const char *name, double flops, double bytes)
{
    size_t row = row_named(name);

    if (profile->pending == PROFILE_PAIRS)
        read_marks(dev);
    profile->rows[row].calls++;
    profile->rows[row].flops += flops;
    profile->rows[row].bytes += bytes;
    profile->row_of[profile->pending] = row;
    set_mark(dev, 2 * profile->pending);
}

void profile_end(struct device *dev)
{
    set_mark(dev, 2 * profile->pending + 1);
    profile->pending++;
}

static int longer_first(const void *a, const void *b)
{
    double x = ((const struct profile_row *)a)->seconds, y = ((const struct profile_row *)b)->seconds;

    return (x < y) - (x > y);
}

size_t profile_read(struct device *dev, struct profile_row *rows, size_t most)
{
    size_t count;

    if (!profile)
        return 0;
    read_marks(dev);
    qsort(profile->rows, profile->nrows, sizeof *profile->rows, longer_first);
    count = profile->nrows < most ? profile->nrows : most;
    memcpy(rows, profile->rows, count * sizeof *rows);
    return count;
}

void profile_reset(struct device *dev)
{
    if (!profile)
        return;
    read_marks(dev);
    profile->nrows = 0;
    memset(profile->rows, 0, sizeof profile->rows);
}

/* ---- the operations ---------------------------------------------------------------------------------------------- */

static double count_elements(int rows, int cols)
{
    return (double)rows * cols;
}

static double size_of(enum dtype dtype)
{
    return (double)dtype_size(dtype);
}

static void profile_matmul(struct device *dev, const struct matmul *op)
{
    static const char *const epilogues[] = {
        [EPILOGUE_NONE] = "", [EPILOGUE_BIAS] = " bias", [EPILOGUE_BIAS_GELU] = " gelu", [EPILOGUE_DGELU] = " dgelu"};
    double c = count_elements(op->m, op->n), e = size_of(op->dtype);
    double bytes = e * (count_elements(op->m, op->k) + count_elements(op->k, op->n)) +
                   c * (op->c_fp32 ? 4 : e) * (op->accumulate ? 2 : 1) +
                   (op->epilogue >= EPILOGUE_BIAS_GELU ? c * e : 0);
    char name[PROFILE_NAME];

    snprintf(name, sizeof name, "matmul %dx%dx%d %c%c%s%s%s", op->m, op->n, op->k, op->transpose_a ? 't' : 'n',
             op->transpose_b ? 't' : 'n', op->accumulate ? " +=" : "", epilogues[op->epilogue],
             op->sums ? " sums" : "");
    profile_begin(dev, name, 2.0 * c * op->k, bytes);
    profile->inner.matmul(dev, op);
    profile_end(dev);
}

static void profile_bias_backward(struct device *dev, enum dtype dtype, float *db, const void *dy, int rows, int n,
                                  bool accumulate)
{
    profile_begin(dev, "bias_backward", 0, size_of(dtype) * count_elements(rows, n));
    profile->inner.bias_backward(dev, dtype, db, dy, rows, n, accumulate);
    profile_end(dev);
}

/* `arrays` of [rows, cols] are read or written. */
#define ROWS_OPERATION(operation, type, arrays, cols)                                                                  \
    static void profile_##operation(struct device *dev, const struct type *op)                                         \
    {                                                                                                                  \
        profile_begin(dev, #operation, 0, (arrays)*size_of(op->dtype) * count_elements(op->rows, cols));               \
        profile->inner.operation(dev, op);                                                                             \
        profile_end(dev);                                                                                              \
    }

ROWS_OPERATION(norm_forward, norm, op->branch ? 4 : 2, op->cols)
ROWS_OPERATION(norm_backward, norm_backward, op->dresidual ? 4 : 3, op->cols)
ROWS_OPERATION(query_key_forward, query_key, op->gamma_q ? 3 : 2, (op->heads + op->kv_heads) * op->head_size)
ROWS_OPERATION(query_key_backward, query_key, op->gamma_q ? 3 : 2, (op->heads + op->kv_heads) * op->head_size)
ROWS_OPERATION(gated_forward, gated, 3, op->cols)
ROWS_OPERATION(gated_backward, gated, 5, op->cols)
ROWS_OPERATION(residual, residual, op->x ? 3 : 2, op->cols)
ROWS_OPERATION(embedding_forward, embedding, 2, op->cols)
ROWS_OPERATION(embedding_backward, embedding, 3, op->cols)
ROWS_OPERATION(position_embedding_forward, position_embedding, 2, op->cols)
ROWS_OPERATION(position_embedding_backward, position_embedding, 2, op->cols)

static void profile_dropout_backward(struct device *dev, enum dtype dtype, void *dx, const void *dy, size_t count,
                                     const struct dropout *dropout)
{
    profile_begin(dev, "dropout_backward", 0, 2 * size_of(dtype) * (double)count);
    profile->inner.dropout_backward(dev, dtype, dx, dy, count, dropout);
    profile_end(dev);
}

/* Of one product over all heads; a causal mask leaves half of it. */
static double attention_product(int batch, int seq, int heads, int head_size, bool causal)
{
    return (causal ? 1.0 : 2.0) * count_elements(seq, seq) * batch * heads * head_size;
}

static void profile_attention_forward(struct device *dev, const struct attention *op)
{
    double product = attention_product(op->batch, op->seq, op->heads, op->head_size, op->causal);

    profile_begin(dev, "attention_forward", 2 * product,
                  4 * size_of(op->dtype) * count_elements(op->batch * op->seq, op->heads * op->head_size));
    profile->inner.attention_forward(dev, op);
    profile_end(dev);
}

/* Five products are needed, however many a kernel computes. */
static void profile_attention_backward(struct device *dev, const struct attention *op)
{
    double product = attention_product(op->batch, op->seq, op->heads, op->head_size, op->causal);

    profile_begin(dev, "attention_backward", 5 * product,
                  8 * size_of(op->dtype) * count_elements(op->batch * op->seq, op->heads * op->head_size));
    profile->inner.attention_backward(dev, op);
    profile_end(dev);
}

static void profile_cross_entropy(struct device *dev, const struct cross_entropy *op)
{
    profile_begin(dev, "cross_entropy", 0, 2 * size_of(op->dtype) * count_elements(op->rows, op->stride));
    profile->inner.cross_entropy(dev, op);
    profile_end(dev);
}

static void profile_cross_entropy_stats(struct device *dev, const struct cross_entropy *op)
{
    profile_begin(dev, "cross_entropy_stats", 0, size_of(op->dtype) * count_elements(op->rows, op->stride));
    profile->inner.cross_entropy_stats(dev, op);
    profile_end(dev);
}

static void profile_cross_entropy_combine(struct device *dev, const struct cross_entropy_combine *op)
{
    profile_begin(dev, "cross_entropy_combine", 0, 0);
    profile->inner.cross_entropy_combine(dev, op);
    profile_end(dev);
}

static void profile_cross_entropy_finish(struct device *dev, const struct cross_entropy *op)
{
    profile_begin(dev, "cross_entropy_finish", 0, 2 * size_of(op->dtype) * count_elements(op->rows, op->stride));
    profile->inner.cross_entropy_finish(dev, op);
    profile_end(dev);
}

static void profile_adamw(struct device *dev, const struct adamw *arrays, int count)
{
    double bytes = 0;

    for (int i = 0; i < count; i++)
        bytes += (7 * 4 + (arrays[i].copy ? size_of(arrays[i].copy_dtype) : 0)) * (double)arrays[i].count;
    profile_begin(dev, "adamw", 0, bytes);
    profile->inner.adamw(dev, arrays, count);
    profile_end(dev);
}

static void profile_gelu_forward(struct device *dev, enum dtype dtype, void *y, const void *x, size_t count)
{
    profile_begin(dev, "gelu_forward", 0, 2 * size_of(dtype) * (double)count);
    profile->inner.gelu_forward(dev, dtype, y, x, count);
    profile_end(dev);
}

static void profile_gelu_backward(struct device *dev, enum dtype dtype, void *dx, const void *dy, const void *x,
                                  size_t count)
{
    profile_begin(dev, "gelu_backward", 0, 3 * size_of(dtype) * (double)count);
    profile->inner.gelu_backward(dev, dtype, dx, dy, x, count);
    profile_end(dev);
}

static void profile_tanh_forward(struct device *dev, enum dtype dtype, void *y, const void *x, size_t count)
{
    profile_begin(dev, "tanh_forward", 0, 2 * size_of(dtype) * (double)count);
    profile->inner.tanh_forward(dev, dtype, y, x, count);
    profile_end(dev);
}

static void profile_tanh_backward(struct device *dev, enum dtype dtype, void *dx, const void *dy, const void *y,
                                  size_t count)
{
    profile_begin(dev, "tanh_backward", 0, 3 * size_of(dtype) * (double)count);
    profile->inner.tanh_backward(dev, dtype, dx, dy, y, count);
    profile_end(dev);
}

static void profile_copy(struct device *dev, void *y, const void *x, size_t bytes)
{
    profile_begin(dev, "copy", 0, 2 * (double)bytes);
    profile->inner.copy(dev, y, x, bytes);
    profile_end(dev);
}

static void profile_add(struct device *dev, enum dtype dtype, void *y, const void *x, size_t count)
{
    profile_begin(dev, "add", 0, 3 * size_of(dtype) * (double)count);
    profile->inner.add(dev, dtype, y, x, count);
    profile_end(dev);
}

static void profile_accumulate(struct device *dev, float *y, enum dtype dtype, const void *x, size_t count)
{
    profile_begin(dev, "accumulate", 0, (8 + size_of(dtype)) * (double)count);
    profile->inner.accumulate(dev, y, dtype, x, count);
    profile_end(dev);
}

static void profile_cast(struct device *dev, enum dtype to, void *y, enum dtype from, const void *x, size_t count)
{
    profile_begin(dev, "cast", 0, (size_of(to) + size_of(from)) * (double)count);
    profile->inner.cast(dev, to, y, from, x, count);
    profile_end(dev);
}

static void profile_zero(struct device *dev, void *y, size_t bytes)
{
    profile_begin(dev, "zero", 0, (double)bytes);
    profile->inner.zero(dev, y, bytes);
    profile_end(dev);
}

static void profile_sum_of_squares(struct device *dev, double *result, const struct squares *arrays, int count)
{
    double bytes = 0;

    for (int i = 0; i < count; i++)
        bytes += 4 * (double)arrays[i].count;
    profile_begin(dev, "sum_of_squares", 0, bytes);
    profile->inner.sum_of_squares(dev, result, arrays, count);
    profile_end(dev);
}

struct kernels profile_operations(void)
{
    return (struct kernels){
        .matmul = profile_matmul,
        .bias_backward = profile_bias_backward,
        .norm_forward = profile_norm_forward,
        .norm_backward = profile_norm_backward,
        .residual = profile_residual,
        .dropout_backward = profile_dropout_backward,
        .query_key_forward = profile_query_key_forward,
        .query_key_backward = profile_query_key_backward,
        .gated_forward = profile_gated_forward,
        .gated_backward = profile_gated_backward,
        .attention_forward = profile_attention_forward,
        .attention_backward = profile_attention_backward,
        .embedding_forward = profile_embedding_forward,
        .embedding_backward = profile_embedding_backward,
        .position_embedding_forward = profile_position_embedding_forward,
        .position_embedding_backward = profile_position_embedding_backward,
        .cross_entropy = profile_cross_entropy,
        .cross_entropy_stats = profile_cross_entropy_stats,
        .cross_entropy_combine = profile_cross_entropy_combine,
        .cross_entropy_finish = profile_cross_entropy_finish,
        .adamw = profile_adamw,
        .gelu_forward = profile_gelu_forward,
        .gelu_backward = profile_gelu_backward,
        .tanh_forward = profile_tanh_forward,
        .tanh_backward = profile_tanh_backward,
        .copy = profile_copy,
        .add = profile_add,
        .accumulate = profile_accumulate,
        .cast = profile_cast,
        .zero = profile_zero,
        .sum_of_squares = profile_sum_of_squares,
    };
}
