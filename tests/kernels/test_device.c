#include "tests/kernels/harness.h"

#include <math.h>

/* The device itself: memory and its count, failures that stick, and the plain operations. */

static void check_memory(struct device *dev)
{
    struct error err = {0};
    size_t big = ((size_t)5 << 20) + 12;
    char *a = device_alloc(dev, MEMORY_DEVICE, 100, &err), *b = device_alloc(dev, MEMORY_HOST, big, &err), *c;

    assert_non_null(a);
    assert_non_null(b);
    assert_int_equal((uintptr_t)a % 64, 0);
    assert_int_equal((uintptr_t)b % 64, 0);
    memset(a, 1, 100);
    memset(b, 2, big);
    assert_int_equal(dev->bytes_used[MEMORY_DEVICE], 100);
    assert_int_equal(dev->bytes_used[MEMORY_HOST], big);
    c = device_alloc(dev, MEMORY_DEVICE, 50, &err);
    assert_int_equal(dev->bytes_used[MEMORY_DEVICE], 150);
    device_free(dev, MEMORY_DEVICE, a);
    device_free(dev, MEMORY_DEVICE, c);
    device_free(dev, MEMORY_HOST, b);
    device_free(dev, MEMORY_HOST, NULL);
    assert_int_equal(dev->bytes_used[MEMORY_DEVICE], 0);
    assert_int_equal(dev->bytes_used[MEMORY_HOST], 0);
    assert_int_equal(device_bytes_peak(dev, MEMORY_DEVICE), 150);
    assert_int_equal(device_bytes_peak(dev, MEMORY_HOST), big);
}

static void test_memory(void **state)
{
    each_device(check_memory);
}

static void test_more_memory_than_there_is(void **state)
{
    struct device *dev = make_device("baseline", 1);
    struct error err = {0};

    assert_null(device_alloc(dev, MEMORY_HOST, (size_t)1 << 60, &err));
    assert_int_equal(err.code, CODE_IO);
    assert_non_null(strstr(err.text, "GiB of host memory"));
    assert_int_equal(dev->bytes_used[MEMORY_HOST], 0);
    finish_device(dev);
}

/* A type that is none is refused; what comes after does nothing; and the first failure is the one that is told. */
static void test_failure_sticks(void **state)
{
    struct device *dev = make_device("baseline", 1);
    struct error err = {0};
    float *x = random_floats(dev, 4, "x"), *y = poisoned_floats(dev, 4);

    assert_int_equal(device_status(dev, &err), 0);
    device_kernels(dev)->add(dev, (enum dtype)7, y, x, 4);
    device_kernels(dev)->add(dev, (enum dtype)8, y, x, 4);
    device_kernels(dev)->add(dev, DTYPE_F32, y, x, 4);
    device_kernels(dev)->copy(dev, y, x, 4 * sizeof *x);
    device_kernels(dev)->matmul(dev, &(struct matmul){.m = 2, .n = 2, .k = 2, .a = x, .b = x, .c = y});
    expect_untouched("y", y, 4);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(device_status(dev, &err), -1);
        assert_int_equal(err.code, CODE_INTERNAL);
        assert_non_null(strstr(err.text, ": add: 7 is no dtype"));
    }
    abandon_device(dev);
}

/* A test that fails finishes neither its device nor its buffers. */
static void test_after_a_failed_test(void **state)
{
    poisoned_floats(make_device("baseline", 1), 4);
    finish_device(make_device("baseline", 1));
}

static void expect_refused(struct matmul op, const char *reason)
{
    struct device *dev = make_device("baseline", 1);
    struct error err = {0};
    void *x = random_floats(dev, 16, "x");

    op.a = op.b = x;
    op.c = x;
    if (op.sums)
        op.sums = x;
    if (op.accumulate)
        op.bias = x;
    device_kernels(dev)->matmul(dev, &op);
    assert_int_equal(device_status(dev, &err), -1);
    assert_non_null(strstr(err.text, reason));
    abandon_device(dev);
}

static void test_wrong_products(void **state)
{
    float sum;

    expect_refused((struct matmul){.m = 2, .n = 2, .k = 0}, "k must be 1 or more");
    expect_refused((struct matmul){.m = 2, .n = 2, .k = 4, .lda = 3}, "lda = 3");
    expect_refused((struct matmul){.m = 2, .n = 2, .k = 4, .transpose_b = true, .ldb = 2}, "ldb = 2");
    expect_refused((struct matmul){.m = 2, .n = 2, .k = 2, .epilogue = EPILOGUE_BIAS}, "needs bias");
    expect_refused((struct matmul){.m = 2, .n = 2, .k = 2, .epilogue = EPILOGUE_DGELU}, "needs aux");
    expect_refused((struct matmul){.m = 2, .n = 2, .k = 2, .dtype = DTYPE_BF16, .accumulate = true}, "c in fp32");
    expect_refused((struct matmul){.m = 2, .n = 2, .k = 2, .epilogue = EPILOGUE_BIAS, .accumulate = true},
                   "no epilogue");
    expect_refused((struct matmul){.m = 2, .n = 2, .k = 2, .transpose_b = true, .sums = &sum},
                   "a packed, untransposed b");
    expect_refused((struct matmul){.m = 2, .n = 2, .k = 2, .sums_of_a = true, .sums = &sum}, "a packed, transposed a");
    expect_refused(
        (struct matmul){.m = 2, .n = 2, .k = 2, .lda = 3, .transpose_a = true, .sums_of_a = true, .sums = &sum},
        "a packed, transposed a");
}

static void expect_attention_refused(struct attention op, const char *reason)
{
    struct device *dev = make_device("baseline", 1);
    struct error err = {0};
    float *x = random_floats(dev, 64, "x");

    op.batch = op.seq = 1;
    op.head_size = 4;
    op.qkv = x;
    op.out = op.lse = x;
    if (op.document_start)
        op.document_start = int_buffer(dev, 1);
    device_kernels(dev)->attention_forward(dev, &op);
    assert_int_equal(device_status(dev, &err), -1);
    assert_non_null(strstr(err.text, reason));
    abandon_device(dev);
}

static void test_wrong_attention(void **state)
{
    const int32_t zero = 0;

    expect_attention_refused((struct attention){.heads = 3, .kv_heads = 2}, "kv_heads = 2 does not divide heads = 3");
    expect_attention_refused((struct attention){.heads = 3}, "kv_heads = 0");
    expect_attention_refused((struct attention){.heads = 2, .kv_heads = 2, .window = 1}, "window need causal");
    expect_attention_refused((struct attention){.heads = 2, .kv_heads = 2, .causal = true, .window = -1},
                             "window = -1");
    expect_attention_refused((struct attention){.heads = 2, .kv_heads = 2, .document_start = &zero}, "document_start");
}

static void test_wrong_devices(void **state)
{
    struct error err = {0};
    struct device *dev;

    unsetenv("MUSTER_ISA");
    assert_null(device_create("tpu", 1, &err));
    assert_int_equal(err.code, CODE_CONFIG);
    assert_non_null(strstr(err.text, "\"tpu\""));
    assert_null(device_create("cpu", -1, &err));
    assert_non_null(strstr(err.text, "-1 threads"));
    setenv("MUSTER_ISA", "mmx", 1);
    assert_null(device_create("cpu", 1, &err));
    assert_int_equal(err.code, CODE_CONFIG);
    assert_non_null(strstr(err.text, "MUSTER_ISA=mmx"));
    unsetenv("MUSTER_ISA");
    dev = device_create("cpu", 1, &err);
    assert_int_equal(device_choose_attention(dev, ATTENTION_CUDNN, &err), -1);
    assert_int_equal(err.code, CODE_CONFIG);
    assert_string_equal(err.text, "attention = \"cudnn\": the device is not a GPU; take \"auto\" or \"own\"");
    assert_int_equal(device_choose_attention(dev, ATTENTION_AUTO, &err), 0);
    device_destroy(dev);
    device_destroy(NULL);
}

/* Where there is no GPU, or no CUDA in the build, it is said; and a number must be one. */
static void test_numbered_devices(void **state)
{
    static const char *const wrong[] = {"cpu:", "cpu:x", "cpu:-1", "cpu:1x", "cuda:x", "cpu:99999999999"};
    struct error err = {0};
    struct device *dev;

    unsetenv("MUSTER_ISA");
    for (int i = 0; i < 6; i++) {
        assert_null(device_create(wrong[i], 1, &err));
        assert_int_equal(err.code, CODE_CONFIG);
        assert_non_null(strstr(err.text, wrong[i]));
    }
    dev = device_create("cpu:3", 1, &err);
    assert_non_null(dev);
    device_destroy(dev);
    dev = device_create("cuda:1", 0, &err);
    if (!dev) {
        assert_int_equal(err.code, CODE_CONFIG);
        assert_non_null(strstr(err.text, "device \"cuda"));
        assert_null(strchr(err.text, '\n'));
    }
    device_destroy(dev);
}

static void test_threads(void **state)
{
    struct error err = {0};
    struct device *one, *all;

    setenv("OMP_NUM_THREADS", "3,1", 1);
    one = device_create("cpu", 1, &err);
    all = device_create("cpu", 0, &err);
    assert_int_equal(one->threads, 1);
    assert_int_equal(all->threads, 3);
    assert_non_null(strstr(device_describe(one), "1 thread,"));
    assert_non_null(strstr(device_describe(all), "3 threads,"));
    device_destroy(one);
    device_destroy(all);
    unsetenv("OMP_NUM_THREADS");
}

static void check_plain(struct device *dev)
{
    static const size_t counts[] = {1, 7, 65, 40001};

    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        size_t count = counts[c], bytes = count * sizeof(float);
        float *x = random_floats(dev, count, "x"), *y = poisoned_floats(dev, count);
        double *zeros = reference(dev, count);

        device_kernels(dev)->copy(dev, y, x, bytes);
        expect_same("copy", y, x, bytes);
        device_kernels(dev)->zero(dev, y, bytes);
        expect_close("zero", y, zeros, count, 0);
    }
}

static void test_plain(void **state)
{
    each_device(check_plain);
}

/* What it works in does not stay, and the peak is that of the caller. */
static void test_measure_peak(void **state)
{
    struct device *dev;

    if (getenv("MUSTER_TEST_EMULATED")) /* products that take a device a moment take minutes there */
        skip();
    dev = make_device("baseline", 1);
    for (int dtype = DTYPE_F32; dtype <= DTYPE_F16; dtype++) {
        assert_true(device_measure_peak(dev, (enum dtype)dtype) > 1e6);
        assert_int_equal(device_bytes_peak(dev, MEMORY_DEVICE), 0);
        assert_int_equal(dev->bytes_used[MEMORY_DEVICE], 0);
    }
    finish_device(dev);
}

#define TOKENS 200
#define HIDDEN 96

/* A step's operations that need working memory, at the sizes that are foretold. Forward, a GPU's products do too. */
static void run_step(struct device *dev, const struct workspace *w)
{
    const struct kernels *k = device_kernels(dev);
    struct tensor x = random_tensor(dev, w->dtype, TOKENS * 4 * HIDDEN, "x"),
                  y = random_tensor(dev, w->dtype, x.count, "y");
    struct tensor z = random_tensor(dev, w->dtype, x.count, "z"), pre = random_tensor(dev, w->dtype, x.count, "pre");
    float *sums = poisoned_floats(dev, 4 * HIDDEN), *others = random_floats(dev, TOKENS * HIDDEN, "others");
    double norm;

    k->matmul(dev, &(struct matmul){.m = TOKENS,
                                    .n = 4 * HIDDEN,
                                    .k = HIDDEN,
                                    .dtype = w->dtype,
                                    .epilogue = w->backward ? EPILOGUE_DGELU
                                                : w->gpu    ? EPILOGUE_BIAS_GELU
                                                            : EPILOGUE_NONE,
                                    .a = x.at,
                                    .b = y.at,
                                    .bias = y.at,
                                    .aux = pre.at,
                                    .c = z.at});
    k->attention_forward(dev, &(struct attention){.batch = 2,
                                                  .seq = w->seq,
                                                  .heads = HIDDEN / w->head_size,
                                                  .kv_heads = w->kv_heads ? w->kv_heads : w->heads,
                                                  .window = w->window,
                                                  .causal = w->window > 0,
                                                  .head_size = w->head_size,
                                                  .dtype = w->dtype,
                                                  .qkv = x.at,
                                                  .out = y.at,
                                                  .lse = others});
    if (!w->backward)
        return;
    k->attention_backward(dev, &(struct attention){.batch = 2,
                                                   .seq = w->seq,
                                                   .heads = HIDDEN / w->head_size,
                                                   .kv_heads = w->kv_heads ? w->kv_heads : w->heads,
                                                   .window = w->window,
                                                   .causal = w->window > 0,
                                                   .head_size = w->head_size,
                                                   .dtype = w->dtype,
                                                   .qkv = x.at,
                                                   .out = y.at,
                                                   .dout = y.at,
                                                   .lse = others,
                                                   .dqkv = z.at});
    k->norm_backward(dev, &(struct norm_backward){.rows = TOKENS,
                                                  .cols = HIDDEN,
                                                  .dtype = w->dtype,
                                                  .dy = x.at,
                                                  .sum = y.at,
                                                  .gamma = y.at,
                                                  .mean = others,
                                                  .rstd = others,
                                                  .dx = z.at,
                                                  .dgamma = sums,
                                                  .dbeta = sums + HIDDEN});
    k->bias_backward(dev, w->dtype, sums, x.at, TOKENS, 4 * HIDDEN, false);
    k->sum_of_squares(dev, &norm, &(struct squares){others, TOKENS * HIDDEN}, 1);
}

/* Foretold to the byte, on one device after the other. */
static void test_workspace(void **state)
{
    for (int i = 0; i < 48; i++) {
        struct device *dev = make_device(i % 2 ? "avx512" : "baseline", 1 + i / 2 % 2);
        struct workspace w = {.dtype = (enum dtype)(i / 4 % 3),
                              .products = true,
                              .rows = TOKENS,
                              .norm_cols = HIDDEN,
                              .bias_cols = 4 * HIDDEN,
                              .gelu_cols = 4 * HIDDEN,
                              .seq = TOKENS / 2,
                              .head_size = 32,
                              .heads = HIDDEN / 32,
                              .squares = TOKENS * HIDDEN / SQUARES_BLOCK,
                              .kv_heads = i < 24 ? 0 : 1,
                              .window = i < 24 ? 0 : 30,
                              .backward = i % 24 < 12};

        if (!dev)
            continue;
        w.threads = dev->threads;
        w.widens = device_traits(dev, w.dtype).widens;
        w.gpu = device_traits(dev, w.dtype).gpu;
        run_step(dev, &w);
        assert_int_equal(dev->workspace, kernels_workspace_bytes(&w));
        finish_device(dev);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory),         cmocka_unit_test(test_more_memory_than_there_is),
        cmocka_unit_test(test_failure_sticks), cmocka_unit_test(test_after_a_failed_test),
        cmocka_unit_test(test_wrong_products), cmocka_unit_test(test_wrong_attention),
        cmocka_unit_test(test_wrong_devices),  cmocka_unit_test(test_numbered_devices),
        cmocka_unit_test(test_threads),        cmocka_unit_test(test_plain),
        cmocka_unit_test(test_measure_peak),   cmocka_unit_test(test_workspace),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
