#include "tests/kernels/attention_case.h"

#include <math.h>

#include "kernels/cuda/cuda.h"

/* cuDNN's attention on a GPU that has it, or on the stand-in, against float64; skipped elsewhere. */

static struct device *open_device(void)
{
    struct device *dev = make_device("baseline", 1);

    if (device_choose_attention(dev, ATTENTION_CUDNN, NULL) == 0)
        return dev;
    finish_device(dev);
    skip();
    return NULL;
}

/* spread: of qkv; scores are its square. */
static void check_case(enum dtype dtype, const struct attention_case *x, double spread)
{
    struct device *dev = open_device();
    struct attention_buffers b = attention_make(dev, dtype, x, spread);
    size_t rows = (size_t)x->batch * (size_t)x->heads * (size_t)x->seq;
    double *qkv = tensor_values(dev, b.qkv), *dout = tensor_values(dev, b.dout), *lse = reference(dev, rows);
    double *out = reference(dev, b.out.count), *dqkv = reference(dev, b.dqkv.count);

    attention_forward_on(dev, x, &b);
    attention_reference_forward(x, qkv, out, lse);
    attention_expect_rows("out", b.out, out, x->head_size, 1);
    attention_expect_lse(b.lse, lse, rows, fmax(spread * spread, 1));
    attention_backward_on(dev, x, &b);
    attention_reference_backward(x, qkv, tensor_values(dev, b.out), dout, dqkv);
    attention_expect_rows("dqkv", b.dqkv, dqkv, x->head_size, 1);
    finish_device(dev);
}

/* Shapes that cuDNN takes: several samples, heads and tiles; scores that are small, and large. */
static void test_shapes(void **state)
{
    static const struct attention_case cases[] = {{.batch = 2, .seq = 128, .heads = 2, .head_size = 64},
                                                  {.batch = 1, .seq = 384, .heads = 1, .head_size = 128},
                                                  {.batch = 2, .seq = 256, .heads = 1, .head_size = 96},
                                                  {.batch = 2, .seq = 128, .heads = 6, .kv_heads = 2, .head_size = 64}};
    const int count = sizeof cases / sizeof *cases;

    for (int i = 0; i < 4 * count; i++) {
        struct attention_case x = cases[i % count];

        x.causal = i / count % 2;
        check_case(i % 2 ? DTYPE_BF16 : DTYPE_F16, &x, i < 2 * count ? 1 : 6);
    }
}

/* The same bits again. */
static void test_repeated(void **state)
{
    const struct attention_case x = {.batch = 2, .seq = 256, .heads = 3, .head_size = 128, .causal = true};
    struct device *dev = open_device();
    struct attention_buffers b = attention_make(dev, DTYPE_BF16, &x, 1);
    size_t bytes = b.dqkv.count * dtype_size(DTYPE_BF16);
    void *first = malloc(bytes);

    attention_forward_on(dev, &x, &b);
    attention_backward_on(dev, &x, &b);
    device_wait(dev);
    memcpy(first, b.dqkv.at, bytes);
    for (int i = 0; i < 3; i++) {
        attention_forward_on(dev, &x, &b);
        attention_backward_on(dev, &x, &b);
        device_wait(dev);
        expect_same("dqkv", b.dqkv.at, first, bytes);
    }
    finish_device(dev);
    free(first);
}

/* dqkv of a sample, as a whole, beside what muster's own kernels made of it. */
static void expect_sample(size_t sample, struct tensor got, const double *want, size_t count)
{
    double error = 0, norm = 0;

    for (size_t i = sample * count; i < (sample + 1) * count; i++) {
        error += pow(tensor_get(got, i) - want[i], 2);
        norm += want[i] * want[i];
    }
    if (!(error <= 4e-4 * norm))
        fail_msg("sample %zu differs by %.3g of its norm", sample, sqrt(error / norm));
}

/* So many scores that the backward pass takes some samples at a time. Only a GPU is fast enough for them. */
static void test_parts_of_a_batch(void **state)
{
    const struct attention_case x = {.batch = 5, .seq = 8192, .heads = 2, .head_size = 64, .causal = true};
    size_t count = 3 * (size_t)x.seq * (size_t)x.heads * (size_t)x.head_size;
    struct device *dev;
    struct attention_buffers b;
    double *own;

    if (!other_device() || getenv("MUSTER_TEST_EMULATED"))
        skip();
    assert_int_equal(cudnn_backward_samples(5, 2, 8192), 3);
    dev = open_device();
    b = attention_make(dev, DTYPE_BF16, &x, 1);
    assert_int_equal(device_choose_attention(dev, ATTENTION_OWN, NULL), 0);
    attention_forward_on(dev, &x, &b);
    attention_backward_on(dev, &x, &b);
    own = tensor_values(dev, b.dqkv);
    assert_int_equal(device_choose_attention(dev, ATTENTION_CUDNN, NULL), 0);
    attention_forward_on(dev, &x, &b);
    attention_backward_on(dev, &x, &b);
    for (size_t i = 0; i < (size_t)x.batch; i++)
        expect_sample(i, b.dqkv, own, count);
    finish_device(dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_shapes), cmocka_unit_test(test_repeated),
                                       cmocka_unit_test(test_parts_of_a_batch)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
