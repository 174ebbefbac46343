#include "tests/kernels/attention_case.h"

#include <math.h>

#include "kernels/cuda/cuda.h"
#include "tests/cuda/emulated_device.h"
#include "tests/cuda/emulator_seed.h"

/* The attention kernels for GPUs, emulated, against float64. */

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

/* Against float64; `size` as attention_expect_lse has it. */
static void check_forward(struct device *dev, const struct attention_case *x, struct attention_buffers b, double size)
{
    size_t rows = (size_t)x->batch * (size_t)x->heads * (size_t)x->seq;
    double *qkv = tensor_values(dev, b.qkv), *out = reference(dev, b.out.count), *lse = reference(dev, rows);

    attention_forward_on(dev, x, &b);
    assert_int_equal(device_status(dev, &(struct error){0}), 0);
    attention_reference_forward(x, qkv, out, lse);
    attention_expect_rows("out", b.out, out, x->head_size, 1);
    attention_expect_lse(b.lse, lse, rows, size);
}

static void check_backward(struct device *dev, const struct attention_case *x, struct attention_buffers b)
{
    double *qkv = tensor_values(dev, b.qkv), *dout = tensor_values(dev, b.dout), *out = tensor_values(dev, b.out);
    double *dqkv = reference(dev, b.dqkv.count);

    attention_backward_on(dev, x, &b);
    assert_int_equal(device_status(dev, &(struct error){0}), 0);
    attention_reference_backward(x, qkv, out, dout, dqkv);
    attention_expect_rows("dqkv", b.dqkv, dqkv, x->head_size, 1);
}

static void check_case(enum dtype dtype, const struct attention_case *x)
{
    struct device *dev = open_device();
    struct attention_buffers b = attention_make(dev, dtype, x, 1);

    check_forward(dev, x, b, 1);
    check_backward(dev, x, b);
    finish_device(dev);
}

/* Sizes that have kernels of their own, and others that are padded to these: rows of whole chunks, of 4, and of 2
 * elements. */
static const int sizes[] = {32, 64, 80, 96, 128, 160, 192, 224, 256};
static const int padded[] = {6, 50, 72, 84, 112, 150, 178, 208, 230};

enum { SIZES = sizeof sizes / sizeof *sizes };

/* Each head size of a list; all else is as in `x`. A test takes bf16 for one list and fp16 for the other, and another
 * test the reverse. */
static void check_sizes(enum dtype dtype, const int list[SIZES], struct attention_case x)
{
    for (int i = 0; i < SIZES; i++) {
        x.head_size = list[i];
        check_case(dtype, &x);
    }
}

static void test_whole(void **state)
{
    check_sizes(DTYPE_BF16, sizes, (struct attention_case){.batch = 1, .seq = 150, .heads = 1});
    check_sizes(DTYPE_F16, padded, (struct attention_case){.batch = 1, .seq = 70, .heads = 2});
}

static void test_causal(void **state)
{
    check_sizes(DTYPE_F16, sizes, (struct attention_case){.batch = 1, .seq = 70, .heads = 2, .causal = true});
    check_sizes(DTYPE_BF16, padded, (struct attention_case){.batch = 1, .seq = 150, .heads = 1, .causal = true});
}

/* Scores that rise, or fall, by as much from each key to the next: so that tiles go on with the maximum of those
 * before, or begin a new one, after one tile or after several. */
static void test_climbing(void **state)
{
    static const double steps[] = {1.0 / 256, 1.0 / 128, 1.0 / 16, -1.0 / 64};

    for (size_t step = 0; step < sizeof steps / sizeof *steps; step++)
        for (size_t i = step; i < SIZES; i += sizeof steps / sizeof *steps) {
            static const int32_t lengths[] = {201};
            struct attention_case x = {.batch = 1,
                                       .seq = 250,
                                       .heads = 1,
                                       .head_size = sizes[i],
                                       .causal = step % 2,
                                       .lengths = i % 2 ? lengths : NULL};
            struct device *dev = open_device();
            struct attention_buffers b = attention_make(dev, i % 4 < 2 ? DTYPE_F16 : DTYPE_BF16, &x, 1);

            for (int row = 0; row < x.seq; row++)
                for (int j = 0; j < x.head_size; j++) {
                    size_t q = (size_t)(row * 3 * x.head_size + j), k = q + (size_t)x.head_size;

                    tensor_set(b.qkv, q, 1);
                    tensor_set(b.qkv, k, tensor_get(b.qkv, k) + steps[step] * row);
                }
            check_forward(dev, &x, b, 250 * fabs(steps[step]));
            finish_device(dev);
        }
}

/* One sample cut short, one empty, one longer than it can be. */
static void test_lengths(void **state)
{
    static const int32_t lengths[] = {51, 0, 1000};
    struct attention_case x = {.batch = 3, .seq = 70, .heads = 1, .lengths = lengths};

    check_sizes(DTYPE_F16, padded, x);
    x.causal = true;
    check_sizes(DTYPE_BF16, sizes, x);
}

static void test_short(void **state)
{
    for (int seq = 1; seq < 20; seq += 7)
        check_sizes(seq == 1 ? DTYPE_BF16 : DTYPE_F16, seq == 8 ? padded : sizes,
                    (struct attention_case){.batch = 2, .seq = seq, .heads = 1, .causal = true});
}

static void test_dropout(void **state)
{
    static const int32_t lengths[] = {130, 29};
    struct attention_case x = {
        .batch = 1, .seq = 136, .heads = 1, .causal = true, .dropout = even_dropout, .dropout_stride = 8 * 5555};

    check_sizes(DTYPE_BF16, sizes, x);
    x.batch = 2;
    x.seq = 72;
    x.causal = false;
    x.lengths = lengths;
    check_sizes(DTYPE_F16, padded, x);
}

/* One document that fills tiles, one within a tile, one of a single token. */
static void test_document_starts(void **state)
{
    int32_t starts[150];
    struct attention_case x = {.batch = 1, .seq = 150, .heads = 1, .causal = true, .document_start = starts};

    for (int i = 0; i < 150; i++)
        starts[i] = i < 80 ? 0 : i < 81 ? 80 : i < 95 ? 81 : 95;
    check_sizes(DTYPE_F16, sizes, x);
    x.seq = 144;
    x.dropout = even_dropout;
    check_sizes(DTYPE_BF16, padded, x);
}

/* Several heads of queries to one of keys: all of them, or some. */
static void test_shared_keys(void **state)
{
    static const int32_t lengths[] = {51, 1000};
    struct attention_case x = {.batch = 1, .seq = 150, .heads = 3, .kv_heads = 1, .causal = true};

    check_sizes(DTYPE_BF16, sizes, x);
    x = (struct attention_case){.batch = 2, .seq = 40, .heads = 4, .kv_heads = 2, .lengths = lengths};
    check_sizes(DTYPE_F16, padded, x);
    x = (struct attention_case){
        .batch = 1, .seq = 72, .heads = 4, .kv_heads = 2, .dropout = even_dropout, .dropout_stride = 8 * 5555};
    check_sizes(DTYPE_F16, sizes, x);
}

/* Windows of one key, within a tile, of a tile, across tiles, and one that leaves one query without key 0. */
static void test_window(void **state)
{
    static const int windows[] = {1, 7, 64, 100, 149};
    struct attention_case x = {.batch = 1, .seq = 150, .heads = 1, .causal = true};

    for (size_t i = 0; i < sizeof windows / sizeof *windows; i++) {
        x.window = windows[i];
        for (size_t j = i % 2; j < SIZES; j += 2) {
            x.head_size = i % 3 ? sizes[j] : padded[j];
            check_case(j % 4 < 2 ? DTYPE_BF16 : DTYPE_F16, &x);
        }
    }
}

/* A window and documents, shorter and longer than it, with shared keys; then with dropout. */
static void test_window_in_documents(void **state)
{
    int32_t starts[2 * 136];
    struct attention_case x = {
        .batch = 2, .seq = 136, .heads = 2, .kv_heads = 1, .window = 35, .causal = true, .document_start = starts};

    for (int i = 0; i < 2 * 136; i++)
        starts[i] = i % 136 < 20 ? 0 : i % 136 < 31 ? 20 : 31;
    check_sizes(DTYPE_BF16, padded, x);
    x.batch = 1;
    x.dropout = even_dropout;
    check_sizes(DTYPE_F16, sizes, x);
}

/* A head size with whatever else `random` asks for. */
static void check_random(int head_size, const uint32_t random[4])
{
    const int32_t lengths[] = {(int32_t)(random[0] % 80), 1000};
    int32_t starts[2 * 96];
    struct attention_case x = {.batch = 2,
                               .seq = 8 + (int)(random[1] % 89),
                               .heads = 1 + (int)(random[1] >> 16) % 2,
                               .head_size = head_size,
                               .causal = random[2] % 4 != 0};

    x.kv_heads = x.heads;
    x.heads *= 1 + (int)(random[2] >> 8) % 3;
    if (random[2] % 4 % 2 == 1 && random[2] >> 16 & 1)
        x.window = 1 + (int)(random[2] >> 17) % x.seq;
    if (random[3] % 3 == 0) {
        x.seq -= x.seq % 8;
        x.dropout = even_dropout;
        x.dropout_stride = 8 * 5555;
    }
    for (int i = 0; i < 2 * x.seq; i++)
        starts[i] = i % x.seq < 41 ? 0 : 41;
    if (random[2] % 4 == 1)
        x.document_start = starts;
    else if (random[2] % 4 == 2)
        x.lengths = lengths;
    check_case(random[3] >> 16 & 1 ? DTYPE_BF16 : DTYPE_F16, &x);
}

/* A dozen of the sizes from 2 to 256, others for each seed. */
static void test_any_size(void **state)
{
    for (uint32_t i = 0; i < 12; i++) {
        uint32_t counter[4] = {i}, key[2] = {(uint32_t)SEED, (uint32_t)(SEED >> 32)}, random[8];

        philox4x32_10(counter, key, random);
        counter[1] = 1;
        philox4x32_10(counter, key, random + 4);
        check_random(2 + (int)(random[4] % 255), random);
    }
}

/* What the tiles do not take. */
static void test_plain(void **state)
{
    static const int32_t lengths[] = {40, 0};
    static const int plain_sizes[] = {7, 64, 256};

    for (size_t i = 0; i < 3; i++)
        for (int dtype = DTYPE_F32; dtype <= DTYPE_F16; dtype++) {
            struct attention_case x = {.batch = 2, .seq = 43, .heads = 2, .head_size = plain_sizes[i]};

            check_case((enum dtype)dtype, &x);
            x.causal = true;
            x.lengths = lengths;
            x.kv_heads = 1;
            x.dropout = odd_dropout;
            x.dropout_stride = 100001;
            check_case((enum dtype)dtype, &x);
            x.lengths = NULL;
            x.window = 11;
            check_case((enum dtype)dtype, &x);
        }
}

/* A block of compute capability 8.6 and 8.9 has 99 KiB: where that is too little for the tiles, something else
 * computes. */
static void test_little_shared_memory(void **state)
{
    shared_limit = 99 << 10;
    for (size_t i = 0; i < SIZES; i++)
        check_case(DTYPE_BF16,
                   &(struct attention_case){.batch = 1, .seq = 72, .heads = 1, .head_size = sizes[i], .causal = true});
    shared_limit = 0;
}

/* The CPU's kernels, on the same numbers; the backward pass of both is given the CPU's out. */
static void check_cpu(enum dtype dtype, const struct attention_case *x)
{
    struct device *dev = make_device("baseline", 1);
    struct attention_buffers b = attention_make(dev, dtype, x, 1);
    double *out = malloc(b.out.count * sizeof *out), *dqkv = malloc(b.dqkv.count * sizeof *dqkv);

    attention_forward_on(dev, x, &b);
    attention_backward_on(dev, x, &b);
    for (size_t i = 0; i < b.out.count; i++)
        out[i] = tensor_get(b.out, i);
    for (size_t i = 0; i < b.dqkv.count; i++)
        dqkv[i] = tensor_get(b.dqkv, i);
    finish_device(dev);
    dev = open_device();
    b = attention_make(dev, dtype, x, 1);
    attention_forward_on(dev, x, &b);
    attention_expect_rows("out", b.out, out, x->head_size, 1);
    for (size_t i = 0; i < b.out.count; i++)
        tensor_set(b.out, i, out[i]);
    attention_backward_on(dev, x, &b);
    attention_expect_rows("dqkv", b.dqkv, dqkv, x->head_size, 1);
    finish_device(dev);
    free(out);
    free(dqkv);
}

static void test_cpu(void **state)
{
    static const int32_t lengths[] = {90, 61};

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

/* Bit for bit the same, in whatever order threads and blocks run: two orders, others for each seed. */
static void check_orders(enum dtype dtype, const struct attention_case *x, uint64_t seed)
{
    struct device *dev = open_device();
    struct attention_buffers first = attention_make(dev, dtype, x, 1);

    attention_forward_on(dev, x, &first);
    attention_backward_on(dev, x, &first);
    for (int i = 0; i < 2; i++) {
        struct attention_buffers again = first;

        again.out = poisoned_tensor(dev, dtype, first.out.count);
        again.dqkv = poisoned_tensor(dev, dtype, first.dqkv.count);
        emulator_seed(2 * seed + (uint64_t)i);
        attention_forward_on(dev, x, &again);
        attention_backward_on(dev, x, &again);
        emulator_seed(0);
        expect_same("out", again.out.at, first.out.at, first.out.count * dtype_size(dtype));
        expect_same("dqkv", again.dqkv.at, first.dqkv.at, first.dqkv.count * dtype_size(dtype));
    }
    finish_device(dev);
}

static void test_orders(void **state)
{
    for (size_t i = 0; i < SIZES; i++) {
        struct attention_case x = {.batch = 1, .seq = 136, .heads = 1, .head_size = sizes[i], .causal = true};

        check_orders(DTYPE_BF16, &x, 1 + 2 * i);
        x.head_size = padded[i];
        x.dropout = even_dropout;
        check_orders(DTYPE_BF16, &x, 2 + 2 * i);
    }
    for (size_t i = 0; i < SIZES; i += 2) {
        struct attention_case x = {
            .batch = 1, .seq = 100, .heads = 3, .kv_heads = 1, .head_size = sizes[i], .causal = true, .window = 50};

        check_orders(DTYPE_BF16, &x, 1 + i);
    }
    check_orders(DTYPE_F32, &(struct attention_case){.batch = 1, .seq = 50, .heads = 2, .kv_heads = 1, .head_size = 33},
                 1);
}

/* What the emulator's build is: one without cuDNN. */
static void test_cudnn_is_not_there(void **state)
{
    struct device *dev = open_device();
    struct error err = {0};

    assert_int_equal(device_choose_attention(dev, ATTENTION_CUDNN, &err), -1);
    assert_int_equal(err.code, CODE_CONFIG);
    assert_string_equal(err.text, "attention = \"cudnn\": muster was built without cuDNN; take \"auto\" or \"own\"");
    assert_int_equal(device_choose_attention(dev, ATTENTION_AUTO, &err), 0);
    assert_int_equal(device_traits(dev, DTYPE_BF16).attention, ATTENTION_OWN);
    finish_device(dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole),
        cmocka_unit_test(test_causal),
        cmocka_unit_test(test_climbing),
        cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_short),
        cmocka_unit_test(test_dropout),
        cmocka_unit_test(test_document_starts),
        cmocka_unit_test(test_shared_keys),
        cmocka_unit_test(test_window),
        cmocka_unit_test(test_window_in_documents),
        cmocka_unit_test(test_any_size),
        cmocka_unit_test(test_plain),
        cmocka_unit_test(test_cpu),
        cmocka_unit_test(test_orders),
        cmocka_unit_test(test_little_shared_memory),
        cmocka_unit_test(test_cudnn_is_not_there),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
