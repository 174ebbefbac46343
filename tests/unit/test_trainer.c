/* Where tensors lie in units, and the initial weights. */
#include <math.h>

#include "ckpt/models/units.h"
#include "common/mesh.h"
#include "plan/schedule.h"
#include "common/philox.h"
#include "tests/cmocka_test.h"
#include "trainer/engine.h"
#include "trainer/parallel/zero.h"
#include "trainer/run.h"

enum { SHAPES = 30, SEED = 42 };

static int draw(uint32_t site, uint64_t *used, int low, int high)
{
    return low + (int)(philox_uniform((struct philox_stream){.seed = 5, .site = site}, (*used)++) * (high - low + 1));
}

/* A model, and a mesh that it can be cut to. */
struct world {
    struct model_shape shape;
    struct mesh mesh;
    int chunks;
};

static struct world draw_world(uint32_t number)
{
    struct world w = {.chunks = 1};
    uint64_t used = 0;

    w.mesh = (struct mesh){.dp = draw(number, &used, 1, 5), .tp = 1 << draw(number, &used, 0, 2)};
    w.mesh.pp = draw(number, &used, 1, 4);
    if (w.mesh.pp > 1)
        w.chunks = draw(number, &used, 1, 2);
    model_set_kind(&w.shape, (int)(number % 3));
    w.shape.layers = draw(number, &used, 1, 6);
    w.shape.heads = w.mesh.tp * draw(number, &used, 1, 3);
    w.shape.hidden = w.shape.heads * draw(number, &used, 1, 5);
    w.shape.seq_length = w.mesh.tp * draw(number, &used, 2, 9);
    w.shape.vocab = draw(number, &used, 5, 600);
    w.shape.head_size = number % 3 == 0 ? 7 : 0;
    w.shape.inner = number % 4 == 0 ? w.mesh.tp * 9 : 0;
    w.shape.untied = number % 5 == 0;
    if (number % 7 == 0)
        w.shape.positions = w.shape.positions == POSITIONS_LEARNED ? POSITIONS_ROTARY : POSITIONS_LEARNED;
    if (number % 11 == 0)
        w.shape.biases = (enum model_biases)((w.shape.biases + 1) % 3);
    if (w.shape.layout == LAYOUT_LLAMA) {
        w.shape.kv_heads = w.mesh.tp;
        w.shape.qk_norm = number % 2;
    }
    return w;
}

static struct units *units_at(const struct world *w, struct mesh_coords place)
{
    struct units *units = units_create(&w->shape, &w->mesh, w->chunks, mesh_rank(&w->mesh, place), NULL);

    assert_non_null(units);
    return units;
}

static struct units *units_of_all(const struct model_shape *shape)
{
    struct units *units = units_create_whole(shape, NULL);

    assert_non_null(units);
    return units;
}

static uint64_t elements(const struct ckpt_tensor *tensor)
{
    uint64_t n = 1;

    for (int i = 0; i < tensor->ndim; i++)
        n *= tensor->shape[i];
    return n;
}

/* Element `at` of the row-major flattening of a piece's box: its number in the whole tensor. */
static uint64_t logical(const struct ckpt_tensor *tensor, const struct ckpt_piece *piece, uint64_t at)
{
    uint64_t place[CKPT_MAX_DIMS], number = 0;

    for (int i = tensor->ndim - 1; i >= 0; i--) {
        place[i] = piece->start[i] + at % piece->shape[i];
        at /= piece->shape[i];
    }
    assert_int_equal(at, 0);
    for (int i = 0; i < tensor->ndim; i++) {
        assert_true(place[i] < tensor->shape[i]);
        number = number * tensor->shape[i] + place[i];
    }
    return number;
}

/* What is known of the whole model's elements, numbered through all tensors. */
struct whole {
    struct units *units;
    uint64_t *first; /* of each tensor */
    uint64_t count;
    float *initial;
    int *saved; /* by how many ranks */
};

static const struct job seeded = {.batch.seed = SEED, .init_std = 0.02, .init_depth = true};

static struct whole whole_create(const struct model_shape *shape)
{
    struct whole whole = {.units = units_of_all(shape)};

    whole.first = calloc(whole.units->ntensors, sizeof *whole.first);
    for (size_t t = 0; t < whole.units->ntensors; t++) {
        whole.first[t] = whole.count;
        whole.count += elements(&whole.units->tensors[t]);
    }
    whole.saved = calloc(whole.count, sizeof *whole.saved);
    whole.initial = calloc(whole.count, sizeof *whole.initial);
    for (int u = 0; u < whole.units->nunits; u++) {
        const struct unit *unit = &whole.units->units[u];
        float *values = calloc(unit->count, sizeof *values);

        initial_weights(&seeded, whole.units, u, 0, unit->count, values);
        for (int t = 0; t < unit->ntensors; t++)
            memcpy(whole.initial + whole.first[unit->tensors[t].index], values + unit->tensors[t].offset,
                   unit->tensors[t].count * sizeof *values);
        free(values);
    }
    return whole;
}

static void whole_destroy(struct whole *whole)
{
    units_destroy(whole->units);
    free(whole->first);
    free(whole->initial);
    free(whole->saved);
}

/* A rank's shard of a unit: what it saves is counted, what it holds has the whole's initial values. */
static void check_shard(struct whole *whole, const struct units *units, int u, size_t first, size_t count)
{
    struct ckpt_piece pieces[UNIT_MAX_TENSORS];
    size_t offsets[UNIT_MAX_TENSORS], n;
    float *values = malloc(count * sizeof *values);

    memset(values, 0xff, count * sizeof *values);
    initial_weights(&seeded, units, u, first, count, values);
    n = units_pieces(units, u, first, count, false, pieces, offsets);
    for (size_t i = 0; i < n; i++) {
        assert_true(offsets[i] >= first && offsets[i] + pieces[i].count <= first + count);
        for (uint64_t j = 0; j < pieces[i].count; j++) {
            uint64_t element = whole->first[pieces[i].tensor] +
                               logical(&units->tensors[pieces[i].tensor], &pieces[i], pieces[i].first + j);
            float *value = &values[offsets[i] - first + j];

            assert_true(*value == whole->initial[element]);
            *value = 0;
        }
    }
    for (size_t i = 0; i < count; i++)
        assert_true(values[i] == 0); /* padding */
    n = units_pieces(units, u, first, count, true, pieces, offsets);
    for (size_t i = 0; i < n; i++)
        for (uint64_t j = 0; j < pieces[i].count; j++)
            whole->saved[whole->first[pieces[i].tensor] +
                         logical(&units->tensors[pieces[i].tensor], &pieces[i], pieces[i].first + j)]++;
    free(values);
}

static void check_world(const struct world *w)
{
    struct whole whole = whole_create(&w->shape);

    assert_int_equal(whole.count, model_parameters(&w->shape));
    for (int rank = 0; rank < mesh_world(&w->mesh); rank++) {
        struct mesh_coords place = mesh_coords(&w->mesh, rank);
        struct units *units = units_at(w, place);

        assert_int_equal(units->ntensors, whole.units->ntensors);
        assert_memory_equal(units->tensors, whole.units->tensors, units->ntensors * sizeof *units->tensors);
        for (int u = 0; u < units->nunits; u++) {
            size_t count = units->units[u].count, shard = count / (size_t)w->mesh.dp;

            assert_int_equal(count % ((size_t)w->mesh.dp * UNIT_ALIGN), 0);
            assert_int_equal(count > 0, units->units[u].here && units->units[u].ntensors > 0);
            if (count > 0)
                check_shard(&whole, units, u, shard * (size_t)place.dp, shard);
        }
        units_destroy(units);
    }
    for (uint64_t i = 0; i < whole.count; i++)
        assert_int_equal(whole.saved[i], 1);
    whole_destroy(&whole);
}

/* Over all places of a mesh every element of every tensor is saved by one rank, and starts with the same bits. */
static void test_shards_cover_the_model(void **state)
{
    for (uint32_t number = 0; number < SHAPES; number++) {
        struct world w = draw_world(number);

        check_world(&w);
    }
}

/* Rows of a slice are as many on every rank, in whole kilobytes, and the slices follow one another. */
static void test_vocabulary_slices(void **state)
{
    struct model_shape shape = {.layers = 1, .hidden = 8, .heads = 4, .seq_length = 4};
    static const int vocabs[] = {4, 5, 127, 128, 129, 511, 513, 50257, 50304};

    for (size_t v = 0; v < sizeof vocabs / sizeof *vocabs; v++)
        for (int tp = 1; tp <= 4; tp *= 2) {
            struct world w = {.shape = shape, .mesh = {1, tp, 1}, .chunks = 1};
            int next = 0, padded = 0;

            w.shape.vocab = vocabs[v];
            for (int rank = 0; rank < tp; rank++) {
                struct units *units = units_at(&w, (struct mesh_coords){.tp = rank});

                assert_int_equal(units->vocab_first, next);
                assert_true(units->vocab >= vocabs[v] / tp && units->vocab <= units->vocab_padded);
                assert_int_equal(units->vocab_padded % VOCAB_ALIGN, 0);
                if (rank > 0)
                    assert_int_equal(units->vocab_padded, padded);
                padded = units->vocab_padded;
                next += units->vocab;
                units_destroy(units);
            }
            assert_int_equal(next, vocabs[v]);
            assert_true(tp * padded - vocabs[v] < tp * VOCAB_ALIGN);
        }
}

static void test_initial_weights_are_gpt2s(void **state)
{
    struct model_shape big = {.layers = 4, .hidden = 256, .heads = 4, .seq_length = 64, .vocab = 512};
    struct units *units = units_of_all(&big);
    const struct unit *block = &units->units[UNIT_BLOCK0];
    float *values = malloc(block->count * sizeof *values);

    initial_weights(&seeded, units, UNIT_BLOCK0, 0, block->count, values);
    for (int t = 0; t < block->ntensors; t++) {
        const struct unit_tensor *tensor = &block->tensors[t];
        double sum = 0, squares = 0, n = (double)tensor->count, expected = 0;

        for (size_t i = 0; i < tensor->count; i++) {
            sum += values[tensor->offset + i];
            squares += (double)values[tensor->offset + i] * values[tensor->offset + i];
        }
        if (tensor == unit_find(block, PART_QKV, WEIGHT) || tensor == unit_find(block, PART_FC, WEIGHT))
            expected = 0.02;
        if (tensor == unit_find(block, PART_ATTN_PROJ, WEIGHT) || tensor == unit_find(block, PART_MLP_PROJ, WEIGHT))
            expected = 0.02 / sqrt(8.0);
        if (expected > 0) {
            assert_true(fabs(sum / n) < 5 * expected / sqrt(n));
            assert_true(fabs(sqrt(squares / n) / expected - 1) < 0.01);
            assert_true(tensor->row.decays);
        } else {
            assert_true(sum ==
                        (tensor == unit_find(block, PART_LN_1, WEIGHT) || tensor == unit_find(block, PART_LN_2, WEIGHT)
                             ? n
                             : 0));
            assert_false(tensor->row.decays);
        }
    }
    free(values);
    units_destroy(units);
}

static struct metrics_step measure(struct run *run, double seconds)
{
    const struct step_result result = {.global_batch = 8};

    return run_measure(run, &result, seconds);
}

static void no_step_is_above_the_peak(void **state)
{
    struct job job = {.model = {.layers = 2, .hidden = 8, .heads = 2, .seq_length = 8, .vocab = 16}};
    struct engine engine = {.step = 1};
    struct error err;
    struct run run = {.job = &job, .engine = &engine, .world = comm_alone_create(&err), .peak_flops = 1e12};
    double reached;

    assert_non_null(run.world);
    reached = measure(&run, 1).mfu * 1e12;
    assert_true(reached > 0 && run.peak_flops > 0.99e12);
    run.peak_flops = reached / 3; /* measured while the machine was busy */
    assert_float_equal(measure(&run, 1).mfu, 1, 1e-9);
    assert_float_equal(measure(&run, 2).mfu, 0.5, 1e-9);
    assert_float_equal(measure(&run, 0.5).mfu, 1, 1e-9);
    assert_float_equal(run.peak_flops / reached, 2, 1e-9);
    job.report.peak_tflops = reached * 1e-12; /* the user's own */
    run.peak_flops = reached;
    assert_float_equal(measure(&run, 0.5).mfu, 2, 1e-9);
    comm_destroy(run.world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_step_is_above_the_peak),
        cmocka_unit_test(test_shards_cover_the_model),
        cmocka_unit_test(test_vocabulary_slices),
        cmocka_unit_test(test_initial_weights_are_gpt2s),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
