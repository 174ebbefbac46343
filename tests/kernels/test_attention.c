#include "tests/kernels/harness.h"

#include <math.h>
#include <stdlib.h>

/* Against the textbook form with whole seq x seq matrices in float64, whose gradient is itself held to differences. */

struct shape {
    int batch, seq, heads, head_size;
};

static const struct shape shapes[] = {
    {1, 1, 1, 8}, {2, 5, 2, 20}, {1, 64, 2, 64}, {2, 100, 1, 80}, {1, 200, 2, 64}, {1, 130, 3, 7}, {2, 33, 1, 256},
};

struct plain {
    struct shape s;
    bool causal;
    const int32_t *lengths;
    double *qkv, *dout, *out, *lse, *dqkv;
};

static double *at(const struct plain *x, double *qkv, int batch, int row, int part, int head)
{
    size_t hidden = (size_t)x->s.heads * x->s.head_size;

    return qkv + ((size_t)batch * x->s.seq + row) * 3 * hidden + part * hidden + (size_t)head * x->s.head_size;
}

static size_t out_at(const struct plain *x, int batch, int row, int head)
{
    return (((size_t)batch * x->s.seq + row) * x->s.heads + head) * x->s.head_size;
}

static double dot(const double *x, const double *y, int n)
{
    double sum = 0;

    for (int i = 0; i < n; i++)
        sum += x[i] * y[i];
    return sum;
}

static int keys_of(const struct plain *x, int batch, int row)
{
    int keys = x->lengths && x->lengths[batch] < x->s.seq ? x->lengths[batch] : x->s.seq;

    return x->causal && row + 1 < keys ? row + 1 : keys;
}

/* p[keys] of one query; returns log-sum-exp. */
static double probabilities(const struct plain *x, int batch, int head, int row, double *p)
{
    int keys = keys_of(x, batch, row), n = x->s.head_size;
    double max = -INFINITY, sum = 0;

    for (int j = 0; j < keys; j++) {
        p[j] = dot(at(x, x->qkv, batch, row, 0, head), at(x, x->qkv, batch, j, 1, head), n) / sqrt(n);
        max = fmax(max, p[j]);
    }
    for (int j = 0; j < keys; j++)
        sum += p[j] = exp(p[j] - max);
    for (int j = 0; j < keys; j++)
        p[j] /= sum;
    return keys ? max + log(sum) : -INFINITY;
}

static void forward(const struct plain *x)
{
    double *p = malloc(x->s.seq * sizeof *p);

    for (int batch = 0; batch < x->s.batch; batch++)
        for (int head = 0; head < x->s.heads; head++)
            for (int row = 0; row < x->s.seq; row++) {
                double *out = x->out + out_at(x, batch, row, head);

                x->lse[((size_t)batch * x->s.heads + head) * x->s.seq + row] = probabilities(x, batch, head, row, p);
                for (int d = 0; d < x->s.head_size; d++) {
                    out[d] = 0;
                    for (int j = 0; j < keys_of(x, batch, row); j++)
                        out[d] += p[j] * at(x, x->qkv, batch, j, 2, head)[d];
                }
            }
    free(p);
}

static void backward_row(const struct plain *x, int batch, int head, int row, double *p)
{
    const double *dout = x->dout + out_at(x, batch, row, head), *out = x->out + out_at(x, batch, row, head);
    int n = x->s.head_size;
    double delta = dot(dout, out, n);

    probabilities(x, batch, head, row, p);
    for (int j = 0; j < keys_of(x, batch, row); j++) {
        double ds = p[j] * (dot(dout, at(x, x->qkv, batch, j, 2, head), n) - delta) / sqrt(n);

        for (int d = 0; d < n; d++) {
            at(x, x->dqkv, batch, row, 0, head)[d] += ds * at(x, x->qkv, batch, j, 1, head)[d];
            at(x, x->dqkv, batch, j, 1, head)[d] += ds * at(x, x->qkv, batch, row, 0, head)[d];
            at(x, x->dqkv, batch, j, 2, head)[d] += p[j] * dout[d];
        }
    }
}

static void backward(const struct plain *x)
{
    double *p = malloc(x->s.seq * sizeof *p);

    for (int batch = 0; batch < x->s.batch; batch++)
        for (int head = 0; head < x->s.heads; head++)
            for (int row = 0; row < x->s.seq; row++)
                backward_row(x, batch, head, row, p);
    free(p);
}

static size_t out_count(struct shape s)
{
    return (size_t)s.batch * s.seq * s.heads * s.head_size;
}

static struct plain make_plain(struct device *dev, struct shape s, bool causal, const int32_t *lengths,
                               const float *qkv, const float *dout)
{
    size_t count = out_count(s);
    struct plain x = {
        .s = s,
        .causal = causal,
        .lengths = lengths,
        .qkv = reference(dev, 3 * count),
        .dout = reference(dev, count),
        .out = reference(dev, count),
        .lse = reference(dev, (size_t)s.batch * s.heads * s.seq),
        .dqkv = reference(dev, 3 * count),
    };

    for (size_t i = 0; i < 3 * count; i++)
        x.qkv[i] = qkv[i];
    for (size_t i = 0; i < count; i++)
        x.dout[i] = dout[i];
    return x;
}

static double loss(const void *arg)
{
    const struct plain *x = arg;

    forward(x);
    return dot(x->out, x->dout, (int)out_count(x->s));
}

/* A small shape's gradient, every element, by differences of the forward pass. */
static void compare_differences(const struct plain *x, const float *dqkv)
{
    size_t count = 3 * out_count(x->s);
    double *want = malloc(count * sizeof *want);

    for (size_t i = 0; i < count; i++)
        want[i] = slope(loss, x, &x->qkv[i]);
    expect_close("dqkv by differences", dqkv, want, count, 2e-5);
    free(want);
}

static void compare_lse(const struct plain *x, const float *lse)
{
    for (size_t i = 0; i < (size_t)x->s.batch * x->s.heads * x->s.seq; i++)
        if (!(lse[i] == x->lse[i] || fabs(lse[i] - x->lse[i]) <= 1e-5 * (1 + fabs(x->lse[i]))))
            fail_msg("lse[%zu] is %.9g, should be %.9g", i, lse[i], x->lse[i]);
}

static void check_shape(struct device *dev, struct shape s, bool causal, const int32_t *lengths, float spread)
{
    size_t count = out_count(s);
    float *qkv = random_floats(dev, 3 * count, "qkv"), *dout = random_floats(dev, count, "dout");
    float *out = poisoned_floats(dev, count), *dqkv = poisoned_floats(dev, 3 * count);
    float *lse = poisoned_floats(dev, (size_t)s.batch * s.heads * s.seq);
    struct plain x;

    for (size_t i = 0; i < 3 * count; i++)
        qkv[i] *= spread;
    x = make_plain(dev, s, causal, lengths, qkv, dout);
    forward(&x);
    backward(&x);
    device_kernels(dev)->attention_forward(dev, &(struct attention){.batch = s.batch,
                                                                    .seq = s.seq,
                                                                    .heads = s.heads,
                                                                    .head_size = s.head_size,
                                                                    .causal = causal,
                                                                    .qkv = qkv,
                                                                    .lengths = lengths,
                                                                    .out = out,
                                                                    .lse = lse});
    expect_close("out", out, x.out, count, 1e-5 * spread * spread);
    compare_lse(&x, lse);
    device_kernels(dev)->attention_backward(dev, &(struct attention_backward){.batch = s.batch,
                                                                              .seq = s.seq,
                                                                              .heads = s.heads,
                                                                              .head_size = s.head_size,
                                                                              .causal = causal,
                                                                              .qkv = qkv,
                                                                              .out = out,
                                                                              .dout = dout,
                                                                              .lse = lse,
                                                                              .lengths = lengths,
                                                                              .dqkv = dqkv});
    expect_close("dqkv", dqkv, x.dqkv, 3 * count, 2e-5 * spread * spread);
    if (s.seq <= 5 && spread == 1)
        compare_differences(&x, dqkv);
}

static void check_all(const char *isa, int threads, bool causal, const int32_t *lengths, float spread)
{
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct device *dev = make_device(isa, threads);

        if (!dev)
            return;
        check_shape(dev, shapes[i], causal, lengths, spread);
        finish_device(dev);
    }
}

static void check_everywhere(bool causal, const int32_t *lengths, float spread)
{
    static const char *const isas[] = {"baseline", "avx2", "avx512"};

    for (int isa = 0; isa < 3; isa++)
        for (int threads = 1; threads <= 2; threads++)
            check_all(isas[isa], threads, causal, lengths, spread);
}

static void test_whole(void **state)
{
    (void)state;
    check_everywhere(false, NULL, 1);
}

static void test_causal(void **state)
{
    (void)state;
    check_everywhere(true, NULL, 1);
}

/* The first sample is cut short, the second not at all (its length is beyond seq). */
static void test_lengths(void **state)
{
    static const int32_t lengths[] = {3, 1000};

    (void)state;
    check_everywhere(false, lengths, 1);
    check_everywhere(true, lengths, 1);
}

/* A sample that is all padding: out and gradients 0, lse minus infinity. */
static void test_empty_sample(void **state)
{
    static const int32_t lengths[] = {0, 2};

    (void)state;
    check_everywhere(false, lengths, 1);
    check_everywhere(true, lengths, 1);
}

/* Scores in the hundreds: exp would overflow without the running maximum. */
static void test_large_scores(void **state)
{
    (void)state;
    check_everywhere(true, NULL, 6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole),        cmocka_unit_test(test_causal),       cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_empty_sample), cmocka_unit_test(test_large_scores),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
