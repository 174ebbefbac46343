#include "tests/kernels/harness.h"

#include <math.h>

/* Every layout, epilogue and stride against three plain loops in float64. 300 rows are more than one panel of gelu. */

static const int shapes[][3] = {{1, 1, 1}, {1, 7, 33}, {7, 5, 3}, {65, 33, 20}, {64, 128, 96}, {300, 70, 17}};

struct operands {
    float *a, *b, *bias, *aux, *c, *before;
    double *want, *aux_want;
};

static double derivative_of_gelu(double x)
{
    double step = 1e-5;

    return (gelu64(x + step) - gelu64(x - step)) / (2 * step);
}

static double element(const struct matmul *op, int row, int col)
{
    const float *a = op->a, *b = op->b;
    double sum = 0;

    for (int p = 0; p < op->k; p++) {
        size_t at = op->transpose_a ? (size_t)p * op->lda + row : (size_t)row * op->lda + p;
        size_t bt = op->transpose_b ? (size_t)col * op->ldb + p : (size_t)p * op->ldb + col;

        sum += (double)a[at] * b[bt];
    }
    return sum;
}

static void make_reference(const struct matmul *op, const struct operands *x)
{
    for (int row = 0; row < op->m; row++)
        for (int col = 0; col < op->n; col++) {
            size_t i = (size_t)row * op->n + col;
            double ab = element(op, row, col);

            x->aux_want[i] = ab + x->bias[col];
            x->want[i] = op->accumulate ? x->before[i] : 0;
            if (op->epilogue == EPILOGUE_NONE)
                x->want[i] += ab;
            else if (op->epilogue == EPILOGUE_BIAS)
                x->want[i] += x->aux_want[i];
            else if (op->epilogue == EPILOGUE_BIAS_GELU)
                x->want[i] += gelu64(x->aux_want[i]);
            else
                x->want[i] += ab * derivative_of_gelu(x->aux[i]);
        }
}

static struct operands make_operands(struct device *dev, const struct matmul *op)
{
    struct operands x = {
        .a = random_floats(dev, (size_t)op->lda * (op->transpose_a ? op->k : op->m), "a"),
        .b = random_floats(dev, (size_t)op->ldb * (op->transpose_b ? op->n : op->k), "b"),
        .bias = random_floats(dev, op->n, "bias"),
        .c = poisoned_floats(dev, (size_t)op->m * op->ldc),
        .before = random_floats(dev, (size_t)op->m * op->n, "before"),
        .want = reference(dev, (size_t)op->m * op->n),
        .aux_want = reference(dev, (size_t)op->m * op->n),
    };

    x.aux = op->epilogue == EPILOGUE_DGELU ? random_floats(dev, (size_t)op->m * op->n, "aux")
                                           : poisoned_floats(dev, (size_t)op->m * op->n);
    for (int row = 0; row < op->m && op->accumulate; row++)
        for (int col = 0; col < op->n; col++)
            x.c[(size_t)row * op->ldc + col] = x.before[(size_t)row * op->n + col];
    return x;
}

static void check_product(const char *isa, int threads, const struct matmul *shape, int gap)
{
    struct device *dev = make_device(isa, threads);
    struct matmul op = *shape, given;
    struct operands x;

    if (!dev)
        return;
    op.lda = (op.transpose_a ? op.m : op.k) + gap;
    op.ldb = (op.transpose_b ? op.k : op.n) + gap;
    op.ldc = op.n + gap;
    x = make_operands(dev, &op);
    op.a = x.a;
    op.b = x.b;
    op.bias = x.bias;
    op.aux = x.aux;
    op.c = x.c;
    make_reference(&op, &x);
    given = op;
    if (gap == 0)
        given.lda = given.ldb = given.ldc = 0;
    device_kernels(dev)->matmul(dev, &given);
    for (int row = 0; row < op.m; row++) {
        expect_close("c", x.c + (size_t)row * op.ldc, x.want + (size_t)row * op.n, op.n, 2e-5);
        expect_untouched("between the rows of c", x.c + (size_t)row * op.ldc + op.n, gap);
    }
    if (op.epilogue == EPILOGUE_BIAS_GELU)
        expect_close("aux", x.aux, x.aux_want, (size_t)op.m * op.n, 2e-5);
    finish_device(dev);
}

static void check_epilogue(enum epilogue epilogue)
{
    static const char *const isas[] = {"baseline", "avx2", "avx512"};
    int count = 0;

    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int choice = 0; choice < 16; choice++, count++) {
            struct matmul op = {
                .m = shapes[s][0],
                .n = shapes[s][1],
                .k = shapes[s][2],
                .transpose_a = choice & 1,
                .transpose_b = choice & 2,
                .accumulate = choice & 4,
                .epilogue = epilogue,
                .dtype = DTYPE_F32,
            };

            for (int isa = 0; isa < 3; isa++)
                check_product(isas[isa], 1 + count % 2, &op, choice & 8 ? 5 : 0);
        }
}

static void test_none(void **state)
{
    (void)state;
    check_epilogue(EPILOGUE_NONE);
}

static void test_bias(void **state)
{
    (void)state;
    check_epilogue(EPILOGUE_BIAS);
}

static void test_bias_gelu(void **state)
{
    (void)state;
    check_epilogue(EPILOGUE_BIAS_GELU);
}

static void test_dgelu(void **state)
{
    (void)state;
    check_epilogue(EPILOGUE_DGELU);
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
    (void)state;
    each_device(check_extremes);
}

/* More shapes than are remembered: old ones are dropped and made again, and stay right. */
static void check_many_shapes(struct device *dev)
{
    float *a = random_floats(dev, 100, "a"), *b = random_floats(dev, 100, "b"), *c = poisoned_floats(dev, 1);

    for (int round = 0; round < 2; round++)
        for (int k = 1; k <= 100; k++) {
            struct matmul op = {.m = 1, .n = 1, .k = k, .lda = k, .ldb = 1, .ldc = 1, .a = a, .b = b, .c = c};
            double want = element(&op, 0, 0);

            device_kernels(dev)->matmul(dev, &op);
            assert_true(fabs(c[0] - want) <= 1e-4);
        }
}

static void test_many_shapes(void **state)
{
    struct device *dev = make_device("baseline", 1);

    (void)state;
    check_many_shapes(dev);
    finish_device(dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_none),  cmocka_unit_test(test_bias),     cmocka_unit_test(test_bias_gelu),
        cmocka_unit_test(test_dgelu), cmocka_unit_test(test_extremes), cmocka_unit_test(test_many_shapes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
