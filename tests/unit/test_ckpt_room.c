/* What takes room in a checkpoint directory and what gives it back: full disks, abandoned saves, pruning, probes. */
#include "tests/cmocka_test.h"
#include "tests/unit/test_ckpt_world.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static struct world world;
static struct topology *four;
static char dir[256];

static int make(void **state)
{
    uint64_t random = 12;

    scratch_create(dir, scratch_fast());
    world_create(&world, &random, false);
    four = topology_create(&world, 4, &random);
    topology_fill(four, &world);
    return 0;
}

static int unmake(void **state)
{
    topology_destroy(four, &world);
    scratch_destroy(dir);
    return 0;
}

static void what_is_abandoned_takes_no_room(void **state)
{
    char where[512], path[600];
    struct ckpt_save save;
    struct error err;

    join(where, dir, "abandon");
    assert_int_equal(ckpt_remove_attempt(where, 1, "1", &err), 0); /* no directory, so no attempt */
    for (int try = 1; try <= 3; try++) {
        char attempt[16];

        snprintf(attempt, sizeof attempt, "%d", try);
        for (int s = 0; s < 3; s++) { /* rank 3's disk is full */
            save = world_save(&world, four, s, where, (uint64_t)try, attempt);
            assert_int_equal(ckpt_write_shard(&save, &err), 0);
        }
        assert_int_equal(count_entries(where), 1);
        assert_int_equal(ckpt_remove_attempt(where, (uint64_t)try, attempt, &err), 0);
        assert_int_equal(ckpt_remove_attempt(where, (uint64_t)try, attempt, &err), 0);
        assert_int_equal(count_entries(where), 0);
        assert_int_equal(count_entries(join(path, where, ".trash")), 0);
    }
    assert_int_equal(ckpt_remove_attempt(where, 1, "../1", &err), -1);
    assert_int_equal(err.code, CODE_INTERNAL);
    /* A save that was cut off at step 2 goes before step 6 is written, since 4 is committed; one at 5 may still end. */
    save = world_save(&world, four, 0, where, 2, "old");
    assert_int_equal(ckpt_write_shard(&save, &err), 0);
    save.state.step = 5;
    assert_int_equal(ckpt_write_shard(&save, &err), 0);
    world_write(&world, four, where, 4, "1");
    assert_int_equal(access(join(path, where, "step-00000002.old.partial"), F_OK), 0);
    save.state.step = 6;
    assert_int_equal(ckpt_write_shard(&save, &err), 0);
    assert_int_equal(access(join(path, where, "step-00000002.old.partial"), F_OK), -1);
    assert_int_equal(access(join(path, where, "step-00000005.old.partial"), F_OK), 0);
    /* A run that is behind does not remove its own. */
    save = world_save(&world, four, 0, where, 3, "behind");
    assert_int_equal(ckpt_write_shard(&save, &err), 0);
    save = world_save(&world, four, 1, where, 3, "behind");
    assert_int_equal(ckpt_write_shard(&save, &err), 0);
    assert_int_equal(count_entries(join(path, where, "step-00000003.behind.partial")), 4);
}

/* Steps of `where`, newest first, as "3 2 1 ". */
static const char *steps_of(const char *where)
{
    static char text[256];
    struct error err;
    uint64_t *steps;
    size_t count;

    assert_int_equal(ckpt_list(where, &steps, &count, &err), 0);
    text[0] = '\0';
    for (size_t i = 0; i < count; i++)
        sprintf(text + strlen(text), "%llu ", (unsigned long long)steps[i]);
    free(steps);
    return text;
}

static void pruning_keeps_the_last_whole_one(void **state)
{
    char where[512], path[600], latest[16];
    struct ckpt_save save;
    struct error err;
    size_t bytes;
    char *text;

    join(where, dir, "prune");
    assert_string_equal(steps_of(where), "");
    assert_int_equal(ckpt_prune(where, 2, 0, &err), 0);
    for (uint64_t step = 1; step <= 5; step++)
        world_write(&world, four, where, step, "1");
    assert_string_equal(steps_of(where), "5 4 3 2 1 ");
    text = read_file(join(path, where, "latest"), &bytes);
    snprintf(latest, sizeof latest, "%s", text);
    free(text);
    assert_string_equal(latest, "step-00000005\n");
    save = world_save(&world, four, 0, where, 0, "old"); /* a leftover that has been overtaken, and one that has not */
    assert_int_equal(ckpt_write_shard(&save, &err), 0);
    save.state.step = 6;
    assert_int_equal(ckpt_write_shard(&save, &err), 0);
    assert_int_equal(ckpt_prune(where, 0, 0, &err), 0);
    assert_string_equal(steps_of(where), "5 4 3 2 1 ");
    assert_int_equal(ckpt_prune(where, 4, 0, &err), 0);
    assert_string_equal(steps_of(where), "5 4 3 2 ");
    assert_int_equal(access(join(path, where, "step-00000000.old.partial"), F_OK), -1);
    assert_int_equal(access(join(path, where, "step-00000006.old.partial"), F_OK), 0);
    assert_int_equal(count_entries(join(path, where, ".trash")), 0);
    /* The newest two are broken: the newest whole one counts as the first to keep. */
    assert_int_equal(truncate(join(path, where, "step-00000005/manifest.json"), 10), 0);
    assert_int_equal(unlink(join(path, where, "step-00000004/shard-00001-of-00004.safetensors")), 0);
    assert_int_equal(ckpt_prune(where, 1, 0, &err), 0);
    assert_string_equal(steps_of(where), "5 4 3 ");
    world_expect(&world, four, where, 3);
    topology_fill(four, &world);
}

/* Of each 10 steps from 10 on, the first whole checkpoint stays, whether or not its step is a multiple. */
static void the_first_after_each_multiple_is_kept_for_good(void **state)
{
    static const uint64_t steps[] = {0, 5, 10, 15, 23, 26, 38, 39, 51, 52, 64, 66, 70};
    char where[512], path[600];
    struct error err;

    join(where, dir, "milestones");
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        world_write(&world, four, where, steps[i], "1");
        assert_int_equal(ckpt_prune(where, 2, 10, &err), 0);
    }
    assert_string_equal(steps_of(where), "70 66 64 51 38 23 10 0 ");
    /* A broken one gives its place to a later one of the same ten, and keeps it where there is none. */
    join(where, dir, "broken");
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        world_write(&world, four, where, steps[i], "1");
    assert_int_equal(truncate(join(path, where, "step-00000023/manifest.json"), 10), 0);
    assert_int_equal(truncate(join(path, where, "step-00000010/manifest.json"), 10), 0);
    assert_int_equal(truncate(join(path, where, "step-00000015/manifest.json"), 10), 0);
    assert_int_equal(ckpt_prune(where, 1, 10, &err), 0);
    assert_string_equal(steps_of(where), "70 64 51 38 26 15 0 ");
    assert_int_equal(ckpt_prune(where, 1, 20, &err), 0);
    assert_string_equal(steps_of(where), "70 64 51 26 0 ");
    assert_int_equal(ckpt_prune(where, 1, 0, &err), 0);
    assert_string_equal(steps_of(where), "70 ");
}

static void probing_leaves_nothing(void **state)
{
    char where[512];
    struct error err;

    join(where, dir, "probe/deep");
    assert_int_equal(ckpt_probe(where, &err), 0);
    assert_int_equal(count_entries(where), 0);
    write_file(join(where, dir, "probe/file"), "x", 1);
    assert_int_equal(ckpt_probe(where, &err), -1);
    /* What a process left that died in it goes after a day. */
    world_write(&world, four, join(where, dir, "probe/deep"), 1, "1");
    shell(
        "cd '%s' && mkdir probe.00aa.tmp probe.00bb.tmp && touch probe.00aa.tmp/probe latest.00cc.tmp latest.00dd.tmp "
        "other.tmp && touch -d '2 days ago' probe.00aa.tmp latest.00cc.tmp other.tmp",
        where);
    assert_int_equal(ckpt_prune(where, 0, 0, &err), 0);
    shell("cd '%s' && test ! -e probe.00aa.tmp && test ! -e latest.00cc.tmp && test -e probe.00bb.tmp && "
          "test -e latest.00dd.tmp && test -e other.tmp && test -e step-00000001",
          where);
}

/* A disk of 1 MiB of our own, where only we see it. False (with the reason printed) if we may not make one. */
static bool mount_tiny(const char *where)
{
    if (mkdir(where, 0700) == 0 && unshare(CLONE_NEWNS) == 0 &&
        mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 && mount("tiny", where, "tmpfs", 0, "size=1m") == 0)
        return true;
    print_message("# cannot mount a tmpfs: %s\n", strerror(errno));
    return false;
}

/* Runs in a child of its own, since it changes the mount namespace. 0: fine, 77: skipped. */
static int fill_disk(const char *where)
{
    struct ckpt_tensor tensor = {.name = "big", .ndim = 1, .shape = {1 << 20}};
    struct ckpt_piece piece = {.shape = {1 << 20}, .count = 1 << 20};
    const char *kind = "param";
    float *values = calloc(1 << 20, 4);
    const void *source = values;
    struct ckpt_save save = {.dir = where,
                             .shards = 1,
                             .tensors = &tensor,
                             .ntensors = 1,
                             .kinds = &kind,
                             .nkinds = 1,
                             .pieces = &piece,
                             .npieces = 1,
                             .sources = &source,
                             .state = {.step = 2},
                             .attempt = "1"};
    struct error err = {0};
    char path[512];

    if (!mount_tiny(where))
        return 77;
    world_write(&world, four, where, 1, "1");
    assert_int_equal(ckpt_write_shard(&save, &err), -1);
    print_message("# %s\n", err.text);
    assert_int_equal(err.code, CODE_IO);
    assert_non_null(
        strstr(err.text, "/step-00000002.1.partial/shard-00000-of-00001.safetensors: 4198400 bytes needed, "));
    assert_non_null(strstr(err.text, " free: No space left on device"));
    assert_int_equal(count_entries(join(path, where, "step-00000002.1.partial")), 0); /* the room is given back */
    world_expect(&world, four, where, 1);
    /* With room made, the next try succeeds. */
    assert_int_equal(mount("tiny", where, "tmpfs", MS_REMOUNT, "size=16m"), 0);
    save.attempt = "2";
    assert_int_equal(ckpt_write_shard(&save, &err), 0);
    assert_int_equal(ckpt_commit(where, 2, "2", &err), 1);
    /* What is read-only is said to be that, of a directory that would have to be made too. */
    assert_int_equal(mount("tiny", where, "tmpfs", MS_REMOUNT | MS_RDONLY, "size=16m"), 0);
    assert_int_equal(ckpt_probe(join(path, where, "new"), &err), -1);
    assert_non_null(strstr(err.text, "/new: cannot make the directory: Read-only file system"));
    free(values);
    return 0;
}

static void in_a_child(int (*run)(const char *where), const char *where)
{
    pid_t child;
    int status;

    fflush(stdout);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        int result = run(where); /* a failed assertion ends the child's copy of the test with another code */

        fflush(stdout);
        _exit(result);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
        skip();
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void a_full_disk_is_said_and_survived(void **state)
{
    char where[512];

    in_a_child(fill_disk, join(where, dir, "tiny"));
}

/* Somebody goes on with a colleague's run: what is his own goes, what is not stays, and that is said. */
static int take_over(const char *where)
{
    struct error err;

    if (geteuid() != 0 || setegid(65534) < 0 || seteuid(65534) < 0 || faccessat(AT_FDCWD, where, X_OK, AT_EACCESS) < 0)
        return 77;
    for (uint64_t step = 4; step <= 6; step++)
        world_write(&world, four, where, step, "1");
    assert_int_equal(ckpt_prune(where, 1, 0, &err), -1);
    print_message("# %s\n", err.text);
    assert_non_null(strstr(err.text, "/step-00000001: cannot move into .trash-65534: Operation not permitted"));
    assert_string_equal(steps_of(where), "6 3 2 1 ");
    return 0;
}

static void what_another_user_left_keeps_nothing_else_from_going(void **state)
{
    char where[512];

    join(where, dir, "others");
    for (uint64_t step = 1; step <= 3; step++)
        world_write(&world, four, where, step, "1");
    shell("chmod 711 '%s' && chmod 1777 '%s' && chmod 755 '%s/.trash'", dir, where, where);
    in_a_child(take_over, where);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_abandoned_takes_no_room),
        cmocka_unit_test(pruning_keeps_the_last_whole_one),
        cmocka_unit_test(a_full_disk_is_said_and_survived),
        cmocka_unit_test(the_first_after_each_multiple_is_kept_for_good),
        cmocka_unit_test(probing_leaves_nothing),
        cmocka_unit_test(what_another_user_left_keeps_nothing_else_from_going),
    };

    return cmocka_run_group_tests(tests, make, unmake);
}
