#include "tests/kernels/harness.h"

#include <math.h>

/* Casts: every 16-bit number widened, and numbers of fp32 near every place where rounding decides, rounded. */

#define PATTERNS 65536

/* All NaNs are the same to us, but those of 16 bits must have stayed NaN. */
static void expect_number(const char *name, double got, double want, uint32_t bits)
{
    if (!(got == want && signbit(got) == signbit(want)) && !(isnan(got) && isnan(want)))
        fail_msg("%s of bits %x is %.9g, should be %.9g", name, (unsigned)bits, got, want);
}

static void check_widening(struct device *dev, enum dtype dtype)
{
    struct tensor x = poisoned_tensor(dev, dtype, PATTERNS), y = poisoned_tensor(dev, DTYPE_F32, PATTERNS);
    struct tensor back = poisoned_tensor(dev, dtype, PATTERNS);

    for (int i = 0; i < PATTERNS; i++)
        ((uint16_t *)x.at)[i] = (uint16_t)i;
    device_kernels(dev)->cast(dev, DTYPE_F32, y.at, dtype, x.at, PATTERNS);
    device_kernels(dev)->cast(dev, dtype, back.at, DTYPE_F32, y.at, PATTERNS);
    for (uint32_t i = 0; i < PATTERNS; i++) {
        expect_number("widening", tensor_get(y, i), tensor_get(x, i), i);
        if (!isnan(tensor_get(x, i)))
            assert_int_equal(((uint16_t *)back.at)[i], i);
        else
            assert_true(isnan(tensor_get(back, i)));
    }
}

/* Conversions do not depend on the number of threads: one is enough. */
static void each_isa(void (*check)(struct device *dev, enum dtype dtype))
{
    static const char *const isas[] = {"baseline", "avx2", "avx512"};

    for (int isa = 0; isa < 3; isa++)
        for (int dtype = DTYPE_BF16; dtype <= DTYPE_F16; dtype++) {
            struct device *dev = make_device(isas[isa], 1);

            if (!dev)
                break;
            check(dev, (enum dtype)dtype);
            finish_device(dev);
        }
}

static void test_widening(void **state)
{
    each_isa(check_widening);
}

/* The upper 16 bits of an fp32 take every value, the lower ones those around a tie of bf16 (.8000) and of fp16. */
static void fill_patterns(struct tensor x, int round)
{
    static const uint32_t low[] = {0x0000, 0x0001, 0x7fff, 0x8000, 0x8001, 0xffff, 0x0fff, 0x1000, 0x1001, 0x3000};

    for (uint32_t i = 0; i < PATTERNS; i++)
        ((uint32_t *)x.at)[i] = i << 16 | low[round];
}

static void check_rounding(struct device *dev, enum dtype dtype)
{
    struct tensor x = poisoned_tensor(dev, DTYPE_F32, PATTERNS), y = poisoned_tensor(dev, dtype, PATTERNS);

    for (int round = 0; round < 10; round++) {
        fill_patterns(x, round);
        device_kernels(dev)->cast(dev, dtype, y.at, DTYPE_F32, x.at, PATTERNS);
        for (uint32_t i = 0; i < PATTERNS; i++)
            expect_number("rounding", tensor_get(y, i), rounded(dtype, tensor_get(x, i)), ((uint32_t *)x.at)[i]);
    }
}

static void test_rounding(void **state)
{
    each_isa(check_rounding);
}

/* NaNs too are the same bits on every instruction set, since a checkpoint may hold them. */
static uint16_t first[3][PATTERNS];
static bool have_first[3];

static void check_same_bits(struct device *dev, enum dtype dtype)
{
    struct tensor x = poisoned_tensor(dev, DTYPE_F32, PATTERNS), y = poisoned_tensor(dev, dtype, PATTERNS);

    fill_patterns(x, 7);
    device_kernels(dev)->cast(dev, dtype, y.at, DTYPE_F32, x.at, PATTERNS);
    if (!have_first[dtype])
        memcpy(first[dtype], y.at, sizeof first[dtype]);
    have_first[dtype] = true;
    expect_same("rounded", y.at, first[dtype], sizeof first[dtype]);
}

static void test_same_bits(void **state)
{
    each_isa(check_same_bits);
}

/* Odd sizes, every pair; between the 16-bit types there is but one rounding, as the way by fp32 is exact. */
static void check_pairs(struct device *dev, enum dtype from)
{
    static const size_t counts[] = {1, 7, 65, 4097};

    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        struct tensor x = random_tensor(dev, from, counts[c], "x");

        for (int to = DTYPE_F32; to <= DTYPE_F16; to++) {
            struct tensor y = poisoned_tensor(dev, (enum dtype)to, counts[c]);

            device_kernels(dev)->cast(dev, (enum dtype)to, y.at, from, x.at, counts[c]);
            for (size_t i = 0; i < counts[c]; i++)
                expect_number("cast", tensor_get(y, i), rounded((enum dtype)to, tensor_get(x, i)), (uint32_t)i);
        }
    }
}

static void test_pairs(void **state)
{
    each_device_and_type(check_pairs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_widening),
        cmocka_unit_test(test_rounding),
        cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_pairs),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
