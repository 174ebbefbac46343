#include "tests/cmocka_test.h"
#include "tests/cuda/emulated_device.h"
#include "tests/cuda/emulator_cases.h"
#include "tests/cuda/emulator_seed.h"

/* The emulator itself: it gives what CUDA promises, and finds what CUDA forbids. */

#define SEEDS 8

static struct device *make_device(void)
{
    struct error err = {0};
    struct device *dev = device_open(&backend_cuda_emulated, 0, 1, &err);

    if (!dev)
        fail_msg("%s", err.text);
    return dev;
}

static void expect_no_failure(struct device *dev)
{
    struct error err = {0};

    if (device_status(dev, &err) < 0)
        fail_msg("%s", err.text);
}

/* How many of the seeds 0 to SEEDS - 1 make the ring's result wrong. */
static int wrong_seeds(bool first_barrier, bool second_barrier)
{
    struct device *dev = make_device();
    int wrong = 0, x[256];

    for (int seed = 0; seed < SEEDS; seed++) {
        bool right = true;

        emulator_seed((uint64_t)seed);
        case_ring(dev, x, first_barrier, second_barrier);
        for (int i = 0; i < 256; i++)
            right = right && x[i] == 1000 + 2 * ((i + 255) % 256);
        wrong += !right;
    }
    expect_no_failure(dev);
    device_destroy(dev);
    emulator_seed(0);
    return wrong;
}

static void test_missing_barriers_show(void **state)
{
    assert_int_equal(wrong_seeds(true, true), 0);
    assert_true(wrong_seeds(false, true) >= SEEDS - 1);
    assert_true(wrong_seeds(true, false) >= SEEDS / 2);
}

static void test_shuffles(void **state)
{
    struct device *dev = make_device();
    int x[6 * 32];

    for (uint64_t seed = 0; seed < 3; seed++) {
        memset(x, 0, sizeof x);
        emulator_seed(seed);
        case_shuffles(dev, x);
        expect_no_failure(dev);
        for (int i = 0; i < 32; i++) {
            assert_int_equal(x[i], 100 + 31 - i);
            assert_int_equal(x[32 + i], 100 + (i ^ 5));
            assert_int_equal(x[64 + i], i % 8 + 3 < 8 ? 100 + i + 3 : 100 + i);
            assert_int_equal(x[96 + i], i < 3 ? 100 + i : 100 + i - 3);
            assert_int_equal(x[128 + i], 0x49249249);
            assert_int_equal(x[160 + i], 2);
        }
    }
    emulator_seed(0);
    device_destroy(dev);
}

static void test_shared_is_fresh(void **state)
{
    struct device *dev = make_device();
    int x[3 * 64] = {0};

    case_shared(dev, x, 3);
    expect_no_failure(dev);
    for (int i = 0; i < 3 * 64; i++)
        assert_int_equal(x[i], -1);
    device_destroy(dev);
}

static void test_order_of_blocks(void **state)
{
    struct device *dev = make_device();
    int others = 0;

    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        int order = 0, again = 0;

        emulator_seed(seed);
        case_order(dev, &order, 6);
        emulator_seed(seed);
        case_order(dev, &again, 6);
        assert_int_equal(order, again);
        if (seed == 0)
            assert_int_equal(order, 012345);
        others += order != 012345;
    }
    assert_true(others > SEEDS / 2);
    emulator_seed(0);
    expect_no_failure(dev);
    device_destroy(dev);
}

static void expect_failure(void (*wrong)(struct device *dev, int *x), const char *text)
{
    struct device *dev = make_device();
    struct error err = {0};
    int x[256];

    wrong(dev, x);
    assert_int_equal(device_status(dev, &err), -1);
    if (!strstr(err.text, text))
        fail_msg("\"%s\" lacks \"%s\"", err.text, text);
    assert_null(strchr(err.text, '\n'));
    device_destroy(dev);
}

static void test_mistakes(void **state)
{
    expect_failure(case_half, "half: block (0, 0, 0): thread 0 waits at __syncthreads, ");
    expect_failure(case_half, "and thread 32 has returned");
    expect_failure(case_two_places, "and thread 32 at __syncthreads, ");
    expect_failure(case_absent_lane, "thread 0 waits at __shfl_sync, ");
    expect_failure(case_absent_lane, "and thread 5 has returned");
    expect_failure(case_part_of_a_warp, "in a warp of 20 threads");
    expect_failure(case_too_large, "a block of 1025 x 1 x 1 threads");
    expect_failure(case_no_block, "a grid of 0 x 1 x 1 blocks");
    test_shuffles(state); /* what was abandoned does not hurt what comes after */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_missing_barriers_show),
        cmocka_unit_test(test_shuffles),
        cmocka_unit_test(test_shared_is_fresh),
        cmocka_unit_test(test_order_of_blocks),
        cmocka_unit_test(test_mistakes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
