#include "tests/cuda/emulated_names.h"
/* before what it renames */
#include "kernels/cuda/cuda.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "tests/cuda/emulated_device.h"

/* The sums by which algorithms of a product are told apart: every bit counts, and what lies between rows does not. */

#define ROWS   37
#define WORDS  41
#define STRIDE 48

static struct device *dev;
static uint16_t x[ROWS * STRIDE];
static enum dtype type = DTYPE_BF16;

struct sums {
    unsigned long long of[3];
};

static struct sums sums_of_x(void)
{
    struct sums sums;
    struct error err = {0};

    memset(&sums, 0xff, sizeof sums);
    cuda_checksum(dev, sums.of, type, x, ROWS, WORDS, STRIDE);
    if (device_status(dev, &err) < 0)
        fail_msg("%s", err.text);
    return sums;
}

static void fill(void)
{
    for (size_t i = 0; i < ROWS * STRIDE; i++)
        x[i] = (uint16_t)(i * 40503u + 7);
}

static void test_every_bit_counts(void **state)
{
    struct sums before, again;

    (void)state;
    fill();
    before = sums_of_x();
    for (size_t i = 0; i < ROWS * STRIDE; i += 101) {
        struct sums after;

        x[i] ^= (uint16_t)(1u << i % 16);
        after = sums_of_x();
        assert_int_equal(after.of[0] == before.of[0] && after.of[1] == before.of[1], i % STRIDE >= WORDS);
        x[i] ^= (uint16_t)(1u << i % 16);
    }
    again = sums_of_x();
    assert_memory_equal(&before, &again, sizeof before);
}

/* Two words exchanged are another matrix. */
static void test_places_count(void **state)
{
    struct sums before;
    uint16_t word;

    (void)state;
    fill();
    before = sums_of_x();
    word = x[3];
    x[3] = x[STRIDE];
    x[STRIDE] = word;
    assert_true(sums_of_x().of[0] != before.of[0]);
}

/* Zeros of both signs, infinities and NaNs are the same by many algorithms. */
static void test_counts_what_tells(void **state)
{
    (void)state;
    memset(x, 0, sizeof x);
    assert_int_equal(sums_of_x().of[2], 0);
    x[5] = 1;
    x[STRIDE - 1] = 1; /* between the rows */
    x[2 * STRIDE] = 0x8000;
    x[3 * STRIDE] = 0xbf80; /* -1 */
    x[4 * STRIDE] = 0x7f80; /* infinity, in bf16 */
    x[5 * STRIDE] = 0xffc1; /* a NaN */
    x[6 * STRIDE] = 0x7c00; /* infinity, in fp16 */
    assert_int_equal(sums_of_x().of[2], 3);
    type = DTYPE_F16;
    assert_int_equal(sums_of_x().of[2], 2);
    type = DTYPE_BF16;
}

static void test_counts_fp32_once(void **state)
{
    static const float numbers[2][4] = {{1, -2, 0, INFINITY}, {0.1f, NAN, -0.0f, 3}};
    struct sums sums;

    (void)state;
    cuda_checksum(dev, sums.of, DTYPE_F32, numbers, 2, 4, 4);
    assert_int_equal(sums.of[2], 4);
}

static int open_device(void **state)
{
    struct error err = {0};

    (void)state;
    dev = device_open(&backend_cuda_emulated, 0, 1, &err);
    return dev ? 0 : -1;
}

static int close_device(void **state)
{
    (void)state;
    device_destroy(dev);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_bit_counts),
        cmocka_unit_test(test_places_count),
        cmocka_unit_test(test_counts_what_tells),
        cmocka_unit_test(test_counts_fp32_once),
    };

    return cmocka_run_group_tests(tests, open_device, close_device);
}
