#include "tests/kernels/attention_case.h"

#include <math.h>

/* Against the textbook form with whole seq x seq matrices in float64, whose gradient is itself held to differences. */

struct shape {
    int batch, seq, heads, head_size;
};

static const struct shape shapes[] = {
    {1, 1, 1, 8}, {2, 5, 2, 20}, {1, 64, 2, 64}, {2, 100, 1, 80}, {1, 200, 2, 64}, {1, 130, 3, 7}, {2, 33, 1, 256},
};

static const struct dropout odd_dropout = {0.2, {11, 22, 33}, 1000003};
static const struct dropout even_dropout = {0.3, {5, 6, 7}, 1 << 20};

/* How attention is asked for, in every test that follows. */
struct manner {
    bool causal;
    int kv_heads; /* 0: heads */
    int window;
    const int32_t *lengths, *document_start;
    double spread; /* of qkv */
    struct dropout dropout;
    uint64_t stride;
};

static struct attention_case case_of(struct shape s, const struct manner *how)
{
    return (struct attention_case){
        .batch = s.batch,
        .seq = s.seq,
        .heads = s.heads,
        .head_size = s.head_size,
        .kv_heads = how->kv_heads,
        .causal = how->causal,
        .window = how->window,
        .lengths = how->lengths,
        .document_start = how->document_start,
        .dropout = how->dropout,
        .dropout_stride = how->stride,
    };
}

static size_t out_count(const struct attention_case *x)
{
    return (size_t)x->batch * x->seq * x->heads * x->head_size;
}

static size_t lse_count(const struct attention_case *x)
{
    return (size_t)x->batch * x->heads * x->seq;
}

/* What every device is held to. `given` is out as the backward pass is given it: rounded. */
struct want {
    struct attention_case x;
    double *qkv, *dout, *out, *given, *lse, *dqkv;
};

static double *copy_of(struct tensor t)
{
    double *x = malloc(t.count * sizeof *x);

    for (size_t i = 0; i < t.count; i++)
        x[i] = tensor_get(t, i);
    return x;
}

/* Made once for all devices, since it takes longest. */
static struct want make_want(enum dtype dtype, const struct attention_case *x, double spread)
{
    struct device *dev = make_device("baseline", 1);
    struct attention_buffers b = attention_make(dev, dtype, x, spread);
    size_t count = out_count(x);
    struct want want = {
        .x = *x,
        .qkv = copy_of(b.qkv),
        .dout = copy_of(b.dout),
        .out = malloc(count * sizeof *want.out),
        .given = malloc(count * sizeof *want.given),
        .lse = malloc(lse_count(x) * sizeof *want.lse),
        .dqkv = malloc(attention_qkv_count(x) * sizeof *want.dqkv),
    };

    finish_device(dev);
    attention_reference_forward(x, want.qkv, want.out, want.lse);
    for (size_t i = 0; i < count; i++)
        want.given[i] = dtype == DTYPE_F32 ? want.out[i] : rounded(dtype, want.out[i]);
    attention_reference_backward(x, want.qkv, want.given, want.dout, want.dqkv);
    return want;
}

static void free_want(struct want *want)
{
    free(want->qkv);
    free(want->dout);
    free(want->out);
    free(want->given);
    free(want->lse);
    free(want->dqkv);
}

/* Overwrites `given`. */
static double loss(const void *arg)
{
    const struct want *want = arg;
    double sum = 0;

    attention_reference_forward(&want->x, want->qkv, want->given, want->lse);
    for (size_t i = 0; i < out_count(&want->x); i++)
        sum += want->given[i] * want->dout[i];
    return sum;
}

/* A small shape's gradient, every element, by differences of the forward pass. */
static void compare_differences(const struct want *want, struct tensor dqkv)
{
    double *slopes = malloc(dqkv.count * sizeof *slopes);

    for (size_t i = 0; i < dqkv.count; i++)
        slopes[i] = slope(loss, want, &want->qkv[i]);
    expect_rounded("dqkv by differences", dqkv, slopes, dqkv.count, 2e-5);
    free(slopes);
}

/* A CPU rounds nothing but the result; a GPU's 16-bit products, what they are made of too. */
static void expect_result(const char *name, struct tensor got, const double *want, int size, double tolerance)
{
    bool gpu = other_device() && strncmp(other_device(), "cuda", 4) == 0;

    if (gpu && got.dtype != DTYPE_F32)
        attention_expect_rows(name, got, want, size, 1);
    else
        expect_rounded(name, got, want, got.count, tolerance);
}

static void compare(struct device *dev, enum dtype dtype, const struct want *want, double spread)
{
    struct attention_buffers b = attention_make(dev, dtype, &want->x, spread);
    double scale = spread * spread;

    attention_forward_on(dev, &want->x, &b);
    expect_result("out", b.out, want->out, want->x.head_size, 1e-5 * scale);
    attention_expect_lse(b.lse, want->lse, lse_count(&want->x), fmax(scale, 1));
    for (size_t i = 0; i < b.out.count && dtype != DTYPE_F32; i++)
        tensor_set(b.out, i, want->given[i]);
    attention_backward_on(dev, &want->x, &b);
    expect_result("dqkv", b.dqkv, want->dqkv, want->x.head_size, 2e-5 * scale);
    if (want->x.seq <= 5 && spread == 1 && dtype == DTYPE_F32)
        compare_differences(want, b.dqkv);
}

static void check_shape(enum dtype dtype, struct shape s, const struct manner *how)
{
    struct attention_case x = case_of(s, how);
    struct want want = make_want(dtype, &x, how->spread);

    for (int n = 0; n < DEVICES; n++) {
        struct device *dev = make_nth_device(n);

        if (!dev)
            continue;
        compare(dev, dtype, &want, how->spread);
        finish_device(dev);
    }
    free_want(&want);
}

/* Under compute-sanitizer's racecheck, which takes a second or more for a shape: each test of check_everywhere in one
 * shape and type. test_tensor_cores then has one type and shorter sequences, as on a CPU alone. */
static bool few_cases(void)
{
    return getenv("MUSTER_TEST_EMULATED") && other_device();
}

static void check_everywhere(struct manner how)
{
    static const struct shape several_tiles = {2, 77, 1, 20};
    static int calls;

    if (few_cases())
        check_shape((enum dtype)(calls++ % 3), several_tiles, &how);
    for (int dtype = DTYPE_F32; dtype <= DTYPE_F16 && !few_cases(); dtype++)
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
            check_shape((enum dtype)dtype, shapes[i], &how);
}

/* Query heads that share heads of keys. */
static const struct {
    struct shape shape;
    int kv_heads;
} grouped[] = {{{1, 5, 4, 10}, 2}, {{2, 100, 6, 20}, 1}, {{1, 200, 4, 64}, 2}, {{1, 300, 3, 16}, 3}};

/* Each shape in one type, which changes from call to call. */
static void check_grouped(struct manner how)
{
    static int calls;

    calls++;
    for (size_t i = 0; i < sizeof grouped / sizeof *grouped; i++) {
        how.kv_heads = grouped[i].kv_heads;
        if (!few_cases() || i == 1)
            check_shape((enum dtype)((calls + (int)i) % 3), grouped[i].shape, &how);
    }
}

static void test_groups(void **state)
{
    static const int32_t lengths[] = {70, 1000};

    for (int dtype = 0; dtype < 3; dtype++) {
        check_grouped((struct manner){.causal = true, .spread = 1});
        check_grouped((struct manner){.lengths = lengths, .spread = 1, .dropout = odd_dropout, .stride = 1000001});
    }
}

/* Of some keys, of nearly a tile's and more. */
static void test_windows(void **state)
{
    static const int windows[] = {1, 2, 3, 17, 50, 63, 64, 65, 66, 130, 200, 1000};

    for (size_t i = 0; i < sizeof windows / sizeof *windows; i++)
        check_grouped((struct manner){.causal = true, .window = windows[i], .spread = 1});
}

static void test_windows_in_documents(void **state)
{
    static const int starts[] = {0, 1, 3, 60, 63, 64, 90, 192, 250};

    for (size_t i = 0; i < sizeof grouped / sizeof *grouped; i++) {
        struct shape s = grouped[i].shape;
        struct manner how = {.causal = true, .kv_heads = grouped[i].kv_heads, .spread = 1, .stride = 1000001};
        int32_t *start = malloc((size_t)s.batch * s.seq * sizeof *start);

        for (int row = 0; row < s.batch * s.seq; row++)
            for (size_t j = 0; j < sizeof starts / sizeof *starts && starts[j] <= row % s.seq; j++)
                start[row] = starts[j];
        how.document_start = start;
        for (how.window = 2; how.window < 100; how.window += 48) {
            how.dropout = how.window == 50 ? odd_dropout : (struct dropout){0};
            check_shape((enum dtype)(i % 3), s, &how);
        }
        free(start);
    }
}

static void test_whole(void **state)
{
    check_everywhere((struct manner){.spread = 1});
}

static void test_causal(void **state)
{
    check_everywhere((struct manner){.causal = true, .spread = 1});
}

/* The first sample is cut short, the second not at all (its length is beyond seq). */
static void test_lengths(void **state)
{
    static const int32_t lengths[] = {3, 1000};

    check_everywhere((struct manner){.lengths = lengths, .spread = 1});
    check_everywhere((struct manner){.causal = true, .lengths = lengths, .spread = 1});
}

/* A sample that is all padding: out and gradients 0, lse minus infinity. */
static void test_empty_sample(void **state)
{
    static const int32_t lengths[] = {0, 2};

    check_everywhere((struct manner){.lengths = lengths, .spread = 1});
    check_everywhere((struct manner){.causal = true, .lengths = lengths, .spread = 1});
}

/* Scores in the hundreds: exp would overflow without the running maximum. */
static void test_large_scores(void **state)
{
    check_everywhere((struct manner){.causal = true, .spread = 6});
}

static void test_dropout(void **state)
{
    static const int32_t lengths[] = {70, 1000};

    check_everywhere((struct manner){.causal = true, .spread = 1, .dropout = odd_dropout, .stride = 1000001});
    check_everywhere((struct manner){.lengths = lengths, .spread = 1, .dropout = odd_dropout, .stride = 80000});
}

/* With scores all equal and V the unit matrix, out is the probabilities themselves: the mask, bit by bit. */
static void check_mask(struct device *dev, enum dtype dtype)
{
    const int seq = 139;
    const struct attention_case x = {
        .batch = 2, .seq = seq, .heads = 1, .head_size = seq, .dropout = odd_dropout, .dropout_stride = 999};
    struct attention_buffers b = attention_make(dev, dtype, &x, 0);

    for (int row = 0; row < 2 * seq; row++)
        tensor_set(b.qkv, (size_t)(3 * row + 2) * seq + row % seq, 1);
    attention_forward_on(dev, &x, &b);
    for (int row = 0; row < 2 * seq; row++)
        for (int key = 0; key < seq; key++) {
            uint64_t element = odd_dropout.first + (uint64_t)(row / seq) * 999 + (uint64_t)(row % seq * seq + key);

            if ((tensor_get(b.out, (size_t)row * seq + key) != 0) != dropout_keeps(&odd_dropout, element))
                fail_msg("sample %d, query %d, key %d: not as the mask says", row / seq, row % seq, key);
        }
}

/* What a GPU does on its tensor cores: head sizes with and without padding, several tiles of rows and a last one that is
 * not full, and dropout that begins at a multiple of 8, as training has it. */
static void test_tensor_cores(void **state)
{
    static const struct shape sizes[] = {{2, 328, 1, 64},  {1, 200, 2, 80},  {1, 136, 2, 96},
                                         {1, 264, 1, 128}, {1, 136, 2, 150}, {1, 136, 1, 224}};
    static const int32_t lengths[] = {131, 1000};
    const struct manner manners[] = {
        {.causal = true, .spread = 1},
        {.causal = true, .spread = 1, .dropout = even_dropout, .stride = 8 * 55555},
        {.lengths = lengths, .spread = 1, .dropout = even_dropout, .stride = 8 * 55555},
    };
    const bool few = few_cases() || !other_device();

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (size_t j = 0; j < sizeof manners / sizeof *manners; j++) {
            struct shape shorter = {1, 136, 1, sizes[i].head_size};

            check_shape(DTYPE_BF16, few ? shorter : sizes[i], &manners[j]);
            if (!few)
                check_shape(DTYPE_F16, sizes[i], &manners[j]);
        }
}

static void test_mask(void **state)
{
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
    const struct attention_case whole = {.batch = 2,
                                         .seq = 75,
                                         .heads = 5,
                                         .head_size = 16,
                                         .causal = true,
                                         .dropout = odd_dropout,
                                         .dropout_stride = 5 * 75 * 75};
    struct attention_case slice = whole;
    struct attention_buffers c = attention_make(dev, dtype, &whole, 1), d;
    const int rows = 2 * 75, first = 3 * 16, count = 2 * 16;
    struct tensor want;

    slice.heads = 2;
    slice.dropout.first += 3 * 75 * 75;
    d = attention_make(dev, dtype, &slice, 1);
    want = poisoned_tensor(dev, dtype, d.dqkv.count);
    copy_columns(d.qkv, c.qkv, rows * 3, 5 * 16, first, count);
    copy_columns(d.dout, c.dout, rows, 5 * 16, first, count);
    attention_forward_on(dev, &whole, &c);
    attention_backward_on(dev, &whole, &c);
    attention_forward_on(dev, &slice, &d);
    attention_backward_on(dev, &slice, &d);
    copy_columns(want, c.out, rows, 5 * 16, first, count);
    expect_same("out", d.out.at, want.at, d.out.count * dtype_size(dtype));
    copy_columns(want, c.dqkv, rows * 3, 5 * 16, first, count);
    expect_same("dqkv", d.dqkv.at, want.at, d.dqkv.count * dtype_size(dtype));
}

/* Row `row` of a kv head and its two queries, of three such groups. */
static void copy_group(struct tensor to, struct tensor from, int rows)
{
    const int size = 16, first[] = {4, 8, 11}, count[] = {2, 1, 1}, place[] = {0, 2, 3};

    for (int row = 0; row < rows; row++)
        for (int part = 0; part < 3; part++)
            memcpy(tensor_from(to, (row * 4 + place[part]) * size).at,
                   tensor_from(from, (row * 12 + first[part]) * size).at, count[part] * size * dtype_size(to.dtype));
}

/* The same with heads that share keys, and a window. */
static void check_group(struct device *dev, enum dtype dtype)
{
    const struct attention_case whole = {
        .batch = 2, .seq = 75, .heads = 6, .kv_heads = 3, .head_size = 16, .causal = true, .window = 40};
    struct attention_case slice = whole;
    struct attention_buffers c = attention_make(dev, dtype, &whole, 1), d;
    struct tensor want;

    slice.heads = 2;
    slice.kv_heads = 1;
    d = attention_make(dev, dtype, &slice, 1);
    want = poisoned_tensor(dev, dtype, d.dqkv.count);
    copy_group(d.qkv, c.qkv, 150);
    copy_columns(d.dout, c.dout, 150, 6 * 16, 4 * 16, 2 * 16);
    attention_forward_on(dev, &whole, &c);
    attention_backward_on(dev, &whole, &c);
    attention_forward_on(dev, &slice, &d);
    attention_backward_on(dev, &slice, &d);
    copy_columns(want, c.out, 150, 6 * 16, 4 * 16, 2 * 16);
    expect_same("out", d.out.at, want.at, d.out.count * dtype_size(dtype));
    copy_group(want, c.dqkv, 150);
    expect_same("dqkv", d.dqkv.at, want.at, d.dqkv.count * dtype_size(dtype));
}

static void test_group_of_heads(void **state)
{
    each_device_and_type(check_group);
}

static void test_heads(void **state)
{
    each_device_and_type(check_heads);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole),          cmocka_unit_test(test_causal),
        cmocka_unit_test(test_lengths),        cmocka_unit_test(test_empty_sample),
        cmocka_unit_test(test_large_scores),   cmocka_unit_test(test_dropout),
        cmocka_unit_test(test_tensor_cores),   cmocka_unit_test(test_mask),
        cmocka_unit_test(test_heads),          cmocka_unit_test(test_groups),
        cmocka_unit_test(test_windows),        cmocka_unit_test(test_windows_in_documents),
        cmocka_unit_test(test_group_of_heads),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
