/* Written under one topology, read under another: every bit must come back. */
#include "tests/cmocka_test.h"
#include "tests/unit/test_ckpt_world.h"

#include <unistd.h>

#define PAIRS 200

static void any_topology_reads_what_any_other_wrote(void **state)
{
    uint64_t random = 42;

    for (int pair = 0; pair < PAIRS; pair++) {
        struct world world;
        struct topology *writer, *reader;
        char dir[256];

        scratch_create(dir, pair % 20 == 0 ? NULL : scratch_fast()); /* the large ones on a real disk, for O_DIRECT */
        world_create(&world, &random, pair % 20 == 0);
        writer = topology_create(&world, 1 + (int)world_random(&random, WORLD_MAX_SHARDS), &random);
        reader = topology_create(&world, 1 + (int)world_random(&random, WORLD_MAX_SHARDS), &random);
        world_write(&world, writer, dir, 7, "1.0");
        world_expect(&world, reader, dir, 7);
        world_expect(&world, writer, dir, 7);
        topology_destroy(writer, &world);
        topology_destroy(reader, &world);
        scratch_destroy(dir);
    }
}

static void count_differences(const char *tensor, const char *kind, const char *reason, void *arg)
{
    snprintf(arg, 512, "%s %s: %s", tensor, kind, reason);
}

/* Two topologies of one state are the same checkpoint; one flipped bit of it is one difference, and named. */
static void diff_sees_one_bit_and_no_topology(void **state)
{
    uint64_t random = 7;
    struct world world;
    struct topology *one, *two;
    struct ckpt *a, *b;
    struct error err;
    char dir[256], path[512], last[512] = "";
    uint32_t *value;

    scratch_create(dir, NULL);
    world_create(&world, &random, true);
    one = topology_create(&world, 3, &random);
    two = topology_create(&world, 8, &random);
    world_write(&world, one, join(path, dir, "a"), 5, "x");
    world_write(&world, two, join(path, dir, "b"), 5, "y");
    a = ckpt_open(join(path, dir, "a/step-00000005"), &err);
    b = ckpt_open(join(path, dir, "b/step-00000005"), &err);
    assert_non_null(a);
    assert_non_null(b);
    assert_int_equal(ckpt_diff(a, b, count_differences, last, &err), 0);
    ckpt_close(b);

    value = two->ranks[0].data[0];
    for (int r = 0; two->ranks[0].pieces[0].count == 0 && r < two->shards; r++)
        for (size_t p = 0; p < two->ranks[r].npieces; p++)
            if (two->ranks[r].pieces[p].count > 0)
                value = two->ranks[r].data[p * world.nkinds];
    topology_fill(two, &world);
    *value ^= 1;
    for (int s = 0; s < two->shards; s++) {
        struct ckpt_save save = world_save(&world, two, s, join(path, dir, "c"), 6, "z");

        assert_int_equal(ckpt_write_shard(&save, &err), 0);
    }
    assert_int_equal(ckpt_commit(join(path, dir, "c"), 6, "z", &err), 1);
    b = ckpt_open(join(path, dir, "c/step-00000006"), &err);
    assert_non_null(b);
    assert_int_equal(ckpt_diff(a, b, count_differences, last, &err), 3); /* step, consumed_samples, and the tensor */
    assert_non_null(strstr(last, " param: 1 of "));
    ckpt_close(a);
    ckpt_close(b);
    topology_destroy(one, &world);
    topology_destroy(two, &world);
    scratch_destroy(dir);
}

static void state_and_tables_come_back(void **state)
{
    uint64_t random = 9;
    struct world world;
    struct topology *topology;
    struct ckpt *ckpt;
    struct error err;
    struct ckpt_save save;
    char dir[256], path[512];
    size_t count;

    scratch_create(dir, NULL);
    world_create(&world, &random, false);
    topology = topology_create(&world, 4, &random);
    world_write(&world, topology, join(path, dir, "deep/er"), 123456789, "job-1_2.3");
    save = world_save(&world, topology, 0, path, 123456789, "job-1_2.3");
    ckpt = ckpt_open(join(path, dir, "deep/er/step-123456789/"), &err);
    assert_non_null(ckpt);
    assert_memory_equal(ckpt_progress(ckpt), &save.state, sizeof save.state);
    assert_int_equal(ckpt_progress(ckpt)->dp, 4);
    assert_string_equal(ckpt_job_text(ckpt), "model = \"gpt-tiny\"; # caf?\n");
    assert_string_equal(ckpt_summary(ckpt).attempt, "job-1_2.3");
    assert_int_equal(ckpt_summary(ckpt).shards, 4);
    assert_memory_equal(ckpt_tensors(ckpt, &count), world.tensors, world.ntensors * sizeof *world.tensors);
    assert_int_equal(count, world.ntensors);
    path[strlen(path) - 1] = '\0';
    assert_string_equal(ckpt_path(ckpt), path);
    ckpt_close(ckpt);
    topology_destroy(topology, &world);
    scratch_destroy(dir);
}

/* A reader whose model is another one gets a line that says so, not bytes. */
static void another_model_is_refused(void **state)
{
    uint64_t random = 10;
    struct world world, other;
    struct topology *topology;
    struct ckpt *ckpt;
    struct error err;
    char dir[256], path[512];

    scratch_create(dir, NULL);
    world_create(&world, &random, false);
    topology = topology_create(&world, 2, &random);
    world_write(&world, topology, dir, 1, "1");
    ckpt = ckpt_open(join(path, dir, "step-00000001"), &err);
    assert_non_null(ckpt);
    other = world;
    other.tensors[0].shape[0]++;
    assert_int_equal(world_read(&other, topology, ckpt, &err), -1);
    assert_int_equal(err.code, CODE_DATA);
    assert_non_null(strstr(err.text, "another shape"));
    other = world;
    strcpy(other.tensors[0].name, "nothing.like.it");
    assert_int_equal(world_read(&other, topology, ckpt, &err), -1);
    assert_non_null(strstr(err.text, "no tensor \"nothing.like.it\""));
    other = world;
    other.ntensors--;
    assert_int_equal(world_read(&other, topology, ckpt, &err), -1);
    assert_int_equal(err.code, CODE_DATA);
    other = world;
    other.kinds = (const char *const[]){"momentum", "a", "b"};
    assert_int_equal(world_read(&other, topology, ckpt, &err), -1);
    assert_non_null(strstr(err.text, "no kind \"momentum\""));
    ckpt_close(ckpt);
    topology_destroy(topology, &world);
    scratch_destroy(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_topology_reads_what_any_other_wrote),
        cmocka_unit_test(diff_sees_one_bit_and_no_topology),
        cmocka_unit_test(state_and_tables_come_back),
        cmocka_unit_test(another_model_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
