/* Draining: killed at any moment, two at once, a target that fails, and a target ten times too slow. */
#include "tests/cmocka_test.h"
#include "tests/unit/ckpt_stage_world.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static uint64_t seed = 4711;

static void expect_committed(struct node *node)
{
    struct ckpt_save_status news = node_news(node);

    if (news.state != CKPT_COMMITTED)
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
    int kills = 0, hit = 0;

    node_begin(&node, &world, &seed, 3, true);
    for (uint64_t step = 1; kills < 50; step++) {
        node_stage(&node, step, "a");
        for (int k = 0; k < 5; k++, kills++) {
            pid_t child = node_start_drain(&node, &options);

            pause_us(world_random(&seed, 40000));
            child_kill(child);
            hit += !node_wait(&node, 0);
        }
        assert_int_equal(node_drain(&node), CKPT_DRAIN_DONE);
        assert_true(node_wait(&node, 0));
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

    node_begin(&node, &world, &seed, 2, false);
    node_stage(&node, 1, "a");
    assert_int_equal(ckpt_drain(ckpt_stage_directory(node.stage), &options, &err), CKPT_DRAIN_LEFT);
    assert_int_equal(node_drain(&node), CKPT_DRAIN_DONE);
    world_expect(&world, node.topology, node.target, 1);
    node_destroy(&node);
}

/* Each time there is only time for some blocks of a shard, as for what an earlier job left (an epilog's two seconds). */
static void a_copy_goes_on_where_it_stopped(void **state)
{
    struct ckpt_drain_options options = {.once = true, .seconds = 0.3, .threads = 1};
    struct world world;
    struct node node;
    struct error err;
    int passes = 0;

    node_begin(&node, &world, &seed, 1, true);
    node_stage(&node, 1, "a");
    options.cap = node_bytes(&node); /* a second for all */
    while (ckpt_drain(ckpt_stage_directory(node.stage), &options, &err) == CKPT_DRAIN_LEFT)
        assert_true(++passes < 50);
    assert_true(passes > 0);
    world_expect(&world, node.topology, node.target, 1);
    expect_tidy(node.target, 1, 1);
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

    node_begin(&node, &world, &seed, 1, false);
    child = node_start_drain(&node, &options);
    while (!node_has_drainer(&node))
        pause_us(1000);
    assert_int_equal(ckpt_drain(ckpt_stage_directory(node.stage), &options, &err), CKPT_DRAIN_BUSY);
    child_kill(child);
    assert_false(node_has_drainer(&node));
    node_destroy(&node);
}

/* Two nodes have the same shards (as a partner's copy is) and drain them at the same time, many times. */
static void two_drain_the_same(void **state)
{
    struct ckpt_drain_options options = {.once = true, .threads = 2};
    struct world world;
    struct node node, other;

    node_create(&node, &world, &seed, 3, true);
    other = node;
    node_open(&node, "1", 2, "a");
    node_open(&other, "2", 2, "a");
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

/* Stages step 1, and starts a drainer that copies so many bytes a second; returns when it has begun. */
static pid_t stage_and_start_drain(struct node *node, uint64_t cap)
{
    pid_t child;

    node_stage(node, 1, "a");
    child = node_start_drain(node, &(struct ckpt_drain_options){.cap = cap});
    while (!has_left(node->target, ".partial"))
        pause_us(1000);
    return child;
}

/* The same for one of two nodes, whose shard must be durable; its part of the manifest is then `part`. */
static pid_t stage_and_drain_part(struct node *node, char part[600])
{
    pid_t child;

    node_stage(node, 1, "a");
    child = node_start_drain(node, &(struct ckpt_drain_options){0});
    join(part, node->target, "step-00000001.a.partial/shard-00000-of-00002.json");
    while (access(part, F_OK) < 0)
        pause_us(1000);
    return child;
}

/* The trouble of a save, which must come within 20 seconds. */
static void expect_trouble(const struct node *node, const char *reason)
{
    struct ckpt_save_status trouble = {0};

    for (int tries = 0; !ckpt_stage_find_trouble(node->stage, &trouble) && tries < 2000; tries++)
        pause_us(10000);
    assert_non_null(strstr(trouble.reason, reason));
}

/* Ends a test whose child mounts a file system: it exits with 77 where it may not. */
static void end_with_child(struct node *node, pid_t child)
{
    int status = child_wait(child);

    node_destroy(node);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
        print_message("# this user may not mount a file system\n");
        skip();
    }
    assert_int_equal(status, 0);
}

static char last_line[2048];

static void keep_line(const char *line, bool failure, void *arg)
{
    (void)failure;
    (void)arg;
    snprintf(last_line, sizeof last_line, "%s", line);
}

/* As "muster-ckptd --once". */
static int drain_once(const struct node *node)
{
    struct ckpt_drain_options options = {.once = true, .log = keep_line};
    struct error err;

    last_line[0] = '\0';
    return ckpt_drain(ckpt_stage_directory(node->stage), &options, &err);
}

static void expect_left(const struct node *node, const char *what)
{

    assert_int_equal(drain_once(node), CKPT_DRAIN_LEFT);
    if (!strstr(last_line, ckpt_stage_directory(node->stage)) || !strstr(last_line, "left in") ||
        !strstr(last_line, what))
        fail_msg("%s", last_line);
}

/*
 * Files above 1 MB cannot be written: EFBIG on the way, as a quota's EDQUOT. Two nodes: neither gives up what it has,
 * though the other one waits long; and when there is room it is committed.
 */
static void one_node_cannot_write(void **state)
{
    struct rlimit before, small;
    struct world world;
    struct node node, other;
    struct ckpt_save_status news;

    signal(SIGXFSZ, SIG_IGN);
    node_begin_pair(&node, &other, &world, &seed, true);
    node_stage(&node, 1, "a");
    node_stage(&other, 1, "a");
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = (struct rlimit){1000000, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    expect_left(&other, "File too large");
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(drain_once(&node), CKPT_DRAIN_OTHERS);
    news = node_news(&node);
    assert_int_equal(news.state, CKPT_FAILED);
    assert_non_null(strstr(news.reason, "other nodes' shards are missing"));
    assert_true(has_left(node.target, ".partial"));
    assert_false(has_left(node.target, ".abandoned"));
    assert_false(node_wait(&other, 0));
    assert_int_equal(drain_once(&other), CKPT_DRAIN_DONE);
    expect_committed(&other);
    world_expect(&world, node.topology, node.target, 1);
    ckpt_stage_destroy(other.stage);
    node_destroy(&node);
}

/* A run marks its only save to make room for a newer one, and is killed before that one is staged. */
static void a_dead_run_replaces_nothing(void **state)
{
    struct ckpt_drain_options options = {.once = true};
    struct world world;
    struct node node;
    struct error err;
    char path[4096];

    node_create(&node, &world, &seed, 1, false);
    node_open(&node, "1", 1, "a");
    node_stage(&node, 1, "a");
    assert_true(ckpt_stage_has(node.stage, 1));
    assert_false(ckpt_stage_has(node.stage, 2));
    assert_int_equal(ckpt_stage_drop(node.stage, 1, NULL, "a newer save needs its memory", &err), 0);
    snprintf(path, sizeof path, "%s", ckpt_stage_directory(node.stage));
    ckpt_stage_destroy(node.stage);
    node.stage = NULL;
    assert_int_equal(ckpt_drain(path, &options, &err), CKPT_DRAIN_DONE);
    world_expect(&world, node.topology, node.target, 1);
    node_destroy(&node);
}

/* Both saves of a stage fail and a third save is due: the oldest makes room for it, and says what for. */
static void a_newer_save_replaces(void **state)
{
    struct ckpt_drain_options options = {0};
    struct ckpt_save_status trouble;
    struct ckpt_save_status news;
    struct world world;
    struct node node;
    struct error err;
    char file[512], before[256];
    pid_t child;

    node_create(&node, &world, &seed, 1, false);
    memcpy(before, node.target, sizeof before);
    write_file(join(file, node.target, "ckpt"), "x", 1);
    strcpy(node.target, file);
    node_open(&node, "1", 2, "a");
    assert_false(ckpt_stage_find_oldest(node.stage, 9, true, false, &trouble));
    node_stage(&node, 1, "a");
    node_stage(&node, 2, "b");
    child = node_start_drain(&node, &options);
    for (int tries = 0; !ckpt_stage_find_oldest(node.stage, 9, true, false, &trouble) && tries < 2000; tries++)
        pause_us(10000);
    assert_int_equal(trouble.step, 1);
    assert_non_null(strstr(trouble.reason, "Not a directory"));
    assert_false(ckpt_stage_find_oldest(node.stage, 1, true, false, &trouble)); /* not for an older one */
    assert_false(ckpt_stage_has_room(node.stage, 0, 1));
    assert_int_equal(ckpt_stage_drop(node.stage, 1, NULL, "a newer save needs its memory", &err), 0);
    news = node_news(&node);
    assert_int_equal(news.step, 1);
    assert_int_equal(news.state, CKPT_FAILED);
    assert_non_null(strstr(news.reason, "a newer save needs its memory: "));
    assert_non_null(strstr(news.reason, "Not a directory"));
    node_stage(&node, 3, "c");
    /* What failed for a while is committed when it works again, in whatever pause the drainer is. */
    assert_int_equal(unlink(file), 0);
    assert_int_equal(mkdir(file, 0777), 0);
    news = node_news(&node);
    assert_int_equal(news.state, CKPT_COMMITTED);
    assert_true(node_wait(&node, 60));
    assert_false(ckpt_stage_find_trouble(node.stage, &trouble));
    world_expect(&world, node.topology, node.target, 3);
    child_kill(child);
    scratch_destroy(node.target);
    memcpy(node.target, before, sizeof before);
    node_destroy(&node);
}

/* The older save fails first, in the same pass: it does not stay in memory for that. */
static void a_newer_one_supersedes_at_once(void **state)
{
    struct ckpt_save_status news;
    struct world world;
    struct node node;
    char file[512];

    node_create(&node, &world, &seed, 1, false);
    mkdir(node.target, 0777);
    write_file(join(file, node.target, "step-00000001"), "x", 1);
    node_open(&node, "1", 2, "a");
    node_stage(&node, 1, "a");
    node_stage(&node, 2, "b");
    assert_int_equal(drain_once(&node), CKPT_DRAIN_DONE);
    news = node_news(&node);
    assert_true(news.step == 2 && news.state == CKPT_COMMITTED);
    news = node_news(&node);
    assert_true(news.step == 1 && news.state == CKPT_SUPERSEDED);
    node_destroy(&node);
}

/* A drain that is only slow: the save that it is at work on is kept as long as there is another one. Marks are obeyed
 * meanwhile. */
static void the_one_at_work_is_kept(void **state)
{
    struct ckpt_save_status oldest;
    struct world world;
    struct node node;
    struct error err;
    pid_t child;

    node_begin(&node, &world, &seed, 1, true);
    child = stage_and_start_drain(&node, (uint64_t)1 << 20);
    node_stage(&node, 2, "b");
    for (uint64_t step = 2; step >= 1; step--) { /* first the one that waits */
        while (!ckpt_stage_find_oldest(node.stage, 9, false, true, &oldest) || oldest.step != step)
            pause_us(1000);
        assert_false(ckpt_stage_find_oldest(node.stage, 9, true, true, &oldest)); /* nothing fails */
        assert_int_equal(ckpt_stage_drop(node.stage, step, NULL, "a newer save needs its memory", &err), 0);
        assert_int_equal(node_news(&node).step, step);
        assert_true(ckpt_stage_has_room(node.stage, 0, 1));
    }
    node_stage(&node, 3, "c");
    child_kill(child);
    assert_int_equal(node_drain(&node), CKPT_DRAIN_DONE);
    expect_committed(&node);
    world_expect(&world, node.topology, node.target, 3);
    node_destroy(&node);
}

/* The process that a drainer has for the target is stopped, and then killed: another one goes on. */
static void the_drainers_child_is_lost(void **state)
{
    static const int signals[] = {SIGSTOP, SIGKILL};
    struct ckpt_drain_options options = {.cap = (uint64_t)20 << 20};
    struct world world;
    struct node node;

    node_begin(&node, &world, &seed, 1, true);
    for (uint64_t step = 1; step <= 2; step++) {
        pid_t drainer = node_start_drain(&node, &options);
        char command[512];

        node_stage(&node, step, "a");
        while (!has_left(node.target, ".partial"))
            pause_us(1000);
        snprintf(command, sizeof command, "pkill -%d -P %d", signals[step - 1], (int)drainer);
        assert_int_equal(system(command), 0);
        expect_committed(&node);
        child_kill(drainer);
        world_expect(&world, node.topology, node.target, step);
    }
    node_destroy(&node);
}

static int failures, recoveries;

static void count_line(const char *line, bool failure, void *arg)
{
    (void)failure;
    (void)arg;
    failures += strstr(line, "is tried again: ") != NULL;
    recoveries += strstr(line, "works again") != NULL;
}

/* One save fails for a reason of its own, others are committed meanwhile: one line says so, and none that it works. */
static void each_save_has_its_own_trouble(void **state)
{
    struct ckpt_drain_options options = {.once = true, .seconds = 1.5, .log = count_line};
    struct world world;
    struct node node;
    struct error err;
    char path[600];

    node_begin(&node, &world, &seed, 1, false);
    assert_int_equal(mkdir(join(path, node.target, "step-00000001"), 0777), 0);
    write_file(join(path, node.target, "step-00000001/manifest.json"), "{", 1);
    node_stage(&node, 1, "a");
    failures = recoveries = 0;
    for (uint64_t step = 0; step < 2; step++) { /* a newer step would supersede it */
        node_stage(&node, 0, step ? "c" : "b");
        assert_int_equal(ckpt_drain(ckpt_stage_directory(node.stage), &options, &err), CKPT_DRAIN_LEFT);
        assert_int_equal(node_news(&node).state, CKPT_COMMITTED);
    }
    assert_int_equal(failures, 2); /* one for each drainer */
    assert_int_equal(recoveries, 0);
    node_destroy(&node);
}

/* A real full disk: a RAM disk of 2 MB in a mount namespace of the drainer's own. */
static void the_disk_is_full(void **state)
{
    struct world world;
    struct node node;
    pid_t child;

    node_create(&node, &world, &seed, 2, true);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
            mount("tmpfs", node.target, "tmpfs", 0, "size=2m") < 0)
            _exit(77);
        node_open(&node, "1", 2, "a");
        node_stage(&node, 1, "a");
        if (drain_once(&node) != CKPT_DRAIN_LEFT || !strstr(last_line, "bytes needed") ||
            !strstr(last_line, "No space left"))
            _exit(1);
        if (mount(NULL, node.target, NULL, MS_REMOUNT | MS_RDONLY, NULL) < 0)
            _exit(2);
        if (drain_once(&node) != CKPT_DRAIN_LEFT || !strstr(last_line, "Read-only file system"))
            _exit(3);
        if (mount(NULL, node.target, NULL, MS_REMOUNT, "size=200m") < 0)
            _exit(4);
        if (drain_once(&node) != CKPT_DRAIN_DONE || node_news(&node).state != CKPT_COMMITTED)
            _exit(5);
        world_expect(&world, node.topology, node.target, 1);
        _exit(0);
    }
    end_with_child(&node, child);
}

/*
 * The checkpoint directory is gone in the middle of a drain, as when its file system is unmounted: it is not made anew,
 * not for the next save either, since that would lie beneath the mount point. When it is there again, all is committed.
 */
static void the_directory_vanishes(void **state)
{
    struct world world;
    struct node node;
    char inside[512], away[520];
    pid_t child;

    node_create(&node, &world, &seed, 2, true);
    snprintf(inside, sizeof inside, "%s/deeper", node.target);
    snprintf(away, sizeof away, "%s.away", inside);
    strcpy(node.target, inside);
    assert_int_equal(mkdir(inside, 0777), 0);
    node_open(&node, "1", 2, "a");
    child = stage_and_start_drain(&node, (uint64_t)8 << 20);
    child_kill(child);
    assert_int_equal(rename(inside, away), 0);
    expect_left(&node, "step 1");
    node_stage(&node, 2, "b");
    expect_left(&node, "step 1, 2");
    assert_non_null(strstr(last_line, "No such file or directory"));
    assert_int_equal(access(inside, F_OK), -1);
    assert_int_equal(rename(away, inside), 0);
    assert_int_equal(drain_once(&node), CKPT_DRAIN_DONE);
    expect_committed(&node);
    expect_committed(&node);
    world_expect(&world, node.topology, node.target, 1);
    world_expect(&world, node.topology, node.target, 2);
    scratch_destroy(node.target);
    *strrchr(node.target, '/') = '\0';
    node_destroy(&node);
}

/* The mount point is there, and what was begun in it is not: nothing is begun anew beneath. */
static void the_mount_is_missing(void **state)
{
    struct world world;
    struct node node;
    char away[300];
    pid_t child;

    node_begin(&node, &world, &seed, 1, true);
    child = stage_and_start_drain(&node, (uint64_t)8 << 20);
    child_kill(child);
    snprintf(away, sizeof away, "%s.away", node.target);
    assert_int_equal(rename(node.target, away), 0);
    assert_int_equal(mkdir(node.target, 0777), 0);
    expect_left(&node, "has been removed");
    assert_int_equal(rmdir(node.target), 0); /* it is empty */
    assert_int_equal(rename(away, node.target), 0);
    assert_int_equal(drain_once(&node), CKPT_DRAIN_DONE);
    expect_committed(&node);
    world_expect(&world, node.topology, node.target, 1);
    node_destroy(&node);
}

/*
 * What was drained is removed, or damaged, in a directory that works: it can never be committed. While the trainer is
 * there to save again, the save ends and the marker tells the other nodes; else what is staged is kept.
 */
static void the_attempt_is_lost(void **state)
{
    static const char *const reasons[] = {"has been removed", "shard-00000-of-00002.json"};
    struct ckpt_save_status trouble;
    struct ckpt_save_status news;
    struct world world;
    struct node node, other;
    char part[600];
    pid_t child;

    for (int damaged = 0; damaged < 2; damaged++) {
        node_begin_pair(&node, &other, &world, &seed, false);
        child = stage_and_drain_part(&node, part);
        if (damaged) {
            write_file(part, "{", 1);
            node_stage(&other, 1, "a");
            expect_left(&other, reasons[damaged]); /* --once */
        } else {
            scratch_destroy(join(part, node.target, "step-00000001.a.partial"));
        }
        news = node_news(&node);
        assert_int_equal(news.state, CKPT_FAILED);
        if (!strstr(news.reason, reasons[damaged]))
            fail_msg("%s", news.reason);
        assert_true(has_left(node.target, ".abandoned"));
        assert_false(ckpt_stage_find_trouble(node.stage, &trouble));
        child_kill(child);
        ckpt_stage_destroy(other.stage);
        node_destroy(&node);
    }
}

/* Another directory has the checkpoint directory's name, a mount point perhaps: that says nothing about the attempt. */
static void another_directory_is_there(void **state)
{
    struct world world;
    struct node node;
    char away[300], part[600];
    pid_t child;

    node_create(&node, &world, &seed, 2, false);
    node.stride = 2;
    node_open(&node, "1", 2, "a");
    child = stage_and_drain_part(&node, part);
    snprintf(away, sizeof away, "%s.away", node.target);
    assert_int_equal(rename(node.target, away), 0);
    assert_int_equal(mkdir(node.target, 0777), 0);
    expect_trouble(&node, "has been removed");
    assert_false(node_wait(&node, 8));
    child_kill(child);
    assert_int_equal(rmdir(node.target), 0); /* it is empty */
    assert_int_equal(rename(away, node.target), 0);
    node_destroy(&node);
}

/*
 * Another node has committed the step, and then a part of the parallel file system is down: the manifest seems not to
 * exist. The attempt's directory is gone, and yet nothing is lost.
 */
static void the_commit_cannot_be_seen(void **state)
{
    struct world world;
    struct node node, other;
    char manifest[600], hidden[600];
    pid_t child;

    node_begin_pair(&node, &other, &world, &seed, false);
    child = stage_and_drain_part(&node, manifest);
    assert_int_equal(kill(child, SIGSTOP), 0);
    node_stage(&other, 1, "a");
    assert_int_equal(node_drain(&other), CKPT_DRAIN_DONE);
    join(manifest, node.target, "step-00000001/manifest.json");
    join(hidden, node.target, "manifest.json");
    assert_int_equal(rename(manifest, hidden), 0);
    assert_int_equal(kill(child, SIGCONT), 0);
    expect_trouble(&node, "/step-00000001/manifest.json cannot be found");
    assert_false(node_wait(&node, 8));
    assert_int_equal(rename(hidden, manifest), 0);
    expect_committed(&node);
    assert_false(has_left(node.target, ".abandoned"));
    world_expect(&world, node.topology, node.target, 1);
    child_kill(child);
    ckpt_stage_destroy(other.stage);
    node_destroy(&node);
}

/* Other nodes' shards never come: nobody waits for ever, and what is durable stays for whoever brings the rest. */
static void others_never_come(void **state)
{
    struct world world;
    struct node node;

    node_create(&node, &world, &seed, 2, false);
    node.stride = 2;
    node_open(&node, "1", 2, "a");
    node_stage(&node, 1, "a");
    assert_int_equal(drain_once(&node), CKPT_DRAIN_OTHERS);
    assert_non_null(strstr(node_news(&node).reason, "other nodes' shards are missing"));
    assert_true(has_left(node.target, ".partial"));
    assert_false(has_left(node.target, ".abandoned"));
    node_destroy(&node);
}

/* Another node has begun to commit, and is lost: this one does not commit, says so, and what is there can be committed. */
static void another_has_begun_to_commit(void **state)
{
    struct world world;
    struct node node;
    struct error err;
    char partial[600], mark[700];

    node_create(&node, &world, &seed, 2, false);
    node_open(&node, "1", 2, "a");
    node_stage(&node, 1, "a");
    assert_int_equal(mkdir(join(partial, node.target, "step-00000001.a.partial"), 0777), 0);
    assert_int_equal(symlink("muster-0-lost-a", join(mark, partial, "commit")), 0);
    assert_int_equal(drain_once(&node), CKPT_DRAIN_OTHERS);
    assert_non_null(strstr(node_news(&node).reason, "complete in "));
    assert_int_equal(ckpt_recover(node.target, &err), 1);
    world_expect(&world, node.topology, node.target, 1);
    assert_false(has_left(node.target, ".partial"));
    expect_tidy(node.target, 1, 2);
    node_destroy(&node);
}

/* What has the step's name cannot be read: nobody knows whose it is, and the save stays. */
static void a_damaged_checkpoint_is_in_the_way(void **state)
{
    struct world world;
    struct node node;
    char path[512];

    node_begin(&node, &world, &seed, 1, false);
    node_stage(&node, 1, "a");
    assert_int_equal(mkdir(join(path, node.target, "step-00000001"), 0777), 0);
    write_file(join(path, node.target, "step-00000001/manifest.json"), "{", 1);
    expect_left(&node, "step-00000001/manifest.json");
    scratch_destroy(join(path, node.target, "step-00000001"));
    assert_int_equal(drain_once(&node), CKPT_DRAIN_DONE);
    expect_committed(&node);
    world_expect(&world, node.topology, node.target, 1);
    node_destroy(&node);
}

/* A staged byte changes in memory before it is drained: it never gets into a checkpoint. */
static void a_bit_flips_in_memory(void **state)
{
    struct ckpt_staged_shard staged;
    struct world world;
    struct node node;
    struct error err;

    node_begin(&node, &world, &seed, 1, true);
    node_stage(&node, 1, "a");
    assert_int_equal(ckpt_stage_lend(node.stage, &staged, &err), 0);
    ((unsigned char *)(uintptr_t)staged.data)[staged.bytes / 2] ^= 4;
    assert_int_equal(node_drain(&node), CKPT_DRAIN_DAMAGED);
    assert_non_null(strstr(node_news(&node).reason, "changed since"));
    assert_false(has_left(node.target, ".partial"));
    node_destroy(&node);
}

/* The data file of the stage's one shard, to write to; its size. */
static int open_staged(const struct node *node, off_t *bytes)
{
    char command[512], path[512] = "";
    struct stat info;
    FILE *pipe;
    int fd;

    snprintf(command, sizeof command, "find %s -name 'shard-*.safetensors'", node->root);
    pipe = popen(command, "r");
    assert_non_null(pipe);
    assert_int_equal(fscanf(pipe, "%511s", path), 1);
    pclose(pipe);
    fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    assert_int_equal(fstat(fd, &info), 0);
    *bytes = info.st_size;
    return fd;
}

/*
 * A page of the stage that cannot be read, as after a fault of memory: the save is damaged, and the next one is drained.
 * The page is made by a hole in a file system that has no room to fill it.
 */
static void a_page_cannot_be_read(void **state)
{
    struct world world;
    struct node node;
    pid_t child;

    node_create(&node, &world, &seed, 1, true);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        char fill[300];
        off_t bytes;
        int fd;

        if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
            mount("tmpfs", node.root, "tmpfs", 0, "size=200m") < 0)
            _exit(77);
        node_open(&node, "1", 2, "a");
        node_stage(&node, 1, "a");
        fd = open_staged(&node, &bytes);
        if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, bytes / 2 & -4096, 4096) < 0)
            _exit(1);
        close(fd);
        node_stage(&node, 2, "a");
        snprintf(fill, sizeof fill, "%s/fill", node.root);
        fd = open(fill, O_WRONLY | O_CREAT, 0600);
        while (write(fd, fill, sizeof fill) > 0)
            ;
        if (node_drain(&node) != CKPT_DRAIN_DAMAGED || !strstr(node_news(&node).reason, "cannot be read"))
            _exit(2);
        world_expect(&world, node.topology, node.target, 2);
        _exit(0);
    }
    end_with_child(&node, child);
}

/*
 * 24 saves in a row, the drain slowed: never more than two saves in memory, every checkpoint that is kept whole.
 */
static void a_slow_target(void **state)
{
    struct ckpt_drain_options options = {.cap = (uint64_t)100 << 20};
    struct ckpt_staged_shard staged;
    struct world world;
    struct node node;
    struct error err;
    uint64_t *steps;
    size_t count;
    pid_t child;

    node_begin(&node, &world, &seed, 1, true);
    child = node_start_drain(&node, &options);
    for (uint64_t step = 1; step <= 24; step++) {
        node_stage(&node, step, "a");
        assert_int_equal(ckpt_stage_lend(node.stage, &staged, &err), 0);
        assert_true(node_bytes(&node) <= 2 * staged.bytes + 500000);
    }
    assert_true(node_wait(&node, 120));
    for (uint64_t step = 1; step <= 24; step++) {
        struct ckpt_save_status news = node_news(&node);

        assert_int_equal(news.step, step);
        assert_int_equal(news.state, CKPT_COMMITTED);
    }
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
    struct ckpt_stage_config config = {.job = "1", .run = "a", .local = 1, .keep = 3, .keep_every = 4};
    struct world world;
    struct node node;
    struct error err;
    uint64_t *steps;
    size_t count;

    node_create(&node, &world, &seed, 1, false);
    config.root = node.root;
    node.stage = ckpt_stage_open(&config, &err);
    assert_non_null(node.stage);
    for (uint64_t step = 1; step <= 10; step++) {
        node_stage(&node, step, "a");
        assert_int_equal(node_drain(&node), CKPT_DRAIN_DONE);
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
        cmocka_unit_test(killed_at_any_moment),
        cmocka_unit_test(stops_when_asked),
        cmocka_unit_test(a_copy_goes_on_where_it_stopped),
        cmocka_unit_test(a_second_one_is_told),
        cmocka_unit_test(two_drain_the_same),
        cmocka_unit_test(one_node_cannot_write),
        cmocka_unit_test(a_newer_save_replaces),
        cmocka_unit_test(the_one_at_work_is_kept),
        cmocka_unit_test(the_drainers_child_is_lost),
        cmocka_unit_test(a_dead_run_replaces_nothing),
        cmocka_unit_test(a_newer_one_supersedes_at_once),
        cmocka_unit_test(each_save_has_its_own_trouble),
        cmocka_unit_test(the_disk_is_full),
        cmocka_unit_test(the_mount_is_missing),
        cmocka_unit_test(the_directory_vanishes),
        cmocka_unit_test(the_attempt_is_lost),
        cmocka_unit_test(another_directory_is_there),
        cmocka_unit_test(the_commit_cannot_be_seen),
        cmocka_unit_test(others_never_come),
        cmocka_unit_test(another_has_begun_to_commit),
        cmocka_unit_test(a_damaged_checkpoint_is_in_the_way),
        cmocka_unit_test(a_bit_flips_in_memory),
        cmocka_unit_test(a_page_cannot_be_read),
        cmocka_unit_test(a_slow_target),
        cmocka_unit_test(some_are_kept_for_good),
    };

    return cmocka_run_group_tests_name("ckpt_drain", tests, NULL, NULL);
}
