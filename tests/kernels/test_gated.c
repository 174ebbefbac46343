#include "tests/kernels/harness.h"

#include <math.h>

/* silu(gate) * up and its gradient, by formula and by differences: every type, odd sizes, far out, a column alone. */

static const int shapes[][2] = {{1, 1}, {7, 20}, {65, 100}, {33, 257}, {3, 1536}};

static double silu(double z)
{
    return z / (1 + exp(-z));
}

static double silu_slope(double z)
{
    double s = 1 / (1 + exp(-z));

    return s + z * s * (1 - s);
}

/* The first gates are 0, large, and larger than any exponential. */
static struct tensor inputs(struct device *dev, enum dtype dtype, size_t rows, size_t cols)
{
    static const double odd[] = {0, -1e-4, 9.5, -20, 80, -86, 3e4, -6e4};
    struct tensor x = random_tensor(dev, dtype, rows * 2 * cols, "x");

    for (size_t i = 0; i < sizeof odd / sizeof *odd && i < cols; i++)
        tensor_set(x, i, odd[i]);
    return x;
}

static void check_shape(struct device *dev, enum dtype dtype, int rows, int cols)
{
    size_t n = (size_t)cols, count = (size_t)rows * n;
    struct tensor x = inputs(dev, dtype, (size_t)rows, n), y = poisoned_tensor(dev, dtype, count);
    struct tensor dx = random_tensor(dev, dtype, 2 * count, "dx");
    double *want_y = reference(dev, count), *want_dx = reference(dev, 2 * count);
    struct gated op = {.rows = rows, .cols = cols, .dtype = dtype, .x = x.at, .y = y.at};

    for (size_t i = 0; i < count; i++) {
        size_t gate = i / n * 2 * n + i % n, up = gate + n;
        double dy = tensor_get(dx, up);

        want_y[i] = silu(tensor_get(x, gate)) * tensor_get(x, up);
        want_dx[gate] = dy * tensor_get(x, up) * silu_slope(tensor_get(x, gate));
        want_dx[up] = dy * silu(tensor_get(x, gate));
    }
    device_kernels(dev)->gated_forward(dev, &op);
    device_kernels(dev)->gated_backward(
        dev, &(struct gated){.rows = rows, .cols = cols, .dtype = dtype, .x = x.at, .dx = dx.at});
    for (size_t i = 0; i < count; i++) /* each in its own units: what is small must be right too */
        expect_rounded("y", tensor_from(y, i), want_y + i, 1, 3e-6);
    expect_rounded("dx", dx, want_dx, 2 * count, 1e-6);
}

static void check_shapes(struct device *dev, enum dtype dtype)
{
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        check_shape(dev, dtype, shapes[s][0], shapes[s][1]);
        finish_buffers(dev);
    }
}

static void test_shapes(void **state)
{
    each_device_and_type(check_shapes);
}

static double silu_of(const void *z)
{
    return silu(*(const double *)z);
}

/* The reference's own derivative. */
static void test_slope(void **state)
{
    for (double z = -9; z < 9; z += 0.37) {
        double at = z;

        assert_true(fabs(slope(silu_of, &at, &at) - silu_slope(z)) < 1e-8);
    }
}

/* Some columns alone, as a tensor-parallel rank computes them: the same bits. */
static void check_columns(struct device *dev, enum dtype dtype)
{
    const int cols = 45, first = 13, count = 19;
    const struct kernels *k = device_kernels(dev);
    struct tensor x = random_tensor(dev, dtype, 2 * cols, "x"), y = poisoned_tensor(dev, dtype, cols);
    struct tensor dx = random_tensor(dev, dtype, 2 * cols, "dx"), part = poisoned_tensor(dev, dtype, 2 * count);
    struct tensor part_y = poisoned_tensor(dev, dtype, count), part_dx = poisoned_tensor(dev, dtype, 2 * count);
    size_t bytes = count * dtype_size(dtype);

    for (int half = 0; half < 2; half++) {
        memcpy(tensor_from(part, half * count).at, tensor_from(x, half * cols + first).at, bytes);
        memcpy(tensor_from(part_dx, half * count).at, tensor_from(dx, half * cols + first).at, bytes);
    }
    k->gated_forward(dev, &(struct gated){.rows = 1, .cols = cols, .dtype = dtype, .x = x.at, .y = y.at});
    k->gated_backward(dev, &(struct gated){.rows = 1, .cols = cols, .dtype = dtype, .x = x.at, .dx = dx.at});
    k->gated_forward(dev, &(struct gated){.rows = 1, .cols = count, .dtype = dtype, .x = part.at, .y = part_y.at});
    k->gated_backward(dev, &(struct gated){.rows = 1, .cols = count, .dtype = dtype, .x = part.at, .dx = part_dx.at});
    expect_same("y", part_y.at, tensor_from(y, first).at, bytes);
    expect_same("d gate", part_dx.at, tensor_from(dx, first).at, bytes);
    expect_same("d up", tensor_from(part_dx, count).at, tensor_from(dx, cols + first).at, bytes);
}

static void test_columns(void **state)
{
    each_device_and_type(check_columns);
}

static void check_nan(struct device *dev, enum dtype dtype)
{
    struct tensor x = poisoned_tensor(dev, dtype, 40), y = random_tensor(dev, dtype, 20, "y");
    struct tensor dx = random_tensor(dev, dtype, 40, "dx");

    device_kernels(dev)->gated_forward(dev,
                                       &(struct gated){.rows = 1, .cols = 20, .dtype = dtype, .x = x.at, .y = y.at});
    device_kernels(dev)->gated_backward(dev,
                                        &(struct gated){.rows = 1, .cols = 20, .dtype = dtype, .x = x.at, .dx = dx.at});
    assert_true(isnan(tensor_get(y, 0)) && isnan(tensor_get(y, 19)));
    assert_true(isnan(tensor_get(dx, 0)) && isnan(tensor_get(dx, 39)));
}

static void test_nan(void **state)
{
    each_device_and_type(check_nan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_slope),
        cmocka_unit_test(test_columns),
        cmocka_unit_test(test_nan),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
