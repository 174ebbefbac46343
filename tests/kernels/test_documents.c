#include "tests/kernels/attention_case.h"

/* Attention within documents: against float64, and against the documents alone. */

static const struct {
    int seq, head_size;
} shapes[] = {{5, 20}, {100, 7}, {264, 64}, {136, 80}, {136, 96}, {136, 128}};

/* In turn; the sequence cuts the last one off. A document of one token, one that ends a tile of rows, one beyond it. */
static const int lengths[] = {3, 61, 1, 70, 2, 16, 1, 33, 128, 5};
enum { LENGTHS = sizeof lengths / sizeof *lengths };

/* document_start of two samples, whose documents differ. */
static int32_t *make_starts(int seq)
{
    int32_t *starts = malloc(2 * (size_t)seq * sizeof *starts);

    for (int sample = 0; sample < 2; sample++)
        for (int row = 0, document = 5 * sample, start = 0; row < seq; row++) {
            if (row - start == lengths[document % LENGTHS]) {
                start = row;
                document++;
            }
            starts[sample * seq + row] = start;
        }
    return starts;
}

static struct attention_case case_of(int shape, int batch, const int32_t *starts)
{
    return (struct attention_case){.batch = batch,
                                   .seq = shapes[shape].seq,
                                   .heads = shapes[shape].seq > 200 ? 1 : 2,
                                   .head_size = shapes[shape].head_size,
                                   .causal = true,
                                   .document_start = starts};
}

/* ---- against float64 ---- */

static void expect_values(const char *name, struct tensor got, const double *want, int size, double tolerance,
                          int rounded)
{
    if (got.dtype == DTYPE_F32)
        expect_close(name, got.at, want, got.count, tolerance);
    else
        attention_expect_rows(name, got, want, size, rounded);
}

static void check_case(struct device *dev, enum dtype dtype, const struct attention_case *x)
{
    struct attention_buffers b = attention_make(dev, dtype, x, 1);
    size_t rows = (size_t)x->batch * (size_t)x->heads * (size_t)x->seq;
    double *qkv = tensor_values(dev, b.qkv), *dout = tensor_values(dev, b.dout), *given;
    double *out = reference(dev, b.out.count), *lse = reference(dev, rows), *dqkv = reference(dev, b.dqkv.count);

    attention_forward_on(dev, x, &b);
    attention_reference_forward(x, qkv, out, lse);
    expect_values("out", b.out, out, x->head_size, 1e-5, 1);
    attention_expect_lse(b.lse, lse, rows, 1);
    attention_backward_on(dev, x, &b);
    given = tensor_values(dev, b.out);
    attention_reference_backward(x, qkv, given, dout, dqkv);
    expect_values("dqkv", b.dqkv, dqkv, x->head_size, 2e-5, 1);
    finish_buffers(dev);
}

static void check_references(struct device *dev, enum dtype dtype)
{
    static const struct dropout even_dropout = {0.3, {5, 6, 7}, 1 << 20};

    for (int shape = 0; shape < (int)(sizeof shapes / sizeof *shapes); shape++) {
        int32_t *starts = make_starts(shapes[shape].seq);
        struct attention_case x = case_of(shape, 2, starts);

        check_case(dev, dtype, &x);
        if (shape > 2) {
            x.dropout = even_dropout;
            x.dropout_stride = 8 * 55555;
            check_case(dev, dtype, &x);
        }
        free(starts);
    }
}

static void test_references(void **state)
{
    each_device_and_type(check_references);
}

/* ---- against the documents alone ---- */

/* Rows [first, first + count) of a tensor of rows of so many elements. */
static struct tensor rows_of(struct tensor t, int first, int count, size_t width)
{
    return (struct tensor){t.dtype, (size_t)count * width, (char *)t.at + (size_t)first * width * dtype_size(t.dtype)};
}

static void copy_rows(struct tensor to, struct tensor from)
{
    memcpy(to.at, from.at, to.count * dtype_size(to.dtype));
}

/* The document at rows [first, first + count) of `packed`, computed as a sample of its own. */
static void compare_alone(struct device *dev, const struct attention_case *packed, const struct attention_buffers *b,
                          int first, int count)
{
    struct attention_case x = *packed;
    size_t width = (size_t)x.heads * (size_t)x.head_size;
    struct attention_buffers alone;

    x.seq = count;
    x.document_start = NULL;
    alone = attention_make(dev, b->qkv.dtype, &x, 1);
    copy_rows(alone.qkv, rows_of(b->qkv, first, count, 3 * width));
    copy_rows(alone.dout, rows_of(b->dout, first, count, width));
    attention_forward_on(dev, &x, &alone);
    attention_backward_on(dev, &x, &alone);
    expect_values("out", rows_of(b->out, first, count, width), tensor_values(dev, alone.out), x.head_size, 1e-5, 2);
    expect_values("dqkv", rows_of(b->dqkv, first, count, 3 * width), tensor_values(dev, alone.dqkv), x.head_size, 1e-5,
                  2);
    for (int head = 0; head < x.heads; head++)
        for (int row = 0; row < count; row++) {
            double want = alone.lse[head * count + row];

            attention_expect_lse(b->lse + head * packed->seq + first + row, &want, 1, 1);
        }
}

static void check_alone(struct device *dev, enum dtype dtype)
{
    for (int shape = 0; shape < (int)(sizeof shapes / sizeof *shapes); shape++) {
        int32_t *starts = make_starts(shapes[shape].seq);
        struct attention_case x = case_of(shape, 1, starts);
        struct attention_buffers b = attention_make(dev, dtype, &x, 1);

        attention_forward_on(dev, &x, &b);
        attention_backward_on(dev, &x, &b);
        for (int first = 0, end; first < x.seq; first = end) {
            for (end = first; end < x.seq && starts[end] == first; end++)
                ;
            compare_alone(dev, &x, &b, first, end - first);
        }
        finish_buffers(dev);
        free(starts);
    }
}

static void test_alone(void **state)
{
    each_device_and_type(check_alone);
}

/* A sample that is one document has the bits of one without document_start. */
static void check_one(struct device *dev, enum dtype dtype)
{
    for (int shape = 0; shape < (int)(sizeof shapes / sizeof *shapes); shape++) {
        int32_t *starts = calloc((size_t)shapes[shape].seq, sizeof *starts);
        struct attention_case one = case_of(shape, 1, starts), none = case_of(shape, 1, NULL);
        struct attention_buffers a = attention_make(dev, dtype, &one, 1), b = attention_make(dev, dtype, &none, 1);

        attention_forward_on(dev, &one, &a);
        attention_forward_on(dev, &none, &b);
        attention_backward_on(dev, &one, &a);
        attention_backward_on(dev, &none, &b);
        expect_same("out", a.out.at, b.out.at, a.out.count * dtype_size(dtype));
        expect_same("dqkv", a.dqkv.at, b.dqkv.at, a.dqkv.count * dtype_size(dtype));
        finish_buffers(dev);
        free(starts);
    }
}

static void test_one(void **state)
{
    each_device_and_type(check_one);
}

/* ---- what it is not for ---- */

static void check_refused(bool causal, const int32_t *padding)
{
    static const int32_t starts[5];
    struct attention_case x = {.batch = 1, .seq = 5, .heads = 1, .head_size = 8, .document_start = starts};
    struct device *dev = make_device("baseline", 1);
    struct attention_buffers b;
    struct error err = {0};

    x.causal = causal;
    x.lengths = padding;
    b = attention_make(dev, DTYPE_F32, &x, 1);
    attention_forward_on(dev, &x, &b);
    assert_int_equal(device_status(dev, &err), -1);
    assert_int_equal(err.code, CODE_INTERNAL);
    assert_non_null(strstr(err.text, "attention: document_start and window need causal, and no lengths"));
    abandon_device(dev);
}

static void test_refused(void **state)
{
    static const int32_t padding[] = {3};

    check_refused(false, NULL);
    check_refused(true, padding);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_references),
        cmocka_unit_test(test_alone),
        cmocka_unit_test(test_one),
        cmocka_unit_test(test_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
