#include "tests/kernels/harness.h"

#include <math.h>

/* AdamW and the sum of squares that clips its gradients. */

#define STEPS 3

static struct adamw hyper(int step)
{
    return (struct adamw){.grad_scale = 0.5f,
                          .lr = 1e-2f,
                          .beta1 = 0.9f,
                          .beta2 = 0.95f,
                          .eps = 1e-8f,
                          .weight_decay = 0.1f,
                          .bias1 = 1 - powf(0.9f, step),
                          .bias2 = 1 - powf(0.95f, step)};
}

static void plain_step(const struct adamw *op, double *p, double *m, double *v, const float *grad, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        double g = grad[i] * op->grad_scale;

        m[i] = op->beta1 * m[i] + (1.0 - op->beta1) * g;
        v[i] = op->beta2 * v[i] + (1.0 - op->beta2) * g * g;
        p[i] -= op->lr * (m[i] / op->bias1 / (sqrt(v[i] / op->bias2) + op->eps) + op->weight_decay * p[i]);
    }
}

static void check_count(struct device *dev, size_t count)
{
    float *param = random_floats(dev, count, "param"), *grad = random_floats(dev, count, "grad");
    float *m = poisoned_floats(dev, count), *v = poisoned_floats(dev, count);
    double *want = reference(dev, count), *want_m = reference(dev, count), *want_v = reference(dev, count);

    for (size_t i = 0; i < count; i++)
        want[i] = param[i];
    memset(m, 0, count * sizeof *m);
    memset(v, 0, count * sizeof *v);
    for (int step = 1; step <= STEPS; step++) {
        struct adamw op = hyper(step);

        op.count = count;
        op.param = param;
        op.exp_avg = m;
        op.exp_avg_sq = v;
        op.grad = grad;
        device_kernels(dev)->adamw(dev, &op, 1);
        plain_step(&op, want, want_m, want_v, grad, count);
    }
    expect_close("param", param, want, count, 1e-6);
    expect_close("exp_avg", m, want_m, count, 1e-6);
    expect_close("exp_avg_sq", v, want_v, count, 1e-6);
}

static void check_adamw(struct device *dev)
{
    static const size_t counts[] = {1, 7, 16, 65, 4096, 10007};

    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        check_count(dev, counts[i]);
}

/* The copy is the new parameters, rounded, and they are what they are without it. Odd sizes; nothing beyond. */
static void check_copy(struct device *dev, enum dtype dtype)
{
    static const size_t counts[] = {1, 7, 65, 10007};

    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        size_t count = counts[c];
        float *param[2], *grad = random_floats(dev, count, "grad");
        struct tensor copy = poisoned_tensor(dev, dtype, count);

        for (int with = 0; with < 2; with++) {
            struct adamw op = hyper(1);

            op.count = count;
            op.param = param[with] = random_floats(dev, count, "param");
            op.exp_avg = random_floats(dev, count, "exp_avg");
            op.exp_avg_sq = random_floats(dev, count, "exp_avg_sq");
            for (size_t i = 0; i < count; i++)
                op.exp_avg_sq[i] = fabsf(op.exp_avg_sq[i]);
            op.grad = grad;
            op.copy = with ? copy.at : NULL;
            op.copy_dtype = dtype;
            device_kernels(dev)->adamw(dev, &op, 1);
        }
        expect_same("param", param[1], param[0], count * sizeof(float));
        for (size_t i = 0; i < count; i++)
            assert_true(tensor_get(copy, i) == rounded(dtype, param[0][i]));
    }
}

static void test_copy(void **state)
{
    each_device_and_type(check_copy);
}

static void test_adamw(void **state)
{
    each_device(check_adamw);
}

/* A buffer updated whole, and in pieces cut anywhere, as ranks that share it would: the same bits. The pieces are more
 * than a GPU takes at once, and one is empty. */
static void check_position(struct device *dev)
{
    enum { PIECES = 33 };
    size_t count = 1000;
    float *all[4], *piece[4];
    struct adamw whole = hyper(2), pieces[PIECES];

    for (int i = 0; i < 4; i++) {
        all[i] = random_floats(dev, count, i ? "state" : "param");
        for (size_t j = 0; i == 2 && j < count; j++)
            all[i][j] = fabsf(all[i][j]);
        piece[i] = poisoned_floats(dev, count);
        memcpy(piece[i], all[i], count * sizeof(float));
    }
    whole.count = count;
    whole.param = all[0];
    whole.exp_avg = all[1];
    whole.exp_avg_sq = all[2];
    whole.grad = all[3];
    device_kernels(dev)->adamw(dev, &whole, 1);
    for (size_t c = 0; c < PIECES; c++) {
        size_t first = c == 0 ? 0 : (c - 1) * (c - 1), end = c < PIECES - 1 ? c * c : count;

        pieces[c] = hyper(2);
        pieces[c].count = end - first;
        pieces[c].param = piece[0] + first;
        pieces[c].exp_avg = piece[1] + first;
        pieces[c].exp_avg_sq = piece[2] + first;
        pieces[c].grad = piece[3] + first;
    }
    device_kernels(dev)->adamw(dev, pieces, PIECES);
    for (int i = 0; i < 4; i++)
        expect_same("pieces", piece[i], all[i], count * sizeof(float));
}

static void test_position(void **state)
{
    each_device(check_position);
}

static double sum_one(struct device *dev, const float *x, size_t count)
{
    double result = NAN;

    device_kernels(dev)->sum_of_squares(dev, &result, &(struct squares){x, count}, 1);
    return result;
}

static void check_squares(struct device *dev)
{
    static const size_t counts[] = {1, 15, 4095, 4096, 4097, 100003};

    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        float *x = random_floats(dev, counts[c], "x");
        double want = 0;

        for (size_t i = 0; i < counts[c]; i++)
            want += (double)x[i] * x[i];
        assert_true(fabs(sum_one(dev, x, counts[c]) - want) <= 1e-12 * want);
        x[counts[c] / 2] = NAN;
        assert_true(isnan(sum_one(dev, x, counts[c])));
        x[counts[c] / 2] = INFINITY;
        assert_true(isinf(sum_one(dev, x, counts[c])));
        x[counts[c] / 2] = 1e30f; /* whose square is beyond fp32 */
        assert_true(fabs(sum_one(dev, x, counts[c]) - 1e60) <= 1e54);
    }
    assert_true(sum_one(dev, NULL, 0) == 0);
}

/* The arrays' own sums, added in their order: more of them than a GPU takes at once. */
static void check_arrays(struct device *dev)
{
    enum { ARRAYS = 150, STRIDE = 4100 };
    const float *x = random_floats(dev, (size_t)ARRAYS * STRIDE, "x");
    struct squares arrays[ARRAYS];
    double want = 0, result = NAN;

    for (size_t i = 0; i < ARRAYS; i++) {
        arrays[i] = (struct squares){x + i * STRIDE + i % 3, i % 7 == 3 ? 0 : i % 5 == 0 ? i : STRIDE - i};
        want += sum_one(dev, arrays[i].x, arrays[i].count);
    }
    device_kernels(dev)->sum_of_squares(dev, &result, arrays, ARRAYS);
    expect_same("arrays", &result, &want, sizeof result);
}

static void test_sum_of_squares(void **state)
{
    each_device(check_squares);
    each_device(check_arrays);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_adamw),
        cmocka_unit_test(test_copy),
        cmocka_unit_test(test_position),
        cmocka_unit_test(test_sum_of_squares),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
