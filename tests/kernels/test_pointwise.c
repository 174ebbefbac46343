#include "tests/kernels/harness.h"

#include <math.h>

/* gelu's and tanh's passes, add and accumulate: every type, odd sizes, in place, far out. */

static const size_t counts[] = {1, 7, 65, 4097, 9001};

#define COUNTS (sizeof counts / sizeof *counts)

/* The numbers of a test: normal deviates, and some that are small, large or far too large at the end. */
static struct tensor numbers(struct device *dev, enum dtype dtype, size_t count, const char *name)
{
    static const double odd[] = {0, -1e-4, 1e-3, 0.63, -0.65, 9.5, -20, 3e4, -6e4};
    struct tensor x = random_tensor(dev, dtype, count, name);

    for (size_t i = 0; i < sizeof odd / sizeof *odd && i < count; i++)
        tensor_set(x, count - 1 - i, odd[i]);
    return x;
}

/* In units of each number: what is small must be right too. */
static void expect_each(const char *name, struct tensor got, const double *want, size_t count, double tolerance)
{
    for (size_t i = 0; i < count; i++)
        expect_rounded(name, tensor_from(got, i), want + i, 1, tolerance);
}

static void check_tanh(struct device *dev, enum dtype dtype)
{
    for (size_t c = 0; c < COUNTS; c++) {
        struct tensor x = numbers(dev, dtype, counts[c], "x"), y = poisoned_tensor(dev, dtype, counts[c]);
        struct tensor dy = random_tensor(dev, dtype, counts[c], "dy");
        double *want = reference(dev, counts[c]);

        for (size_t i = 0; i < counts[c]; i++)
            want[i] = tanh(tensor_get(x, i));
        device_kernels(dev)->tanh_forward(dev, dtype, y.at, x.at, counts[c]);
        expect_each("tanh", y, want, counts[c], 3e-7);
        for (size_t i = 0; i < counts[c]; i++)
            want[i] = tensor_get(dy, i) * (1 - tensor_get(y, i) * tensor_get(y, i));
        device_kernels(dev)->tanh_backward(dev, dtype, dy.at, dy.at, y.at, counts[c]);
        expect_rounded("tanh backward", dy, want, counts[c], 1e-6);
        device_kernels(dev)->tanh_forward(dev, dtype, x.at, x.at, counts[c]);
        expect_same("in place", x.at, y.at, counts[c] * dtype_size(dtype));
        finish_buffers(dev);
    }
}

static void test_tanh(void **state)
{
    each_device_and_type(check_tanh);
}

static double gelu_slope(double x)
{
    double step = 1e-5;

    if (fabs(x) > 50)
        return x > 0;
    return (gelu64(x + step) - gelu64(x - step)) / (2 * step);
}

static void check_gelu(struct device *dev, enum dtype dtype)
{
    for (size_t c = 0; c < COUNTS; c++) {
        struct tensor x = numbers(dev, dtype, counts[c], "x"), dy = random_tensor(dev, dtype, counts[c], "dy");
        struct tensor dx = poisoned_tensor(dev, dtype, counts[c]);
        double *want = reference(dev, counts[c]);

        for (size_t i = 0; i < counts[c]; i++)
            want[i] = gelu64(tensor_get(x, i));
        device_kernels(dev)->gelu_forward(dev, dtype, dx.at, x.at, counts[c]);
        expect_rounded("gelu", dx, want, counts[c], 1e-6);
        for (size_t i = 0; i < counts[c]; i++)
            want[i] = tensor_get(dy, i) * gelu_slope(tensor_get(x, i));
        device_kernels(dev)->gelu_backward(dev, dtype, dx.at, dy.at, x.at, counts[c]);
        expect_rounded("gelu backward", dx, want, counts[c], 1e-6);
        device_kernels(dev)->gelu_backward(dev, dtype, x.at, dy.at, x.at, counts[c]);
        expect_same("in place", x.at, dx.at, counts[c] * dtype_size(dtype));
        finish_buffers(dev);
    }
}

static void test_gelu(void **state)
{
    each_device_and_type(check_gelu);
}

static void check_sums(struct device *dev, enum dtype dtype)
{
    for (size_t c = 0; c < COUNTS; c++) {
        struct tensor x = random_tensor(dev, dtype, counts[c], "x"), y = random_tensor(dev, dtype, counts[c], "y");
        struct tensor sum = random_tensor(dev, DTYPE_F32, counts[c], "sum");
        double *want = tensor_values(dev, y), *want_sum = tensor_values(dev, sum);

        for (size_t i = 0; i < counts[c]; i++) {
            want[i] += tensor_get(x, i);
            want_sum[i] += tensor_get(x, i);
        }
        device_kernels(dev)->add(dev, dtype, y.at, x.at, counts[c]);
        device_kernels(dev)->accumulate(dev, sum.at, dtype, x.at, counts[c]);
        expect_rounded("add", y, want, counts[c], 1e-7);
        expect_rounded("accumulate", sum, want_sum, counts[c], 1e-7);
        finish_buffers(dev);
    }
}

static void test_sums(void **state)
{
    each_device_and_type(check_sums);
}

static void check_nan(struct device *dev, enum dtype dtype)
{
    const struct kernels *k = device_kernels(dev);
    struct tensor x = poisoned_tensor(dev, dtype, 20), one = random_tensor(dev, dtype, 20, "one");
    struct tensor y = random_tensor(dev, dtype, 20, "y");

    k->tanh_forward(dev, dtype, y.at, x.at, 20);
    assert_true(isnan(tensor_get(y, 0)) && isnan(tensor_get(y, 19)));
    k->gelu_backward(dev, dtype, one.at, one.at, x.at, 20);
    assert_true(isnan(tensor_get(one, 0)) && isnan(tensor_get(one, 19)));
}

static void test_nan(void **state)
{
    each_device_and_type(check_nan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tanh),
        cmocka_unit_test(test_gelu),
        cmocka_unit_test(test_sums),
        cmocka_unit_test(test_nan),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
