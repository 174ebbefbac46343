#include "tests/kernels/harness.h"

/* Dropout's mask, element by element, against the words of Philox taken one at a time. */

static const struct philox_stream stream = {0x123456789abcdef0, 0xdeadbeef, 42};

/* Odd places; across the 2^32nd block, where the counter's second word begins to count; and near the end of all. */
static const uint64_t firsts[] = {0, 1, 8, 1003, (UINT64_C(1) << 35) - 13, UINT64_MAX - 20000};
static const size_t counts[] = {1, 7, 8, 65, 300, 4099, 9000};

#define COUNT_OF(array) (sizeof(array) / sizeof *(array))

/* Of ones: what is kept shows the factor, rounded, and all else is 0. */
static void expect_mask(struct tensor got, const struct dropout *dropout, size_t count)
{
    double kept = rounded(got.dtype, dropout_factor(dropout));

    for (size_t i = 0; i < count; i++) {
        double want = dropout_keeps(dropout, dropout->first + i) ? kept : 0;

        if (tensor_get(got, i) != want)
            fail_msg("p %g, element %llu: %g, should be %g", dropout->p, (unsigned long long)(dropout->first + i),
                     tensor_get(got, i), want);
    }
}

static struct tensor ones(struct device *dev, enum dtype dtype, size_t count)
{
    struct tensor x = poisoned_tensor(dev, dtype, count);

    for (size_t i = 0; i < count; i++)
        tensor_set(x, i, 1);
    return x;
}

static void check_mask(struct device *dev, enum dtype dtype)
{
    static const double ps[] = {1e-6, 0.1, 0.5, 0.9};

    for (size_t c = 0; c < COUNT_OF(counts); c++)
        for (size_t f = 0; f < COUNT_OF(firsts); f++) {
            struct dropout dropout = {ps[(c + f) % COUNT_OF(ps)], stream, firsts[f]};
            struct tensor dy = ones(dev, dtype, counts[c]), dx = poisoned_tensor(dev, dtype, counts[c]);

            device_kernels(dev)->dropout_backward(dev, dtype, dx.at, dy.at, counts[c], &dropout);
            expect_mask(dx, &dropout, counts[c]);
            device_kernels(dev)->dropout_backward(dev, dtype, dy.at, dy.at, counts[c], &dropout);
            expect_same("in place", dy.at, dx.at, counts[c] * dtype_size(dtype));
            finish_buffers(dev);
        }
}

static void test_mask(void **state)
{
    each_device_and_type(check_mask);
}

/* Whether the reference itself drops what it is asked to: the share that is kept, within five deviations. */
static void test_share(void **state)
{
    struct dropout dropout = {0.1, stream, 0};
    int kept = 0;

    for (uint64_t i = 0; i < 100000; i++)
        kept += dropout_keeps(&dropout, i);
    assert_in_range(kept, 90000 - 475, 90000 + 475);
}

/* Rows of odd lengths; what is 0 beside the mask shows it whole. */
static void check_rows(struct device *dev, enum dtype dtype)
{
    const int rows = 21, all_cols[] = {1, 19, 40, 259};

    for (size_t c = 0; c < COUNT_OF(all_cols); c++) {
        int cols = all_cols[c];
        size_t count = (size_t)rows * (size_t)cols;
        struct dropout dropout = {0.3, stream, 77 + c};
        struct tensor sum = poisoned_tensor(dev, dtype, count);
        struct residual op = {rows, cols, dtype, NULL, ones(dev, dtype, count).at, NULL, dropout, sum.at};

        device_kernels(dev)->residual(dev, &op);
        expect_mask(sum, &dropout, count);
    }
}

static void test_rows(void **state)
{
    each_device_and_type(check_rows);
}

/* A slice of a tensor finds the mask of the whole. */
static void check_slices(struct device *dev, enum dtype dtype)
{
    static const size_t cuts[] = {0, 3, 16, 17, 500, 4097, 5000};
    struct dropout dropout = {0.2, stream, 5};
    struct tensor x = random_tensor(dev, dtype, 5000, "x"), whole = poisoned_tensor(dev, dtype, 5000);
    struct tensor pieces = poisoned_tensor(dev, dtype, 5000);

    device_kernels(dev)->dropout_backward(dev, dtype, whole.at, x.at, 5000, &dropout);
    for (size_t c = 0; c + 1 < COUNT_OF(cuts); c++) {
        struct dropout piece = {0.2, stream, 5 + cuts[c]};

        device_kernels(dev)->dropout_backward(dev, dtype, tensor_from(pieces, cuts[c]).at, tensor_from(x, cuts[c]).at,
                                              cuts[c + 1] - cuts[c], &piece);
    }
    expect_same("pieces", pieces.at, whole.at, 5000 * dtype_size(dtype));
}

static void test_slices(void **state)
{
    each_device_and_type(check_slices);
}

/* p = 0 copies; p = 1 leaves nothing, not even NaN. */
static void check_ends(struct device *dev, enum dtype dtype)
{
    struct tensor x = random_tensor(dev, dtype, 100, "x"), y = poisoned_tensor(dev, dtype, 100);
    double zeros[100] = {0};

    device_kernels(dev)->dropout_backward(dev, dtype, y.at, x.at, 100, &(struct dropout){0});
    expect_same("p = 0", y.at, x.at, 100 * dtype_size(dtype));
    tensor_set(x, 50, 1e30);
    device_kernels(dev)->dropout_backward(dev, dtype, y.at, x.at, 100, &(struct dropout){.p = 1, .stream = stream});
    expect_rounded("p = 1", y, zeros, 100, 0);
}

static void test_ends(void **state)
{
    each_device_and_type(check_ends);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mask),   cmocka_unit_test(test_share), cmocka_unit_test(test_rows),
        cmocka_unit_test(test_slices), cmocka_unit_test(test_ends),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
