#include "tests/kernels/harness.h"

#include <math.h>

#include "kernels/cpu/cpu.h"

/* Every layout, epilogue and stride against three plain loops in float64. 260 rows are more than one panel of gelu. */

static const int shapes[][3] = {{1, 1, 1}, {1, 7, 33}, {7, 5, 3}, {65, 33, 20}, {64, 128, 96}, {260, 40, 17}};

struct operands {
    struct tensor a, b, bias, aux, c, before;
    double *want, *aux_want;
};

static double derivative_of_gelu(double x)
{
    double step = 1e-5;

    return (gelu64(x + step) - gelu64(x - step)) / (2 * step);
}

/* Row `row` of the product, in ab[n]. */
static void product_row(const struct matmul *op, const double *a, const double *b, int row, double *ab)
{
    size_t next_row = op->transpose_b ? 1 : op->ldb, next_col = op->transpose_b ? op->ldb : 1;

    memset(ab, 0, op->n * sizeof *ab);
    for (int p = 0; p < op->k; p++) {
        const double factor = a[op->transpose_a ? (size_t)p * op->lda + row : (size_t)row * op->lda + p];

        for (int col = 0; col < op->n; col++)
            ab[col] += factor * b[p * next_row + col * next_col];
    }
}

/* gelu is made of aux as it was rounded: of the device's own where that is an output, which is checked beside. */
static void make_reference(struct device *dev, const struct matmul *op, const struct operands *x)
{
    const double *a = tensor_values(dev, x->a), *b = tensor_values(dev, x->b);
    double *ab = reference(dev, op->n);

    for (int row = 0; row < op->m; row++) {
        product_row(op, a, b, row, ab);
        for (int col = 0; col < op->n; col++) {
            size_t i = (size_t)row * op->n + col;

            x->aux_want[i] = ab[col] + tensor_get(x->bias, col);
            if (op->epilogue == EPILOGUE_NONE)
                x->want[i] = op->accumulate ? tensor_get(x->before, i) + ab[col] : ab[col];
            else if (op->epilogue == EPILOGUE_BIAS)
                x->want[i] = x->aux_want[i];
            else if (op->epilogue == EPILOGUE_BIAS_GELU)
                x->want[i] = gelu64(op->dtype == DTYPE_F32 ? x->aux_want[i] : tensor_get(x->aux, i));
            else
                x->want[i] = ab[col] * derivative_of_gelu(tensor_get(x->aux, i));
        }
    }
}

static struct operands make_operands(struct device *dev, const struct matmul *op)
{
    enum dtype type_of_c = op->c_fp32 ? DTYPE_F32 : op->dtype;
    size_t count = (size_t)op->m * op->n;
    struct operands x = {
        .a = random_tensor(dev, op->dtype, (size_t)op->lda * (op->transpose_a ? op->k : op->m), "a"),
        .b = random_tensor(dev, op->dtype, (size_t)op->ldb * (op->transpose_b ? op->n : op->k), "b"),
        .bias = random_tensor(dev, op->dtype, op->n, "bias"),
        .aux = op->epilogue == EPILOGUE_DGELU ? random_tensor(dev, op->dtype, count, "aux")
                                              : poisoned_tensor(dev, op->dtype, count),
        .c = poisoned_tensor(dev, type_of_c, (size_t)op->m * op->ldc),
        .before = random_tensor(dev, type_of_c, count, "before"),
        .want = reference(dev, count),
        .aux_want = reference(dev, count),
    };

    for (int row = 0; row < op->m && op->accumulate; row++)
        for (int col = 0; col < op->n; col++)
            tensor_set(x.c, (size_t)row * op->ldc + col, tensor_get(x.before, (size_t)row * op->n + col));
    return x;
}

typedef void multiply(struct device *dev, const struct matmul *op);

static void by_device(struct device *dev, const struct matmul *op)
{
    device_kernels(dev)->matmul(dev, op);
}

/* In 16 bits a GPU's library may round the product before the epilogue. Its tanh may be wrong by 2^-11: of gelu's slope
 * near x = -2, which is small, this is 1e-3, and it is multiplied by the product. */
static double tolerance_of(const struct matmul *op)
{
    bool library = other_device() && strcmp(other_device(), "cuda") == 0;

    if (op->epilogue == EPILOGUE_NONE || !library || op->dtype == DTYPE_F32)
        return 2e-5;
    return op->dtype == DTYPE_BF16 ? 1e-2 : 5e-3;
}

static void check_on(struct device *dev, multiply *run, const struct matmul *shape, int gap)
{
    struct matmul op = *shape, given;
    struct operands x;

    op.lda = (op.transpose_a ? op.m : op.k) + gap;
    op.ldb = (op.transpose_b ? op.k : op.n) + gap;
    op.ldc = op.n + gap;
    x = make_operands(dev, &op);
    op.a = x.a.at;
    op.b = x.b.at;
    op.bias = x.bias.at;
    op.aux = x.aux.at;
    op.c = x.c.at;
    given = op;
    if (gap == 0 && run == by_device)
        given.lda = given.ldb = given.ldc = 0;
    run(dev, &given);
    make_reference(dev, &op, &x);
    for (int row = 0; row < op.m; row++) {
        struct tensor c = tensor_from(x.c, (size_t)row * op.ldc);

        expect_rounded("c", c, x.want + (size_t)row * op.n, op.n, tolerance_of(&op));
        expect_tensor_untouched("between the rows of c", tensor_from(c, op.n), gap);
    }
    if (op.epilogue == EPILOGUE_BIAS_GELU)
        expect_rounded("aux", x.aux, x.aux_want, (size_t)op.m * op.n, tolerance_of(&op));
}

static const struct {
    enum dtype dtype;
    bool c_fp32;
} types[] = {{DTYPE_F32, false}, {DTYPE_BF16, false}, {DTYPE_F16, false}, {DTYPE_BF16, true}, {DTYPE_F16, true}};

#define SHAPES ((int)(sizeof shapes / sizeof *shapes))
#define TYPES  ((int)(sizeof types / sizeof *types))

static void check_choice(struct device *dev, enum epilogue epilogue, const int *shape, int choice, int type)
{
    struct matmul op = {
        .m = shape[0],
        .n = shape[1],
        .k = shape[2],
        .transpose_a = choice & 1,
        .transpose_b = choice & 2,
        .accumulate = choice & 4,
        .epilogue = epilogue,
        .dtype = types[type].dtype,
        .c_fp32 = types[type].c_fp32,
    };

    if (op.accumulate && (epilogue != EPILOGUE_NONE || (op.dtype != DTYPE_F32 && !op.c_fp32)))
        return;
    check_on(dev, by_device, &op, choice & 8 ? 5 : 0);
    finish_buffers(dev);
}

/* With one thread everything, with two of it a third. The library chooses its instruction set itself, so what it does
 * alone is tried with one of ours. */
static void check_epilogue(enum epilogue epilogue)
{
    static const char *const isas[] = {"baseline", "avx2", "avx512"};
    int count = epilogue == EPILOGUE_NONE || epilogue == EPILOGUE_BIAS ? 1 : 3;

    for (int isa = 0; isa < count; isa++)
        for (int threads = 1; threads <= 2; threads++) {
            struct device *dev = make_device(isas[isa], threads);

            for (int i = 0; dev && i < SHAPES * 16 * TYPES; i += threads == 1 ? 1 : 3)
                check_choice(dev, epilogue, shapes[i / TYPES / 16], i / TYPES % 16, i % TYPES);
            if (dev)
                finish_device(dev);
        }
}

static void test_none(void **state)
{
    check_epilogue(EPILOGUE_NONE);
}

/* Beside the product of a weight's gradient, the column sums of b or a. */
static void check_sums(struct device *dev, enum dtype dtype)
{
    for (int i = 0; i < 8; i++) {
        struct matmul op = {.m = 24,
                            .n = i & 1 ? 40 : 33,
                            .k = 70,
                            .transpose_a = true,
                            .dtype = dtype,
                            .c_fp32 = true,
                            .sums_of_a = i >= 4};
        struct matmul plain;
        struct tensor a = random_tensor(dev, dtype, (size_t)op.k * op.m, "a");
        struct tensor b = random_tensor(dev, dtype, (size_t)op.k * op.n, "b");
        struct tensor c = poisoned_tensor(dev, DTYPE_F32, (size_t)op.m * op.n);
        struct tensor alone = poisoned_tensor(dev, DTYPE_F32, (size_t)op.m * op.n);
        struct tensor from = op.sums_of_a ? a : b;
        int columns = op.sums_of_a ? op.m : op.n;
        struct tensor sums = poisoned_tensor(dev, DTYPE_F32, columns);
        double *want = reference(dev, columns);

        op.a = a.at;
        op.b = b.at;
        op.c = c.at;
        op.sums = sums.at;
        plain = op;
        plain.c = alone.at;
        plain.sums = NULL;
        device_kernels(dev)->matmul(dev, &op);
        device_kernels(dev)->matmul(dev, &plain);
        for (int row = 0; row < op.k; row++)
            for (int col = 0; col < columns; col++)
                want[col] += tensor_get(from, (size_t)row * columns + col);
        expect_rounded("sums", sums, want, columns, 2e-5);
        for (size_t j = 0; j < c.count; j++)
            assert_true(tensor_get(c, j) == tensor_get(alone, j));
        finish_buffers(dev);
    }
}

static void test_sums(void **state)
{
    each_device_and_type(check_sums);
}

static void test_bias(void **state)
{
    check_epilogue(EPILOGUE_BIAS);
}

static void test_bias_gelu(void **state)
{
    check_epilogue(EPILOGUE_BIAS_GELU);
}

static void test_dgelu(void **state)
{
    check_epilogue(EPILOGUE_DGELU);
}

/* What processors without bf16 do, on this one too; and more than one block each way. */
static void check_widened(struct device *dev, enum dtype dtype)
{
    for (int epilogue = EPILOGUE_NONE; epilogue <= EPILOGUE_DGELU; epilogue++) {
        struct matmul op = {.m = 17, .n = 40, .k = 50, .dtype = dtype, .epilogue = (enum epilogue)epilogue};

        op.transpose_a = epilogue % 2;
        op.transpose_b = epilogue / 2;
        op.accumulate = op.c_fp32 = epilogue == EPILOGUE_NONE;
        check_on(dev, cpu_matmul_widened, &op, 3);
        finish_buffers(dev);
    }
}

static void test_widened(void **state)
{
    struct matmul large = {.m = WIDENED_M + 9, .n = WIDENED_N + 5, .k = WIDENED_K + 3, .dtype = DTYPE_F16};
    struct device *dev;

    if (other_device()) {
        printf("# a way of CPUs\n");
        skip();
    }
    each_device_and_type(check_widened);
    dev = make_device("avx512", 2);
    if (!dev)
        dev = make_device("baseline", 2);
    for (int epilogue = EPILOGUE_NONE; epilogue <= EPILOGUE_BIAS_GELU; epilogue += 2) {
        large.epilogue = (enum epilogue)epilogue;
        check_on(dev, by_device, &large, 0);
        finish_buffers(dev);
    }
    finish_device(dev);
}

/* Rows of b that are 4 KiB apart: the library is given a copy, where it would read b where it lies. */
static void test_copied(void **state)
{
    struct device *dev;

    if (other_device()) {
        printf("# a way of CPUs\n");
        skip();
    }
    dev = make_device("baseline", 2);
    for (int epilogue = EPILOGUE_NONE; epilogue <= EPILOGUE_DGELU; epilogue++) {
        struct matmul whole = {.m = 270, .n = 1000, .k = 35, .epilogue = (enum epilogue)epilogue};
        struct matmul blocks = {.m = 129, .n = 1024, .k = 2100, .epilogue = (enum epilogue)epilogue};

        whole.accumulate = epilogue == EPILOGUE_NONE;
        blocks.transpose_a = epilogue / 2;
        check_on(dev, by_device, &whole, 24);
        finish_buffers(dev);
        check_on(dev, by_device, &blocks, 0);
        finish_buffers(dev);
    }
    finish_device(dev);
}

static void test_copies_fit(void **state)
{
    for (int k = 1; k <= 60000; k += 1 + k / 7)
        for (int n = 1; n <= 60000; n += 1 + n / 9) {
            int columns = workspace_copy_columns(k, n), ld = workspace_copy_ld(columns);

            assert_true(columns >= 0 && columns <= n);
            assert_true(columns == 0 || columns == n || columns >= 256);
            assert_true(ld >= columns && ld % 32 == 16);
            assert_true((size_t)k * (size_t)ld * sizeof(float) <= COPY_BYTES || columns == 0);
        }
}

/* Far out gelu is 0 or x, and its slope 0 or 1: nothing may overflow on the way. A NaN stays one. */
static void check_extremes(struct device *dev)
{
    static const float x[] = {-1e30f, -1e4f, -50, -10, -5, -1e-6f, 0, 1e-6f, 5, 10, 50, 1e4f, 1e30f};
    const int n = sizeof x / sizeof *x;
    float *a = poisoned_floats(dev, 1), *b = poisoned_floats(dev, n + 1), *bias = poisoned_floats(dev, n + 1);
    float *aux = poisoned_floats(dev, n + 1), *c = poisoned_floats(dev, n + 1);
    struct matmul op = {.m = 1, .n = n + 1, .k = 1, .a = a, .b = b, .bias = bias, .aux = aux, .c = c};

    a[0] = 0;
    for (int i = 0; i <= n; i++) {
        b[i] = 1;
        bias[i] = i < n ? x[i] : NAN;
    }
    op.epilogue = EPILOGUE_BIAS_GELU;
    device_kernels(dev)->matmul(dev, &op);
    for (int i = 0; i < n; i++)
        assert_true(fabs(c[i] - gelu64(x[i])) <= 1e-6 * fabs(x[i]) + 1e-30);
    assert_true(isnan(c[n]));
    a[0] = 1;
    op.epilogue = EPILOGUE_DGELU;
    device_kernels(dev)->matmul(dev, &op);
    for (int i = 0; i < n; i++) {
        double want = fabs(x[i]) < 50 ? derivative_of_gelu(x[i]) : x[i] > 0;

        if (!(fabs(c[i] - want) <= 1e-6))
            fail_msg("gelu'(%g) is %.9g, should be %.9g", x[i], c[i], want);
    }
    assert_true(isnan(c[n]));
}

static void test_extremes(void **state)
{
    each_device(check_extremes);
}

/* More shapes than are remembered: old ones are dropped and made again, and stay right. */
static void check_many_shapes(struct device *dev)
{
    float *a = random_floats(dev, 100, "a"), *b = random_floats(dev, 100, "b"), *c = poisoned_floats(dev, 1);

    for (int round = 0; round < 2; round++)
        for (int k = 1; k <= 100; k++) {
            struct matmul op = {.m = 1, .n = 1, .k = k, .lda = k, .ldb = 1, .ldc = 1, .a = a, .b = b, .c = c};
            double want = 0;

            for (int i = 0; i < k; i++)
                want += (double)a[i] * b[i];
            device_kernels(dev)->matmul(dev, &op);
            assert_true(fabs(c[0] - want) <= 1e-4);
        }
}

static void test_many_shapes(void **state)
{
    struct device *dev = make_device("baseline", 1);

    check_many_shapes(dev);
    finish_device(dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_none),        cmocka_unit_test(test_sums),       cmocka_unit_test(test_bias),
        cmocka_unit_test(test_bias_gelu),   cmocka_unit_test(test_dgelu),      cmocka_unit_test(test_widened),
        cmocka_unit_test(test_copied),      cmocka_unit_test(test_copies_fit), cmocka_unit_test(test_extremes),
        cmocka_unit_test(test_many_shapes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
