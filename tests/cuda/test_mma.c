#include "tests/kernels/harness.h"

#include <math.h>

#include "common/dtype.h"
#include "tests/cuda/emulated_device.h"
#include "tests/cuda/mma_cases.h"

/*
 * The emulated bodies of mma.h against the PTX ISA (9.0), whose formulas for "Matrix fragments for mma.m16n8k16 with
 * floating point type" and for ldmatrix are written here as they stand there: groupID = laneid >> 2,
 * threadID_in_group = laneid % 4.
 */
static struct device *open_device(void)
{
    struct error err = {0};
    struct device *dev = device_open(&backend_cuda_emulated, 0, 1, &err);

    if (!dev)
        fail_msg("device_open: %s", err.text);
    return dev;
}

/* A: row = groupID for a0, a1, a4, a5, else groupID + 8; column = threadID_in_group * 2 + (i & 1), + 8 for i >= 4. */
static int a_row(int lane, int i)
{
    return lane / 4 + ((i >= 0 && i < 2) || (i >= 4 && i < 6) ? 0 : 8);
}

static int a_column(int lane, int i)
{
    return lane % 4 * 2 + (i & 1) + (i < 4 ? 0 : 8);
}

/* B: row = threadID_in_group * 2 + (i & 1), + 8 for i >= 2; column = groupID. */
static int b_row(int lane, int i)
{
    return lane % 4 * 2 + (i & 1) + (i < 2 ? 0 : 8);
}

/* C: row = groupID for c0 and c1, else groupID + 8; column = threadID_in_group * 2 + (i & 1). */
static int c_row(int lane, int i)
{
    return lane / 4 + (i < 2 ? 0 : 8);
}

static uint16_t bits_of(enum dtype dtype, float x)
{
    return dtype == DTYPE_BF16 ? bf16_of_float(x) : f16_of_float(x);
}

/* Small whole numbers: every product and every sum is exact, in whatever order. */
static float entry(int row, int column, int salt)
{
    return (float)((row * 7 + column * 5 + row * column * salt) % 11 - 5);
}

static void put_half(uint32_t *word, int i, uint16_t bits)
{
    *word = i ? (*word & 0xffff) | (uint32_t)bits << 16 : (*word & 0xffff0000) | bits;
}

static void check_product(enum dtype dtype)
{
    struct device *dev = open_device();
    struct mma_fragments x;

    for (int lane = 0; lane < 32; lane++) {
        for (int i = 0; i < 8; i++)
            put_half(&x.a[lane][i / 2], i % 2, bits_of(dtype, entry(a_row(lane, i), a_column(lane, i), 3)));
        for (int i = 0; i < 4; i++)
            put_half(&x.b[lane][i / 2], i % 2, bits_of(dtype, entry(b_row(lane, i), lane / 4, 2)));
        for (int i = 0; i < 4; i++)
            x.c[lane][i] = entry(c_row(lane, i), lane % 4 * 2 + (i & 1), 1);
    }
    mma_case_product(dev, dtype, &x);
    for (int lane = 0; lane < 32; lane++)
        for (int i = 0; i < 4; i++) {
            int row = c_row(lane, i), column = lane % 4 * 2 + (i & 1);
            float want = entry(row, column, 1);

            for (int k = 0; k < 16; k++)
                want += entry(row, k, 3) * entry(k, column, 2);
            if (x.c[lane][i] != want)
                fail_msg("c[%d][%d] is %g, should be %g", row, column, x.c[lane][i], want);
        }
    finish_device(dev);
}

static void test_product(void **state)
{
    check_product(DTYPE_BF16);
    check_product(DTYPE_F16);
}

/* Lane l of matrix i receives row l / 4, elements l % 4 * 2 and the next; transposed, the column instead. */
static void check_ldmatrix(bool transposed)
{
    struct device *dev = open_device();
    uint16_t matrices[4][8][8];
    uint32_t registers[32][4];

    for (int i = 0; i < 256; i++)
        matrices[i / 64][i / 8 % 8][i % 8] = (uint16_t)(1000 * (i / 64) + i / 8 % 8 * 10 + i % 8);
    mma_case_ldmatrix(dev, transposed, &matrices[0][0][0], &registers[0][0]);
    for (int lane = 0; lane < 32; lane++)
        for (int i = 0; i < 4; i++)
            for (int half = 0; half < 2; half++) {
                int row = lane / 4, column = lane % 4 * 2 + half;
                uint16_t want = transposed ? matrices[i][column][row] : matrices[i][row][column];

                assert_int_equal(registers[lane][i] >> 16 * half & 0xffff, want);
            }
    finish_device(dev);
}

static void test_ldmatrix(void **state)
{
    check_ldmatrix(false);
    check_ldmatrix(true);
}

static void expect_words(const uint32_t got[4], uint32_t first, uint32_t step)
{
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(got[i], first + i * step);
}

/* Not before it was waited for; and no sooner than its group. */
static void test_copy(void **state)
{
    static struct mma_copies x;
    struct device *dev = open_device();

    x.limit = 29;
    for (uint32_t i = 0; i < 256; i++)
        x.from[i / 128][i / 4 % 32][i % 4] = i + 1;
    mma_case_copy(dev, &x);
    for (uint32_t thread = 0; thread < 32; thread++)
        for (uint32_t group = 0; group < 2; group++) {
            bool valid = thread < (uint32_t)x.limit;
            uint32_t first = valid ? group * 128 + thread * 4 + 1 : 0;

            expect_words(x.early[group][thread], 0x55555555, 0);
            expect_words(x.half[group][thread], group ? 0x55555555 : first, group ? 0 : valid);
            expect_words(x.whole[group][thread], first, valid);
        }
    finish_device(dev);
}

static void test_pack(void **state)
{
    static const float some[][2] = {{1.0f, -2.5f}, {1.00390625f, 3.14159274f}, {INFINITY, 0}, {6e-8f, -70000.0f}};
    struct device *dev = open_device();

    for (int dtype = DTYPE_BF16; dtype <= DTYPE_F16; dtype++)
        for (int i = 0; i < 4; i++) {
            uint32_t packed = 0;
            float back[2] = {NAN, NAN};

            mma_case_pack(dev, (enum dtype)dtype, some[i], &packed, back);
            for (int half = 0; half < 2; half++) {
                double want = fabsf(some[i][half]) >= 65520 && dtype == DTYPE_F16
                                  ? copysign(INFINITY, some[i][half])
                                  : rounded((enum dtype)dtype, some[i][half]);

                assert_true(back[half] == want);
            }
        }
    finish_device(dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_product),
        cmocka_unit_test(test_ldmatrix),
        cmocka_unit_test(test_copy),
        cmocka_unit_test(test_pack),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
