/* operations.c - each operation written down, its operands translated, and run later on the CPU. */
#include <string.h>

#include "kernels/far/far.h"

/* The pointers at these offsets of an operation's struct. */
static void translate(struct device *dev, const char *name, void *op, const size_t *operands, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        void *at;

        memcpy(&at, (char *)op + operands[i], sizeof at);
        at = far_operand(dev, name, at);
        memcpy((char *)op + operands[i], &at, sizeof at);
    }
}

#define AT(type, field) offsetof(struct type, field)

/* Operation `name`, with one struct `type` and the offsets of the operands in it. */
#define OPERATION(name, type, ...)                                                                                     \
    static void run_##name(struct device *near, const struct far_entry *entry)                                         \
    {                                                                                                                  \
        near->kernels.name(near, &entry->is.type);                                                                     \
    }                                                                                                                  \
    static void far_##name(struct device *dev, const struct type *op)                                                  \
    {                                                                                                                  \
        static const size_t operands[] = {__VA_ARGS__};                                                                \
        struct far_entry entry = {.run = run_##name, .is.type = *op};                                                  \
                                                                                                                       \
        translate(dev, #name, &entry.is, operands, sizeof operands / sizeof *operands);                                \
        far_enqueue(dev, &entry);                                                                                      \
    }

OPERATION(matmul, matmul, AT(matmul, a), AT(matmul, b), AT(matmul, bias), AT(matmul, aux), AT(matmul, c),
          AT(matmul, sums))

OPERATION(layernorm_forward, layernorm, AT(layernorm, x), AT(layernorm, residual), AT(layernorm, bias),
          AT(layernorm, gamma), AT(layernorm, beta), AT(layernorm, sum), AT(layernorm, y), AT(layernorm, mean),
          AT(layernorm, rstd))

OPERATION(layernorm_backward, layernorm_backward, AT(layernorm_backward, dy), AT(layernorm_backward, sum),
          AT(layernorm_backward, gamma), AT(layernorm_backward, dresidual), AT(layernorm_backward, mean),
          AT(layernorm_backward, rstd), AT(layernorm_backward, dx), AT(layernorm_backward, dgamma),
          AT(layernorm_backward, dbeta))

OPERATION(residual, residual, AT(residual, x), AT(residual, residual), AT(residual, bias), AT(residual, sum))

OPERATION(attention_forward, attention, AT(attention, qkv), AT(attention, lengths), AT(attention, out),
          AT(attention, lse))

OPERATION(attention_backward, attention_backward, AT(attention_backward, qkv), AT(attention_backward, out),
          AT(attention_backward, dout), AT(attention_backward, lse), AT(attention_backward, lengths),
          AT(attention_backward, dqkv))

#define EMBEDDING AT(embedding, tokens), AT(embedding, wte), AT(embedding, x), AT(embedding, dwte)
OPERATION(embedding_forward, embedding, EMBEDDING)
OPERATION(embedding_backward, embedding, EMBEDDING)

#define POSITIONS                                                                                                      \
    AT(positions, types), AT(positions, wpe), AT(positions, wtt), AT(positions, x), AT(positions, dwpe),               \
        AT(positions, dwtt)
OPERATION(positions_forward, positions, POSITIONS)
OPERATION(positions_backward, positions, POSITIONS)

#define CROSS_ENTROPY                                                                                                  \
    AT(cross_entropy, targets), AT(cross_entropy, logits), AT(cross_entropy, max), AT(cross_entropy, sum),             \
        AT(cross_entropy, target), AT(cross_entropy, loss)
OPERATION(cross_entropy, cross_entropy, CROSS_ENTROPY)
OPERATION(cross_entropy_stats, cross_entropy, CROSS_ENTROPY)
OPERATION(cross_entropy_finish, cross_entropy, CROSS_ENTROPY)

OPERATION(cross_entropy_combine, cross_entropy_combine, AT(cross_entropy_combine, stats),
          AT(cross_entropy_combine, max), AT(cross_entropy_combine, sum), AT(cross_entropy_combine, target))

OPERATION(adamw, adamw, AT(adamw, param), AT(adamw, exp_avg), AT(adamw, exp_avg_sq), AT(adamw, grad), AT(adamw, copy))

/* ---- operations with plain arguments ---- */

static void run_bias_backward(struct device *near, const struct far_entry *entry)
{
    near->kernels.bias_backward(near, entry->is.plain.from, entry->is.plain.y, entry->is.plain.x, entry->is.plain.rows,
                                (int)entry->is.plain.count, entry->is.plain.accumulate);
}

static void far_bias_backward(struct device *dev, enum dtype dtype, float *db, const void *dy, int rows, int n,
                              bool accumulate)
{
    struct far_entry entry = {.run = run_bias_backward};

    entry.is.plain.y = far_operand(dev, "bias_backward", db);
    entry.is.plain.x = far_operand(dev, "bias_backward", dy);
    entry.is.plain.from = dtype;
    entry.is.plain.rows = rows;
    entry.is.plain.count = (size_t)n;
    entry.is.plain.accumulate = accumulate;
    far_enqueue(dev, &entry);
}

static void run_dropout_backward(struct device *near, const struct far_entry *entry)
{
    near->kernels.dropout_backward(near, entry->is.plain.from, entry->is.plain.y, entry->is.plain.x,
                                   entry->is.plain.count, &entry->is.plain.dropout);
}

static void far_dropout_backward(struct device *dev, enum dtype dtype, void *dx, const void *dy, size_t count,
                                 const struct dropout *dropout)
{
    struct far_entry entry = {.run = run_dropout_backward};

    entry.is.plain.y = far_operand(dev, "dropout_backward", dx);
    entry.is.plain.x = far_operand(dev, "dropout_backward", dy);
    entry.is.plain.from = dtype;
    entry.is.plain.count = count;
    entry.is.plain.dropout = *dropout;
    far_enqueue(dev, &entry);
}

/* From up to three operands of one count, of up to two types. */
static void enqueue_plain(struct device *dev, const char *name, void (*run)(struct device *, const struct far_entry *),
                          enum dtype to, void *y, enum dtype from, const void *x, const void *z, size_t count)
{
    struct far_entry entry = {.run = run};

    entry.is.plain.y = far_operand(dev, name, y);
    entry.is.plain.x = far_operand(dev, name, x);
    entry.is.plain.z = far_operand(dev, name, z);
    entry.is.plain.to = to;
    entry.is.plain.from = from;
    entry.is.plain.count = count;
    far_enqueue(dev, &entry);
}

static void run_gelu_backward(struct device *near, const struct far_entry *entry)
{
    near->kernels.gelu_backward(near, entry->is.plain.from, entry->is.plain.y, entry->is.plain.x, entry->is.plain.z,
                                entry->is.plain.count);
}

static void far_gelu_backward(struct device *dev, enum dtype dtype, void *dx, const void *dy, const void *x,
                              size_t count)
{
    enqueue_plain(dev, "gelu_backward", run_gelu_backward, dtype, dx, dtype, dy, x, count);
}

static void run_tanh_forward(struct device *near, const struct far_entry *entry)
{
    near->kernels.tanh_forward(near, entry->is.plain.from, entry->is.plain.y, entry->is.plain.x, entry->is.plain.count);
}

static void far_tanh_forward(struct device *dev, enum dtype dtype, void *y, const void *x, size_t count)
{
    enqueue_plain(dev, "tanh_forward", run_tanh_forward, dtype, y, dtype, x, NULL, count);
}

static void run_tanh_backward(struct device *near, const struct far_entry *entry)
{
    near->kernels.tanh_backward(near, entry->is.plain.from, entry->is.plain.y, entry->is.plain.x, entry->is.plain.z,
                                entry->is.plain.count);
}

static void far_tanh_backward(struct device *dev, enum dtype dtype, void *dx, const void *dy, const void *y,
                              size_t count)
{
    enqueue_plain(dev, "tanh_backward", run_tanh_backward, dtype, dx, dtype, dy, y, count);
}

static void run_add(struct device *near, const struct far_entry *entry)
{
    near->kernels.add(near, entry->is.plain.from, entry->is.plain.y, entry->is.plain.x, entry->is.plain.count);
}

static void far_add(struct device *dev, enum dtype dtype, void *y, const void *x, size_t count)
{
    enqueue_plain(dev, "add", run_add, dtype, y, dtype, x, NULL, count);
}

static void run_accumulate(struct device *near, const struct far_entry *entry)
{
    near->kernels.accumulate(near, entry->is.plain.y, entry->is.plain.from, entry->is.plain.x, entry->is.plain.count);
}

static void far_accumulate(struct device *dev, float *y, enum dtype dtype, const void *x, size_t count)
{
    enqueue_plain(dev, "accumulate", run_accumulate, DTYPE_F32, y, dtype, x, NULL, count);
}

static void run_cast(struct device *near, const struct far_entry *entry)
{
    near->kernels.cast(near, entry->is.plain.to, entry->is.plain.y, entry->is.plain.from, entry->is.plain.x,
                       entry->is.plain.count);
}

static void far_cast(struct device *dev, enum dtype to, void *y, enum dtype from, const void *x, size_t count)
{
    enqueue_plain(dev, "cast", run_cast, to, y, from, x, NULL, count);
}

static void run_zero(struct device *near, const struct far_entry *entry)
{
    near->kernels.zero(near, entry->is.plain.y, entry->is.plain.count);
}

static void far_zero(struct device *dev, void *y, size_t bytes)
{
    enqueue_plain(dev, "zero", run_zero, DTYPE_F32, y, DTYPE_F32, NULL, NULL, bytes);
}

static void run_copy(struct device *near, const struct far_entry *entry)
{
    near->kernels.copy(near, entry->is.plain.y, entry->is.plain.x, entry->is.plain.count);
}

static void far_copy(struct device *dev, void *y, const void *x, size_t bytes)
{
    struct far_entry entry = {.run = run_copy};

    if (bytes == 0) /* of nothing, the address may be anything */
        return;
    entry.is.plain.y = far_any_operand(dev, "copy", y);
    entry.is.plain.x = far_any_operand(dev, "copy", x);
    entry.is.plain.count = bytes;
    far_enqueue(dev, &entry);
}

static void far_sum_of_squares(struct device *dev, double *result, const float *x, size_t count)
{
    const float *at = far_operand(dev, "sum_of_squares", x);
    struct device *near = device_far(dev)->near;
    struct error err;

    far_wait(dev);
    if (dev->failed)
        return;
    near->kernels.sum_of_squares(near, result, at, count);
    if (device_status(near, &err) < 0)
        device_fail(dev, err.code, "%s", err.text);
    far_wait(dev); /* which counts the working space */
}

const struct kernels far_kernels = {
    .matmul = far_matmul,
    .layernorm_forward = far_layernorm_forward,
    .layernorm_backward = far_layernorm_backward,
    .residual = far_residual,
    .attention_forward = far_attention_forward,
    .attention_backward = far_attention_backward,
    .embedding_forward = far_embedding_forward,
    .embedding_backward = far_embedding_backward,
    .positions_forward = far_positions_forward,
    .positions_backward = far_positions_backward,
    .cross_entropy = far_cross_entropy,
    .cross_entropy_stats = far_cross_entropy_stats,
    .cross_entropy_combine = far_cross_entropy_combine,
    .cross_entropy_finish = far_cross_entropy_finish,
    .adamw = far_adamw,
    .bias_backward = far_bias_backward,
    .dropout_backward = far_dropout_backward,
    .gelu_backward = far_gelu_backward,
    .tanh_forward = far_tanh_forward,
    .tanh_backward = far_tanh_backward,
    .add = far_add,
    .accumulate = far_accumulate,
    .cast = far_cast,
    .zero = far_zero,
    .copy = far_copy,
    .sum_of_squares = far_sum_of_squares,
};
