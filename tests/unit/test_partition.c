/* Layers over pipeline parts, against every other way to do it. */
#include "plan/schedule.h"
#include "tests/cmocka_test.h"
#include "tests/unit/model_fields.h"

#define PARTS 16

/* FLOPs of a token's forward pass through a part, by the formulas of schedule.h. */
static uint64_t partition_work(const struct model_shape *m, int parts, const int *first, int part)
{
    uint64_t d = (uint64_t)m->hidden, layers = (uint64_t)(first[part + 1] - first[part]);
    uint64_t work = layers * (24 * d * d + 4 * d * (uint64_t)m->seq_length);

    work += part == 0 ? 8 * d : 0;
    work += part == parts - 1 ? 2 * (uint64_t)m->vocab * d + (m->objective == OBJECTIVE_MASKED ? 2 * d * d : 0) : 0;
    return work;
}

static uint64_t greatest_work(const struct model_shape *shape, int parts, const int *first)
{
    uint64_t most = 0;

    for (int i = 0; i < parts; i++) {
        uint64_t work = partition_work(shape, parts, first, i);

        most = work > most ? work : most;
    }
    return most;
}

/* The least that any partition's greatest part can have: tries all of them. */
static uint64_t try_all(const struct model_shape *shape, int parts, int *first, int part)
{
    uint64_t least = UINT64_MAX;

    if (part == parts) {
        first[parts] = shape->layers;
        return greatest_work(shape, parts, first);
    }
    for (first[part] = part == 0 ? 0 : first[part - 1]; first[part] <= shape->layers; first[part]++) {
        uint64_t work = try_all(shape, parts, first, part + 1);

        least = work < least ? work : least;
        if (part == 0)
            break; /* part 0 begins at layer 0 */
    }
    return least;
}

static void no_partition_is_better(void **state)
{
    /* Heads of next to nothing, of parts of a layer and of several layers. */
    static const struct model_shape shapes[] = {
        {MODEL_SIZES(0, 768, 12, 1024, 2)},
        {MODEL_SIZES(0, 768, 12, 1024, 5000)},
        {MODEL_SIZES(0, 768, 12, 1024, 30522), BERT_FIELDS},
        {MODEL_SIZES(0, 768, 12, 1024, 50257)},
        {MODEL_SIZES(0, 12288, 96, 2048, 50257)},
        {MODEL_SIZES(0, 64, 4, 4096, 256), BERT_FIELDS},
        {MODEL_SIZES(0, 64, 4, 32, 250880)},
    };

    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (int parts = 1; parts <= 5; parts++)
            for (int layers = 1; layers <= 13; layers++) {
                struct model_shape shape = shapes[i];
                int first[PARTS + 1], other[PARTS + 1];

                shape.layers = layers;
                partition_layers(&shape, parts, first);
                assert_int_equal(first[0], 0);
                assert_int_equal(first[parts], layers);
                for (int part = 0; part < parts; part++)
                    assert_true(first[part] <= first[part + 1]);
                assert_true(greatest_work(&shape, parts, first) == try_all(&shape, parts, other, 0));
            }
}

static void counts_are(const char *preset, int parts, const char *expected)
{
    struct model_shape shape;
    int first[PARTS + 1], kind;
    char text[100] = "";

    assert_int_equal(model_preset(&shape, &kind, preset, NULL), 0);
    partition_layers(&shape, parts, first);
    for (int i = 0; i < parts; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%d ", first[i + 1] - first[i]);
    assert_string_equal(text, expected);
}

/* The head of GPT-2's smallest model is worth 4.5 of its 12 layers, that of the largest preset a third of one. */
static void of_known_models(void **state)
{
    counts_are("gpt-125m", 1, "12 ");
    counts_are("gpt-125m", 2, "8 4 ");
    counts_are("gpt-125m", 4, "4 4 4 0 ");
    counts_are("gpt-181b", 4, "18 18 18 18 ");
    counts_are("gpt-181b", 8, "9 9 9 9 9 9 9 9 ");
    counts_are("gpt-7b", 8, "4 4 4 4 4 4 4 4 ");
    counts_are("gpt-350m", 8, "3 3 3 3 4 4 4 0 ");
    counts_are("bert-tiny", 4, "1 1 1 1 ");
}

/* Fewer layers than parts: the later ones have them, but the last its head. */
static void parts_may_be_empty(void **state)
{
    counts_are("gpt-tiny", 8, "0 0 0 1 1 1 1 0 ");
    counts_are("gpt-125m", 16, "0 0 0 1 1 1 1 1 1 1 1 1 1 1 1 0 ");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_partition_is_better),
        cmocka_unit_test(of_known_models),
        cmocka_unit_test(parts_may_be_empty),
    };

    return cmocka_run_group_tests_name("partition", tests, NULL, NULL);
}
