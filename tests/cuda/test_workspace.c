#include "kernels/cuda/cuda.h"
#include "tests/cmocka_test.h"
#include "tests/cuda/emulated_device.h"

/* The formulas of workspace.h are what the operations ask for, and kernels_workspace_bytes is the most of them. */

static struct device *dev;
static struct error err;

static int open_device(void **state)
{
    dev = device_open(&backend_cuda_emulated, 0, 1, &err);
    return dev ? 0 : -1;
}

static int close_device(void **state)
{
    device_destroy(dev);
    return 0;
}

/* Zeros: what the numbers are does not matter here. */
static void *zeros(size_t bytes)
{
    void *at = device_alloc(dev, MEMORY_DEVICE, bytes, &err);

    assert_non_null(at);
    device_kernels(dev)->zero(dev, at, bytes);
    return at;
}

static void expect_workspace(size_t bytes)
{
    if (device_status(dev, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(dev->workspace, bytes);
    dev->backend->trim(dev);
}

static void test_columns(void **state)
{
    static const int sizes[][2] = {{1, 1}, {33, 300}, {1000, 40}, {70, 5000}};

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        int rows = sizes[i][0], cols = sizes[i][1];
        float *x = zeros((size_t)rows * (size_t)cols * sizeof *x), *sum = zeros(2 * (size_t)cols * sizeof *sum);
        int32_t *types = zeros((size_t)rows * sizeof *types);

        device_kernels(dev)->bias_backward(dev, DTYPE_F32, sum, x, rows, cols, false);
        expect_workspace(workspace_column_sums(rows, cols, 1));
        device_kernels(dev)->position_embedding_backward(
            dev,
            &(struct position_embedding){.rows = rows, .cols = cols, .seq = rows, .types = types, .x = x, .dwtt = sum});
        expect_workspace(workspace_column_sums(rows, cols, 2));
        device_free(dev, MEMORY_DEVICE, x);
        device_free(dev, MEMORY_DEVICE, sum);
        device_free(dev, MEMORY_DEVICE, types);
    }
}

/* x: more than it needs. */
static void check_query_key(int rows, int heads, void *x)
{
    device_kernels(dev)->query_key_backward(dev, &(struct query_key){.rows = rows,
                                                                     .seq = rows,
                                                                     .heads = heads,
                                                                     .kv_heads = 1,
                                                                     .head_size = 2,
                                                                     .qkv = x,
                                                                     .gamma_q = x,
                                                                     .gamma_k = x,
                                                                     .before = x,
                                                                     .rstd = x,
                                                                     .dgamma_q = x,
                                                                     .dgamma_k = x});
    expect_workspace(workspace_query_key_backward(rows, heads, 2));
}

static void check_rows(int rows, int cols)
{
    size_t count = (size_t)rows * (size_t)cols;
    float *x = zeros(count * sizeof *x), *sum = zeros((size_t)cols * 7 * sizeof *sum);
    float *mean = zeros((size_t)rows * sizeof *mean), *dx = zeros(count * sizeof *dx);
    int32_t *tokens = zeros((size_t)rows * sizeof *tokens);

    device_kernels(dev)->norm_backward(dev, &(struct norm_backward){.rows = rows,
                                                                    .cols = cols,
                                                                    .dy = x,
                                                                    .sum = x,
                                                                    .gamma = sum,
                                                                    .mean = mean,
                                                                    .rstd = mean,
                                                                    .dx = dx,
                                                                    .dgamma = sum,
                                                                    .dbeta = sum + cols});
    expect_workspace(workspace_norm_backward(rows, cols));
    check_query_key(rows, 1 + cols % 7, x);
    device_kernels(dev)->embedding_backward(
        dev, &(struct embedding){.rows = rows, .cols = cols, .vocab = 7, .tokens = tokens, .x = x, .dwte = sum});
    expect_workspace(workspace_embedding_backward((size_t)rows, (size_t)cols));
    device_free(dev, MEMORY_DEVICE, x);
    device_free(dev, MEMORY_DEVICE, sum);
    device_free(dev, MEMORY_DEVICE, mean);
    device_free(dev, MEMORY_DEVICE, dx);
    device_free(dev, MEMORY_DEVICE, tokens);
}

static void test_rows(void **state)
{
    check_rows(1, 8);
    check_rows(67, 1024);
    check_rows(70, 1032);
    check_rows(600, 2100);
}

static void test_attention_and_squares(void **state)
{
    const size_t rows = 2 * 19, hidden = 3 * 16;
    float *qkv = zeros(rows * 3 * hidden * sizeof *qkv), *out = zeros(rows * hidden * sizeof *out);
    float *lse = zeros(rows * 3 * sizeof *lse), *dqkv = zeros(rows * 3 * hidden * sizeof *dqkv);
    double sum;

    device_kernels(dev)->attention_backward(dev, &(struct attention){.batch = 2,
                                                                     .seq = 19,
                                                                     .heads = 3,
                                                                     .kv_heads = 3,
                                                                     .head_size = 16,
                                                                     .qkv = qkv,
                                                                     .out = out,
                                                                     .dout = out,
                                                                     .lse = lse,
                                                                     .dqkv = dqkv});
    expect_workspace(workspace_attention_backward(rows, 3));
    device_kernels(dev)->sum_of_squares(dev, &sum, (struct squares[]){{qkv, rows * 3 * hidden}, {NULL, 0}, {lse, 3}},
                                        3);
    expect_workspace(workspace_sum_of_squares(3));
    device_free(dev, MEMORY_DEVICE, qkv);
    device_free(dev, MEMORY_DEVICE, out);
    device_free(dev, MEMORY_DEVICE, lse);
    device_free(dev, MEMORY_DEVICE, dqkv);
}

static const size_t MIB = 1 << 20;

/* Sizes of a model of 12 layers, 768 wide, at 16 samples of 1024. */
static struct workspace sizes_of(enum dtype dtype)
{
    return (struct workspace){
        .attention = ATTENTION_OWN,
        .gpu = true,
        .dtype = dtype,
        .backward = true,
        .rows = 16384,
        .norm_cols = 768,
        .bias_cols = 3072,
        .gelu_cols = 3072,
        .seq = 1024,
        .head_size = 64,
        .heads = 12,
    };
}

static void test_foretold(void **state)
{
    struct workspace w = sizes_of(DTYPE_BF16);

    assert_int_equal(kernels_workspace_bytes(&w), 32 * MIB); /* nothing wants more than cuBLASLt */
    w = sizes_of(DTYPE_F32);
    assert_int_equal(kernels_workspace_bytes(&w), 32 * MIB + 16384 * 3072 * sizeof(float)); /* gelu is our own */
    w = sizes_of(DTYPE_BF16);
    w.bias_cols = 3074; /* rows that begin at no 16 bytes */
    assert_int_equal(kernels_workspace_bytes(&w), 32 * MIB + 16384 * 3074 * sizeof(float));
    w = sizes_of(DTYPE_BF16);
    w.rows = 65536;
    w.norm_cols = w.bias_cols = w.gelu_cols = 4096;
    assert_int_equal(kernels_workspace_bytes(&w), workspace_embedding_backward(65536, 4096));
    w.backward = false;
    assert_int_equal(kernels_workspace_bytes(&w), 32 * MIB);
}

/* cuDNN's attention: 16-bit gradients of all scores, delta, and 16 MiB for its plan. */
static void test_cudnn(void **state)
{
    const size_t bytes = 16384 * (size_t)12 * 1024 * 2 + 16384 * 12 * sizeof(float) + 16 * MIB;
    struct workspace w = sizes_of(DTYPE_BF16);

    w.attention = ATTENTION_CUDNN;
    assert_int_equal(kernels_workspace_bytes(&w), bytes);
    w.attention = ATTENTION_AUTO;
    assert_int_equal(kernels_workspace_bytes(&w), bytes);
    w.attention = ATTENTION_CUDNN;
    w.kv_heads = 4; /* and dk and dv of each head of queries, in 16 bits */
    assert_int_equal(kernels_workspace_bytes(&w), bytes + 2 * 16384 * 768 * 2);
    w.attention = ATTENTION_AUTO;
    assert_int_equal(kernels_workspace_bytes(&w), bytes + 2 * 16384 * 768 * 2);
    w.kv_heads = 0;
    w.head_size = 32;
    assert_int_equal(kernels_workspace_bytes(&w), 32 * MIB);
    w.attention = ATTENTION_OWN;
    w.head_size = 64;
    assert_int_equal(kernels_workspace_bytes(&w), 32 * MIB);
}

/* As many samples at a time as need 1 GiB, in parts of about the same size. */
static void test_cudnn_samples(void **state)
{
    assert_int_equal(cudnn_backward_samples(16, 12, 1024), 16);
    assert_int_equal(cudnn_backward_samples(64, 12, 1024), 32); /* of 24 MiB each */
    assert_int_equal(cudnn_backward_samples(85, 12, 1024), 29);
    assert_int_equal(cudnn_backward_samples(3, 12, 8192), 1); /* of 1.5 GiB */
    assert_int_equal(cudnn_backward_samples(0, 12, 1024), 0);
    assert_int_equal(workspace_attention_cudnn(3, 12, 8192, 0),
                     12 * (size_t)8192 * 8192 * 2 + 12 * 8192 * sizeof(float) + 16 * MIB);
}

static void test_use_cudnn(void **state)
{
    struct workspace w = sizes_of(DTYPE_F16);
    struct workspace changed;

    w.attention = ATTENTION_AUTO;
    w.head_size = 128;
    assert_true(kernels_use_cudnn(&w));
    w.seq = 16384;
    assert_true(kernels_use_cudnn(&w));
    w.seq = 384;
    assert_false(kernels_use_cudnn(&w));
    w.seq = 512;
    w.head_size = 56;
    assert_false(kernels_use_cudnn(&w));
    w.attention = ATTENTION_CUDNN;
    assert_true(kernels_use_cudnn(&w));
    w.head_size = 128;
    changed = w, changed.seq = 1000;
    assert_false(kernels_use_cudnn(&changed));
    changed = w, changed.seq = 64;
    assert_false(kernels_use_cudnn(&changed));
    changed = w, changed.masked = true;
    assert_false(kernels_use_cudnn(&changed));
    changed = w, changed.dtype = DTYPE_F32;
    assert_false(kernels_use_cudnn(&changed));
    changed = w, changed.head_size = 100;
    assert_false(kernels_use_cudnn(&changed));
    changed = w, changed.window = 100;
    assert_false(kernels_use_cudnn(&changed));
    changed = w, changed.kv_heads = 4;
    assert_true(kernels_use_cudnn(&changed));
    changed.attention = ATTENTION_AUTO;
    assert_true(kernels_use_cudnn(&changed));
    changed = w, changed.gpu = false;
    assert_false(kernels_use_cudnn(&changed));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_columns, open_device, close_device),
        cmocka_unit_test_setup_teardown(test_rows, open_device, close_device),
        cmocka_unit_test_setup_teardown(test_attention_and_squares, open_device, close_device),
        cmocka_unit_test(test_foretold),
        cmocka_unit_test(test_cudnn),
        cmocka_unit_test(test_cudnn_samples),
        cmocka_unit_test(test_use_cudnn),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
