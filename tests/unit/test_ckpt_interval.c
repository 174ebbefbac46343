/* The arithmetic of pieces, against the plainest way to do it: a mark on every element. */
#include "ckpt/format/pieces.h"
#include "tests/cmocka_test.h"
#include "tests/unit/test_ckpt_world.h"

#define MOST 4096

static struct ckpt_tensor random_tensor(uint64_t *random)
{
    struct ckpt_tensor tensor = {.name = "t", .ndim = 1 + (int)world_random(random, 4)};

    for (int d = 0; d < tensor.ndim; d++)
        tensor.shape[d] = 1 + world_random(random, 7);
    return tensor;
}

static struct ckpt_piece random_piece(const struct ckpt_tensor *tensor, uint64_t *random)
{
    struct ckpt_piece piece = {0};
    uint64_t elements;

    for (int d = 0; d < tensor->ndim; d++) {
        piece.shape[d] = world_random(random, 2) ? tensor->shape[d] : 1 + world_random(random, tensor->shape[d]);
        piece.start[d] = world_random(random, tensor->shape[d] - piece.shape[d] + 1);
    }
    elements = box_elements(piece.shape, tensor->ndim);
    if (world_random(random, 3) == 0) {
        piece.count = elements;
    } else {
        piece.first = world_random(random, elements);
        piece.count = world_random(random, elements - piece.first + 1);
    }
    return piece;
}

/* where[place in the tensor] = place in the piece, or -1 */
static void mark(const struct ckpt_tensor *tensor, const struct ckpt_piece *piece, long where[MOST])
{
    for (int i = 0; i < MOST; i++)
        where[i] = -1;
    for (uint64_t i = 0; i < piece->count; i++)
        where[world_place(tensor, piece, i)] = (long)i;
}

static void overlaps_are_those_of_marks(void **state)
{
    uint64_t random = 1, nonempty = 0;

    for (int round = 0; round < 20000; round++) {
        struct ckpt_tensor tensor = random_tensor(&random);
        struct ckpt_piece a = random_piece(&tensor, &random), b = random_piece(&tensor, &random);
        long in_a[MOST], in_b[MOST], last_a = -2, last_b = -2;
        uint64_t at = 0, seen = 0, expected = 0;
        struct overlap walk;
        bool any;

        mark(&tensor, &a, in_a);
        mark(&tensor, &b, in_b);
        for (int i = 0; i < MOST; i++)
            expected += in_a[i] >= 0 && in_b[i] >= 0;
        any = overlap_start(&walk, &a, &b, tensor.ndim);
        assert_int_equal(any, expected > 0);
        while (any && overlap_next(&walk)) {
            /* as long as can be: this run does not continue the one before */
            assert_false((long)walk.at_a == last_a + 1 && (long)walk.at_b == last_b + 1);
            for (uint64_t i = 0; i < walk.count; i++, at++) {
                while (at < MOST && (in_a[at] < 0 || in_b[at] < 0))
                    at++;
                assert_true(at < MOST);
                assert_int_equal(in_a[at], walk.at_a + i);
                assert_int_equal(in_b[at], walk.at_b + i);
                seen++;
            }
            last_a = (long)(walk.at_a + walk.count - 1);
            last_b = (long)(walk.at_b + walk.count - 1);
        }
        assert_int_equal(seen, expected);
        nonempty += expected > 0;
    }
    assert_true(nonempty > 5000);
}

static void extents_are_first_and_last_marks(void **state)
{
    uint64_t random = 2;

    for (int round = 0; round < 5000; round++) {
        struct ckpt_tensor tensor = random_tensor(&random);
        struct ckpt_piece piece = random_piece(&tensor, &random);
        uint64_t first, last, low = MOST, high = 0;
        long where[MOST];

        if (piece.count == 0)
            continue;
        mark(&tensor, &piece, where);
        for (uint64_t i = 0; i < MOST; i++)
            if (where[i] >= 0) {
                low = i < low ? i : low;
                high = i;
            }
        piece_extent(&piece, &tensor, &first, &last);
        assert_int_equal(first, low);
        assert_int_equal(last, high);
    }
}

static void huge_shapes_are_refused(void **state)
{
    struct ckpt_tensor tensor = {.name = "t", .ndim = 2, .shape = {UINT64_C(1) << 33, UINT64_C(1) << 33}};
    struct ckpt_tensor fine = {.name = "t", .ndim = 2, .shape = {UINT64_C(1) << 30, UINT64_C(1) << 29}};
    struct ckpt_piece piece = {.shape = {4, 4}, .start = {UINT64_MAX - 1, 0}, .count = 1};

    assert_false(tensor_is_valid(&tensor));
    assert_true(tensor_is_valid(&fine));
    fine.shape[1] = 0;
    assert_false(tensor_is_valid(&fine));
    fine.shape[1] = 8;
    assert_false(piece_is_valid(&piece, &fine));
    piece.start[0] = 0;
    assert_true(piece_is_valid(&piece, &fine));
    piece.first = UINT64_MAX;
    piece.count = 2;
    assert_false(piece_is_valid(&piece, &fine));
}

static void names_are_read_as_they_are_written(void **state)
{
    char name[FILE_NAME_SIZE], attempt[CKPT_ATTEMPT_SIZE];
    uint64_t step;
    int shard, shards;

    name_attempt(name, ATTEMPT_PARTIAL, 200, "47.1.partial");
    assert_string_equal(name, "step-00000200.47.1.partial.partial");
    assert_true(name_parse_attempt(name, ATTEMPT_PARTIAL, &step, attempt));
    assert_int_equal(step, 200);
    assert_string_equal(attempt, "47.1.partial");
    assert_false(name_parse_attempt("step-00000200.partial", ATTEMPT_PARTIAL, &step, attempt));
    assert_false(name_parse_attempt("step-00000200..partial", ATTEMPT_PARTIAL, &step, attempt));
    assert_false(name_parse_attempt("step-200.a.partial", ATTEMPT_PARTIAL, &step, attempt));
    assert_true(name_parse_step("step-123456789012", &step));
    assert_int_equal(step, 123456789012);
    assert_false(name_parse_step("step--0000001", &step));
    assert_false(name_parse_step("step-000000001", &step));
    assert_false(name_parse_step("step-00000001x", &step));
    assert_true(name_parse_shard("shard-00002-of-00004.json", SHARD_PART, &shard, &shards));
    assert_int_equal(shard, 2);
    assert_int_equal(shards, 4);
    assert_false(name_parse_shard("shard-00004-of-00004.json", SHARD_PART, &shard, &shards));
    assert_false(name_parse_shard("shard-2-of-4.json", SHARD_PART, &shard, &shards));
    assert_false(name_parse_shard("shard-00002-of-00004.json.tmp", SHARD_PART, &shard, &shards));
    assert_true(name_parse_shard("shard-00002-of-00004.safetensors", SHARD_DATA, &shard, &shards));
    assert_int_equal(shard, 2);
    assert_int_equal(shards, 4);
    assert_false(name_parse_shard("shard-00002-of-00004.json", SHARD_DATA, &shard, &shards));
    assert_false(name_parse_shard("shard-00002-of-00004.safetensors.1.tmp", SHARD_DATA, &shard, &shards));
    assert_false(name_is_attempt("../x"));
    assert_false(name_is_attempt(""));
    assert_false(name_is_attempt(NULL));
}

/* A column as wide as half the tensor, cut into rows: 20000 pieces of one box, and one of the other half. */
static void many_pieces_are_checked(void **state)
{
    enum { ROWS = 20000 };
    struct ckpt_tensor tensor = {.name = "t", .ndim = 2, .shape = {ROWS, 4}};
    struct ckpt_piece *pieces = calloc(ROWS + 1, sizeof *pieces);
    struct manifest_shard shard = {.pieces = pieces, .npieces = ROWS + 1};
    struct manifest manifest = {.tensors = &tensor, .ntensors = 1, .shards = 1, .part = -1, .shard = &shard};
    struct piece_index index;
    struct error err;

    assert_non_null(pieces);
    for (uint64_t i = 0; i < ROWS; i++)
        pieces[i] = (struct ckpt_piece){.start = {0, 2}, .shape = {ROWS, 2}, .first = 2 * i, .count = 2};
    pieces[ROWS] = (struct ckpt_piece){.shape = {ROWS, 2}, .count = 2 * ROWS};
    assert_int_equal(piece_index_create(&index, &manifest, &err), 0);
    piece_index_destroy(&index);
    pieces[777].first++;
    assert_int_equal(piece_index_create(&index, &manifest, &err), -1);
    assert_non_null(strstr(err.text, "both have 1 of its elements"));
    pieces[777].first--;
    pieces[ROWS].start[1] = 1; /* the halves overlap */
    assert_int_equal(piece_index_create(&index, &manifest, &err), -1);
    assert_non_null(strstr(err.text, "both have "));
    for (uint64_t i = 0; i < 4097; i++) /* a row each: as many boxes */
        pieces[i] = (struct ckpt_piece){.start = {i, 0}, .shape = {1, 4}, .count = 4};
    shard.npieces = 4097;
    tensor.shape[0] = 4097;
    assert_int_equal(piece_index_create(&index, &manifest, &err), -1);
    assert_int_equal(err.code, CODE_DATA);
    assert_non_null(strstr(err.text, "more than 4096 different boxes"));
    shard.npieces = 4096;
    tensor.shape[0] = 4096;
    assert_int_equal(piece_index_create(&index, &manifest, &err), 0);
    piece_index_destroy(&index);
    free(pieces);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(overlaps_are_those_of_marks), cmocka_unit_test(extents_are_first_and_last_marks),
        cmocka_unit_test(huge_shapes_are_refused),     cmocka_unit_test(names_are_read_as_they_are_written),
        cmocka_unit_test(many_pieces_are_checked),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
