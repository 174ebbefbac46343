#include "tests/kernels/harness.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/cuda.h"
#include "tests/cuda/attention_reference.h"
#include "tests/cuda/emulated_device.h"
#include "tests/cuda/emulator_seed.h"

/*
 * The attention kernels for GPUs, emulated, against float64. Scores and sums are fp32 there, but probabilities and
 * their gradients are rounded to the type before the second product. So an element may be wrong by a few roundings of
 * what its row is made of (`each`), and the whole, in the Euclidean norm, by about one (`whole`).
 */
static const struct {
    double each, whole;
} tolerance[] = {[DTYPE_F32] = {1e-4, 1e-6}, [DTYPE_BF16] = {1.6e-2, 4e-3}, [DTYPE_F16] = {2e-3, 5e-4}};

/* Rows of `size` elements. Where a row's true values cancel to nothing, what is left is judged by the whole. */
static void expect_rows(const char *name, struct tensor got, const double *want, int size)
{
    double error = 0, all = root_mean_square(want, got.count);

    for (size_t i = 0; i < got.count; i++) {
        double row = root_mean_square(want + i / (size_t)size * (size_t)size, (size_t)size);
        double difference = tensor_get(got, i) - want[i];

        if (!(fabs(difference) <= tolerance[got.dtype].each * (fabs(want[i]) + row + 0.1 * all)))
            fail_msg("%s[%zu], of type %d, is %.9g, should be %.9g (rms %.3g, of its row %.3g)", name, i,
                     (int)got.dtype, tensor_get(got, i), want[i], all, row);
        error += difference * difference;
    }
    error = sqrt(error / (double)got.count);
    if (error > tolerance[got.dtype].whole * all)
        fail_msg("%s, of type %d, is wrong by %.3g of its norm", name, (int)got.dtype, error / all);
}

static const struct dropout odd_dropout = {0.2, {11, 22, 33}, 1000003};
static const struct dropout even_dropout = {0.3, {5, 6, 7}, 1 << 20};

/* Of the devices that follow; 0: as emulated_device.c has it. */
static size_t shared_limit;

static struct device *open_device(void)
{
    struct error err = {0};
    struct device *dev = device_open(&backend_cuda_emulated, 0, 1, &err);

    if (!dev)
        fail_msg("device_open: %s", err.text);
    if (shared_limit)
        device_cuda(dev)->shared_limit = shared_limit;
    return dev;
}

/* The operands of one case, as both passes have them. */
struct buffers {
    struct tensor qkv, out, dout, dqkv;
    float *lse;
    int32_t *lengths;
};

static struct buffers make_buffers(struct device *dev, enum dtype dtype, const struct attention_case *x)
{
    size_t count = (size_t)x->batch * (size_t)x->seq * (size_t)x->heads * (size_t)x->head_size;
    struct buffers b = {
        .qkv = random_tensor(dev, dtype, 3 * count, "qkv"),
        .out = poisoned_tensor(dev, dtype, count),
        .dout = random_tensor(dev, dtype, count, "dout"),
        .dqkv = poisoned_tensor(dev, dtype, 3 * count),
        .lse = poisoned_floats(dev, (size_t)x->batch * (size_t)x->heads * (size_t)x->seq),
    };

    if (x->lengths) {
        b.lengths = int_buffer(dev, (size_t)x->batch);
        memcpy(b.lengths, x->lengths, (size_t)x->batch * sizeof *b.lengths);
    }
    return b;
}

static void run_forward(struct device *dev, const struct attention_case *x, const struct buffers *b)
{
    device_kernels(dev)->attention_forward(dev, &(struct attention){.batch = x->batch,
                                                                    .seq = x->seq,
                                                                    .heads = x->heads,
                                                                    .head_size = x->head_size,
                                                                    .causal = x->causal,
                                                                    .dtype = b->qkv.dtype,
                                                                    .qkv = b->qkv.at,
                                                                    .lengths = b->lengths,
                                                                    .dropout = x->dropout,
                                                                    .dropout_stride = x->dropout_stride,
                                                                    .out = b->out.at,
                                                                    .lse = b->lse});
}

static void run_backward(struct device *dev, const struct attention_case *x, const struct buffers *b)
{
    device_kernels(dev)->attention_backward(dev, &(struct attention_backward){.batch = x->batch,
                                                                              .seq = x->seq,
                                                                              .heads = x->heads,
                                                                              .head_size = x->head_size,
                                                                              .causal = x->causal,
                                                                              .dtype = b->qkv.dtype,
                                                                              .qkv = b->qkv.at,
                                                                              .out = b->out.at,
                                                                              .dout = b->dout.at,
                                                                              .lse = b->lse,
                                                                              .lengths = b->lengths,
                                                                              .dropout = x->dropout,
                                                                              .dropout_stride = x->dropout_stride,
                                                                              .dqkv = b->dqkv.at});
}

static void compare_lse(const float *got, const double *want, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!(got[i] == want[i] || fabs(got[i] - want[i]) <= 1e-5 * (1 + fabs(want[i]))))
            fail_msg("lse[%zu] is %.9g, should be %.9g", i, got[i], want[i]);
}

static void check_case(enum dtype dtype, const struct attention_case *x)
{
    struct device *dev = open_device();
    struct buffers b = make_buffers(dev, dtype, x);
    size_t rows = (size_t)x->batch * (size_t)x->heads * (size_t)x->seq;
    double *qkv = tensor_values(dev, b.qkv), *dout = tensor_values(dev, b.dout);
    double *out = reference(dev, b.out.count), *lse = reference(dev, rows), *dqkv = reference(dev, b.dqkv.count);
    double *given;

    run_forward(dev, x, &b);
    assert_int_equal(device_status(dev, &(struct error){0}), 0);
    attention_reference_forward(x, qkv, out, lse);
    expect_rows("out", b.out, out, x->head_size);
    compare_lse(b.lse, lse, rows);
    run_backward(dev, x, &b);
    assert_int_equal(device_status(dev, &(struct error){0}), 0);
    given = tensor_values(dev, b.out);
    attention_reference_backward(x, qkv, given, dout, dqkv);
    expect_rows("dqkv", b.dqkv, dqkv, x->head_size);
    finish_device(dev);
}

static const int sizes[] = {64, 80, 96, 128};

/* Each head size in both 16-bit types; `x` but for its head size. */
static void check_sizes(struct attention_case x)
{
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        x.head_size = sizes[i];
        check_case(DTYPE_BF16, &x);
        check_case(DTYPE_F16, &x);
    }
}

static void test_whole(void **state)
{
    (void)state;
    check_sizes((struct attention_case){.batch = 1, .seq = 150, .heads = 2});
}

static void test_causal(void **state)
{
    (void)state;
    check_sizes((struct attention_case){.batch = 1, .seq = 150, .heads = 2, .causal = true});
}

/* One sample cut short, one empty, one longer than it can be. */
static void test_lengths(void **state)
{
    static const int32_t lengths[] = {51, 0, 1000};

    (void)state;
    check_sizes((struct attention_case){.batch = 3, .seq = 70, .heads = 1, .lengths = lengths});
    check_sizes((struct attention_case){.batch = 3, .seq = 70, .heads = 1, .lengths = lengths, .causal = true});
}

static void test_short(void **state)
{
    (void)state;
    for (int seq = 1; seq < 20; seq += 7)
        check_sizes((struct attention_case){.batch = 2, .seq = seq, .heads = 1, .causal = true});
}

static void test_dropout(void **state)
{
    static const int32_t lengths[] = {130, 29};

    (void)state;
    check_sizes((struct attention_case){
        .batch = 1, .seq = 136, .heads = 2, .causal = true, .dropout = even_dropout, .dropout_stride = 8 * 5555});
    check_sizes((struct attention_case){
        .batch = 2, .seq = 72, .heads = 1, .lengths = lengths, .dropout = even_dropout, .dropout_stride = 8 * 5555});
}

/* What the tiles do not take. */
static void test_plain(void **state)
{
    static const int32_t lengths[] = {40, 0};
    static const int plain_sizes[] = {7, 64, 256};

    (void)state;
    for (size_t i = 0; i < 3; i++)
        for (int dtype = DTYPE_F32; dtype <= DTYPE_F16; dtype++) {
            struct attention_case x = {.batch = 2, .seq = 43, .heads = 2, .head_size = plain_sizes[i]};

            check_case((enum dtype)dtype, &x);
            x.causal = true;
            x.lengths = lengths;
            x.dropout = odd_dropout;
            x.dropout_stride = 100001;
            check_case((enum dtype)dtype, &x);
        }
}

/* A block of compute capability 8.6 and 8.9 has 99 KiB: where that is too little for the tiles, something else
 * computes. */
static void test_little_shared_memory(void **state)
{
    (void)state;
    shared_limit = 99 << 10;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        check_case(DTYPE_BF16,
                   &(struct attention_case){.batch = 1, .seq = 72, .heads = 1, .head_size = sizes[i], .causal = true});
    shared_limit = 0;
}

/* The CPU's kernels, on the same numbers; the backward pass of both is given the CPU's out. */
static void check_cpu(enum dtype dtype, const struct attention_case *x)
{
    struct device *dev = make_device("baseline", 1);
    struct buffers b = make_buffers(dev, dtype, x);
    double *out = malloc(b.out.count * sizeof *out), *dqkv = malloc(b.dqkv.count * sizeof *dqkv);

    run_forward(dev, x, &b);
    run_backward(dev, x, &b);
    for (size_t i = 0; i < b.out.count; i++)
        out[i] = tensor_get(b.out, i);
    for (size_t i = 0; i < b.dqkv.count; i++)
        dqkv[i] = tensor_get(b.dqkv, i);
    finish_device(dev);
    dev = open_device();
    b = make_buffers(dev, dtype, x);
    run_forward(dev, x, &b);
    expect_rows("out", b.out, out, x->head_size);
    for (size_t i = 0; i < b.out.count; i++)
        tensor_set(b.out, i, out[i]);
    run_backward(dev, x, &b);
    expect_rows("dqkv", b.dqkv, dqkv, x->head_size);
    finish_device(dev);
    free(out);
    free(dqkv);
}

static void test_cpu(void **state)
{
    static const int32_t lengths[] = {90, 61};

    (void)state;
    for (int dtype = DTYPE_F32; dtype <= DTYPE_F16; dtype++)
        check_cpu((enum dtype)dtype, &(struct attention_case){.batch = 2,
                                                              .seq = 88,
                                                              .heads = 2,
                                                              .head_size = 64,
                                                              .causal = true,
                                                              .lengths = lengths,
                                                              .dropout = even_dropout,
                                                              .dropout_stride = 8 * 2001});
}

/* Bit for bit the same, in whatever order threads and blocks run. */
static void check_orders(enum dtype dtype, const struct attention_case *x)
{
    struct device *dev = open_device();
    struct buffers first = make_buffers(dev, dtype, x);

    run_forward(dev, x, &first);
    run_backward(dev, x, &first);
    for (uint64_t seed = 1; seed <= 3; seed++) {
        struct buffers again = first;

        again.out = poisoned_tensor(dev, dtype, first.out.count);
        again.dqkv = poisoned_tensor(dev, dtype, first.dqkv.count);
        emulator_seed(seed);
        run_forward(dev, x, &again);
        run_backward(dev, x, &again);
        emulator_seed(0);
        expect_same("out", again.out.at, first.out.at, first.out.count * dtype_size(dtype));
        expect_same("dqkv", again.dqkv.at, first.dqkv.at, first.dqkv.count * dtype_size(dtype));
    }
    finish_device(dev);
}

static void test_orders(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        check_orders(
            DTYPE_BF16,
            &(struct attention_case){
                .batch = 1, .seq = 136, .heads = 1, .head_size = sizes[i], .causal = true, .dropout = even_dropout});
    check_orders(DTYPE_F32, &(struct attention_case){.batch = 1, .seq = 50, .heads = 1, .head_size = 33});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole), cmocka_unit_test(test_causal),  cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_short), cmocka_unit_test(test_dropout), cmocka_unit_test(test_plain),
        cmocka_unit_test(test_cpu),   cmocka_unit_test(test_orders),  cmocka_unit_test(test_little_shared_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
