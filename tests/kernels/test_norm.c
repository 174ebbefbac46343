#include "tests/kernels/harness.h"

#include <math.h>

/* LayerNorm and RMSNorm alone and with residual, bias and dropout, its backward pass by formula and by differences, column sums. */

static const int shapes[][2] = {{1, 1}, {1, 16}, {7, 20}, {65, 100}, {65, 256}, {700, 33}};

struct plain {
    int rows, cols;
    bool rms;                      /* no mean, no beta */
    double *x, *gamma, *beta, *dy; /* x: with the residual added */
    double *y, *mean, *rstd, *dx, *dgamma, *dbeta;
};

static void forward_row(const struct plain *p, int row)
{
    const double *x = p->x + (size_t)row * p->cols;
    double mean = 0, variance = 0;

    for (int i = 0; i < p->cols && !p->rms; i++)
        mean += x[i] / p->cols;
    for (int i = 0; i < p->cols; i++)
        variance += (x[i] - mean) * (x[i] - mean) / p->cols;
    p->mean[row] = mean;
    p->rstd[row] = 1 / sqrt(variance + 1e-5);
    for (int i = 0; i < p->cols; i++)
        p->y[(size_t)row * p->cols + i] = (x[i] - mean) * p->rstd[row] * p->gamma[i] + (p->rms ? 0 : p->beta[i]);
}

static void backward_row(const struct plain *p, int row)
{
    double *dx = p->dx + (size_t)row * p->cols;
    double g_mean = 0, gx_mean = 0;

    for (int i = 0; i < p->cols; i++) {
        size_t at = (size_t)row * p->cols + i;
        double xhat = (p->x[at] - p->mean[row]) * p->rstd[row];

        if (!p->rms)
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

static void compare_differences(const struct plain *p, struct tensor dx, const float *dgamma, const float *dbeta)
{
    size_t count = (size_t)p->rows * p->cols;
    double *want = malloc((count + 2 * p->cols) * sizeof *want);

    for (size_t i = 0; i < count; i++)
        want[i] = slope(loss, p, &p->x[i]);
    for (int i = 0; i < p->cols; i++) {
        want[count + i] = slope(loss, p, &p->gamma[i]);
        want[count + p->cols + i] = slope(loss, p, &p->beta[i]);
    }
    expect_rounded("dx by differences", dx, want, count, 1e-5);
    expect_close("dgamma by differences", dgamma, want + count, p->cols, 1e-5);
    if (!p->rms)
        expect_close("dbeta by differences", dbeta, want + count + p->cols, p->cols, 1e-5);
    free(want);
}

/* Data with a mean of its own, which the variance must not drown in. */
static struct tensor data(struct device *dev, enum dtype dtype, size_t count, const char *name)
{
    struct tensor x = random_tensor(dev, dtype, count, name);

    for (size_t i = 0; i < count; i++)
        tensor_set(x, i, tensor_get(x, i) * 2 + 3);
    return x;
}

/* What one call is given and yields. */
struct call {
    struct tensor x, residual, bias, gamma, beta, dy, sum, y;
    float *mean, *rstd;
    struct norm op;
};

/* DROPOUT: with residual and bias. The last two are RMSNorms, RMS_RESIDUAL with a residual. */
enum variant { PLAIN, RESIDUAL, DROPOUT, RMS, RMS_RESIDUAL, VARIANTS };

static struct call make_call(struct device *dev, enum dtype dtype, int rows, int cols, enum variant variant)
{
    size_t count = (size_t)rows * cols;
    bool alone = variant == PLAIN || variant == RMS, rms = variant >= RMS;
    struct call c = {
        .x = data(dev, dtype, count, "x"),
        .residual = data(dev, dtype, count, "residual"),
        .bias = random_tensor(dev, dtype, cols, "bias"),
        .gamma = random_tensor(dev, dtype, cols, "gamma"),
        .beta = random_tensor(dev, dtype, cols, "beta"),
        .dy = random_tensor(dev, dtype, count, "dy"),
        .sum = poisoned_tensor(dev, dtype, count),
        .y = poisoned_tensor(dev, dtype, count),
        .mean = poisoned_floats(dev, rows),
        .rstd = poisoned_floats(dev, rows),
    };

    c.op = (struct norm){.eps = 1e-5f,
                         .rows = rows,
                         .cols = cols,
                         .dtype = dtype,
                         .x = c.x.at,
                         .branch = alone ? NULL : c.residual.at,
                         .bias = variant == DROPOUT ? c.bias.at : NULL,
                         .gamma = c.gamma.at,
                         .beta = rms ? NULL : c.beta.at,
                         .sum = alone ? NULL : c.sum.at,
                         .y = c.y.at,
                         .mean = rms ? NULL : c.mean,
                         .rstd = c.rstd};
    if (variant == DROPOUT)
        c.op.dropout = (struct dropout){.p = 0.3, .stream = {7, 8, 9}, .first = 1000000007};
    return c;
}

static double *expected_sum(struct device *dev, const struct call *c)
{
    double *want = tensor_values(dev, c->x);

    for (size_t i = 0; i < c->x.count; i++) {
        double added = tensor_get(c->residual, i) + (c->op.bias ? tensor_get(c->bias, i % c->op.cols) : 0);

        if (dropout_keeps(&c->op.dropout, c->op.dropout.first + i))
            want[i] += added * dropout_factor(&c->op.dropout);
    }
    return want;
}

/* From the device's own sum, whose rounding is checked apart. */
static struct plain make_plain(struct device *dev, const struct call *c)
{
    struct plain p = {
        .rows = c->op.rows,
        .cols = c->op.cols,
        .rms = !c->op.mean,
        .x = tensor_values(dev, c->op.branch ? c->sum : c->x),
        .gamma = tensor_values(dev, c->gamma),
        .beta = tensor_values(dev, c->beta),
        .dy = tensor_values(dev, c->dy),
        .y = reference(dev, c->x.count),
        .mean = reference(dev, c->op.rows),
        .rstd = reference(dev, c->op.rows),
        .dx = reference(dev, c->x.count),
        .dgamma = reference(dev, c->op.cols),
        .dbeta = reference(dev, c->op.cols),
    };

    for (int row = 0; row < p.rows; row++) {
        forward_row(&p, row);
        backward_row(&p, row);
    }
    return p;
}

static void check_backward(struct device *dev, const struct plain *p, const struct call *c)
{
    size_t count = c->x.count;
    float *dgamma = poisoned_floats(dev, p->cols), *dbeta = poisoned_floats(dev, p->cols);
    bool around = c->op.branch;
    struct tensor dx =
        around ? random_tensor(dev, c->op.dtype, count, "dresidual") : poisoned_tensor(dev, c->op.dtype, count);
    double *want = around ? tensor_values(dev, dx) : reference(dev, count);

    for (size_t i = 0; i < count; i++)
        want[i] += p->dx[i];
    device_kernels(dev)->norm_backward(dev, &(struct norm_backward){.rows = p->rows,
                                                                    .cols = p->cols,
                                                                    .dtype = c->op.dtype,
                                                                    .dy = c->dy.at,
                                                                    .sum = around ? c->sum.at : c->x.at,
                                                                    .gamma = c->gamma.at,
                                                                    .dresidual = around ? dx.at : NULL,
                                                                    .mean = c->op.mean,
                                                                    .rstd = c->rstd,
                                                                    .dx = dx.at,
                                                                    .dgamma = dgamma,
                                                                    .dbeta = p->rms ? NULL : dbeta});
    if (p->cols > 1) { /* one column: all gradients of x are 0 but for rounding */
        expect_rounded("dx", dx, want, count, 1e-5);
        expect_close("dgamma", dgamma, p->dgamma, p->cols, 2e-5);
    }
    if (p->rms)
        expect_untouched("dbeta", dbeta, p->cols);
    else
        expect_close("dbeta", dbeta, p->dbeta, p->cols, 1e-5);
    if (!around && p->rows <= 7 && p->cols > 1)
        compare_differences(p, dx, dgamma, dbeta);
}

static void check_shape(struct device *dev, enum dtype dtype, int rows, int cols, enum variant variant)
{
    struct call c = make_call(dev, dtype, rows, cols, variant);
    struct plain p;

    device_kernels(dev)->norm_forward(dev, &c.op);
    if (!c.op.branch)
        expect_tensor_untouched("sum", c.sum, c.sum.count);
    else
        expect_rounded("sum", c.sum, expected_sum(dev, &c), c.sum.count, 1e-6);
    p = make_plain(dev, &c);
    expect_rounded("y", c.y, p.y, c.y.count, 1e-5);
    if (p.rms)
        expect_untouched("mean", c.mean, rows);
    else
        expect_close("mean", c.mean, p.mean, rows, 1e-6);
    expect_close("rstd", c.rstd, p.rstd, rows, 1e-5);
    check_backward(dev, &p, &c);
    finish_buffers(dev);
}

/* On one device, one after the other: what a call left in the working memory must not be seen by the next. */
static void check_forward_and_backward(struct device *dev, enum dtype dtype)
{
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int variant = PLAIN; variant < VARIANTS; variant++)
            check_shape(dev, dtype, shapes[s][0], shapes[s][1], (enum variant)variant);
}

static void test_forward_and_backward(void **state)
{
    each_device_and_type(check_forward_and_backward);
}

/* The sum alone is that of the norm, bit by bit; also in place, and with nothing to add to. */
static void check_residual(struct device *dev, enum dtype dtype)
{
    const int rows = 33, cols = 37;
    struct call c = make_call(dev, dtype, rows, cols, DROPOUT);
    struct tensor alone = poisoned_tensor(dev, dtype, c.x.count);
    struct residual op = {rows, cols, dtype, c.x.at, c.residual.at, c.bias.at, c.op.dropout, alone.at};
    size_t bytes = c.x.count * dtype_size(dtype);
    double *want;

    device_kernels(dev)->norm_forward(dev, &c.op);
    device_kernels(dev)->residual(dev, &op);
    expect_same("sum", alone.at, c.sum.at, bytes);
    op.x = NULL;
    device_kernels(dev)->residual(dev, &op);
    want = expected_sum(dev, &c);
    for (size_t i = 0; i < c.x.count; i++)
        want[i] -= tensor_get(c.x, i);
    expect_rounded("sum without x", alone, want, c.x.count, 1e-6);
    op.x = c.x.at;
    op.sum = c.residual.at;
    device_kernels(dev)->residual(dev, &op);
    expect_same("sum in place of the residual", c.residual.at, c.sum.at, bytes);
    c.residual = data(dev, dtype, c.x.count, "residual");
    op.branch = c.residual.at;
    op.sum = c.x.at;
    device_kernels(dev)->residual(dev, &op);
    expect_same("sum in place of x", c.x.at, c.sum.at, bytes);
}

static void test_residual(void **state)
{
    each_device_and_type(check_residual);
}

static void check_bias(struct device *dev, enum dtype dtype)
{
    static const int rows_cols[][2] = {{1, 1}, {7, 20}, {65, 300}, {700, 48}};

    for (int s = 0; s < 8; s++) {
        int rows = rows_cols[s / 2][0], n = rows_cols[s / 2][1];
        struct tensor dy = random_tensor(dev, dtype, (size_t)rows * n, "dy");
        float *db = s % 2 ? random_floats(dev, n, "db") : poisoned_floats(dev, n);
        double *want = reference(dev, n);

        for (int i = 0; i < n; i++) {
            want[i] = s % 2 ? db[i] : 0;
            for (int row = 0; row < rows; row++)
                want[i] += tensor_get(dy, (size_t)row * n + i);
        }
        device_kernels(dev)->bias_backward(dev, dtype, db, dy.at, rows, n, s % 2);
        expect_close("db", db, want, n, 1e-5);
    }
}

static void test_bias_backward(void **state)
{
    each_device_and_type(check_bias);
}

/* A rank that has no tokens: its gradients are 0, or nothing is added. */
static void check_no_rows(struct device *dev, enum dtype dtype)
{
    float *dgamma = poisoned_floats(dev, 20), *dbeta = poisoned_floats(dev, 20), *db = poisoned_floats(dev, 20);
    float *added = random_floats(dev, 20, "added"), *before = random_floats(dev, 20, "added");
    struct norm_backward op = {.cols = 20, .dtype = dtype, .dgamma = dgamma, .dbeta = dbeta};
    double zeros[20] = {0};

    device_kernels(dev)->norm_backward(dev, &op);
    op.dbeta = NULL;
    device_kernels(dev)->norm_backward(dev, &op);
    device_kernels(dev)->bias_backward(dev, dtype, db, NULL, 0, 20, false);
    device_kernels(dev)->bias_backward(dev, dtype, added, NULL, 0, 20, true);
    expect_close("dgamma", dgamma, zeros, 20, 0);
    expect_close("dbeta", dbeta, zeros, 20, 0);
    expect_close("db", db, zeros, 20, 0);
    expect_same("db added to", added, before, 20 * sizeof(float));
}

static void test_no_rows(void **state)
{
    each_device_and_type(check_no_rows);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forward_and_backward),
        cmocka_unit_test(test_residual),
        cmocka_unit_test(test_bias_backward),
        cmocka_unit_test(test_no_rows),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
