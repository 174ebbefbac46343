#include <math.h>

#include "common/library.h"
#include "tests/cmocka_test.h"

#define MATH_FUNCTIONS(f) f(cosh) f(pow)

struct math {
    MATH_FUNCTIONS(LIBRARY_MEMBER)
};
static const char *const names[] = {MATH_FUNCTIONS(LIBRARY_NAME)};

static const struct library libm = {"Mathematics", "MUSTER_TEST_LIBRARY", "libm.so.6", "2.1"};

static void test_loads(void **state)
{
    struct math math = {0};
    struct error err = {0};

    unsetenv("MUSTER_TEST_LIBRARY");
    if (library_load(&libm, names, 2, &math, &err) < 0)
        fail_msg("%s", err.text);
    assert_true(math.pow(3, 4) == 81);
    assert_true(math.cosh(0) == 1);
}

static void test_missing_library(void **state)
{
    struct library none = {"Nothing", "MUSTER_TEST_LIBRARY", "libnone.so.1", "1"};
    struct math math = {0};
    struct error err = {0};

    unsetenv("MUSTER_TEST_LIBRARY");
    assert_int_equal(library_load(&none, names, 2, &math, &err), -1);
    assert_int_equal(err.code, CODE_CONFIG);
    assert_non_null(strstr(err.text, "Nothing cannot be opened: libnone.so.1: "));
    assert_non_null(strstr(err.text, "MUSTER_TEST_LIBRARY"));
}

/* A file that is named is the only one that is tried. */
static void test_named_file(void **state)
{
    struct math math = {0};
    struct error err = {0};

    setenv("MUSTER_TEST_LIBRARY", "/nowhere/libm.so.6", 1);
    assert_int_equal(library_load(&libm, names, 2, &math, &err), -1);
    assert_non_null(strstr(err.text, "/nowhere/libm.so.6"));
    setenv("MUSTER_TEST_LIBRARY", "libm.so.6", 1);
    assert_int_equal(library_load(&libm, names, 2, &math, &err), 0);
    unsetenv("MUSTER_TEST_LIBRARY");
}

static void test_missing_function(void **state)
{
    const char *const wrong[] = {"pow", "no_such_function"};
    void *table[2] = {0};
    struct error err = {0};

    assert_int_equal(library_load(&libm, wrong, 2, table, &err), -1);
    assert_int_equal(err.code, CODE_CONFIG);
    assert_string_equal(err.text, "Mathematics: libm.so.6 has no no_such_function; version 2.1 or newer is needed");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_loads),
        cmocka_unit_test(test_missing_library),
        cmocka_unit_test(test_named_file),
        cmocka_unit_test(test_missing_function),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
