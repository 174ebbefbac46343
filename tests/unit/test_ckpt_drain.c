/* Draining: killed at any moment, two at once, a target that fails, and a target ten times too slow. */
#include "tests/unit/ckpt_stage_world.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

static uint64_t seed = 4711;

static void expect_committed(struct node *node)
{
    struct ckpt_stage_news news = node_news(node);

    if (news.outcome != CKPT_COMMITTED)
        fail_msg("step %llu: %s", (unsigned long long)news.step, news.reason);
}

static void pause_us(uint64_t us)
{
    nanosleep(&(struct timespec){.tv_sec = (time_t)(us / 1000000), .tv_nsec = (long)(us % 1000000) * 1000}, NULL);
}

/* Nothing but the shards and the manifest: no temporary file of a drainer that was killed. */
static void expect_tidy(const char *target, uint64_t step, int shards)
{
    char command[1024];
    FILE *pipe;
    int count = 0;

    snprintf(command, sizeof command, "ls -A %s/step-%08llu | wc -l", target, (unsigned long long)step);
    pipe = popen(command, "r");
    assert_non_null(pipe);
    assert_int_equal(fscanf(pipe, "%d", &count), 1);
    pclose(pipe);
    assert_int_equal(count, shards + 1);
}

/* A drainer is killed at a random moment, and the next, and so on: some drainer comes through, and all is whole. */
static void killed_at_any_moment(void **state)
{
    struct ckpt_drain_options options = {.threads = 2, .cap = (uint64_t)400 << 20};
    struct world world;
    struct node node;
    struct error err;
    int kills = 0, hit = 0;

    (void)state;
    node_create(&node, &world, &seed, 3, true);
    node_open(&node, "1", 2, false);
    for (uint64_t step = 1; kills < 50; step++) {
        node_stage(&node, step, "a");
        for (int k = 0; k < 5; k++, kills++) {
            pid_t child = node_start_drain(&node, &options);

            pause_us(world_random(&seed, 40000));
            child_kill(child);
            hit += ckpt_stage_wait(node.stage, 0, &err) == 1;
        }
        assert_int_equal(node_drain(&node, NULL), CKPT_DRAIN_DONE);
        assert_int_equal(ckpt_stage_wait(node.stage, 0, &err), 0);
        world_expect(&world, node.topology, node.target, step);
        expect_tidy(node.target, step, 3);
    }
    assert_true(hit >= 10); /* else they were killed before or after their work, and nothing was looked at */
    node_destroy(&node);
}

/* TERM's way: what was begun is dropped, the rest resumes. */
static void stops_when_asked(void **state)
{
    static volatile sig_atomic_t stop = 1;
    struct ckpt_drain_options options = {.stop = &stop};
    struct world world;
    struct node node;
    struct error err;

    (void)state;
    node_create(&node, &world, &seed, 2, false);
    node_open(&node, "1", 2, false);
    node_stage(&node, 1, "a");
    assert_int_equal(ckpt_drain(ckpt_stage_directory(node.stage), &options, NULL, &err), CKPT_DRAIN_LEFT);
    assert_int_equal(node_drain(&node, NULL), CKPT_DRAIN_DONE);
    world_expect(&world, node.topology, node.target, 1);
    node_destroy(&node);
}

/* One process a stage. */
static void a_second_one_is_told(void **state)
{
    struct ckpt_drain_options options = {0};
    struct world world;
    struct node node;
    struct error err;
    pid_t child;

    (void)state;
    node_create(&node, &world, &seed, 1, false);
    node_open(&node, "1", 2, false);
    child = node_start_drain(&node, &options);
    while (!ckpt_stage_is_drained(node.stage))
        pause_us(1000);
    assert_int_equal(ckpt_drain(ckpt_stage_directory(node.stage), &options, NULL, &err), CKPT_DRAIN_BUSY);
    child_kill(child);
    assert_false(ckpt_stage_is_drained(node.stage));
    node_destroy(&node);
}

/* Two nodes have the same shards (as a partner's copy is) and drain them at the same time, many times. */
static void two_drain_the_same(void **state)
{
    struct ckpt_drain_options options = {.once = true, .threads = 2};
    struct world world;
    struct node node, other;

    (void)state;
    node_create(&node, &world, &seed, 3, true);
    other = node;
    node_open(&node, "1", 2, false);
    node_open(&other, "2", 2, false);
    for (uint64_t step = 1; step <= 8; step++) {
        pid_t one, two;

        node_stage(&node, step, "a");
        node_stage(&other, step, "a");
        one = node_start_drain(&node, &options);
        two = node_start_drain(&other, &options);
        assert_int_equal(child_wait(one), 0);
        assert_int_equal(child_wait(two), 0);
        expect_committed(&node);
        expect_committed(&other);
        world_expect(&world, node.topology, node.target, step);
        expect_tidy(node.target, step, 3);
    }
    ckpt_stage_destroy(other.stage);
    node_destroy(&node);
}

static bool has_left(const char *target, const char *suffix)
{
    char command[1024];

    snprintf(command, sizeof command, "ls -d %s/*%s >/dev/null 2>&1", target, suffix);
    return system(command) == 0;
}

/*
 * Files above 1 MB cannot be written: EFBIG on the way, as a quota's EDQUOT. Two nodes: the other one gives up as well.
 */
static void one_node_cannot_write(void **state)
{
    struct ckpt_drain_options options = {.once = true};
    struct rlimit before, small;
    struct world world;
    struct node node, other;
    struct ckpt_stage_news news;
    pid_t good, bad;

    (void)state;
    signal(SIGXFSZ, SIG_IGN);
    node_create(&node, &world, &seed, 2, true);
    other = node;
    node.stride = other.stride = 2;
    other.first = 1;
    node_open(&node, "1", 2, false);
    node_open(&other, "2", 2, false);
    node_stage(&node, 1, "a");
    node_stage(&other, 1, "a");
    good = node_start_drain(&node, &options);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = (struct rlimit){1000000, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    bad = node_start_drain(&other, &options);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(child_wait(good), 0);
    assert_int_equal(child_wait(bad), 0);
    news = node_news(&other);
    assert_int_equal(news.outcome, CKPT_FAILED);
    assert_non_null(strstr(news.reason, "shard-00001-of-00002.safetensors"));
    news = node_news(&node);
    assert_int_equal(news.outcome, CKPT_FAILED);
    assert_non_null(strstr(news.reason, "given up by another node"));
    assert_non_null(strstr(news.reason, "File too large"));
    assert_false(has_left(node.target, ".partial"));
    /* Training goes on, and the next save is committed and sweeps the sign away. */
    node_stage(&node, 2, "b");
    node_stage(&other, 2, "b");
    good = node_start_drain(&node, &options);
    bad = node_start_drain(&other, &options);
    assert_int_equal(child_wait(good), 0);
    assert_int_equal(child_wait(bad), 0);
    expect_committed(&node);
    expect_committed(&other);
    world_expect(&world, node.topology, node.target, 2);
    assert_false(has_left(node.target, ".abandoned"));
    ckpt_stage_destroy(other.stage);
    node_destroy(&node);
}

/* A real full disk: a RAM disk of 2 MB in a mount namespace of the drainer's own. */
static void the_disk_is_full(void **state)
{
    struct world world;
    struct node node;
    pid_t child;
    int status;

    (void)state;
    node_create(&node, &world, &seed, 2, true);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct ckpt_stage_news news;

        if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
            mount("tmpfs", node.target, "tmpfs", 0, "size=2m") < 0)
            _exit(77);
        node_open(&node, "1", 2, false);
        node_stage(&node, 1, "a");
        node_drain(&node, NULL);
        news = node_news(&node);
        if (news.outcome != CKPT_FAILED || !strstr(news.reason, "bytes wanted") ||
            !strstr(news.reason, "No space left") || has_left(node.target, ".partial"))
            _exit(1);
        if (mount(NULL, node.target, NULL, MS_REMOUNT, "size=200m") < 0)
            _exit(2);
        node_stage(&node, 2, "b");
        node_drain(&node, NULL);
        if (node_news(&node).outcome != CKPT_COMMITTED)
            _exit(3);
        world_expect(&world, node.topology, node.target, 2);
        _exit(0);
    }
    status = child_wait(child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
        node_destroy(&node);
        print_message("# this user may not mount a file system\n");
        skip();
    }
    assert_int_equal(status, 0);
    node_destroy(&node);
}

static void remove_tree(const char *path)
{
    char command[512];

    snprintf(command, sizeof command, "rm -rf %s 2>/dev/null", path);
    assert_true(system(command) != -1);
}

/* The checkpoint directory is removed in the middle of a drain: that save fails; the next makes it anew. */
static void the_directory_vanishes(void **state)
{
    struct ckpt_drain_options options = {.once = true, .cap = (uint64_t)8 << 20};
    struct world world;
    struct node node;
    struct ckpt_stage_news news;
    char inside[512];
    pid_t child;

    (void)state;
    node_create(&node, &world, &seed, 2, true);
    snprintf(inside, sizeof inside, "%s/deeper", node.target);
    strcpy(node.target, inside);
    node_open(&node, "1", 2, false);
    node_stage(&node, 1, "a");
    child = node_start_drain(&node, &options);
    while (!has_left(node.target, ".partial"))
        pause_us(1000);
    while (access(node.target, F_OK) == 0) /* the drainer may put a file into what is just being removed */
        remove_tree(node.target);
    assert_int_equal(child_wait(child), 0);
    news = node_news(&node);
    assert_int_equal(news.outcome, CKPT_FAILED);
    assert_true(strlen(news.reason) > 10);
    node_stage(&node, 2, "b");
    assert_int_equal(node_drain(&node, NULL), CKPT_DRAIN_DONE);
    expect_committed(&node);
    world_expect(&world, node.topology, node.target, 2);
    scratch_destroy(node.target);
    *strrchr(node.target, '/') = '\0';
    node_destroy(&node);
}

/* Other nodes' shards never come: not for ever. */
static void others_never_come(void **state)
{
    struct ckpt_drain_options options = {.once = true, .idle = 0.3};
    struct world world;
    struct node node;
    struct error err;
    int failed;

    (void)state;
    node_create(&node, &world, &seed, 2, false);
    node.stride = 2;
    node_open(&node, "1", 2, false);
    node_stage(&node, 1, "a");
    assert_int_equal(ckpt_drain(ckpt_stage_directory(node.stage), &options, &failed, &err), CKPT_DRAIN_DONE);
    assert_int_equal(failed, 1);
    assert_non_null(strstr(node_news(&node).reason, "other nodes' shards are missing"));
    assert_false(has_left(node.target, ".partial"));
    node_destroy(&node);
}

/* A staged byte changes in memory before it is drained: it never gets into a checkpoint. */
static void a_bit_flips_in_memory(void **state)
{
    struct ckpt_staged staged;
    struct world world;
    struct node node;
    struct error err;
    int failed;

    (void)state;
    node_create(&node, &world, &seed, 1, true);
    node_open(&node, "1", 2, false);
    node_stage(&node, 1, "a");
    assert_int_equal(ckpt_stage_lend(node.stage, &staged, &err), 0);
    ((unsigned char *)(uintptr_t)staged.data)[staged.bytes / 2] ^= 4;
    assert_int_equal(node_drain(&node, &failed), CKPT_DRAIN_DONE);
    assert_int_equal(failed, 1);
    assert_non_null(strstr(node_news(&node).reason, "changed since"));
    assert_false(has_left(node.target, ".partial"));
    node_destroy(&node);
}

/*
 * 24 saves in a row, the drain slowed: never more than two generations in memory, every checkpoint that is kept whole.
 */
static void a_slow_target(void **state)
{
    struct ckpt_drain_options options = {.cap = (uint64_t)100 << 20};
    struct ckpt_staged staged;
    struct world world;
    struct node node;
    struct error err;
    uint64_t *steps;
    size_t count;
    pid_t child;

    (void)state;
    node_create(&node, &world, &seed, 1, true);
    node_open(&node, "1", 2, false);
    child = node_start_drain(&node, &options);
    for (uint64_t step = 1; step <= 24; step++) {
        node_stage(&node, step, "a");
        assert_int_equal(ckpt_stage_lend(node.stage, &staged, &err), 0);
        assert_true(node_bytes(&node) <= 2 * staged.bytes + 500000);
    }
    assert_int_equal(ckpt_stage_wait(node.stage, 120, &err), 0);
    for (uint64_t step = 1; step <= 24; step++) {
        struct ckpt_stage_news news = node_news(&node);

        assert_int_equal(news.step, step);
        assert_int_equal(news.outcome, CKPT_COMMITTED);
    }
    assert_int_equal(ckpt_stage_close(node.stage, &err), 0);
    ckpt_stage_destroy(node.stage);
    node.stage = NULL;
    assert_int_equal(child_wait(child), 0);
    assert_int_equal(ckpt_list(node.target, &steps, &count, &err), 0);
    assert_int_equal(count, 3);
    for (size_t i = 0; i < count; i++)
        world_expect(&world, node.topology, node.target, steps[i]);
    free(steps);
    node_destroy(&node);
}

/* keep = 3 and keep_every = 4: the newest three and the multiples of four stay. */
static void some_are_kept_for_good(void **state)
{
    static const uint64_t kept[] = {10, 9, 8, 4};
    struct ckpt_stage_config config = {.job = "1", .local = 1, .keep = 3, .keep_every = 4};
    struct world world;
    struct node node;
    struct error err;
    uint64_t *steps;
    size_t count;

    (void)state;
    node_create(&node, &world, &seed, 1, false);
    config.root = node.root;
    node.stage = ckpt_stage_open(&config, &err);
    assert_non_null(node.stage);
    for (uint64_t step = 1; step <= 10; step++) {
        node_stage(&node, step, "a");
        assert_int_equal(node_drain(&node, NULL), CKPT_DRAIN_DONE);
    }
    assert_int_equal(ckpt_list(node.target, &steps, &count, &err), 0);
    assert_int_equal(count, 4);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(steps[i], kept[i]);
        world_expect(&world, node.topology, node.target, steps[i]);
    }
    free(steps);
    node_destroy(&node);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(killed_at_any_moment),   cmocka_unit_test(stops_when_asked),
        cmocka_unit_test(a_second_one_is_told),   cmocka_unit_test(two_drain_the_same),
        cmocka_unit_test(one_node_cannot_write),  cmocka_unit_test(the_disk_is_full),
        cmocka_unit_test(the_directory_vanishes), cmocka_unit_test(others_never_come),
        cmocka_unit_test(a_bit_flips_in_memory),  cmocka_unit_test(a_slow_target),
        cmocka_unit_test(some_are_kept_for_good),
    };

    return cmocka_run_group_tests_name("ckpt_drain", tests, NULL, NULL);
}
