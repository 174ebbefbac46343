#include "common/philox.h"
#include "kernels/cuda/arena.h"
#include "tests/cmocka_test.h"

static size_t take(struct arena *arena, size_t bytes)
{
    struct error err = {0};
    size_t offset = SIZE_MAX;

    if (arena_alloc(arena, bytes, &offset, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(offset % ARENA_ALIGNMENT, 0);
    return offset;
}

static void give(struct arena *arena, size_t offset, size_t want)
{
    size_t bytes = SIZE_MAX;

    assert_int_equal(arena_free(arena, offset, &bytes), 1);
    assert_int_equal(bytes, want);
}

static void test_coalesces(void **state)
{
    struct arena *arena = arena_create(4096, NULL);
    size_t a = take(arena, 1000), b = take(arena, 1), c = take(arena, 256), d = take(arena, 0);

    assert_int_equal(arena_extent(arena), d + 256);
    give(arena, a, 1000);
    give(arena, c, 256);
    give(arena, b, 1); /* joins the holes on both sides */
    assert_int_equal(take(arena, 1536), a);
    give(arena, d, 0);
    assert_int_equal(arena_extent(arena), 1536);
    give(arena, a, 1536);
    assert_int_equal(arena_extent(arena), 0);
    assert_int_equal(take(arena, 4096), 0);
    arena_destroy(arena);
}

/* Of two holes that hold a piece the smaller, so that the large one stays whole. */
static void test_smallest_hole(void **state)
{
    struct arena *arena = arena_create(1 << 20, NULL);
    size_t large = take(arena, 4096), small;

    take(arena, 256);
    small = take(arena, 1024);
    take(arena, 256);
    give(arena, large, 4096);
    give(arena, small, 1024);
    assert_int_equal(take(arena, 900), small);
    assert_int_equal(take(arena, 4000), large);
    arena_destroy(arena);
}

static void test_exhausted(void **state)
{
    struct arena *arena = arena_create((size_t)4 << 20, NULL);
    struct error err = {0};
    size_t first = take(arena, (size_t)1 << 20), offset = 7;

    take(arena, (size_t)1 << 20);
    give(arena, first, (size_t)1 << 20);
    assert_int_equal(arena_alloc(arena, (size_t)5 << 19, &offset, &err), -1);
    assert_int_equal(err.code, CODE_IO);
    assert_string_equal(err.text, "2.5 MiB wanted; 1.0 MiB held, 3.0 MiB left, 2.0 MiB of them in one piece");
    assert_int_equal(arena_alloc(arena, SIZE_MAX, &offset, &err), -1);
    assert_int_equal(arena_alloc(arena, SIZE_MAX - 100, &offset, &err), -1);
    assert_int_equal(offset, 7);
    arena_destroy(arena);
}

static void test_wrong_free(void **state)
{
    struct arena *arena = arena_create(4096, NULL);
    size_t a = take(arena, 512), bytes = 7;

    assert_int_equal(arena_free(arena, a + 256, &bytes), 0);
    assert_int_equal(arena_free(arena, 1 << 30, &bytes), 0);
    give(arena, a, 512);
    assert_int_equal(arena_free(arena, a, &bytes), 0);
    assert_int_equal(bytes, 7);
    arena_destroy(arena);
    arena_destroy(NULL);
}

#define SLOTS    200
#define UNITS    2048 /* of 256 bytes */
#define ATTEMPTS 40000

/* Against a map of who has each unit: nobody has another's, and what is refused fits into no hole. */
struct world {
    struct arena *arena;
    int owner[UNITS]; /* slot + 1, or 0 */
    struct {
        size_t offset, bytes, units; /* units 0: not taken */
    } slot[SLOTS];
};

static size_t largest_hole(const struct world *w)
{
    size_t largest = 0, run = 0;

    for (int i = 0; i < UNITS; i++) {
        run = w->owner[i] ? 0 : run + 1;
        largest = run > largest ? run : largest;
    }
    return largest;
}

static void mark(struct world *w, int slot, int from, int to)
{
    for (size_t i = 0; i < w->slot[slot].units; i++) {
        int *owner = &w->owner[w->slot[slot].offset / ARENA_ALIGNMENT + i];

        assert_int_equal(*owner, from);
        *owner = to;
    }
}

static bool try_take(struct world *w, int slot, size_t bytes)
{
    struct error err = {0};
    size_t units = bytes ? (bytes + ARENA_ALIGNMENT - 1) / ARENA_ALIGNMENT : 1, offset;

    if (arena_alloc(w->arena, bytes, &offset, &err) < 0) {
        assert_true(largest_hole(w) < units);
        return false;
    }
    assert_int_equal(offset % ARENA_ALIGNMENT, 0);
    assert_true(offset / ARENA_ALIGNMENT + units <= UNITS);
    w->slot[slot].offset = offset;
    w->slot[slot].bytes = bytes;
    w->slot[slot].units = units;
    mark(w, slot, 0, slot + 1);
    return true;
}

static void check_extent(const struct world *w)
{
    size_t end = 0;

    for (int i = 0; i < UNITS; i++)
        if (w->owner[i])
            end = (size_t)i + 1;
    assert_int_equal(arena_extent(w->arena), end * ARENA_ALIGNMENT);
}

static void test_random(void **state)
{
    static struct world w;
    struct philox_stream random = {.seed = 5, .site = philox_site("arena"), .step = 0};
    int refused = 0;

    w.arena = arena_create(UNITS * ARENA_ALIGNMENT + 100, NULL);
    for (uint64_t i = 0; i < ATTEMPTS; i++) {
        int slot = (int)(philox_u32(random, 3 * i) % SLOTS);
        uint32_t size = philox_u32(random, 3 * i + 1);

        if (w.slot[slot].units) {
            give(w.arena, w.slot[slot].offset, w.slot[slot].bytes);
            mark(&w, slot, slot + 1, 0);
            w.slot[slot].units = 0;
        } else {
            refused += !try_take(&w, slot, size % (size % 8 ? 4000 : 60000));
        }
        if (i % 64 == 0)
            check_extent(&w);
    }
    assert_in_range(refused, ATTEMPTS / 100, ATTEMPTS / 2); /* both ways were tried */
    for (int slot = 0; slot < SLOTS; slot++)
        if (w.slot[slot].units)
            give(w.arena, w.slot[slot].offset, w.slot[slot].bytes);
    assert_int_equal(take(w.arena, UNITS * ARENA_ALIGNMENT), 0);
    arena_destroy(w.arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_coalesces),  cmocka_unit_test(test_smallest_hole), cmocka_unit_test(test_exhausted),
        cmocka_unit_test(test_wrong_free), cmocka_unit_test(test_random),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
