#include "tests/kernels/harness.h"

#include <math.h>

#include "tests/cuda/emulated_device.h"
#include "tests/cuda/emulator_seed.h"

/*
 * CUDA's kernels, emulated, beside the CPU's on the same memory, at the sizes where they change their ways: rows that
 * take another number of packs or warps, runs of tokens across chunks, sums of many blocks. And the same bits in
 * whatever order threads and blocks come.
 */

/* Under a sanitizer an emulated thread is some 20 times slower. */
#ifdef __SANITIZE_ADDRESS__
#define SEEDS 1
#else
#define SEEDS 3
#endif

static struct device *cpu, *gpu;

static void open_devices(void)
{
    struct error err = {0};

    cpu = device_create("cpu", 1, &err);
    gpu = device_open(&backend_cuda_emulated, 0, 1, &err);
    if (!cpu || !gpu)
        fail_msg("%s", err.text);
}

static void close_devices(void)
{
    struct error err = {0};

    if (device_status(gpu, &err) < 0)
        fail_msg("%s", err.text);
    device_destroy(gpu);
    finish_device(cpu);
    emulator_seed(0);
}

/* got is near what the CPU made of the same; in fp32 within `tolerance`, in other types one rounding besides. */
static void expect_near(const char *name, struct tensor got, struct tensor want, double tolerance)
{
    double *values = tensor_values(cpu, want);
    double more = want.dtype == DTYPE_F32 ? 0 : want.dtype == DTYPE_BF16 ? 0x1p-8 : 0x1p-11;

    expect_rounded(name, got, values, want.count, tolerance + more);
}

static void expect_floats(const char *name, const float *got, float *want, size_t count, double tolerance)
{
    expect_near(name, (struct tensor){DTYPE_F32, count, (void *)(uintptr_t)got},
                (struct tensor){DTYPE_F32, count, want}, tolerance);
}

struct normed {
    struct tensor sum, y, dx;
    float *mean, *rstd, *dgamma, *dbeta;
};

static struct normed run_norm(struct device *dev, struct norm op, const void *dy, bool rms)
{
    size_t count = (size_t)op.rows * (size_t)op.cols, cols = (size_t)op.cols, rows = (size_t)op.rows;
    struct normed n = {
        poisoned_tensor(cpu, op.dtype, count),
        poisoned_tensor(cpu, op.dtype, count),
        poisoned_tensor(cpu, op.dtype, count),
        rms ? NULL : poisoned_floats(cpu, rows),
        poisoned_floats(cpu, rows),
        poisoned_floats(cpu, cols),
        rms ? NULL : poisoned_floats(cpu, cols),
    };

    op.sum = n.sum.at;
    op.y = n.y.at;
    op.mean = n.mean;
    op.rstd = n.rstd;
    device_kernels(dev)->norm_forward(dev, &op);
    device_kernels(dev)->norm_backward(dev, &(struct norm_backward){.rows = op.rows,
                                                                    .cols = op.cols,
                                                                    .dtype = op.dtype,
                                                                    .dy = dy,
                                                                    .sum = n.sum.at,
                                                                    .gamma = op.gamma,
                                                                    .dresidual = op.branch,
                                                                    .mean = n.mean,
                                                                    .rstd = n.rstd,
                                                                    .dx = n.dx.at,
                                                                    .dgamma = n.dgamma,
                                                                    .dbeta = n.dbeta});
    return n;
}

/* rms: an RMSNorm. */
static void check_norm(enum dtype dtype, int rows, int cols, bool rms)
{
    size_t count = (size_t)rows * (size_t)cols, width = (size_t)cols;
    struct norm op = {.rows = rows,
                      .eps = 1e-5f,
                      .cols = cols,
                      .dtype = dtype,
                      .x = random_tensor(cpu, dtype, count, "x").at,
                      .branch = random_tensor(cpu, dtype, count, "residual").at,
                      .bias = random_tensor(cpu, dtype, width, "bias").at,
                      .gamma = random_tensor(cpu, dtype, width, "gamma").at,
                      .beta = random_tensor(cpu, dtype, width, "beta").at,
                      .dropout = {0.1, {1, 2, 3}, 5}};
    const void *dy = random_tensor(cpu, dtype, count, "dy").at;
    struct normed want, got[SEEDS];

    if (rms)
        op.beta = NULL;
    want = run_norm(cpu, op, dy, rms);

    for (int seed = 0; seed < SEEDS; seed++) {
        emulator_seed((uint64_t)seed);
        got[seed] = run_norm(gpu, op, dy, rms);
        expect_same("y", got[seed].y.at, got[0].y.at, count * dtype_size(dtype));
        expect_same("dx", got[seed].dx.at, got[0].dx.at, count * dtype_size(dtype));
        expect_same("dgamma", got[seed].dgamma, got[0].dgamma, width * sizeof(float));
        if (!rms)
            expect_same("dbeta", got[seed].dbeta, got[0].dbeta, width * sizeof(float));
    }
    expect_same("sum", got[0].sum.at, want.sum.at, count * dtype_size(dtype));
    expect_floats("rstd", got[0].rstd, want.rstd, (size_t)rows, 1e-5);
    expect_near("y", got[0].y, want.y, 1e-5);
    expect_near("dx", got[0].dx, want.dx, 1e-5);
    expect_floats("dgamma", got[0].dgamma, want.dgamma, width, 1e-5);
    if (!rms) {
        expect_floats("mean", got[0].mean, want.mean, (size_t)rows, 1e-5);
        expect_floats("dbeta", got[0].dbeta, want.dbeta, width, 1e-5);
    }
    finish_buffers(cpu);
}

/* One warp a row with 1 to 4 packs, several warps, and rows that the backward pass reads twice; whole packs and odd
 * widths. */
static void test_norm_widths(void **state)
{
    static const int widths[] = {1, 255, 512, 768, 1000, 1024, 1032, 2560, 4096, 8192, 8203, 12301, 14336};

    open_devices();
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
        for (int dtype = DTYPE_F32; dtype <= DTYPE_F16; dtype++)
            check_norm((enum dtype)dtype, i % 3 ? 3 : 21, widths[i], (i + (size_t)dtype) % 2);
    check_norm(DTYPE_BF16, 1, 768, false);
    check_norm(DTYPE_BF16, 4500, 8, false); /* every block goes round more than once */
    check_norm(DTYPE_BF16, 4500, 8, true);
    close_devices();
}

static void test_row_too_wide(void **state)
{
    struct error err = {0};

    open_devices();
    device_kernels(gpu)->norm_forward(gpu, &(struct norm){.rows = 1, .cols = 16385});
    assert_int_equal(device_status(gpu, &err), -1);
    assert_non_null(strstr(err.text, "rows of 16385; from 1 to 16384"));
    device_destroy(gpu);
    finish_device(cpu);
}

static void check_columns(enum dtype dtype, int rows, int n, bool accumulate)
{
    size_t width = (size_t)n;
    const void *dy = random_tensor(cpu, dtype, (size_t)rows * width, "dy").at;
    float *want = random_floats(cpu, width, "db"), *first = NULL;

    device_kernels(cpu)->bias_backward(cpu, dtype, want, dy, rows, n, accumulate);
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        float *got = random_floats(cpu, width, "db");

        emulator_seed(seed);
        device_kernels(gpu)->bias_backward(gpu, dtype, got, dy, rows, n, accumulate);
        first = first ? first : got;
        expect_same("db", got, first, width * sizeof(float));
    }
    expect_floats("db", first, want, width, 1e-5);
    finish_buffers(cpu);
}

static void test_columns(void **state)
{
    static const int rows[] = {0, 1, 31, 33, 700}, widths[] = {1, 8, 257, 776};

    open_devices();
    for (int i = 0; i < 20; i++)
        check_columns((enum dtype)(i % 3), rows[i % 5], widths[i / 5], i % 2);
    close_devices();
}

/* query_key_backward's sums: so many heads that every block goes round more than once, and few; in any order. */
static void check_head_sums(enum dtype dtype, int rows, int head_size)
{
    size_t size = (size_t)head_size, count = (size_t)rows * 5 * size;
    struct query_key op = {.rows = rows,
                           .seq = rows,
                           .heads = 3,
                           .kv_heads = 1,
                           .head_size = head_size,
                           .dtype = dtype,
                           .gamma_q = random_tensor(cpu, dtype, size, "gamma_q").at,
                           .gamma_k = random_tensor(cpu, dtype, size, "gamma_k").at,
                           .before = random_tensor(cpu, dtype, (size_t)rows * 4 * size, "before").at,
                           .rstd = random_floats(cpu, (size_t)rows * 4, "rstd")};
    struct tensor want = random_tensor(cpu, dtype, count, "dqkv"), got, first = {0};
    float *want_sums = poisoned_floats(cpu, 2 * size), *sums, *first_sums = NULL;

    op.qkv = want.at;
    op.dgamma_q = want_sums;
    op.dgamma_k = want_sums + size;
    device_kernels(cpu)->query_key_backward(cpu, &op);
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        got = random_tensor(cpu, dtype, count, "dqkv");
        sums = poisoned_floats(cpu, 2 * size);
        op.qkv = got.at;
        op.dgamma_q = sums;
        op.dgamma_k = sums + size;
        emulator_seed(seed);
        device_kernels(gpu)->query_key_backward(gpu, &op);
        first = seed ? first : got;
        first_sums = seed ? first_sums : sums;
        expect_same("dqkv", got.at, first.at, count * dtype_size(dtype));
        expect_same("dgamma", sums, first_sums, 2 * size * sizeof *sums);
    }
    expect_near("dqkv", first, want, 1e-5);
    expect_floats("dgamma", first_sums, want_sums, 2 * size, 2e-5);
    finish_buffers(cpu);
}

static void test_head_sums(void **state)
{
    static const int sizes[] = {2, 20, 64, 128, 256};

    open_devices();
    for (int i = 0; i < 5; i++)
        check_head_sums((enum dtype)(i % 3), i % 2 ? 7 : 90, sizes[i]);
    check_head_sums(DTYPE_BF16, 1500, 512);
    close_devices();
}

/* kind 0: one token for all; 1: four of them, in long runs when sorted; 2: nearly all different; 3: one row. */
static void make_tokens(int32_t *tokens, int rows, int kind)
{
    for (int row = 0; row < rows; row++)
        tokens[row] = kind == 0 ? 7 : kind == 1 ? 5 + (row * 7919 >> 3) % 4 : row * 7919 % 1009;
}

static void check_embedding(enum dtype dtype, int rows, int cols, int kind)
{
    size_t vocab = 600, width = (size_t)cols;
    int32_t *tokens = int_buffer(cpu, (size_t)rows);
    struct embedding op = {.rows = rows, .cols = cols, .vocab_first = 6, .vocab = (int)vocab, .dtype = dtype};
    float *want = random_floats(cpu, vocab * width, "dwte"), *first = NULL;

    make_tokens(tokens, rows, kind);
    op.tokens = tokens;
    op.x = random_tensor(cpu, dtype, (size_t)rows * width, "dx").at;
    op.dwte = want;
    device_kernels(cpu)->embedding_backward(cpu, &op);
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        op.dwte = random_floats(cpu, vocab * width, "dwte");
        emulator_seed(seed);
        device_kernels(gpu)->embedding_backward(gpu, &op);
        first = first ? first : op.dwte;
        expect_same("dwte", op.dwte, first, vocab * width * sizeof(float));
    }
    expect_floats("dwte", first, want, vocab * width, 1e-5);
    finish_buffers(cpu);
}

static void test_embedding(void **state)
{
    static const int rows[] = {1, 32, 33, 300, 1000};

    open_devices();
    for (int i = 0; i < 15; i++)
        check_embedding((enum dtype)(i % 3), rows[i % 5], i % 2 ? 40 : 13, i / 5);
    check_embedding(DTYPE_BF16, 64, 1500, 1);
    for (int kind = 0; kind < 3; kind++)
        check_embedding(DTYPE_F32, 2500, 3, kind);
    close_devices();
}

static void check_squares(size_t count)
{
    const float *x = random_floats(cpu, count, "x");
    double want, got;

    for (size_t shift = 0; shift < 2 && shift < count; shift++)
        for (uint64_t seed = 0; seed < (count < 1000000 ? SEEDS : 1); seed++) {
            struct squares arrays[] = {{x + shift, count - shift}, {NULL, 0}, {x, count}, {x + count / 2, 1}};

            emulator_seed(seed);
            device_kernels(cpu)->sum_of_squares(cpu, &want, arrays, 4);
            device_kernels(gpu)->sum_of_squares(gpu, &got, arrays, 4);
            assert_true(want > 0);
            expect_same("sum of squares", &got, &want, sizeof got);
        }
    finish_buffers(cpu);
}

/* To the last bit. The longest have more blocks than are added at once. */
static void test_squares(void **state)
{
    static const size_t counts[] = {1, 15, 16, 17, 4095, 4096, 4097, 40000, 300001, 8400001};

    open_devices();
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        check_squares(counts[i]);
    close_devices();
}

/* A few steps, each with another gradient; returns param, exp_avg, exp_avg_sq and the copy, one after the other. */
static float *run_adamw(struct device *dev, size_t count, enum dtype copy)
{
    float *state = poisoned_floats(cpu, 4 * count), *grad = random_floats(cpu, count, "gradient");
    const float *first = random_floats(cpu, count, "param");

    memset(state, 0, 4 * count * sizeof *state);
    memcpy(state, first, count * sizeof *state);
    for (int step = 1; step <= 5; step++) {
        for (size_t i = 0; i < count; i++)
            grad[i] = -grad[i] * (0.3f + (float)(i % 7));
        device_kernels(dev)->adamw(dev,
                                   &(struct adamw){.count = count,
                                                   .param = state,
                                                   .exp_avg = state + count,
                                                   .exp_avg_sq = state + 2 * count,
                                                   .grad = grad,
                                                   .copy = state + 3 * count,
                                                   .copy_dtype = copy,
                                                   .grad_scale = 0.37f,
                                                   .lr = 1e-2f,
                                                   .beta1 = 0.9f,
                                                   .beta2 = 0.95f,
                                                   .eps = 1e-8f,
                                                   .weight_decay = 0.1f,
                                                   .bias1 = 1 - powf(0.9f, (float)step),
                                                   .bias2 = 1 - powf(0.95f, (float)step)},
                                   1);
    }
    return state;
}

/* To the last bit, by whatever instructions: an optimizer may be offloaded or not. */
static void test_adamw(void **state)
{
    static const char *const isas[] = {"baseline", "avx2", "avx512"};
    const size_t count = 5003;

    for (int i = 0; i < 9; i++) {
        struct device *host = make_device(isas[i / 3], 1);
        float *want;

        if (!host)
            continue;
        open_devices();
        want = run_adamw(host, count, (enum dtype)(i % 3));
        expect_same(isas[i / 3], run_adamw(gpu, count, (enum dtype)(i % 3)), want, 4 * count * sizeof *want);
        assert_true(want[0] != 0 && want[count] != 0 && want[2 * count] > 0);
        finish_buffers(cpu);
        close_devices();
        abandon_device(host);
    }
}

static void run_loss(struct device *dev, struct cross_entropy op, struct tensor logits, float *stats)
{
    size_t rows = (size_t)op.rows;

    op.logits = logits.at;
    op.max = stats;
    op.sum = stats + rows;
    op.target = stats + 2 * rows;
    op.loss = stats + 3 * rows;
    device_kernels(dev)->cross_entropy_stats(dev, &op);
    device_kernels(dev)->cross_entropy_finish(dev, &op);
}

static void check_loss(enum dtype dtype, int rows, int vocab, int stride)
{
    size_t count = (size_t)rows * (size_t)stride, stats_count = 4 * (size_t)rows;
    int32_t *targets = int_buffer(cpu, (size_t)rows);
    struct cross_entropy op = {.rows = rows,
                               .vocab = vocab,
                               .stride = stride,
                               .vocab_first = 100,
                               .dtype = dtype,
                               .targets = targets,
                               .scale = 0.25f};
    struct tensor want = random_tensor(cpu, dtype, count, "logits");
    float *want_stats = poisoned_floats(cpu, stats_count);
    struct tensor first = {0};

    for (int row = 0; row < rows; row++)
        targets[row] = row % 3 == 2 ? -1 : 100 + row * 501 % (vocab + 9);
    run_loss(cpu, op, want, want_stats);
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        struct tensor got = random_tensor(cpu, dtype, count, "logits");
        float *stats = poisoned_floats(cpu, stats_count);

        emulator_seed(seed);
        run_loss(gpu, op, got, stats);
        first = seed ? first : got;
        expect_same("gradient", got.at, first.at, count * dtype_size(dtype));
        expect_floats("statistics", stats, want_stats, stats_count, 1e-5);
    }
    expect_near("gradient", first, want, 1e-5);
    finish_buffers(cpu);
}

static void test_loss(void **state)
{
    open_devices();
    for (int dtype = DTYPE_F32; dtype <= DTYPE_F16; dtype++) {
        check_loss((enum dtype)dtype, 4, 5003, 5120);
        check_loss((enum dtype)dtype, 7, 50, 51);
        check_loss((enum dtype)dtype, 1, 2048, 2048);
    }
    close_devices();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_norm_widths), cmocka_unit_test(test_row_too_wide), cmocka_unit_test(test_columns),
        cmocka_unit_test(test_head_sums),   cmocka_unit_test(test_embedding),    cmocka_unit_test(test_squares),
        cmocka_unit_test(test_loss),        cmocka_unit_test(test_adamw),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
