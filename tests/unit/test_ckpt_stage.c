/* Staging: what is drained is what would have been written; memory is used again and bounded; who may not, cannot. */
#include "tests/unit/ckpt_stage_world.h"

#include "ckpt/stage/stage_dir.h"
#include "tests/cmocka_test.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static uint64_t seed = 77;

/* Bit for bit the files of ckpt_write_shard, for many toy models, with empty pieces, empty ranks and several blocks. */
static void drained_is_what_would_be_written(void **state)
{
    for (int round = 0; round < 12; round++) {
        struct world world;
        struct node node;
        struct error err;
        char straight[256];

        node_begin(&node, &world, &seed, 1 + round % 5, round % 4 == 0);
        node_stage(&node, 10, "a.1");
        assert_int_equal(node_drain(&node), CKPT_DRAIN_DONE);
        assert_int_equal(node_news(&node).state, CKPT_COMMITTED);
        scratch_create(straight, scratch_fast());
        world_write(&world, node.topology, straight, 10, "a.1");
        for (int s = 0; s < node.topology->shards; s++) {
            char name[128], path[512];
            size_t bytes, others;
            char *one, *other;

            snprintf(name, sizeof name, "step-00000010/shard-%05d-of-%05d.safetensors", s, node.topology->shards);
            one = read_file(join(path, node.target, name), &bytes);
            other = read_file(join(path, straight, name), &others);
            assert_int_equal(bytes, others);
            assert_memory_equal(one, other, bytes);
            free(one);
            free(other);
        }
        world_expect(&world, node.topology, node.target, 10);
        assert_int_equal(ckpt_commit(node.target, 10, "a.1", &err), 1);
        scratch_destroy(straight);
        node_destroy(&node);
    }
}

static long faults(void)
{
    struct rusage usage;

    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_minflt;
}

/* The third save on finds files of the first and second: no new page, whatever the values. */
static void memory_is_used_again(void **state)
{
    struct ckpt_save save;
    struct ckpt_staged_shard staged;
    const void *seen[2] = {NULL, NULL};
    struct world world;
    struct node node;
    struct error err;

    node_begin(&node, &world, &seed, 1, true);
    save = world_save(&world, node.topology, 0, node.target, 1, "x");
    assert_int_equal(ckpt_stage_reserve(node.stage, &save, &err), 0);
    for (uint64_t step = 1; step <= 6; step++) {
        long before, after;
        uint64_t pages;

        world.salt++;
        topology_fill(node.topology, &world);
        before = faults();
        node_stage(&node, step, "x");
        after = faults();
        assert_int_equal(ckpt_stage_lend(node.stage, &staged, &err), 0);
        pages = staged.bytes / 4096;
        assert_true(pages > 1000);
        if (step > 2) {
            assert_true(staged.data == seen[0] || staged.data == seen[1]);
            assert_true((uint64_t)(after - before) < pages / 4);
        }
        if (staged.data != seen[0])
            seen[1] = seen[0];
        seen[0] = staged.data;
        assert_true(node_bytes(&node) < 2 * staged.bytes + 200000);
        assert_int_equal(node_drain(&node), CKPT_DRAIN_DONE);
        world_expect(&world, node.topology, node.target, step);
    }
    node_destroy(&node);
}

/* A file size limit stands for memory that is full: the reservation fails, and nothing is left half made. */
static void no_room(void **state)
{
    struct rlimit before, small = {100000, RLIM_INFINITY};
    struct ckpt_save save;
    struct world world;
    struct node node;
    struct error err;

    signal(SIGXFSZ, SIG_IGN);
    node_begin(&node, &world, &seed, 1, true);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small.rlim_max = before.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    save = world_save(&world, node.topology, 0, node.target, 1, "x");
    assert_int_equal(ckpt_stage_reserve(node.stage, &save, &err), 1);
    assert_int_equal(ckpt_stage_shard(node.stage, &save, &err), 1);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(ckpt_stage_drop(node.stage, 1, "x", "", &err), 0);
    assert_true(node_bytes(&node) < 100000);
    node_stage(&node, 2, "y");
    assert_int_equal(node_drain(&node), CKPT_DRAIN_DONE);
    world_expect(&world, node.topology, node.target, 2);
    node_destroy(&node);
}

/* Nobody drains: the third save is told so, and can be written directly. */
static void nobody_drains(void **state)
{
    struct ckpt_save save;
    struct world world;
    struct node node;
    struct error err;

    node_begin(&node, &world, &seed, 1, false);
    node_stage(&node, 1, "a");
    node_stage(&node, 2, "b");
    save = world_save(&world, node.topology, 0, node.target, 3, "c");
    assert_int_equal(ckpt_stage_shard(node.stage, &save, &err), 1);
    assert_non_null(strstr(err.text, "2 saves are staged and none is drained"));
    assert_int_equal(node_drain(&node), CKPT_DRAIN_DONE);
    assert_true(node_wait(&node, 60));
    world_expect(&world, node.topology, node.target, 1);
    world_expect(&world, node.topology, node.target, 2);
    node_destroy(&node);
}

static const char *refuse(struct node *node, const char *job)
{
    struct ckpt_stage_config config = {.root = node->root, .job = job, .run = "a"};
    struct ckpt_drain_options options = {.once = true};
    static struct error err;
    char path[512];

    assert_null(ckpt_stage_open(&config, &err));
    assert_int_equal(err.code, CODE_IO);
    assert_int_equal(ckpt_stage_path(path, sizeof path, node->root, job, "a", &err), 0);
    assert_int_equal(ckpt_drain(path, &options, &err), -1);
    return err.text;
}

static void others_directories_are_refused(void **state)
{
    struct ckpt_stage_config config = {.root = "/nowhere/at/all", .job = "1", .run = "a"};
    struct world world;
    struct node node;
    struct error err;
    char path[512], elsewhere[512];

    node_create(&node, &world, &seed, 1, false);
    assert_int_equal(ckpt_stage_path(path, sizeof path, node.root, "link", "a", &err), 0);
    snprintf(elsewhere, sizeof elsewhere, "%s/elsewhere", node.root);
    assert_int_equal(mkdir(elsewhere, 0700), 0);
    assert_int_equal(symlink(elsewhere, path), 0);
    refuse(&node, "link");
    assert_int_equal(ckpt_stage_path(path, sizeof path, node.root, "open", "a", &err), 0);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(chmod(path, 0755), 0);
    refuse(&node, "open");
    if (geteuid() == 0) {
        assert_int_equal(ckpt_stage_path(path, sizeof path, node.root, "foreign", "a", &err), 0);
        assert_int_equal(mkdir(path, 0700), 0);
        assert_int_equal(chown(path, 12345, 12345), 0);
        assert_non_null(strstr(refuse(&node, "foreign"), "belongs to user 12345;"));
        assert_int_equal(rmdir(path), 0);
        assert_int_equal(symlink(elsewhere, path), 0);
        assert_int_equal(lchown(path, 12345, 12345), 0);
        assert_non_null(strstr(refuse(&node, "foreign"), "belongs to user 12345;"));
    }
    assert_null(ckpt_stage_open(&config, &err));
    assert_int_equal(ckpt_stage_path(path, sizeof path, node.root, "../up", "a", &err), -1);
    assert_int_equal(err.code, CODE_USAGE);
    node_destroy(&node);
}

/* An earlier run of the job left one save whole and one in halves: the first is committed, the second goes. */
static void what_an_earlier_run_left_is_found(void **state)
{
    struct ckpt_stage_config next = {.job = "1", .run = "b"};
    struct ckpt_stage_name *names;
    struct world world;
    struct node node;
    struct error err;
    struct ckpt_save save;
    uint64_t *steps;
    size_t count;
    char marker[512];
    struct ckpt_drain_options once = {.once = true, .seconds = 60};

    node_begin(&node, &world, &seed, 3, false);
    node_stage(&node, 5, "old.1");
    save = world_save(&world, node.topology, 1, node.target, 6, "old.2");
    assert_int_equal(ckpt_stage_shard(node.stage, &save, &err), 0);
    ckpt_stage_destroy(node.stage);
    next.root = node.root;
    assert_int_equal(ckpt_stage_earlier(&next, &names, &count, &err), 0);
    assert_int_equal(count, 1);
    node_open(&node, "1", 2, "b");
    assert_int_equal(ckpt_drain(join(marker, node.root, names[0].name), &once, &err), CKPT_DRAIN_DONE);
    assert_int_equal(access(marker, F_OK), -1);
    free(names);
    assert_int_equal(ckpt_stage_earlier(&next, &names, &count, &err), 0);
    assert_int_equal(count, 0);
    assert_int_equal(ckpt_list(node.target, &steps, &count, &err), 0);
    assert_int_equal(count, 1);
    assert_int_equal(steps[0], 5);
    free(steps);
    world_expect(&world, node.topology, node.target, 5);
    assert_int_equal(access(join(marker, node.target, "step-00000006.old.2.abandoned"), F_OK), 0);
    node_stage(&node, 6, "new.1");
    assert_int_equal(node_drain(&node), CKPT_DRAIN_DONE);
    world_expect(&world, node.topology, node.target, 6);
    assert_int_equal(access(marker, F_OK), -1);
    node_destroy(&node);
}

/* Another drainer may remove a stage that this one has opened. */
static void one_that_was_removed_meanwhile_is_no_error(void **state)
{
    struct directory stage;
    char path[512], real[512];
    struct error err;

    scratch_create(path, "/tmp");
    assert_int_equal(mkdir(join(real, path, "any"), 0700), 0);
    assert_int_equal(stage_directory_open(&stage, real, &err), 0);
    assert_int_equal(stage_directory_check(&stage, &err), -1); /* its name is no stage's */
    rmdir(real);
    assert_int_equal(stage_directory_check(&stage, &err), 0);
    directory_close(&stage);
    scratch_destroy(path);
}

/* The service ends with the run: when all is drained, nothing of the stage is left. */
static void what_no_run_uses_is_removed(void **state)
{
    struct ckpt_drain_options options = {.threads = 2};
    struct world world;
    struct node node;
    char path[512];
    pid_t child;

    node_begin(&node, &world, &seed, 3, false);
    snprintf(path, sizeof path, "%s", ckpt_stage_directory(node.stage));
    node_stage(&node, 5, "a");
    child = node_start_drain(&node, &options);
    assert_true(node_wait(&node, 60));
    assert_int_equal(node_news(&node).step, 5);
    ckpt_stage_destroy(node.stage);
    node.stage = NULL;
    child_wait(child);
    assert_int_equal(access(path, F_OK), -1);
    world_expect(&world, node.topology, node.target, 5);
    node_destroy(&node);
}

/* Room on `node` for the copy of the other's shard, and in it what arrived. */
static unsigned char *receive_copy(struct node *node, struct node *other, uint64_t step,
                                   struct ckpt_staged_shard *staged)
{
    struct ckpt_save save = world_save(node->world, node->topology, 1, node->target, step, "a");
    struct error err;
    unsigned char *room;

    assert_int_equal(ckpt_stage_lend(other->stage, staged, &err), 0);
    room = ckpt_stage_borrow(node->stage, &save, staged->bytes, &err);
    assert_non_null(room);
    memcpy(room, staged->data, staged->bytes);
    return room;
}

static int drain_with(const struct node *node, const struct ckpt_drain_options *options)
{
    struct error err;

    return ckpt_drain(ckpt_stage_directory(node->stage), options, &err);
}

/* Node 1 is lost; node 0 has a copy of its shards, and commits. A flipped bit on the way is refused. */
static void a_partners_copy_is_drained(void **state)
{
    struct ckpt_drain_options options = {.once = true, .partner = true, .seconds = 60};
    struct world world;
    struct node node, lost;
    struct ckpt_staged_shard staged;
    struct error err;
    unsigned char *room;

    node_begin_pair(&node, &lost, &world, &seed, true);
    node_stage(&node, 7, "a");
    node_stage(&lost, 7, "a");
    room = receive_copy(&node, &lost, 7, &staged);
    room[staged.bytes - 1] ^= 1;
    assert_int_equal(ckpt_stage_keep(node.stage, staged.part, staged.part_bytes, &err), -1);
    receive_copy(&node, &lost, 7, &staged);
    if (ckpt_stage_keep(node.stage, staged.part, staged.part_bytes, &err) < 0)
        fail_msg("%s", err.text);
    ckpt_stage_destroy(lost.stage);
    assert_int_equal(drain_with(&node, &options), CKPT_DRAIN_DONE);
    world_expect(&world, node.topology, node.target, 7);
    node_destroy(&node);
}

/* The copy comes when all is committed: it is not kept, and nobody waits for what else would belong to it. */
static void a_partners_copy_comes_too_late(void **state)
{
    struct world world;
    struct node node, other;
    struct ckpt_staged_shard staged;
    struct error err;

    node_begin_pair(&node, &other, &world, &seed, false);
    for (uint64_t step = 1; step <= 4; step++) {
        node_stage(&node, step, "a");
        node_stage(&other, step, "a");
        receive_copy(&node, &other, step, &staged);
        for (int turn = 0; turn < 2; turn++) { /* the first node has to wait for the second */
            struct ckpt_drain_options options = {.once = true, .seconds = turn == 0 ? 0.1 : 60};

            drain_with(&node, &options);
            drain_with(&other, &options);
        }
        assert_true(node_wait(&node, 0));
        assert_int_equal(ckpt_stage_keep(node.stage, staged.part, staged.part_bytes, &err), 0);
        assert_true(node_wait(&node, 0));
        world_expect(&world, node.topology, node.target, step);
    }
    ckpt_stage_destroy(other.stage);
    node_destroy(&node);
}

/* The other node commits with its own shard: the copy is not needed any more, and its memory is freed. */
static void a_partners_copy_is_of_a_committed_save(void **state)
{
    struct ckpt_drain_options own = {.once = true, .seconds = 0.3},
                              all = {.once = true, .partner = true, .seconds = 60};
    struct world world;
    struct node node, other;
    struct ckpt_staged_shard staged;
    struct error err;

    node_begin_pair(&node, &other, &world, &seed, false);
    node_stage(&node, 1, "a");
    node_stage(&other, 1, "a");
    receive_copy(&node, &other, 1, &staged);
    assert_int_equal(ckpt_stage_keep(node.stage, staged.part, staged.part_bytes, &err), 0);
    drain_with(&node, &own);
    assert_int_equal(drain_with(&other, &all), CKPT_DRAIN_DONE);
    assert_false(node_wait(&node, 0));
    assert_int_equal(drain_with(&node, &all), CKPT_DRAIN_DONE);
    assert_true(node_wait(&node, 0));
    world_expect(&world, node.topology, node.target, 1);
    ckpt_stage_destroy(other.stage);
    node_destroy(&node);
}

/* A bit of the copy flips in memory, and the other node still has the shard: that one is committed. */
static void a_partners_copy_is_damaged(void **state)
{
    struct ckpt_drain_options options = {.once = true, .partner = true, .seconds = 60};
    struct world world;
    struct node node, other;
    struct ckpt_staged_shard staged;
    struct error err;
    unsigned char *room;

    node_begin_pair(&node, &other, &world, &seed, false);
    node_stage(&node, 1, "a");
    node_stage(&other, 1, "a");
    room = receive_copy(&node, &other, 1, &staged);
    assert_int_equal(ckpt_stage_keep(node.stage, staged.part, staged.part_bytes, &err), 0);
    room[staged.bytes - 1] ^= 1;
    assert_int_equal(drain_with(&node, &options), CKPT_DRAIN_OTHERS);
    assert_int_equal(drain_with(&other, &options), CKPT_DRAIN_DONE);
    world_expect(&world, node.topology, node.target, 1);
    ckpt_stage_destroy(other.stage);
    node_destroy(&node);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(drained_is_what_would_be_written),
        cmocka_unit_test(memory_is_used_again),
        cmocka_unit_test(no_room),
        cmocka_unit_test(nobody_drains),
        cmocka_unit_test(others_directories_are_refused),
        cmocka_unit_test(what_an_earlier_run_left_is_found),
        cmocka_unit_test(one_that_was_removed_meanwhile_is_no_error),
        cmocka_unit_test(what_no_run_uses_is_removed),
        cmocka_unit_test(a_partners_copy_is_drained),
        cmocka_unit_test(a_partners_copy_comes_too_late),
        cmocka_unit_test(a_partners_copy_is_of_a_committed_save),
        cmocka_unit_test(a_partners_copy_is_damaged),
    };

    return cmocka_run_group_tests_name("ckpt_stage", tests, NULL, NULL);
}
