#include "tests/kernels/harness.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Rows with and without target, padding columns, and a vocabulary split between ranks as tensor parallelism does. */

struct shape {
    int rows, vocab, stride;
};

static const struct shape shapes[] = {{1, 1, 1}, {7, 20, 32}, {65, 100, 100}, {3, 5000, 5008}, {2, 4097, 4100}};

#define SCALE 0.25f

struct row_buffers {
    float *max, *sum, *target, *loss;
};

static struct row_buffers make_rows(struct device *dev, int rows)
{
    return (struct row_buffers){poisoned_floats(dev, rows), poisoned_floats(dev, rows), poisoned_floats(dev, rows),
                                poisoned_floats(dev, rows)};
}

static struct cross_entropy make_op(struct shape s, const int32_t *targets, float *logits, struct row_buffers r)
{
    return (struct cross_entropy){.rows = s.rows,
                                  .vocab = s.vocab,
                                  .stride = s.stride,
                                  .targets = targets,
                                  .logits = logits,
                                  .max = r.max,
                                  .sum = r.sum,
                                  .target = r.target,
                                  .loss = r.loss,
                                  .scale = SCALE};
}

/* Every third row is masked. */
static int32_t *make_targets(struct device *dev, struct shape s)
{
    int32_t *targets = int_buffer(dev, s.rows);

    for (int row = 0; row < s.rows; row++)
        targets[row] = row % 3 == 2 ? -1 - row % 2 * 99 : row * 7919 % s.vocab;
    return targets;
}

struct plain {
    struct shape s;
    const int32_t *targets;
    double *logits, *loss, *gradient; /* logits and gradient [rows, stride] */
};

static double row_loss(const struct plain *p, int row, double *max, double *sum)
{
    const double *x = p->logits + (size_t)row * p->s.stride;

    *max = x[0];
    for (int i = 0; i < p->s.vocab; i++)
        *max = fmax(*max, x[i]);
    *sum = 0;
    for (int i = 0; i < p->s.vocab; i++)
        *sum += exp(x[i] - *max);
    return p->targets[row] < 0 ? 0 : log(*sum) + *max - x[p->targets[row]];
}

static struct plain make_plain(struct device *dev, struct shape s, const int32_t *targets, const float *logits)
{
    size_t count = (size_t)s.rows * s.stride;
    struct plain p = {s, targets, reference(dev, count), reference(dev, s.rows), reference(dev, count)};

    for (size_t i = 0; i < count; i++)
        p.logits[i] = logits[i];
    for (int row = 0; row < s.rows; row++) {
        double max, sum;

        p.loss[row] = row_loss(&p, row, &max, &sum);
        for (int i = 0; i < s.vocab && targets[row] >= 0; i++) {
            size_t at = (size_t)row * s.stride + i;

            p.gradient[at] = (exp(p.logits[at] - max) / sum - (i == targets[row])) * SCALE;
        }
    }
    return p;
}

/* Padding columns hold NaN: whoever counts them is found out. */
static float *make_logits(struct device *dev, struct shape s, float spread)
{
    float *logits = random_floats(dev, (size_t)s.rows * s.stride, "logits");

    for (int row = 0; row < s.rows; row++)
        for (int i = 0; i < s.stride; i++) {
            float *x = logits + (size_t)row * s.stride + i;

            *x = i < s.vocab ? *x * spread : NAN;
        }
    return logits;
}

static double total_loss(const void *arg)
{
    const struct plain *p = arg;
    double total = 0, max, sum;

    for (int row = 0; row < p->s.rows; row++)
        total += row_loss(p, row, &max, &sum) * SCALE;
    return total;
}

static void compare_differences(const struct plain *p, const float *logits)
{
    size_t count = (size_t)p->s.rows * p->s.stride;
    double *want = calloc(count, sizeof *want);

    for (size_t i = 0; i < count; i++)
        if (i % p->s.stride < (size_t)p->s.vocab)
            want[i] = slope(total_loss, p, &p->logits[i]);
    expect_close("gradient by differences", logits, want, count, 1e-5);
    free(want);
}

static void check_shape(struct device *dev, struct shape s, float spread)
{
    float *logits = make_logits(dev, s, spread);
    int32_t *targets = make_targets(dev, s);
    struct row_buffers r = make_rows(dev, s.rows);
    struct cross_entropy op = make_op(s, targets, logits, r);
    struct plain p = make_plain(dev, s, targets, logits);

    device_kernels(dev)->cross_entropy_stats(dev, &op);
    for (int row = 0; row < s.rows; row++) {
        double max, sum;

        row_loss(&p, row, &max, &sum);
        assert_true(r.max[row] == max);
        assert_true(fabs(r.sum[row] - sum) <= 1e-5 * sum);
        assert_true(r.target[row] == (targets[row] < 0 ? 0 : logits[(size_t)row * s.stride + targets[row]]));
    }
    device_kernels(dev)->cross_entropy_finish(dev, &op);
    for (int row = 0; row < s.rows; row++)
        if (!(fabs(r.loss[row] - p.loss[row]) <= 1e-5 * (1 + fabs(p.loss[row]) + spread)))
            fail_msg("loss[%d] is %.9g, should be %.9g", row, r.loss[row], p.loss[row]);
    if (s.vocab > 1)
        expect_close("gradient", logits, p.gradient, (size_t)s.rows * s.stride, 1e-5 * spread);
    if (s.rows * s.vocab <= 140 && s.vocab > 1 && spread == 1)
        compare_differences(&p, logits);
}

static void check_spread(float spread)
{
    static const char *const isas[] = {"baseline", "avx2", "avx512"};

    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int i = 0; i < 6; i++) {
            struct device *dev = make_device(isas[i / 2], 1 + i % 2);

            if (!dev)
                continue;
            check_shape(dev, shapes[s], spread);
            finish_device(dev);
        }
}

static void test_against_float64(void **state)
{
    (void)state;
    check_spread(1);
}

/* Logits in the hundreds, which exp alone would not survive. */
static void test_large_logits(void **state)
{
    (void)state;
    check_spread(100);
}

/* What ranks do between the passes: the greatest max, and sums rescaled to it. */
static void combine(struct row_buffers *a, struct row_buffers *b, int rows)
{
    for (int row = 0; row < rows; row++) {
        float max = fmaxf(a->max[row], b->max[row]);
        float sum = a->sum[row] * expf(a->max[row] - max) + b->sum[row] * expf(b->max[row] - max);

        a->max[row] = b->max[row] = max;
        a->sum[row] = b->sum[row] = sum;
        a->target[row] = b->target[row] = a->target[row] + b->target[row];
    }
}

/* Two slices of 33 and 17 columns give what the 50 columns give. */
static void check_slices(struct device *dev)
{
    struct shape whole = {9, 50, 50}, first = {9, 33, 34}, second = {9, 17, 40};
    float *logits = make_logits(dev, whole, 1), *x = poisoned_floats(dev, 9 * 34), *y = poisoned_floats(dev, 9 * 40);
    int32_t *targets = make_targets(dev, whole);
    struct row_buffers rx = make_rows(dev, 9), ry = make_rows(dev, 9);
    struct cross_entropy op_x = make_op(first, targets, x, rx), op_y = make_op(second, targets, y, ry);
    struct plain p = make_plain(dev, whole, targets, logits);

    op_y.vocab_first = 33;
    for (int row = 0; row < 9; row++) {
        memcpy(x + row * 34, logits + row * 50, 33 * sizeof *x);
        memcpy(y + row * 40, logits + row * 50 + 33, 17 * sizeof *y);
    }
    device_kernels(dev)->cross_entropy_stats(dev, &op_x);
    device_kernels(dev)->cross_entropy_stats(dev, &op_y);
    combine(&rx, &ry, 9);
    device_kernels(dev)->cross_entropy_finish(dev, &op_x);
    device_kernels(dev)->cross_entropy_finish(dev, &op_y);
    expect_close("loss", rx.loss, p.loss, 9, 1e-5);
    expect_same("loss of both slices", rx.loss, ry.loss, 9 * sizeof(float));
    for (int row = 0; row < 9; row++) {
        double padding[23] = {0};

        expect_close("first slice", x + row * 34, p.gradient + row * 50, 33, 1e-5);
        expect_close("second slice", y + row * 40, p.gradient + row * 50 + 33, 17, 1e-5);
        expect_close("padding", x + row * 34 + 33, padding, 1, 0);
        expect_close("padding", y + row * 40 + 17, padding, 23, 0);
    }
}

static void test_slices(void **state)
{
    (void)state;
    each_device(check_slices);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_float64),
        cmocka_unit_test(test_large_logits),
        cmocka_unit_test(test_slices),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
