/* Many who commit at once, and leftovers of tries that were cut off. */
#include "tests/cmocka_test.h"
#include "tests/unit/test_ckpt_world.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static struct world world;
static struct topology *four, *eight;
static char dir[256];

static int make(void **state)
{
    uint64_t random = 11;

    scratch_create(dir, scratch_fast());
    world_create(&world, &random, false);
    four = topology_create(&world, 4, &random);
    eight = topology_create(&world, 8, &random);
    topology_fill(four, &world);
    topology_fill(eight, &world);
    return 0;
}

static int unmake(void **state)
{
    topology_destroy(four, &world);
    topology_destroy(eight, &world);
    scratch_destroy(dir);
    return 0;
}

static bool exists(const char *name)
{
    char path[512];

    return access(join(path, dir, name), F_OK) == 0;
}

static void write_shards(struct topology *topology, uint64_t step, const char *attempt, int first, int end)
{
    struct error err;

    for (int s = first; s < end; s++) {
        struct ckpt_save save = world_save(&world, topology, s, dir, step, attempt);

        if (ckpt_write_shard(&save, &err) < 0)
            fail_msg("%s", err.text);
    }
}

/* One of eight: write a shard, then ask until all are there. Exits with 0 if that ends well. */
static void write_and_commit(int shard, uint64_t step)
{
    struct ckpt_save save = world_save(&world, eight, shard, dir, step, "7.0");
    struct error err = {0};
    int result = ckpt_write_shard(&save, &err);

    while (result == 0) {
        result = ckpt_commit(dir, step, "7.0", &err);
        if (result == 0)
            nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    }
    if (result < 0)
        fprintf(stderr, "shard %d: %s\n", shard, err.text);
    _exit(result == 1 ? 0 : 1);
}

static void eight_processes_commit_at_once(void **state)
{
    char path[512];

    for (uint64_t step = 1; step <= 30; step++) {
        pid_t children[8];

        for (int i = 0; i < 8; i++) {
            children[i] = fork();
            assert_true(children[i] >= 0);
            if (children[i] == 0)
                write_and_commit(i, step);
        }
        for (int i = 0; i < 8; i++) {
            int status;

            assert_int_equal(waitpid(children[i], &status, 0), children[i]);
            assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        }
        world_expect(&world, four, dir, step);
        ckpt_step_path(path, sizeof path, dir, step);
        assert_int_equal(count_entries(path), 9); /* eight shards and the manifest: no parts, nothing temporary */
    }
    topology_fill(four, &world);
}

static void leftovers_do_not_poison(void **state)
{
    struct error err;

    /* Of another number of shards, all but one written; and a complete one of other content. */
    write_shards(eight, 100, "8.0", 0, 7);
    assert_int_equal(ckpt_commit(dir, 100, "8.0", &err), 0);
    assert_true(exists("step-00000100.8.0.partial"));
    write_shards(four, 100, "8.1", 0, 1);
    assert_false(exists("step-00000100.8.0.partial"));
    assert_int_equal(ckpt_commit(dir, 100, "8.0", &err), 0);
    write_shards(four, 100, "8.1", 1, 4);
    assert_int_equal(ckpt_commit(dir, 100, "8.1", &err), 1);
    assert_int_equal(ckpt_commit(dir, 100, "8.1", &err), 1); /* twice is harmless */
    assert_int_equal(ckpt_commit(dir, 100, "never.was", &err), 1);
    world_expect(&world, eight, dir, 100);
    topology_fill(eight, &world);
    /* What is committed stays, whoever writes that step again. */
    world.salt ^= 1;
    topology_fill(eight, &world);
    write_shards(eight, 100, "8.2", 0, 8);
    assert_int_equal(ckpt_commit(dir, 100, "8.2", &err), 1);
    world.salt ^= 1;
    world_expect(&world, four, dir, 100);
    topology_fill(eight, &world);
    topology_fill(four, &world);
}

static void another_runs_step_is_not_ours(void **state)
{
    struct ckpt_save save = world_save(&world, four, 0, dir, 105, "mine");
    struct error err;

    for (int s = 0; s < 4; s++) {
        save = world_save(&world, four, s, dir, 105, "mine");
        save.job_text = "model = 1;\n#! --set optimizer.lr=1\n# caf\xe9\n";
        assert_int_equal(ckpt_write_shard(&save, &err), 0);
    }
    assert_int_equal(ckpt_commit(dir, 105, "mine", &err), 1);
    assert_int_equal(ckpt_check_owner(&save, &err), 0);
    /* A later try of the same run, with other overrides. */
    save.attempt = "again";
    save.job_text = "model = 1;\n# caf\xe9\n#! --set optimizer.lr=2\n#! --set batch.steps=9";
    assert_int_equal(ckpt_write_shard(&save, &err), 0);
    assert_int_equal(ckpt_check_owner(&save, &err), 0);
    save.state.dp++; /* in another topology */
    assert_int_equal(ckpt_write_shard(&save, &err), 0);
    /* Another run. */
    save.state.seed++;
    assert_int_equal(ckpt_write_shard(&save, &err), -1);
    assert_int_equal(err.code, CODE_DATA);
    assert_non_null(
        strstr(err.text, "/step-00000105 is of attempt mine, another run's: do two jobs share this directory?"));
    assert_int_equal(ckpt_check_owner(&save, &err), -1);
    save.state.seed--;
    save.job_text = "model = 2;\n# caf\xe9\n";
    assert_int_equal(ckpt_write_shard(&save, &err), -1);
    save.job_text = "model = 1;\n";
    assert_int_equal(ckpt_write_shard(&save, &err), -1);
    save.job_text = NULL;
    assert_int_equal(ckpt_write_shard(&save, &err), -1);
    save.attempt = "mine"; /* what is ours is so whatever it says */
    assert_int_equal(ckpt_write_shard(&save, &err), 0);
    assert_false(exists("step-00000105.again.partial"));
}

static void one_attempt_writes_a_shard_once(void **state)
{
    struct ckpt_save save = world_save(&world, four, 0, dir, 110, "9");
    struct error err;

    assert_int_equal(ckpt_write_shard(&save, &err), 0);
    assert_int_equal(ckpt_write_shard(&save, &err), -1);
    assert_non_null(strstr(err.text, "each try to save needs a new attempt's name"));
    save.attempt = "../9";
    assert_int_equal(ckpt_write_shard(&save, &err), -1);
    assert_int_equal(err.code, CODE_INTERNAL);
    assert_int_equal(ckpt_commit(dir, 110, "a/b", &err), -1);
}

/* Ranks that do not agree, which is a bug of theirs, must not make a checkpoint. */
static void parts_that_disagree_are_refused(void **state)
{
    struct ckpt_save save;
    struct error err;

    write_shards(four, 120, "1", 0, 3);
    save = world_save(&world, four, 3, dir, 120, "1");
    save.state.consumed_samples++;
    assert_int_equal(ckpt_write_shard(&save, &err), 0);
    assert_int_equal(ckpt_commit(dir, 120, "1", &err), -1);
    assert_int_equal(err.code, CODE_DATA);
    assert_non_null(strstr(err.text, "shard 3: does not agree with shard 0 on the state"));

    write_shards(four, 121, "1", 0, 3);
    save = world_save(&world, four, 2, dir, 121, "1"); /* rank 2's pieces again, as shard 3 */
    save.shard = 3;
    assert_int_equal(ckpt_write_shard(&save, &err), 0);
    assert_int_equal(ckpt_commit(dir, 121, "1", &err), -1);
    assert_non_null(strstr(err.text, "shards 2 and 3 both have"));

    write_shards(four, 122, "1", 0, 3);
    save = world_save(&world, four, 3, dir, 122, "1");
    save.npieces = 0; /* a rank with nothing: its file is there, its elements are not */
    assert_int_equal(ckpt_write_shard(&save, &err), 0);
    assert_int_equal(ckpt_commit(dir, 122, "1", &err), -1);
    assert_non_null(strstr(err.text, " elements"));
    assert_false(exists("step-00000120") || exists("step-00000121") || exists("step-00000122"));
}

static void whoever_survives_recovers(void **state)
{
    struct error err;

    write_shards(four, 130, "5", 0, 4); /* complete, but nobody lived to commit */
    write_shards(eight, 131, "5", 0, 5);
    assert_int_equal(ckpt_recover(dir, &err), 1);
    assert_int_equal(ckpt_recover(dir, &err), 0);
    world_expect(&world, eight, dir, 130);
    topology_fill(eight, &world);
    assert_true(exists("step-00000131.5.partial"));
    assert_false(exists("step-00000131"));
    assert_int_equal(ckpt_recover("/nonexistent/directory", &err), 0);
}

/* Where the directory fails, an older checkpoint must not be taken for the newest. */
static void a_recovery_that_fails_says_so(void **state)
{
    struct rlimit before, none = {0};
    struct error err;

    write_shards(four, 135, "5", 0, 4);
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    none.rlim_max = before.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
    assert_int_equal(ckpt_recover(dir, &err), -1);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(err.code, CODE_IO);
    assert_non_null(strstr(err.text, "step-00000135.5.partial/manifest.json: cannot write: File too large"));
    assert_int_equal(ckpt_recover(dir, &err), 1);
    assert_true(exists("step-00000135"));
}

/* What a loss of power can make of a commit: the parts' removal survives, and the rename before it does not. */
static void a_lost_rename_is_made_again(void **state)
{
    char where[512], path[512], final[512], kept[512], shard[512], other[512];
    struct error err;
    size_t bytes;
    char *data;
    int shards = four->shards;

    join(where, dir, "power");
    join(kept, dir, "parts");
    for (int s = 0; s < shards; s++) {
        struct ckpt_save save = world_save(&world, four, s, where, 1, "5");

        assert_int_equal(ckpt_write_shard(&save, &err), 0);
    }
    join(path, where, "step-00000001.5.partial");
    join(final, where, "step-00000001");
    shell("mkdir '%s' && cp '%s'/*.json '%s'", kept, path, kept);
    assert_int_equal(ckpt_commit(where, 1, "5", &err), 1);
    assert_int_equal(count_entries(final), shards + 1);
    assert_int_equal(rename(final, path), 0);
    assert_int_equal(ckpt_recover(where, &err), 1);
    world_expect(&world, eight, where, 1);
    topology_fill(eight, &world);
    /* Not when a shard is short, or the manifest is another's. */
    assert_int_equal(rename(final, path), 0);
    data = read_file(join(shard, path, "shard-00000-of-00004.safetensors"), &bytes);
    assert_int_equal(truncate(shard, (off_t)bytes - 1), 0);
    assert_int_equal(ckpt_recover(where, &err), 0);
    assert_int_equal(ckpt_commit(where, 1, "5", &err), -1);
    assert_int_equal(err.code, CODE_DATA);
    write_file(shard, data, bytes);
    free(data);
    join(other, where, "step-00000001.6.partial");
    assert_int_equal(rename(path, other), 0);
    assert_int_equal(ckpt_recover(where, &err), 0);
    assert_int_equal(ckpt_commit(where, 1, "6", &err), -1);
    assert_non_null(strstr(err.text, "is of step 1, attempt \"5\""));
    assert_int_equal(rename(other, path), 0);
    assert_int_equal(ckpt_commit(where, 1, "5", &err), 1);
    /* The other way round: the rename survives and the removals do not. */
    shell("cp '%s'/*.json '%s'", kept, final);
    assert_int_equal(count_entries(final), 2 * shards + 1);
    assert_int_equal(ckpt_recover(where, &err), 0);
    assert_int_equal(count_entries(final), shards + 1);
    world_expect(&world, eight, where, 1);
    topology_fill(eight, &world);
}

static void something_in_the_way_is_named(void **state)
{
    char path[512];
    struct error err;

    assert_int_equal(mkdir(join(path, dir, "step-00000140"), 0700), 0);
    write_file(join(path, dir, "step-00000140/notes.txt"), "x", 1);
    write_shards(four, 140, "5", 0, 4);
    assert_int_equal(ckpt_commit(dir, 140, "5", &err), -1);
    assert_int_equal(err.code, CODE_DATA);
    assert_non_null(strstr(err.text, "step-00000140: is in the way"));
    assert_true(exists("step-00000140/notes.txt"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(eight_processes_commit_at_once),  cmocka_unit_test(leftovers_do_not_poison),
        cmocka_unit_test(another_runs_step_is_not_ours),   cmocka_unit_test(one_attempt_writes_a_shard_once),
        cmocka_unit_test(parts_that_disagree_are_refused), cmocka_unit_test(whoever_survives_recovers),
        cmocka_unit_test(a_recovery_that_fails_says_so),
        cmocka_unit_test(a_lost_rename_is_made_again),     cmocka_unit_test(something_in_the_way_is_named),
    };

    return cmocka_run_group_tests(tests, make, unmake);
}
