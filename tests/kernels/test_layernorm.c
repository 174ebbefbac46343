#include "tests/kernels/harness.h"

#include <math.h>
#include <stdlib.h>

/* LayerNorm with and without residual, its backward pass by formula and by differences, and column sums. */

static const int shapes[][2] = {{1, 1}, {1, 16}, {7, 20}, {65, 100}, {65, 256}, {700, 33}};

struct plain {
    int rows, cols;
    double *x, *gamma, *beta, *dy; /* x: with the residual added */
    double *y, *mean, *rstd, *dx, *dgamma, *dbeta;
};

static double *widen(struct device *dev, const float *x, size_t count)
{
    double *y = reference(dev, count);

    for (size_t i = 0; i < count; i++)
        y[i] = x[i];
    return y;
}

static void forward_row(const struct plain *p, int row)
{
    const double *x = p->x + (size_t)row * p->cols;
    double mean = 0, variance = 0;

    for (int i = 0; i < p->cols; i++)
        mean += x[i] / p->cols;
    for (int i = 0; i < p->cols; i++)
        variance += (x[i] - mean) * (x[i] - mean) / p->cols;
    p->mean[row] = mean;
    p->rstd[row] = 1 / sqrt(variance + 1e-5);
    for (int i = 0; i < p->cols; i++)
        p->y[(size_t)row * p->cols + i] = (x[i] - mean) * p->rstd[row] * p->gamma[i] + p->beta[i];
}

static void backward_row(const struct plain *p, int row)
{
    double *dx = p->dx + (size_t)row * p->cols;
    double g_mean = 0, gx_mean = 0;

    for (int i = 0; i < p->cols; i++) {
        size_t at = (size_t)row * p->cols + i;
        double xhat = (p->x[at] - p->mean[row]) * p->rstd[row];

        g_mean += p->dy[at] * p->gamma[i] / p->cols;
        gx_mean += p->dy[at] * p->gamma[i] * xhat / p->cols;
        p->dgamma[i] += p->dy[at] * xhat;
        p->dbeta[i] += p->dy[at];
    }
    for (int i = 0; i < p->cols; i++) {
        size_t at = (size_t)row * p->cols + i;
        double xhat = (p->x[at] - p->mean[row]) * p->rstd[row];

        dx[i] = p->rstd[row] * (p->dy[at] * p->gamma[i] - g_mean - xhat * gx_mean);
    }
}

static double loss(const void *arg)
{
    const struct plain *p = arg;
    double sum = 0;

    for (int row = 0; row < p->rows; row++)
        forward_row(p, row);
    for (size_t i = 0; i < (size_t)p->rows * p->cols; i++)
        sum += p->y[i] * p->dy[i];
    return sum;
}

static void compare_differences(const struct plain *p, const float *dx, const float *dgamma, const float *dbeta)
{
    size_t count = (size_t)p->rows * p->cols;
    double *want = malloc((count + 2 * p->cols) * sizeof *want);

    for (size_t i = 0; i < count; i++)
        want[i] = slope(loss, p, &p->x[i]);
    for (int i = 0; i < p->cols; i++) {
        want[count + i] = slope(loss, p, &p->gamma[i]);
        want[count + p->cols + i] = slope(loss, p, &p->beta[i]);
    }
    expect_close("dx by differences", dx, want, count, 1e-5);
    expect_close("dgamma by differences", dgamma, want + count, p->cols, 1e-5);
    expect_close("dbeta by differences", dbeta, want + count + p->cols, p->cols, 1e-5);
    free(want);
}

/* Data with a mean of its own, which the variance must not drown in. */
static float *data(struct device *dev, size_t count, const char *name)
{
    float *x = random_floats(dev, count, name);

    for (size_t i = 0; i < count; i++)
        x[i] = x[i] * 2 + 3;
    return x;
}

static struct plain make_plain(struct device *dev, int rows, int cols, const float *sum, const float *gamma,
                               const float *beta, const float *dy)
{
    size_t count = (size_t)rows * cols;
    struct plain p = {
        .rows = rows,
        .cols = cols,
        .x = widen(dev, sum, count),
        .gamma = widen(dev, gamma, cols),
        .beta = widen(dev, beta, cols),
        .dy = widen(dev, dy, count),
        .y = reference(dev, count),
        .mean = reference(dev, rows),
        .rstd = reference(dev, rows),
        .dx = reference(dev, count),
        .dgamma = reference(dev, cols),
        .dbeta = reference(dev, cols),
    };

    for (int row = 0; row < rows; row++) {
        forward_row(&p, row);
        backward_row(&p, row);
    }
    return p;
}

static void check_backward(struct device *dev, const struct plain *p, const struct layernorm *forward, const float *sum,
                           const float *dy, bool around)
{
    size_t count = (size_t)p->rows * p->cols;
    float *dgamma = poisoned_floats(dev, p->cols), *dbeta = poisoned_floats(dev, p->cols);
    float *dx = around ? random_floats(dev, count, "dresidual") : poisoned_floats(dev, count);
    double *want = around ? widen(dev, dx, count) : reference(dev, count);

    for (size_t i = 0; i < count; i++)
        want[i] += p->dx[i];
    device_kernels(dev)->layernorm_backward(dev, &(struct layernorm_backward){.rows = p->rows,
                                                                              .cols = p->cols,
                                                                              .dy = dy,
                                                                              .sum = sum,
                                                                              .gamma = forward->gamma,
                                                                              .dresidual = around ? dx : NULL,
                                                                              .mean = forward->mean,
                                                                              .rstd = forward->rstd,
                                                                              .dx = dx,
                                                                              .dgamma = dgamma,
                                                                              .dbeta = dbeta});
    if (p->cols > 1) { /* one column: all gradients of x are 0 but for rounding */
        expect_close("dx", dx, want, count, 1e-5);
        expect_close("dgamma", dgamma, p->dgamma, p->cols, 2e-5);
    }
    expect_close("dbeta", dbeta, p->dbeta, p->cols, 1e-5);
    if (!around && p->rows <= 7 && p->cols > 1)
        compare_differences(p, dx, dgamma, dbeta);
}

static void check_shape(struct device *dev, int rows, int cols, bool residual)
{
    size_t count = (size_t)rows * cols;
    float *x = data(dev, count, "x"), *r = data(dev, count, "residual"), *dy = random_floats(dev, count, "dy");
    float *gamma = random_floats(dev, cols, "gamma"), *beta = random_floats(dev, cols, "beta");
    float *sum = poisoned_floats(dev, count), *y = poisoned_floats(dev, count);
    float *mean = poisoned_floats(dev, rows), *rstd = poisoned_floats(dev, rows);
    struct layernorm op = {.rows = rows,
                           .cols = cols,
                           .x = x,
                           .residual = residual ? r : NULL,
                           .gamma = gamma,
                           .beta = beta,
                           .sum = residual ? sum : NULL,
                           .y = y,
                           .mean = mean,
                           .rstd = rstd};
    struct plain p;

    device_kernels(dev)->layernorm_forward(dev, &op);
    if (residual) {
        double *want = widen(dev, x, count);

        for (size_t i = 0; i < count; i++)
            want[i] += r[i];
        expect_close("sum", sum, want, count, 1e-6);
    }
    p = make_plain(dev, rows, cols, residual ? sum : x, gamma, beta, dy);
    expect_close("y", y, p.y, count, 1e-5);
    expect_close("mean", mean, p.mean, rows, 1e-6);
    expect_close("rstd", rstd, p.rstd, rows, 1e-5);
    check_backward(dev, &p, &op, residual ? sum : x, dy, residual);
}

static void check_plain(struct device *dev)
{
    check_shape(dev, shapes[0][0], shapes[0][1], false);
    check_shape(dev, shapes[2][0], shapes[2][1], false);
}

static void check_each(bool residual)
{
    static const char *const isas[] = {"baseline", "avx2", "avx512"};

    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int i = 0; i < 6; i++) {
            struct device *dev = make_device(isas[i / 2], 1 + i % 2);

            if (!dev)
                continue;
            check_shape(dev, shapes[s][0], shapes[s][1], residual);
            finish_device(dev);
        }
}

static void test_without_residual(void **state)
{
    (void)state;
    check_each(false);
}

static void test_with_residual(void **state)
{
    (void)state;
    check_each(true);
}

/* Two calls on one device: what the first left in the working memory must not be seen by the second. */
static void test_twice(void **state)
{
    (void)state;
    each_device(check_plain);
}

static void check_bias(struct device *dev)
{
    static const int rows_cols[][2] = {{1, 1}, {7, 20}, {65, 300}, {700, 48}};

    for (size_t s = 0; s < sizeof rows_cols / sizeof *rows_cols; s++) {
        int rows = rows_cols[s][0], n = rows_cols[s][1];
        float *dy = random_floats(dev, (size_t)rows * n, "dy"), *db = poisoned_floats(dev, n);
        double *want = reference(dev, n);

        for (int row = 0; row < rows; row++)
            for (int i = 0; i < n; i++)
                want[i] += dy[(size_t)row * n + i];
        device_kernels(dev)->bias_backward(dev, DTYPE_F32, db, dy, rows, n, false);
        expect_close("db", db, want, n, 1e-5);
    }
}

static void test_bias_backward(void **state)
{
    (void)state;
    each_device(check_bias);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_without_residual),
        cmocka_unit_test(test_with_residual),
        cmocka_unit_test(test_twice),
        cmocka_unit_test(test_bias_backward),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
