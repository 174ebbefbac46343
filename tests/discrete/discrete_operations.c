/* discrete_operations.c - stores each operation with its operands translated, to run later on the CPU. */
#include <assert.h>
#include <string.h>

#include "tests/discrete/discrete.h"

/* The pointers at these offsets of an operation's struct. */
static void translate_operands(struct device *dev, const char *name, void *op, const size_t *operands, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        void *at;

        memcpy(&at, (char *)op + operands[i], sizeof at);
        at = discrete_operand(dev, name, at);
        memcpy((char *)op + operands[i], &at, sizeof at);
    }
}

#define AT(type, field) offsetof(struct type, field)

/* Operation `name`, with one struct `type` and the offsets of the operands in it. */
#define OPERATION(name, type, ...)                                                                                     \
    static void run_##name(struct device *cpu, const struct discrete_entry *entry)                                     \
    {                                                                                                                  \
        cpu->kernels.name(cpu, &entry->is.type);                                                                       \
    }                                                                                                                  \
    static void discrete_##name(struct device *dev, const struct type *op)                                             \
    {                                                                                                                  \
        static const size_t operands[] = {__VA_ARGS__};                                                                \
        struct discrete_entry entry = {.run = run_##name, .is.type = *op};                                             \
                                                                                                                       \
        translate_operands(dev, #name, &entry.is, operands, sizeof operands / sizeof *operands);                       \
        discrete_enqueue(dev, &entry);                                                                                 \
    }

OPERATION(matmul, matmul, AT(matmul, a), AT(matmul, b), AT(matmul, bias), AT(matmul, aux), AT(matmul, c),
          AT(matmul, sums))

OPERATION(norm_forward, norm, AT(norm, x), AT(norm, branch), AT(norm, bias), AT(norm, gamma), AT(norm, beta),
          AT(norm, sum), AT(norm, y), AT(norm, mean), AT(norm, rstd))

OPERATION(norm_backward, norm_backward, AT(norm_backward, dy), AT(norm_backward, sum), AT(norm_backward, gamma),
          AT(norm_backward, dresidual), AT(norm_backward, mean), AT(norm_backward, rstd), AT(norm_backward, dx),
          AT(norm_backward, dgamma), AT(norm_backward, dbeta))

OPERATION(residual, residual, AT(residual, x), AT(residual, branch), AT(residual, bias), AT(residual, sum))

#define QUERY_KEY                                                                                                      \
    AT(query_key, qkv), AT(query_key, angles), AT(query_key, document_start), AT(query_key, gamma_q),                  \
        AT(query_key, gamma_k), AT(query_key, before), AT(query_key, rstd), AT(query_key, dgamma_q),                   \
        AT(query_key, dgamma_k)
OPERATION(query_key_forward, query_key, QUERY_KEY)
OPERATION(query_key_backward, query_key, QUERY_KEY)

OPERATION(gated_forward, gated, AT(gated, x), AT(gated, y))
OPERATION(gated_backward, gated, AT(gated, x), AT(gated, dx))

#define ATTENTION                                                                                                      \
    AT(attention, qkv), AT(attention, lengths), AT(attention, document_start), AT(attention, out), AT(attention, lse), \
        AT(attention, dout), AT(attention, dqkv)
OPERATION(attention_forward, attention, ATTENTION)
OPERATION(attention_backward, attention, ATTENTION)

#define EMBEDDING AT(embedding, tokens), AT(embedding, wte), AT(embedding, x), AT(embedding, dwte)
OPERATION(embedding_forward, embedding, EMBEDDING)
OPERATION(embedding_backward, embedding, EMBEDDING)

#define POSITIONS                                                                                                      \
    AT(position_embedding, types), AT(position_embedding, document_start), AT(position_embedding, wpe),                \
        AT(position_embedding, wtt), AT(position_embedding, x), AT(position_embedding, dwpe),                          \
        AT(position_embedding, dwtt)
OPERATION(position_embedding_forward, position_embedding, POSITIONS)
OPERATION(position_embedding_backward, position_embedding, POSITIONS)

#define CROSS_ENTROPY                                                                                                  \
    AT(cross_entropy, targets), AT(cross_entropy, logits), AT(cross_entropy, max), AT(cross_entropy, sum),             \
        AT(cross_entropy, target), AT(cross_entropy, loss)
OPERATION(cross_entropy, cross_entropy, CROSS_ENTROPY)
OPERATION(cross_entropy_stats, cross_entropy, CROSS_ENTROPY)
OPERATION(cross_entropy_finish, cross_entropy, CROSS_ENTROPY)

OPERATION(cross_entropy_combine, cross_entropy_combine, AT(cross_entropy_combine, stats),
          AT(cross_entropy_combine, max), AT(cross_entropy_combine, sum), AT(cross_entropy_combine, target))

static void run_adamw(struct device *cpu, const struct discrete_entry *entry)
{
    cpu->kernels.adamw(cpu, &entry->is.adamw, 1);
}

static void discrete_adamw(struct device *dev, const struct adamw *arrays, int count)
{
    static const size_t operands[] = {AT(adamw, param), AT(adamw, exp_avg), AT(adamw, exp_avg_sq), AT(adamw, grad),
                                      AT(adamw, copy)};

    for (int i = 0; i < count; i++) {
        struct discrete_entry entry = {.run = run_adamw, .is.adamw = arrays[i]};

        translate_operands(dev, "adamw", &entry.is, operands, sizeof operands / sizeof *operands);
        discrete_enqueue(dev, &entry);
    }
}

/* ---- operations with plain arguments ---- */

static void run_bias_backward(struct device *cpu, const struct discrete_entry *entry)
{
    cpu->kernels.bias_backward(cpu, entry->is.plain.from, entry->is.plain.y, entry->is.plain.x, entry->is.plain.rows,
                               (int)entry->is.plain.count, entry->is.plain.accumulate);
}

static void discrete_bias_backward(struct device *dev, enum dtype dtype, float *db, const void *dy, int rows, int n,
                                   bool accumulate)
{
    struct discrete_entry entry = {.run = run_bias_backward};

    entry.is.plain.y = discrete_operand(dev, "bias_backward", db);
    entry.is.plain.x = discrete_operand(dev, "bias_backward", dy);
    entry.is.plain.from = dtype;
    entry.is.plain.rows = rows;
    entry.is.plain.count = (size_t)n;
    entry.is.plain.accumulate = accumulate;
    discrete_enqueue(dev, &entry);
}

static void run_dropout_backward(struct device *cpu, const struct discrete_entry *entry)
{
    cpu->kernels.dropout_backward(cpu, entry->is.plain.from, entry->is.plain.y, entry->is.plain.x,
                                  entry->is.plain.count, &entry->is.plain.dropout);
}

static void discrete_dropout_backward(struct device *dev, enum dtype dtype, void *dx, const void *dy, size_t count,
                                      const struct dropout *dropout)
{
    struct discrete_entry entry = {.run = run_dropout_backward};

    entry.is.plain.y = discrete_operand(dev, "dropout_backward", dx);
    entry.is.plain.x = discrete_operand(dev, "dropout_backward", dy);
    entry.is.plain.from = dtype;
    entry.is.plain.count = count;
    entry.is.plain.dropout = *dropout;
    discrete_enqueue(dev, &entry);
}

/* Up to three operands of the same count, of up to two types. */
static void enqueue_plain(struct device *dev, const char *name,
                          void (*run)(struct device *, const struct discrete_entry *), enum dtype to, void *y,
                          enum dtype from, const void *x, const void *z, size_t count)
{
    struct discrete_entry entry = {.run = run};

    entry.is.plain.y = discrete_operand(dev, name, y);
    entry.is.plain.x = discrete_operand(dev, name, x);
    entry.is.plain.z = discrete_operand(dev, name, z);
    entry.is.plain.to = to;
    entry.is.plain.from = from;
    entry.is.plain.count = count;
    discrete_enqueue(dev, &entry);
}

static void run_gelu_forward(struct device *cpu, const struct discrete_entry *entry)
{
    cpu->kernels.gelu_forward(cpu, entry->is.plain.from, entry->is.plain.y, entry->is.plain.x, entry->is.plain.count);
}

static void discrete_gelu_forward(struct device *dev, enum dtype dtype, void *y, const void *x, size_t count)
{
    enqueue_plain(dev, "gelu_forward", run_gelu_forward, dtype, y, dtype, x, NULL, count);
}

static void run_gelu_backward(struct device *cpu, const struct discrete_entry *entry)
{
    cpu->kernels.gelu_backward(cpu, entry->is.plain.from, entry->is.plain.y, entry->is.plain.x, entry->is.plain.z,
                               entry->is.plain.count);
}

static void discrete_gelu_backward(struct device *dev, enum dtype dtype, void *dx, const void *dy, const void *x,
                                   size_t count)
{
    enqueue_plain(dev, "gelu_backward", run_gelu_backward, dtype, dx, dtype, dy, x, count);
}

static void run_tanh_forward(struct device *cpu, const struct discrete_entry *entry)
{
    cpu->kernels.tanh_forward(cpu, entry->is.plain.from, entry->is.plain.y, entry->is.plain.x, entry->is.plain.count);
}

static void discrete_tanh_forward(struct device *dev, enum dtype dtype, void *y, const void *x, size_t count)
{
    enqueue_plain(dev, "tanh_forward", run_tanh_forward, dtype, y, dtype, x, NULL, count);
}

static void run_tanh_backward(struct device *cpu, const struct discrete_entry *entry)
{
    cpu->kernels.tanh_backward(cpu, entry->is.plain.from, entry->is.plain.y, entry->is.plain.x, entry->is.plain.z,
                               entry->is.plain.count);
}

static void discrete_tanh_backward(struct device *dev, enum dtype dtype, void *dx, const void *dy, const void *y,
                                   size_t count)
{
    enqueue_plain(dev, "tanh_backward", run_tanh_backward, dtype, dx, dtype, dy, y, count);
}

static void run_add(struct device *cpu, const struct discrete_entry *entry)
{
    cpu->kernels.add(cpu, entry->is.plain.from, entry->is.plain.y, entry->is.plain.x, entry->is.plain.count);
}

static void discrete_add(struct device *dev, enum dtype dtype, void *y, const void *x, size_t count)
{
    enqueue_plain(dev, "add", run_add, dtype, y, dtype, x, NULL, count);
}

static void run_accumulate(struct device *cpu, const struct discrete_entry *entry)
{
    cpu->kernels.accumulate(cpu, entry->is.plain.y, entry->is.plain.from, entry->is.plain.x, entry->is.plain.count);
}

static void discrete_accumulate(struct device *dev, float *y, enum dtype dtype, const void *x, size_t count)
{
    enqueue_plain(dev, "accumulate", run_accumulate, DTYPE_F32, y, dtype, x, NULL, count);
}

static void run_cast(struct device *cpu, const struct discrete_entry *entry)
{
    cpu->kernels.cast(cpu, entry->is.plain.to, entry->is.plain.y, entry->is.plain.from, entry->is.plain.x,
                      entry->is.plain.count);
}

static void discrete_cast(struct device *dev, enum dtype to, void *y, enum dtype from, const void *x, size_t count)
{
    enqueue_plain(dev, "cast", run_cast, to, y, from, x, NULL, count);
}

static void run_zero(struct device *cpu, const struct discrete_entry *entry)
{
    cpu->kernels.zero(cpu, entry->is.plain.y, entry->is.plain.count);
}

static void discrete_zero(struct device *dev, void *y, size_t bytes)
{
    enqueue_plain(dev, "zero", run_zero, DTYPE_F32, y, DTYPE_F32, NULL, NULL, bytes);
}

static void run_copy(struct device *cpu, const struct discrete_entry *entry)
{
    cpu->kernels.copy(cpu, entry->is.plain.y, entry->is.plain.x, entry->is.plain.count);
}

static void discrete_copy(struct device *dev, void *y, const void *x, size_t bytes)
{
    struct discrete_entry entry = {.run = run_copy};

    if (bytes == 0) /* then the addresses may be anything */
        return;
    entry.is.plain.y = discrete_any_operand(dev, "copy", y);
    entry.is.plain.x = discrete_any_operand(dev, "copy", x);
    entry.is.plain.count = bytes;
    discrete_enqueue(dev, &entry);
}

#define MOST_SQUARES 256

static void discrete_sum_of_squares(struct device *dev, double *result, const struct squares *arrays, int count)
{
    struct device *cpu = device_discrete(dev)->cpu;
    struct squares at[MOST_SQUARES];
    struct error err;

    assert(count <= MOST_SQUARES);
    for (int i = 0; i < count; i++)
        at[i] = (struct squares){discrete_operand(dev, "sum_of_squares", arrays[i].x), arrays[i].count};
    discrete_wait(dev);
    if (dev->failed)
        return;
    cpu->kernels.sum_of_squares(cpu, result, at, count);
    if (device_status(cpu, &err) < 0)
        device_fail(dev, err.code, "%s", err.text);
    discrete_wait(dev); /* counts the workspace */
}

const struct kernels discrete_kernels = {
    .matmul = discrete_matmul,
    .norm_forward = discrete_norm_forward,
    .norm_backward = discrete_norm_backward,
    .residual = discrete_residual,
    .query_key_forward = discrete_query_key_forward,
    .query_key_backward = discrete_query_key_backward,
    .gated_forward = discrete_gated_forward,
    .gated_backward = discrete_gated_backward,
    .attention_forward = discrete_attention_forward,
    .attention_backward = discrete_attention_backward,
    .embedding_forward = discrete_embedding_forward,
    .embedding_backward = discrete_embedding_backward,
    .position_embedding_forward = discrete_position_embedding_forward,
    .position_embedding_backward = discrete_position_embedding_backward,
    .cross_entropy = discrete_cross_entropy,
    .cross_entropy_stats = discrete_cross_entropy_stats,
    .cross_entropy_combine = discrete_cross_entropy_combine,
    .cross_entropy_finish = discrete_cross_entropy_finish,
    .adamw = discrete_adamw,
    .bias_backward = discrete_bias_backward,
    .dropout_backward = discrete_dropout_backward,
    .gelu_forward = discrete_gelu_forward,
    .gelu_backward = discrete_gelu_backward,
    .tanh_forward = discrete_tanh_forward,
    .tanh_backward = discrete_tanh_backward,
    .add = discrete_add,
    .accumulate = discrete_accumulate,
    .cast = discrete_cast,
    .zero = discrete_zero,
    .copy = discrete_copy,
    .sum_of_squares = discrete_sum_of_squares,
};
