#include "tests/kernels/harness.h"

#include <math.h>

/* Rows with and without target, padding columns, and a vocabulary split between ranks as tensor parallelism does. */

struct shape {
    int rows, vocab, stride;
};

static const struct shape shapes[] = {{1, 1, 1},       {7, 20, 32},     {65, 100, 100},
                                      {3, 5000, 5008}, {2, 4097, 4100}, {2, 45003, 45008}};

#define SCALE 0.25f

struct row_buffers {
    float *max, *sum, *target, *loss;
};

static struct row_buffers make_rows(struct device *dev, int rows)
{
    return (struct row_buffers){poisoned_floats(dev, rows), poisoned_floats(dev, rows), poisoned_floats(dev, rows),
                                poisoned_floats(dev, rows)};
}

static struct cross_entropy make_op(struct shape s, const int32_t *targets, struct tensor logits, struct row_buffers r)
{
    return (struct cross_entropy){.rows = s.rows,
                                  .vocab = s.vocab,
                                  .stride = s.stride,
                                  .targets = targets,
                                  .dtype = logits.dtype,
                                  .logits = logits.at,
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

static struct plain make_plain(struct device *dev, struct shape s, const int32_t *targets, struct tensor logits)
{
    size_t count = (size_t)s.rows * s.stride;
    struct plain p = {s, targets, tensor_values(dev, logits), reference(dev, s.rows), reference(dev, count)};

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
static struct tensor make_logits(struct device *dev, enum dtype dtype, struct shape s, double spread)
{
    struct tensor logits = random_tensor(dev, dtype, (size_t)s.rows * s.stride, "logits");

    for (size_t i = 0; i < logits.count; i++)
        tensor_set(logits, i, i % s.stride < (size_t)s.vocab ? tensor_get(logits, i) * spread : (double)NAN);
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

static void compare_differences(const struct plain *p, struct tensor logits)
{
    size_t count = (size_t)p->s.rows * p->s.stride;
    double *want = calloc(count, sizeof *want);

    for (size_t i = 0; i < count; i++)
        if (i % p->s.stride < (size_t)p->s.vocab)
            want[i] = slope(total_loss, p, &p->logits[i]);
    expect_rounded("gradient by differences", logits, want, count, 1e-5);
    free(want);
}

static void check_stats(const struct plain *p, struct row_buffers r)
{
    for (int row = 0; row < p->s.rows; row++) {
        double max, sum, target = p->targets[row] < 0 ? 0 : p->logits[(size_t)row * p->s.stride + p->targets[row]];

        row_loss(p, row, &max, &sum);
        assert_true(r.max[row] == max);
        assert_true(fabs(r.sum[row] - sum) <= 1e-5 * sum);
        assert_true(r.target[row] == target);
    }
}

static void check_way(struct device *dev, enum dtype dtype, struct shape s, double spread, bool at_once)
{
    struct tensor logits = make_logits(dev, dtype, s, spread);
    int32_t *targets = make_targets(dev, s);
    struct row_buffers r = make_rows(dev, s.rows);
    struct cross_entropy op = make_op(s, targets, logits, r);
    struct plain p = make_plain(dev, s, targets, logits);

    if (at_once) {
        device_kernels(dev)->cross_entropy(dev, &op);
        check_stats(&p, r);
    } else {
        device_kernels(dev)->cross_entropy_stats(dev, &op);
        check_stats(&p, r);
        device_kernels(dev)->cross_entropy_finish(dev, &op);
    }
    for (int row = 0; row < s.rows; row++)
        if (!(fabs(r.loss[row] - p.loss[row]) <= 1e-5 * (1 + fabs(p.loss[row]) + spread)))
            fail_msg("loss[%d] is %.9g, should be %.9g", row, r.loss[row], p.loss[row]);
    if (s.vocab > 1)
        expect_rounded("gradient", logits, p.gradient, (size_t)s.rows * s.stride, 1e-5 * spread);
    if (s.rows * s.vocab <= 140 && s.vocab > 1 && spread == 1)
        compare_differences(&p, logits);
    finish_buffers(dev);
}

static void check_shape(struct device *dev, enum dtype dtype, struct shape s, double spread)
{
    check_way(dev, dtype, s, spread, false);
    check_way(dev, dtype, s, spread, true);
}

static void check_against_float64(struct device *dev, enum dtype dtype)
{
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        check_shape(dev, dtype, shapes[s], 1);
}

static void test_against_float64(void **state)
{
    each_device_and_type(check_against_float64);
}

/* Logits in the hundreds, which exp alone would not survive. */
static void check_large_logits(struct device *dev, enum dtype dtype)
{
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        check_shape(dev, dtype, shapes[s], 100);
}

static void test_large_logits(void **state)
{
    each_device_and_type(check_large_logits);
}

/* Where the model is sure of its target, the gradient there is p - 1, far below 1's last bit: it must not be 0. */
static void check_sure(struct device *dev, enum dtype dtype)
{
    struct shape s = {1, 2, 2};
    struct tensor logits = poisoned_tensor(dev, dtype, 2);
    int32_t *targets = int_buffer(dev, 1);
    struct row_buffers r = make_rows(dev, 1);
    struct cross_entropy op = make_op(s, targets, logits, r);
    double want[2] = {SCALE / (1 + exp(8)) * -1, SCALE / (1 + exp(8))};

    targets[0] = 0;
    tensor_set(logits, 0, 8);
    tensor_set(logits, 1, 0);
    device_kernels(dev)->cross_entropy_stats(dev, &op);
    device_kernels(dev)->cross_entropy_finish(dev, &op);
    expect_rounded("gradient", logits, want, 2, 1e-3);
}

static void test_sure(void **state)
{
    each_device_and_type(check_sure);
}

/* Three slices, of 33, 0 and 17 columns, give what the 50 columns give. */
#define SLICES 3
#define WHOLE  ((struct shape){9, 50, 50})

static const struct {
    int first;
    struct shape s;
} slices[SLICES] = {{0, {9, 33, 34}}, {33, {9, 0, 8}}, {33, {9, 17, 40}}};

/* stats [SLICES][3][rows], as the ranks would gather them. */
static void combine(struct device *dev, struct row_buffers r[SLICES])
{
    float *stats = poisoned_floats(dev, SLICES * 3 * 9);
    struct cross_entropy_combine op = {.rows = 9, .parts = SLICES, .stats = stats};

    for (int i = 0; i < SLICES; i++) {
        memcpy(stats + (i * 3 + 0) * 9, r[i].max, 9 * sizeof(float));
        memcpy(stats + (i * 3 + 1) * 9, r[i].sum, 9 * sizeof(float));
        memcpy(stats + (i * 3 + 2) * 9, r[i].target, 9 * sizeof(float));
    }
    for (int i = 0; i < SLICES; i++) {
        op.max = r[i].max;
        op.sum = r[i].sum;
        op.target = r[i].target;
        device_kernels(dev)->cross_entropy_combine(dev, &op);
    }
}

static void check_slices(struct device *dev, enum dtype dtype)
{
    struct tensor logits = make_logits(dev, dtype, WHOLE, 1), x[SLICES];
    int32_t *targets = make_targets(dev, WHOLE);
    struct row_buffers r[SLICES];
    struct cross_entropy op[SLICES];
    struct plain p = make_plain(dev, WHOLE, targets, logits);

    for (int i = 0; i < SLICES; i++) {
        x[i] = poisoned_tensor(dev, dtype, (size_t)9 * slices[i].s.stride);
        r[i] = make_rows(dev, 9);
        op[i] = make_op(slices[i].s, targets, x[i], r[i]);
        op[i].vocab_first = slices[i].first;
        for (int row = 0; row < 9; row++)
            for (int col = 0; col < slices[i].s.vocab; col++)
                tensor_set(x[i], row * slices[i].s.stride + col, tensor_get(logits, row * 50 + slices[i].first + col));
        device_kernels(dev)->cross_entropy_stats(dev, &op[i]);
    }
    assert_true(r[1].max[0] == -INFINITY && r[1].sum[0] == 0 && r[1].target[0] == 0);
    combine(dev, r);
    check_stats(&p, r[0]);
    for (int i = 0; i < SLICES; i++) {
        device_kernels(dev)->cross_entropy_finish(dev, &op[i]);
        expect_same("loss of all slices", r[i].loss, r[0].loss, 9 * sizeof(float));
    }
    expect_close("loss", r[0].loss, p.loss, 9, 1e-5);
    for (int i = 0; i < SLICES; i++)
        for (int row = 0; row < 9; row++) {
            int vocab = slices[i].s.vocab, stride = slices[i].s.stride;
            struct tensor got = tensor_from(x[i], row * stride);
            double padding[40] = {0};

            if (vocab)
                expect_rounded("slice", got, p.gradient + row * 50 + slices[i].first, vocab, 1e-5);
            expect_rounded("padding", tensor_from(got, vocab), padding, stride - vocab, 0);
        }
}

static void test_slices(void **state)
{
    each_device_and_type(check_slices);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_float64),
        cmocka_unit_test(test_large_logits),
        cmocka_unit_test(test_sure),
        cmocka_unit_test(test_slices),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
