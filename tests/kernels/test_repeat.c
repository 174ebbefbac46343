#include "tests/kernels/harness.h"

#include <math.h>

/*
 * The same operation again, on buffers at other addresses: the same bits. And, for all but matmul, whose library
 * decides, the same bits with 1 thread and with 2.
 */

#define ROWS  70
#define BATCH 2
#define SEQ   35
#define HEADS 3
#define SIZE  20
#define D     (HEADS * SIZE)
#define MOST  (ROWS * 3 * D)

struct run {
    float *out[4]; /* of the operation, MOST floats each, in one buffer */
};

typedef void operation(struct device *dev, int shift, struct run *run);

/* Inputs lie `shift` floats into their buffers. */
static float *input(struct device *dev, int shift, size_t count, const char *name)
{
    float *x = random_floats(dev, count, name), *y = poisoned_floats(dev, count + shift) + shift;

    memcpy(y, x, count * sizeof *x);
    return y;
}

static void do_matmul(struct device *dev, int shift, struct run *run)
{
    struct matmul op = {.m = ROWS,
                        .n = 3 * D,
                        .k = D,
                        .epilogue = EPILOGUE_BIAS_GELU,
                        .aux = run->out[1],
                        .c = run->out[0],
                        .a = input(dev, shift, ROWS * D, "a"),
                        .b = input(dev, shift, 3 * D * D, "b"),
                        .bias = input(dev, shift, 3 * D, "bias")};

    device_kernels(dev)->matmul(dev, &op);
}

static void do_attention(struct device *dev, int shift, struct run *run)
{
    float *qkv = input(dev, shift, ROWS * 3 * D, "qkv"), *dout = input(dev, shift, ROWS * D, "dout");

    device_kernels(dev)->attention_forward(dev, &(struct attention){.batch = BATCH,
                                                                    .seq = SEQ,
                                                                    .heads = HEADS,
                                                                    .kv_heads = HEADS,
                                                                    .head_size = SIZE,
                                                                    .causal = true,
                                                                    .qkv = qkv,
                                                                    .out = run->out[0],
                                                                    .lse = run->out[1]});
    device_kernels(dev)->attention_backward(dev, &(struct attention){.batch = BATCH,
                                                                     .seq = SEQ,
                                                                     .heads = HEADS,
                                                                     .kv_heads = HEADS,
                                                                     .head_size = SIZE,
                                                                     .causal = true,
                                                                     .qkv = qkv,
                                                                     .out = run->out[0],
                                                                     .dout = dout,
                                                                     .lse = run->out[1],
                                                                     .dqkv = run->out[2]});
}

/* Of 3 heads, which share keys. */
static void do_grouped_attention(struct device *dev, int shift, struct run *run)
{
    struct attention op = {.batch = BATCH,
                           .seq = SEQ,
                           .heads = HEADS,
                           .kv_heads = 1,
                           .head_size = SIZE,
                           .causal = true,
                           .window = 20,
                           .qkv = input(dev, shift, ROWS * 5 * SIZE, "qkv"),
                           .out = run->out[0],
                           .lse = run->out[1],
                           .dout = input(dev, shift, ROWS * D, "dout"),
                           .dqkv = run->out[2]};

    device_kernels(dev)->attention_forward(dev, &op);
    device_kernels(dev)->attention_backward(dev, &op);
}

static void do_norm(struct device *dev, int shift, struct run *run)
{
    float *x = input(dev, shift, ROWS * D, "x"), *dy = input(dev, shift, ROWS * D, "dy");
    float *gamma = input(dev, shift, D, "gamma"), *mean = run->out[3], *rstd = run->out[3] + ROWS;

    device_kernels(dev)->norm_forward(dev, &(struct norm){.eps = 1e-5f,
                                                          .rows = ROWS,
                                                          .cols = D,
                                                          .x = x,
                                                          .gamma = gamma,
                                                          .beta = gamma,
                                                          .y = run->out[0],
                                                          .mean = mean,
                                                          .rstd = rstd});
    device_kernels(dev)->norm_backward(dev, &(struct norm_backward){.rows = ROWS,
                                                                    .cols = D,
                                                                    .dy = dy,
                                                                    .sum = x,
                                                                    .gamma = gamma,
                                                                    .mean = mean,
                                                                    .rstd = rstd,
                                                                    .dx = run->out[1],
                                                                    .dgamma = run->out[2],
                                                                    .dbeta = run->out[2] + D});
    device_kernels(dev)->bias_backward(dev, DTYPE_F32, run->out[3] + 2 * ROWS, dy, ROWS, D, false);
}

static void do_rms_norm(struct device *dev, int shift, struct run *run)
{
    float *x = input(dev, shift, ROWS * D, "x"), *dy = input(dev, shift, ROWS * D, "dy");
    float *gamma = input(dev, shift, D, "gamma");

    device_kernels(dev)->norm_forward(
        dev, &(struct norm){
                 .eps = 1e-5f, .rows = ROWS, .cols = D, .x = x, .gamma = gamma, .y = run->out[0], .rstd = run->out[3]});
    device_kernels(dev)->norm_backward(dev, &(struct norm_backward){.rows = ROWS,
                                                                    .cols = D,
                                                                    .dy = dy,
                                                                    .sum = x,
                                                                    .gamma = gamma,
                                                                    .rstd = run->out[3],
                                                                    .dx = run->out[1],
                                                                    .dgamma = run->out[2]});
}

static void do_query_key(struct device *dev, int shift, struct run *run)
{
    float *qkv = input(dev, shift, ROWS * 3 * D, "qkv"), *dqkv = input(dev, shift, ROWS * 3 * D, "dqkv");
    struct query_key op = {.rows = ROWS,
                           .seq = SEQ,
                           .heads = HEADS,
                           .kv_heads = HEADS,
                           .head_size = SIZE,
                           .eps = 1e-6f,
                           .qkv = run->out[0],
                           .angles = input(dev, shift, SEQ * SIZE, "angles"),
                           .gamma_q = input(dev, shift, SIZE, "gamma_q"),
                           .gamma_k = input(dev, shift, SIZE, "gamma_k"),
                           .before = run->out[2],
                           .rstd = run->out[3],
                           .dgamma_q = run->out[3] + ROWS * 2 * HEADS,
                           .dgamma_k = run->out[3] + ROWS * 2 * HEADS + SIZE};

    memcpy(run->out[0], qkv, ROWS * 3 * D * sizeof *qkv);
    memcpy(run->out[1], dqkv, ROWS * 3 * D * sizeof *dqkv);
    device_kernels(dev)->query_key_forward(dev, &op);
    op.qkv = run->out[1];
    device_kernels(dev)->query_key_backward(dev, &op);
}

static void do_gated(struct device *dev, int shift, struct run *run)
{
    struct gated op = {
        .rows = ROWS, .cols = D, .x = input(dev, shift, ROWS * 2 * D, "x"), .y = run->out[0], .dx = run->out[1]};

    memcpy(run->out[1], input(dev, shift, ROWS * 2 * D, "dx"), ROWS * 2 * D * sizeof(float));
    device_kernels(dev)->gated_forward(dev, &op);
    device_kernels(dev)->gated_backward(dev, &op);
}

static void do_cross_entropy(struct device *dev, int shift, struct run *run)
{
    int32_t *targets = int_buffer(dev, ROWS);
    struct cross_entropy op = {.rows = ROWS,
                               .vocab = D - 1,
                               .stride = D,
                               .targets = targets,
                               .max = run->out[1],
                               .sum = run->out[1] + ROWS,
                               .target = run->out[2],
                               .loss = run->out[3],
                               .scale = 1,
                               .logits = input(dev, shift, ROWS * D, "logits")};

    for (int row = 0; row < ROWS; row++)
        targets[row] = row % D - 1;
    device_kernels(dev)->cross_entropy_stats(dev, &op);
    device_kernels(dev)->cross_entropy_finish(dev, &op);
    memcpy(run->out[0], op.logits, ROWS * D * sizeof(float));
}

static void do_embedding_backward(struct device *dev, int shift, struct run *run)
{
    int32_t *tokens = int_buffer(dev, ROWS);

    for (int row = 0; row < ROWS; row++)
        tokens[row] = row % 7;
    memset(run->out[0], 0, 7 * D * sizeof(float));
    device_kernels(dev)->embedding_backward(dev, &(struct embedding){.rows = ROWS,
                                                                     .cols = D,
                                                                     .vocab = 7,
                                                                     .tokens = tokens,
                                                                     .x = input(dev, shift, ROWS * D, "dx"),
                                                                     .dwte = run->out[0]});
}

static void do_optimizer(struct device *dev, int shift, struct run *run)
{
    float *grad = input(dev, shift, MOST, "grad");
    double sum;

    for (int i = 0; i < 3; i++)
        memset(run->out[i], 0, MOST * sizeof(float));
    device_kernels(dev)->sum_of_squares(dev, &sum, &(struct squares){grad, MOST}, 1);
    for (int i = 0; i < 3; i++) { /* floats that add up to it: half of its bits may be no number */
        run->out[3][i] = (float)sum;
        sum -= run->out[3][i];
    }
    device_kernels(dev)->adamw(dev,
                               &(struct adamw){.count = MOST,
                                               .param = run->out[0],
                                               .exp_avg = run->out[1],
                                               .exp_avg_sq = run->out[2],
                                               .grad = grad,
                                               .grad_scale = 0.1f,
                                               .lr = 1,
                                               .beta1 = 0.9f,
                                               .beta2 = 0.95f,
                                               .eps = 1e-8f,
                                               .bias1 = 0.1f,
                                               .bias2 = 0.05f},
                               1);
}

static void run_into(float *result, const char *isa, int threads, int shift, operation *op)
{
    struct device *dev = make_device(isa, threads);
    struct run run;

    for (int i = 0; i < 4; i++) {
        run.out[i] = poisoned_floats(dev, MOST + shift) + shift;
        memset(run.out[i], 0, MOST * sizeof(float));
    }
    op(dev, shift, &run);
    for (int i = 0; i < 4; i++)
        memcpy(result + i * MOST, run.out[i], MOST * sizeof(float));
    finish_device(dev);
}

/* Whether something was computed at all: else equality would say nothing. */
static void expect_content(const float *result)
{
    int nonzero = 0;

    for (int i = 0; i < 4 * MOST; i++) {
        assert_true(isfinite(result[i]));
        nonzero += result[i] != 0;
    }
    assert_true(nonzero > 100);
}

/* Floats by which operands may be shifted: kernels.h says of which they must be a multiple for the same bits. */
static int unit_of(operation *op)
{
    bool library = other_device() && strcmp(other_device(), "cuda") == 0;

    return library && op == do_matmul ? 16 / (int)sizeof(float) : 1;
}

static void check(operation *op, bool across_threads)
{
    static const char *const isas[] = {"baseline", "avx2", "avx512"};
    static float first[4 * MOST], again[4 * MOST];

    for (int isa = 0; isa < 3; isa++) {
        struct device *dev = make_device(isas[isa], 1);

        if (!dev)
            continue;
        finish_device(dev);
        for (int threads = 1; threads <= 2; threads++) {
            if (threads == 1 || !across_threads)
                run_into(first, isas[isa], threads, 0, op);
            expect_content(first);
            for (int shift = 0; shift < 16; shift += 5) {
                run_into(again, isas[isa], threads, shift * unit_of(op), op);
                expect_same(isas[isa], again, first, sizeof first);
            }
        }
    }
}

#define TEST(name, across_threads)                                                                                     \
    static void test_##name(void **state)                                                                              \
    {                                                                                                                  \
        check(do_##name, across_threads);                                                                              \
    }

TEST(matmul, false)
TEST(attention, true)
TEST(grouped_attention, true)
TEST(norm, true)
TEST(rms_norm, true)
TEST(query_key, true)
TEST(gated, true)
TEST(cross_entropy, true)
TEST(embedding_backward, true)
TEST(optimizer, true)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_matmul),
        cmocka_unit_test(test_attention),
        cmocka_unit_test(test_grouped_attention),
        cmocka_unit_test(test_norm),
        cmocka_unit_test(test_rms_norm),
        cmocka_unit_test(test_query_key),
        cmocka_unit_test(test_gated),
        cmocka_unit_test(test_cross_entropy),
        cmocka_unit_test(test_embedding_backward),
        cmocka_unit_test(test_optimizer),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
