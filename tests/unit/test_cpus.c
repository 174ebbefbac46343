/* Sets of CPUs and their text; and what this process may run on. */
#include "srun-plugin/node/bind.h"
#include "srun-plugin/node/cpus.h"
#include "tests/cmocka_test.h"

static void test_texts(void **state)
{
    static const struct {
        const char *text, *back;
        unsigned count;
    } cases[] = {
        {"0", "0", 1},         {"0-3", "0-3", 4},   {"3,1,2", "1-3", 3},        {"0-3,8,10-11\n", "0-3,8,10-11", 7},
        {"63,64", "63-64", 2}, {"4095", "4095", 1}, {"0-4095", "0-4095", 4096}, {"", "-", 0}};

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct cpus set;
        char text[64];

        assert_int_equal(cpus_parse(&set, cases[i].text, NULL), 0);
        assert_int_equal(cpus_count(&set), cases[i].count);
        assert_string_equal(cpus_format(&set, text, sizeof text), cases[i].back);
    }
}

static void test_broken(void **state)
{
    static const char *const cases[] = {
        "x", "-1", "3-1", "1-", "1-x", "4096", "0-4096", "1;2", ",", "1,,2", "99999999999999999999"};
    struct cpus set;
    struct error err;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        err.text[0] = '\0';
        assert_int_equal(cpus_parse(&set, cases[i], &err), -1);
        assert_non_null(strstr(err.text, "0-3,8"));
    }
}

/* Random sets against an array of flags, and through their text and back. */
static void test_random(void **state)
{
    srand(1);
    for (int round = 0; round < 300; round++) {
        struct cpus set = {0}, back;
        bool flags[CPUS_MAX] = {false};
        unsigned count = 0, limit = 1u + (unsigned)rand() % CPUS_MAX;
        static char text[32768];

        for (int i = rand() % 200; i > 0; i--) {
            unsigned cpu = (unsigned)rand() % limit;

            count += !flags[cpu];
            flags[cpu] = true;
            cpus_add(&set, cpu);
        }
        assert_int_equal(cpus_count(&set), count);
        for (unsigned cpu = 0; cpu < CPUS_MAX; cpu++)
            assert_int_equal(cpus_has(&set, cpu), flags[cpu]);
        for (int cpu = cpus_next(&set, 0); cpu >= 0; cpu = cpus_next(&set, (unsigned)cpu + 1), count--)
            assert_true(flags[cpu]);
        assert_int_equal(count, 0);
        cpus_format(&set, text, sizeof text);
        assert_int_equal(cpus_parse(&back, strcmp(text, "-") == 0 ? "" : text, NULL), 0);
        assert_true(cpus_equal(&set, &back));
    }
}

static void test_short_room(void **state)
{
    struct cpus set;
    char text[16];

    assert_int_equal(cpus_parse(&set, "1,3,5,7,9,11,13,15", NULL), 0);
    cpus_format(&set, text, sizeof text);
    assert_true(strlen(text) < sizeof text);
    assert_string_equal(text + strlen(text) - 3, "...");
}

static void test_affinity(void **state)
{
    struct affinity whole, narrow, alone;
    struct cpus one = {0};

    assert_int_equal(affinity_read(&whole, NULL), 0);
    cpus_add(&one, (unsigned)cpus_next(&whole.own, 0));
    assert_int_equal(affinity_set(&one), 0);
    assert_int_equal(affinity_read(&narrow, &whole.all), 0);
    assert_true(cpus_equal(&narrow.own, &one));
    assert_true(cpus_equal(&narrow.all, &whole.all));
    assert_int_equal(affinity_read(&alone, &one), 0); /* were there no other CPU */
    assert_true(cpus_equal(&alone.all, &one));
    assert_int_equal(affinity_get(&narrow.own), 0);
    assert_true(cpus_equal(&narrow.own, &one));
    assert_int_equal(affinity_set(&whole.own), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_texts),      cmocka_unit_test(test_broken),   cmocka_unit_test(test_random),
        cmocka_unit_test(test_short_room), cmocka_unit_test(test_affinity),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
