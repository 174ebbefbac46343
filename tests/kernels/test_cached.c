#include "tests/kernels/harness.h"

#include <math.h>
#include <string.h>

/* What generates text: attention to cached keys and values, and products of a few rows. Each against float64; and the
 * bits of a row against those it has alone. */

#define SLOTS 3
#define ROWS  (SLOTS * LENGTH)
#define ROOM  80 /* two groups more than a warp has lanes, and one key group that is full */

enum { LENGTH = 70 };

struct cache_case {
    int heads, size;
    struct tensor qkv; /* [SLOTS][LENGTH][3 heads size]: of all positions */
    struct tensor keys, values;
    int32_t *slots, *positions; /* of the rows of a call, in the order of `rows` */
    struct tensor rows;         /* like qkv */
};

static struct cache_case make_case(struct device *dev, enum dtype dtype, int heads, int size)
{
    size_t hidden = (size_t)heads * size;

    return (struct cache_case){
        .heads = heads,
        .size = size,
        .qkv = random_tensor(dev, dtype, (size_t)ROWS * 3 * hidden, "qkv"),
        .keys = random_tensor(dev, dtype, (size_t)SLOTS * ROOM * hidden, "other keys"),
        .values = random_tensor(dev, dtype, (size_t)SLOTS * ROOM * hidden, "other values"),
        .slots = int_buffer(dev, ROWS),
        .positions = int_buffer(dev, ROWS),
        .rows = poisoned_tensor(dev, dtype, (size_t)ROWS * 3 * hidden),
    };
}

/* Attention of one head at a position, in float64. */
static void attend_exactly(const struct cache_case *x, int slot, int position, int head, double *out)
{
    size_t hidden = (size_t)x->heads * x->size, row = 3 * hidden, first = (size_t)slot * LENGTH * row;
    size_t column = (size_t)head * x->size;
    double score[LENGTH], most = -INFINITY, sum = 0;

    for (int key = 0; key <= position; key++) {
        score[key] = 0;
        for (int d = 0; d < x->size; d++)
            score[key] += tensor_get(x->qkv, first + position * row + column + d) *
                          tensor_get(x->qkv, first + key * row + hidden + column + d) / sqrt(x->size);
        most = fmax(most, score[key]);
    }
    for (int key = 0; key <= position; key++)
        sum += exp(score[key] - most);
    for (int d = 0; d < x->size; d++) {
        out[d] = 0;
        for (int key = 0; key <= position; key++)
            out[d] += exp(score[key] - most) / sum * tensor_get(x->qkv, first + key * row + 2 * hidden + column + d);
    }
}

/* Runs rows [first, first + count) of `order`, which has slot * LENGTH + position; out is in that order. */
static void run_rows(struct device *dev, const struct cache_case *x, const int *order, int first, int count,
                     struct tensor out)
{
    size_t hidden = (size_t)x->heads * x->size;

    for (int i = 0; i < count; i++) {
        x->slots[i] = order[first + i] / LENGTH;
        x->positions[i] = order[first + i] % LENGTH;
        for (size_t j = 0; j < 3 * hidden; j++)
            tensor_set(x->rows, i * 3 * hidden + j, tensor_get(x->qkv, order[first + i] * 3 * hidden + j));
    }
    device_kernels(dev)->attention_cached(dev, &(struct cached_attention){.rows = count,
                                                                          .heads = x->heads,
                                                                          .head_size = x->size,
                                                                          .room = ROOM,
                                                                          .dtype = x->qkv.dtype,
                                                                          .qkv = x->rows.at,
                                                                          .slots = x->slots,
                                                                          .positions = x->positions,
                                                                          .keys = x->keys.at,
                                                                          .values = x->values.at,
                                                                          .out = tensor_from(out, first * hidden).at});
}

/* All tokens of all sequences at once, their rows in a mixed order; then a token of each sequence at a time. */
static void check_attention(struct device *dev, enum dtype dtype, int heads, int size)
{
    struct cache_case x = make_case(dev, dtype, heads, size);
    size_t hidden = (size_t)heads * size, count = ROWS * hidden;
    struct tensor all = poisoned_tensor(dev, dtype, count), steps = poisoned_tensor(dev, dtype, count);
    double *want = reference(dev, count);
    int order[ROWS], by_step[ROWS];

    for (int i = 0; i < ROWS; i++) {
        order[i] = i * 11 % ROWS;
        by_step[i] = i % SLOTS * LENGTH + i / SLOTS;
        for (int head = 0; head < heads; head++)
            attend_exactly(&x, order[i] / LENGTH, order[i] % LENGTH, head, want + i * hidden + (size_t)head * size);
    }
    run_rows(dev, &x, order, 0, ROWS, all);
    expect_rounded("all rows at once", all, want, count, 2e-5);
    for (int i = 0; i < ROWS; i += SLOTS)
        run_rows(dev, &x, by_step, i, SLOTS, steps);
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < ROWS; j++)
            if (order[i] == by_step[j])
                expect_same("a row in a step", tensor_from(all, i * hidden).at, tensor_from(steps, j * hidden).at,
                            hidden * dtype_size(dtype));
    finish_buffers(dev);
}

static void check_attentions(struct device *dev, enum dtype dtype)
{
    check_attention(dev, dtype, 1, 1);
    check_attention(dev, dtype, 3, 20);
    check_attention(dev, dtype, 1, 130);
}

static void test_attention_cached(void **state)
{
    (void)state;
    each_device_and_type(check_attentions);
}

/* ---- products few_rows ---- */

/* c and aux have room for all rows. */
static struct tensor multiply(struct device *dev, const struct matmul *shape, struct tensor a, int m, struct tensor c,
                              struct tensor aux)
{
    struct matmul op = *shape;

    op.m = m;
    op.a = a.at;
    op.c = c.at;
    op.aux = aux.at;
    op.few_rows = true;
    device_kernels(dev)->matmul(dev, &op);
    return c;
}

static double exact_element(const struct matmul *op, struct tensor a, struct tensor b, struct tensor bias, int row,
                            int col)
{
    double sum = op->epilogue == EPILOGUE_NONE ? 0 : tensor_get(bias, col);

    for (int p = 0; p < op->k; p++)
        sum += tensor_get(a, (size_t)row * op->k + p) *
               tensor_get(b, op->transpose_b ? (size_t)col * op->k + p : (size_t)p * op->n + col);
    return op->epilogue == EPILOGUE_BIAS_GELU ? gelu64(rounded(op->dtype, sum)) : sum;
}

/* gelu of a rounded number that lies between two: either is right. */
static double tolerance_of(const struct matmul *op)
{
    if (op->epilogue != EPILOGUE_BIAS_GELU || op->dtype == DTYPE_F32)
        return 2e-5;
    return op->dtype == DTYPE_BF16 ? 1e-2 : 2e-3;
}

static void check_product(struct device *dev, struct matmul op)
{
    struct tensor a = random_tensor(dev, op.dtype, (size_t)op.m * op.k, "a");
    struct tensor b = random_tensor(dev, op.dtype, (size_t)op.n * op.k, "b");
    struct tensor bias = random_tensor(dev, op.dtype, op.n, "bias");
    struct tensor c = poisoned_tensor(dev, op.dtype, (size_t)op.m * op.n);
    struct tensor alone = poisoned_tensor(dev, op.dtype, (size_t)op.m * op.n);
    struct tensor aux = poisoned_tensor(dev, op.dtype, (size_t)op.m * op.n);
    double *want = reference(dev, (size_t)op.m * op.n);

    op.b = b.at;
    op.bias = bias.at;
    for (int i = 0; i < op.m * op.n; i++)
        want[i] = exact_element(&op, a, b, bias, i / op.n, i % op.n);
    multiply(dev, &op, a, op.m, c, aux);
    expect_rounded("c", c, want, (size_t)op.m * op.n, tolerance_of(&op));
    for (int row = 0; row < op.m && device_is_host(dev) && !other_device(); row++)
        expect_same("a row alone", tensor_from(c, (size_t)row * op.n).at,
                    multiply(dev, &op, tensor_from(a, (size_t)row * op.k), 1, alone, aux).at,
                    op.n * dtype_size(op.dtype));
    finish_buffers(dev);
}

static void check_products(struct device *dev, enum dtype dtype)
{
    static const int shapes[][3] = {{1, 1, 1}, {1, 70, 33}, {3, 5, 130}, {16, 64, 48}, {21, 37, 9}, {5, 600, 20}};
    static const enum epilogue epilogues[] = {EPILOGUE_NONE, EPILOGUE_BIAS, EPILOGUE_BIAS_GELU};

    for (size_t i = 0; i < sizeof shapes / sizeof *shapes * 6; i++)
        check_product(dev, (struct matmul){.m = shapes[i / 6][0],
                                           .n = shapes[i / 6][1],
                                           .k = shapes[i / 6][2],
                                           .transpose_b = i & 1,
                                           .epilogue = epilogues[i / 2 % 3],
                                           .dtype = dtype});
}

static void test_few_rows(void **state)
{
    (void)state;
    each_device_and_type(check_products);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_attention_cached),
        cmocka_unit_test(test_few_rows),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
