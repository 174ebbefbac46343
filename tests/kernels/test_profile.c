#include "bench/profile.h"
#include "tests/discrete/discrete.h"
#include "tests/kernels/harness.h"

/* bench/profile.h counts the calls of each operation under its name, and changes no result. */

enum { M = 24, N = 40, K = 16, MOST = 2 * PROFILE_ROWS };

static struct device *profiled_device(void)
{
    struct error err = {0};
    struct device *dev;

    setenv("MUSTER_PROFILE", "1", 1);
    dev = device_create("cpu", 1, &err);
    if (dev && profile_start(dev, &err) < 0)
        fail_msg("%s", err.text);
    unsetenv("MUSTER_PROFILE");
    if (!dev)
        fail_msg("%s", err.text);
    return dev;
}

static const struct profile_row *row_named(const struct profile_row *rows, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(rows[i].name, name) == 0)
            return &rows[i];
    return NULL;
}

static void test_counts(void **state)
{
    static float a[M * K], b[K * N], c[M * N];
    struct device *dev = profiled_device();
    const struct kernels *k = device_kernels(dev);
    struct profile_row rows[MOST];
    const struct profile_row *product, *zero;
    struct error err = {0};
    size_t count;

    for (int i = 0; i < M * K; i++)
        a[i] = 1;
    for (int i = 0; i < K * N; i++)
        b[i] = 2;
    /* more than there are marks, so that they are read on the way */
    for (int i = 0; i < PROFILE_PAIRS + 5; i++)
        k->matmul(dev, &(struct matmul){.m = M, .n = N, .k = K, .dtype = DTYPE_F32, .a = a, .b = b, .c = c});
    assert_true(c[0] == 2 * K && c[M * N - 1] == 2 * K);
    k->zero(dev, c, sizeof c);
    assert_true(c[0] == 0 && c[M * N - 1] == 0);
    count = profile_read(dev, rows, MOST);
    assert_int_equal(count, 2);
    product = row_named(rows, count, "matmul 24x40x16 nn");
    zero = row_named(rows, count, "zero");
    assert_non_null(product);
    assert_non_null(zero);
    assert_int_equal(product->calls, PROFILE_PAIRS + 5);
    assert_int_equal(zero->calls, 1);
    assert_true(product->flops == (PROFILE_PAIRS + 5) * 2.0 * M * N * K);
    assert_true(product->bytes == (PROFILE_PAIRS + 5) * 4.0 * (M * K + K * N + M * N));
    assert_true(zero->bytes == sizeof c && zero->flops == 0);
    assert_true(product->seconds > 0 && zero->seconds >= 0);
    assert_true(rows[0].seconds >= rows[1].seconds);
    assert_int_equal(profile_read(dev, rows, 1), 1);
    profile_reset(dev);
    assert_int_equal(profile_read(dev, rows, MOST), 0);
    assert_int_equal(device_status(dev, &err), 0);
    profile_stop(dev);
    device_destroy(dev);
}

/* What no longer fits is counted all the same. */
static void test_many_kinds(void **state)
{
    struct device *dev = profiled_device();
    struct profile_row rows[MOST];
    const struct profile_row *others;
    uint64_t calls = 0;
    size_t count;

    for (int i = 0; i < MOST; i++) {
        char name[PROFILE_NAME];

        snprintf(name, sizeof name, "kind %d", i);
        profile_begin(dev, name, 1, 0);
        profile_end(dev);
    }
    count = profile_read(dev, rows, MOST);
    assert_int_equal(count, PROFILE_ROWS);
    for (size_t i = 0; i < count; i++)
        calls += rows[i].calls;
    assert_int_equal(calls, MOST);
    others = row_named(rows, count, "others");
    assert_non_null(others);
    assert_int_equal(others->calls, MOST - (PROFILE_ROWS - 1));
    profile_stop(dev);
    device_destroy(dev);
}

static void test_every_operation_has_marks(void **state)
{
    struct device *dev = profiled_device();
    struct kernels marked = profile_operations();
    void *const *operations = (void *const *)(const void *)&marked;

    for (size_t i = 0; i < sizeof marked / sizeof *operations; i++)
        assert_non_null(operations[i]);
    assert_memory_equal(device_kernels(dev), &marked, sizeof marked);
    profile_stop(dev);
    assert_memory_not_equal(device_kernels(dev), &marked, sizeof marked);
    device_destroy(dev);
}

static void test_off(void **state)
{
    struct error err = {0};
    struct device *dev = device_create("cpu", 1, &err);
    struct kernels marked = profile_operations();
    struct profile_row row;
    float x = 1;

    assert_non_null(dev);
    assert_int_equal(profile_start(dev, &err), 0);
    assert_memory_not_equal(device_kernels(dev), &marked, sizeof marked);
    device_kernels(dev)->zero(dev, &x, sizeof x);
    assert_int_equal(profile_read(dev, &row, 1), 0);
    profile_reset(dev);
    profile_stop(dev);
    device_destroy(dev);
    dev = device_open(&backend_discrete, 0, 1, &err);
    assert_non_null(dev);
    setenv("MUSTER_PROFILE", "1", 1);
    assert_int_equal(profile_start(dev, &err), -1); /* its operations run late, and it has no marks */
    unsetenv("MUSTER_PROFILE");
    assert_int_equal(err.code, CODE_CONFIG);
    assert_non_null(strstr(err.text, "cpu-discrete"));
    device_destroy(dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counts),
        cmocka_unit_test(test_many_kinds),
        cmocka_unit_test(test_every_operation_has_marks),
        cmocka_unit_test(test_off),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
