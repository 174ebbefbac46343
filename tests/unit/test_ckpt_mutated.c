/* A good checkpoint with random bytes in it: what is not sealed again never loads, and nothing crashes a reader. */
#include "ckpt/format/manifest.h"
#include "tests/cmocka_test.h"
#include "tests/unit/ckpt_good.h"

/* What is not sealed again is never loaded; what is may be another checkpoint, but never crashes. */
static void mutated_manifests_never_crash(void **state)
{
    char dir[512], path[512];
    uint64_t random = 3;
    struct error err;
    size_t bytes, sealed = 0;
    char *text;

    snprintf(dir, sizeof dir, "%.400s/mutated", good_base);
    good_copy(dir);
    text = read_file(join(path, dir, MANIFEST_NAME), &bytes);
    for (int i = 0; i < 2000; i++) {
        char *copy = malloc(bytes + 1);
        float out[2][34];

        memcpy(copy, text, bytes + 1);
        for (uint64_t n = 1 + world_random(&random, 3); n > 0; n--) {
            char *at = &copy[world_random(&random, bytes)];

            *at = world_random(&random, 2) ? (char)world_random(&random, 256)
                                           : "0123456789[]{},\"-"[world_random(&random, 17)];
        }
        if (i % 4 == 0)
            write_file(path, copy, bytes);
        else
            good_seal(path, copy, bytes);
        if (good_load(dir, out, &err) == 0) {
            if (i % 4 == 0)
                assert_memory_equal(copy, text, bytes);
            sealed += i % 4 != 0;
        } else {
            assert_null(strchr(err.text, '\n'));
        }
        free(copy);
    }
    assert_true(sealed > 20); /* the edits do get past the checksum */
    free(text);
    scratch_destroy(dir);
}

static void mutated_shards_never_load(void **state)
{
    char dir[512], path[512];
    float right[2][34], out[2][34];
    uint64_t random = 4;
    struct error err;
    size_t bytes, refused = 0;
    char *text;

    assert_int_equal(good_load(good_path, right, &err), 0);
    snprintf(dir, sizeof dir, "%.400s/mutated", good_base);
    good_copy(dir);
    text = read_file(join(path, dir, SHARD1), &bytes);
    for (int i = 0; i < 2000; i++) {
        char *copy = malloc(bytes + 1);
        size_t within = i % 2 ? 256 : bytes;

        memcpy(copy, text, bytes + 1);
        for (uint64_t n = 1 + world_random(&random, 3); n > 0; n--)
            copy[world_random(&random, within)] = (char)world_random(&random, 256);
        write_file(path, copy, bytes);
        if (good_load(dir, out, &err) ==
            0) { /* only if the same bytes were written again: a checksum covers every one */
            assert_memory_equal(copy, text, bytes);
            assert_memory_equal(out, right, sizeof out);
        } else {
            refused++;
        }
        free(copy);
    }
    assert_true(refused > 1900);
    free(text);
    scratch_destroy(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mutated_manifests_never_crash),
        cmocka_unit_test(mutated_shards_never_load),
    };

    return cmocka_run_group_tests(tests, good_create, good_destroy);
}
