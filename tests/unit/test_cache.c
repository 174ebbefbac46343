#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/cuda/cache.h"

struct key {
    int m, n;
    char text[5];
};

static struct key key_of(int i)
{
    struct key key;

    memset(&key, 0, sizeof key);
    key.m = i % 7;
    key.n = i / 7;
    key.text[i % 5] = 'x';
    return key;
}

#define KEYS 1000

static void add_value(void *value, void *arg)
{
    *(double *)arg += *(double *)value;
}

static void close_nothing(void *value, void *arg)
{
    (void)value;
    (void)arg;
}

static void test_all_are_found(void **state)
{
    struct cache *cache = cache_create(sizeof(struct key), sizeof(double), NULL);
    struct error err = {0};
    double *first = NULL, sum = 0;

    (void)state;
    for (int i = 0; i < KEYS; i++) {
        struct key key = key_of(i);
        double *value;

        assert_null(cache_find(cache, &key));
        value = cache_add(cache, &key, &err);
        assert_non_null(value);
        assert_int_equal((uintptr_t)value % 16, 0);
        assert_true(*value == 0);
        *value = i + 0.5;
        first = first ? first : value;
    }
    for (int i = 0; i < KEYS; i++) {
        struct key key = key_of(i);
        double *value = cache_find(cache, &key);

        assert_non_null(value);
        assert_true(*value == i + 0.5);
    }
    assert_true(*first == 0.5); /* it did not move */
    cache_destroy(cache, add_value, &sum);
    assert_true(sum == KEYS * KEYS / 2.0); /* each is closed once */
}

static void test_every_byte_counts(void **state)
{
    struct cache *cache = cache_create(sizeof(struct key), 1, NULL);
    struct key key = key_of(3);

    (void)state;
    assert_null(cache_find(cache, &key));
    assert_non_null(cache_add(cache, &key, NULL));
    for (size_t i = 0; i < sizeof key; i++) {
        struct key other = key;

        ((unsigned char *)&other)[i] ^= 1;
        assert_null(cache_find(cache, &other));
    }
    assert_non_null(cache_find(cache, &key));
    cache_destroy(cache, close_nothing, NULL);
    cache_destroy(NULL, close_nothing, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_are_found),
        cmocka_unit_test(test_every_byte_counts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
