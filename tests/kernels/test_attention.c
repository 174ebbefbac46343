#include "tests/kernels/harness.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Against the textbook form with whole seq x seq matrices in float64, whose gradient is itself held to differences. */

struct shape {
    int batch, seq, heads, head_size;
};

static const struct shape shapes[] = {
    {1, 1, 1, 8}, {2, 5, 2, 20}, {1, 64, 2, 64}, {2, 100, 1, 80}, {1, 200, 2, 64}, {1, 130, 3, 7}, {2, 33, 1, 256},
};

/* How attention is asked for, in every test that follows. */
struct manner {
    bool causal;
    const int32_t *lengths;
    double spread; /* of qkv */
    struct dropout dropout;
    uint64_t stride;
};

struct plain {
    struct shape s;
    struct manner how;
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
    int keys = x->how.lengths && x->how.lengths[batch] < x->s.seq ? x->how.lengths[batch] : x->s.seq;

    return x->how.causal && row + 1 < keys ? row + 1 : keys;
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

/* What dropout multiplies the probability of a query and a key by. */
static double mask(const struct plain *x, int batch, int head, int row, int key)
{
    const struct dropout *dropout = &x->how.dropout;
    uint64_t element = dropout->first + (uint64_t)batch * x->how.stride +
                       ((uint64_t)head * x->s.seq + (uint64_t)row) * x->s.seq + (uint64_t)key;

    return dropout_keeps(dropout, element) ? dropout_factor(dropout) : 0;
}

static void forward(const struct plain *x)
{
    double *p = malloc(x->s.seq * sizeof *p);

    for (int batch = 0; batch < x->s.batch; batch++)
        for (int head = 0; head < x->s.heads; head++)
            for (int row = 0; row < x->s.seq; row++) {
                double *out = x->out + out_at(x, batch, row, head);

                x->lse[((size_t)batch * x->s.heads + head) * x->s.seq + row] = probabilities(x, batch, head, row, p);
                memset(out, 0, x->s.head_size * sizeof *out);
                for (int j = 0; j < keys_of(x, batch, row); j++) {
                    double left = p[j] * mask(x, batch, head, row, j);

                    for (int d = 0; d < x->s.head_size; d++)
                        out[d] += left * at(x, x->qkv, batch, j, 2, head)[d];
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
        double factor = mask(x, batch, head, row, j);
        double ds = p[j] * (dot(dout, at(x, x->qkv, batch, j, 2, head), n) * factor - delta) / sqrt(n);

        for (int d = 0; d < n; d++) {
            at(x, x->dqkv, batch, row, 0, head)[d] += ds * at(x, x->qkv, batch, j, 1, head)[d];
            at(x, x->dqkv, batch, j, 1, head)[d] += ds * at(x, x->qkv, batch, row, 0, head)[d];
            at(x, x->dqkv, batch, j, 2, head)[d] += p[j] * factor * dout[d];
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

static double loss(const void *arg)
{
    const struct plain *x = arg;

    forward(x);
    return dot(x->out, x->dout, (int)out_count(x->s));
}

/* A small shape's gradient, every element, by differences of the forward pass. */
static void compare_differences(const struct plain *x, struct tensor dqkv)
{
    size_t count = 3 * out_count(x->s);
    double *want = malloc(count * sizeof *want);

    for (size_t i = 0; i < count; i++)
        want[i] = slope(loss, x, &x->qkv[i]);
    expect_rounded("dqkv by differences", dqkv, want, count, 2e-5);
    free(want);
}

static void compare_lse(const struct plain *x, const float *lse)
{
    for (size_t i = 0; i < (size_t)x->s.batch * x->s.heads * x->s.seq; i++)
        if (!(lse[i] == x->lse[i] || fabs(lse[i] - x->lse[i]) <= 1e-5 * (1 + fabs(x->lse[i]))))
            fail_msg("lse[%zu] is %.9g, should be %.9g", i, lse[i], x->lse[i]);
}

/* The buffers of one call of each pass. */
struct call {
    struct tensor qkv, out, dout, dqkv;
    float *lse;
};

static struct call make_call(struct device *dev, enum dtype dtype, struct shape s, double spread)
{
    size_t count = out_count(s);
    struct call c = {
        .qkv = random_tensor(dev, dtype, 3 * count, "qkv"),
        .out = poisoned_tensor(dev, dtype, count),
        .dout = random_tensor(dev, dtype, count, "dout"),
        .dqkv = poisoned_tensor(dev, dtype, 3 * count),
        .lse = poisoned_floats(dev, (size_t)s.batch * s.heads * s.seq),
    };

    for (size_t i = 0; i < 3 * count; i++)
        tensor_set(c.qkv, i, spread * tensor_get(c.qkv, i));
    return c;
}

/* The lengths of `how` in the device's memory; NULL if there are none. */
static const int32_t *lengths_of(struct device *dev, struct shape s, const struct manner *how)
{
    int32_t *lengths = how->lengths ? int_buffer(dev, (size_t)s.batch) : NULL;

    if (lengths)
        memcpy(lengths, how->lengths, (size_t)s.batch * sizeof *lengths);
    return lengths;
}

static void run_forward(struct device *dev, struct shape s, const struct manner *how, const struct call *c)
{
    device_kernels(dev)->attention_forward(dev, &(struct attention){.batch = s.batch,
                                                                    .seq = s.seq,
                                                                    .heads = s.heads,
                                                                    .head_size = s.head_size,
                                                                    .causal = how->causal,
                                                                    .dtype = c->qkv.dtype,
                                                                    .qkv = c->qkv.at,
                                                                    .lengths = lengths_of(dev, s, how),
                                                                    .dropout = how->dropout,
                                                                    .dropout_stride = how->stride,
                                                                    .out = c->out.at,
                                                                    .lse = c->lse});
}

static void run_backward(struct device *dev, struct shape s, const struct manner *how, const struct call *c)
{
    device_kernels(dev)->attention_backward(dev, &(struct attention_backward){.batch = s.batch,
                                                                              .seq = s.seq,
                                                                              .heads = s.heads,
                                                                              .head_size = s.head_size,
                                                                              .causal = how->causal,
                                                                              .dtype = c->qkv.dtype,
                                                                              .qkv = c->qkv.at,
                                                                              .out = c->out.at,
                                                                              .dout = c->dout.at,
                                                                              .lse = c->lse,
                                                                              .lengths = lengths_of(dev, s, how),
                                                                              .dropout = how->dropout,
                                                                              .dropout_stride = how->stride,
                                                                              .dqkv = c->dqkv.at});
}

static double *copy_of(struct tensor t)
{
    double *x = malloc(t.count * sizeof *x);

    for (size_t i = 0; i < t.count; i++)
        x[i] = tensor_get(t, i);
    return x;
}

/* Made once for all devices, since it takes longest. out[0] is the exact one, out[1] rounded: what the backward pass is
 * given. */
static struct plain make_plain(enum dtype dtype, struct shape s, const struct manner *how, double *out[2])
{
    struct device *dev = make_device("baseline", 1);
    struct call c = make_call(dev, dtype, s, how->spread);
    size_t count = out_count(s);
    struct plain x = {
        .s = s,
        .how = *how,
        .qkv = copy_of(c.qkv),
        .dout = copy_of(c.dout),
        .out = calloc(count, sizeof *x.out),
        .lse = calloc((size_t)s.batch * s.heads * s.seq, sizeof *x.lse),
        .dqkv = calloc(3 * count, sizeof *x.dqkv),
    };

    finish_device(dev);
    forward(&x);
    out[0] = x.out;
    out[1] = malloc(count * sizeof *out[1]);
    for (size_t i = 0; i < count; i++)
        out[1][i] = dtype == DTYPE_F32 ? x.out[i] : rounded(dtype, x.out[i]);
    x.out = out[1];
    backward(&x);
    return x;
}

/*
 * What may be wrong beyond the last rounding. A GPU's 16-bit products also round probabilities and their gradients, so
 * an element is wrong by a few roundings of the largest rows; tests/cuda/test_attention.c, row by row, is stricter.
 */
static double bound(enum dtype dtype, double fp32)
{
    static const double rounded[] = {[DTYPE_BF16] = 0.1, [DTYPE_F16] = 1.5e-2};
    const char *kind = getenv("MUSTER_TEST_DEVICE");

    return dtype == DTYPE_F32 || !kind || strcmp(kind, "cpu") == 0 ? fp32 : rounded[dtype];
}

static void compare(struct device *dev, enum dtype dtype, const struct plain *x, double *const out[2])
{
    struct call c = make_call(dev, dtype, x->s, x->how.spread);
    double scale = x->how.spread * x->how.spread;

    run_forward(dev, x->s, &x->how, &c);
    expect_rounded("out", c.out, out[0], c.out.count, bound(dtype, 1e-5) * scale);
    compare_lse(x, c.lse);
    for (size_t i = 0; i < c.out.count && dtype != DTYPE_F32; i++)
        tensor_set(c.out, i, out[1][i]);
    run_backward(dev, x->s, &x->how, &c);
    expect_rounded("dqkv", c.dqkv, x->dqkv, c.dqkv.count, bound(dtype, 2e-5) * scale);
    if (x->s.seq <= 5 && x->how.spread == 1 && dtype == DTYPE_F32)
        compare_differences(x, c.dqkv);
}

static void check_shape(enum dtype dtype, struct shape s, const struct manner *how)
{
    static const char *const isas[] = {"baseline", "avx2", "avx512"};
    double *out[2];
    struct plain x = make_plain(dtype, s, how, out);

    for (int i = 0; i < 6; i++) {
        struct device *dev = make_device(isas[i / 2], 1 + i % 2);

        if (!dev)
            continue;
        compare(dev, dtype, &x, out);
        finish_device(dev);
    }
    free(x.qkv);
    free(x.dout);
    free(x.lse);
    free(x.dqkv);
    free(out[0]);
    free(out[1]);
}

static void check_everywhere(struct manner how)
{
    for (int dtype = DTYPE_F32; dtype <= DTYPE_F16; dtype++)
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
            check_shape((enum dtype)dtype, shapes[i], &how);
}

static void test_whole(void **state)
{
    (void)state;
    check_everywhere((struct manner){.spread = 1});
}

static void test_causal(void **state)
{
    (void)state;
    check_everywhere((struct manner){.causal = true, .spread = 1});
}

/* The first sample is cut short, the second not at all (its length is beyond seq). */
static void test_lengths(void **state)
{
    static const int32_t lengths[] = {3, 1000};

    (void)state;
    check_everywhere((struct manner){.lengths = lengths, .spread = 1});
    check_everywhere((struct manner){.causal = true, .lengths = lengths, .spread = 1});
}

/* A sample that is all padding: out and gradients 0, lse minus infinity. */
static void test_empty_sample(void **state)
{
    static const int32_t lengths[] = {0, 2};

    (void)state;
    check_everywhere((struct manner){.lengths = lengths, .spread = 1});
    check_everywhere((struct manner){.causal = true, .lengths = lengths, .spread = 1});
}

/* Scores in the hundreds: exp would overflow without the running maximum. */
static void test_large_scores(void **state)
{
    (void)state;
    check_everywhere((struct manner){.causal = true, .spread = 6});
}

static const struct dropout odd_dropout = {0.2, {11, 22, 33}, 1000003};

static void test_dropout(void **state)
{
    static const int32_t lengths[] = {70, 1000};

    (void)state;
    check_everywhere((struct manner){.causal = true, .spread = 1, .dropout = odd_dropout, .stride = 1000001});
    check_everywhere((struct manner){.lengths = lengths, .spread = 1, .dropout = odd_dropout, .stride = 80000});
}

/* With scores all equal and V the unit matrix, out is the probabilities themselves: the mask, bit by bit. */
static void check_mask(struct device *dev, enum dtype dtype)
{
    const struct shape s = {2, 139, 1, 139};
    const struct manner how = {.dropout = odd_dropout, .stride = 999};
    struct call c = make_call(dev, dtype, s, 0);
    struct plain x = {.s = s, .how = how};

    for (int batch = 0; batch < s.batch; batch++)
        for (int row = 0; row < s.seq; row++)
            tensor_set(c.qkv, ((size_t)(batch * s.seq + row) * 3 + 2) * s.head_size + row, 1);
    run_forward(dev, s, &how, &c);
    for (int batch = 0; batch < s.batch; batch++)
        for (int row = 0; row < s.seq; row++)
            for (int key = 0; key < s.seq; key++)
                if ((tensor_get(c.out, out_at(&x, batch, row, 0) + key) != 0) != (mask(&x, batch, 0, row, key) != 0))
                    fail_msg("sample %d, query %d, key %d: not as the mask says", batch, row, key);
}

static void test_mask(void **state)
{
    (void)state;
    each_device_and_type(check_mask);
}

/* Columns [first, first + count) of each row. */
static void copy_columns(struct tensor to, struct tensor from, int rows, int width, int first, int count)
{
    size_t size = dtype_size(to.dtype);

    for (int row = 0; row < rows; row++)
        memcpy((char *)to.at + (size_t)row * count * size, (char *)from.at + ((size_t)row * width + first) * size,
               count * size);
}

/* Two heads of five computed alone, as a tensor-parallel rank would: the same bits as when all are. */
static void check_heads(struct device *dev, enum dtype dtype)
{
    const struct shape whole = {2, 75, 5, 16}, slice = {2, 75, 2, 16};
    struct manner how = {.causal = true, .dropout = odd_dropout, .stride = 5 * 75 * 75};
    struct call c = make_call(dev, dtype, whole, 1), d = make_call(dev, dtype, slice, 1);
    struct tensor want = poisoned_tensor(dev, dtype, d.dqkv.count);
    const int rows = 2 * 75, first = 3 * 16, count = 2 * 16;

    copy_columns(d.qkv, c.qkv, rows * 3, 5 * 16, first, count);
    copy_columns(d.dout, c.dout, rows, 5 * 16, first, count);
    run_forward(dev, whole, &how, &c);
    run_backward(dev, whole, &how, &c);
    how.dropout.first += 3 * 75 * 75;
    run_forward(dev, slice, &how, &d);
    run_backward(dev, slice, &how, &d);
    copy_columns(want, c.out, rows, 5 * 16, first, count);
    expect_same("out", d.out.at, want.at, d.out.count * dtype_size(dtype));
    copy_columns(want, c.dqkv, rows * 3, 5 * 16, first, count);
    expect_same("dqkv", d.dqkv.at, want.at, d.dqkv.count * dtype_size(dtype));
}

static void test_heads(void **state)
{
    (void)state;
    each_device_and_type(check_heads);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole),        cmocka_unit_test(test_causal),       cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_empty_sample), cmocka_unit_test(test_large_scores), cmocka_unit_test(test_dropout),
        cmocka_unit_test(test_mask),         cmocka_unit_test(test_heads),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
