/* The checksum's known values, in parts, and while copying: every alignment and length, and nothing else written. */
#include "common/crc32c.h"
#include "tests/cmocka_test.h"

static void test_known_values(void **state)
{
    unsigned char zeros[32] = {0};

    assert_int_equal(crc32c(0, "123456789", 9), 0xe3069283);
    assert_int_equal(crc32c(0, zeros, sizeof zeros), 0x8a9136aa); /* RFC 3720, B.4 */
    assert_int_equal(crc32c(crc32c(0, "12345", 5), "6789", 4), 0xe3069283);
}

static void test_copy(void **state)
{
    enum { MOST = 60000, SPARE = 256 };
    unsigned char *from = malloc(MOST + SPARE), *to = malloc(MOST + 2 * SPARE);

    assert_true(from && to);
    srand(1);
    for (size_t i = 0; i < MOST + SPARE; i++)
        from[i] = (unsigned char)rand();
    for (int trial = 0; trial < 4000; trial++) {
        size_t bytes = (size_t)rand() % (trial % 2 ? 1000 : MOST), source = (size_t)rand() % SPARE;
        size_t target = 1 + (size_t)rand() % (SPARE - 1);
        uint32_t start = (uint32_t)rand();

        to[target - 1] = to[target + bytes] = 0xa5;
        assert_int_equal(crc32c_copy(start, to + target, from + source, bytes), crc32c(start, from + source, bytes));
        assert_memory_equal(to + target, from + source, bytes);
        assert_true(to[target - 1] == 0xa5 && to[target + bytes] == 0xa5);
    }
    free(from);
    free(to);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_values),
        cmocka_unit_test(test_copy),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
