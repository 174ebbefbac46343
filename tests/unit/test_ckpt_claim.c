/* One directory, one run: processes that claim at once, and what a run that lost its directory still commits. */
#include "tests/cmocka_test.h"
#include "tests/unit/ckpt_stage_world.h"

#include <jansson.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROCESSES 16
#define ROUNDS    40

static struct world world;
static struct topology *two;
static char base[256], dir[512];

static int make(void **state)
{
    uint64_t random = 5;

    scratch_create(base, scratch_fast());
    join(dir, base, "checkpoints");
    mkdir(dir, 0777);
    world_create(&world, &random, false);
    two = topology_create(&world, 2, &random);
    topology_fill(two, &world);
    return 0;
}

static int unmake(void **state)
{
    topology_destroy(two, &world);
    scratch_destroy(base);
    return 0;
}

/* Becomes the owner; accepts the saves of claims from `accepts` on. */
static uint64_t take_as(const char *where, const char *job, uint64_t accepts)
{
    struct ckpt_claim claim, next = {.accepts = accepts, .pid = 7, .host = "n3", .since = 1, .heartbeat = 2};
    struct error err = {0};

    assert_true(ckpt_claim_read(where, &claim, &err) >= 0);
    next.number = claim.number + 1;
    if (accepts == 0)
        next.accepts = next.number;
    snprintf(next.job, sizeof next.job, "%s", job);
    ckpt_claim_clear(&claim);
    if (ckpt_claim_take(where, &next, &err) != 1)
        fail_msg("%s", err.text);
    return next.number;
}

static int check(const char *where, uint64_t number, struct error *err)
{
    struct ckpt_claim claim = {.number = number};
    int result = ckpt_claim_check(where, &claim, err);

    assert_true(result != 0 || claim.accepts > 0 || count_entries(where) == 0);
    ckpt_claim_clear(&claim);
    return result;
}

static const char *attempt_of(uint64_t claim, const char *name)
{
    static char attempt[CKPT_ATTEMPT_SIZE];

    snprintf(attempt, sizeof attempt, "%s", name);
    ckpt_claim_attempt(attempt, claim);
    return attempt;
}

static void write_shards(uint64_t step, const char *attempt)
{
    struct error err;

    for (int s = 0; s < 2; s++) {
        struct ckpt_save save = world_save(&world, two, s, dir, step, attempt);

        if (ckpt_write_shard(&save, &err) < 0)
            fail_msg("%s", err.text);
    }
}

static bool exists(const char *name)
{
    char path[512];

    return access(join(path, dir, name), F_OK) == 0;
}

/* Each waits for the others, takes the owner for dead, and exits with 1 if it became the owner. */
static void claim_together(int gate)
{
    struct ckpt_claim claim;
    struct error err = {0};
    char byte;
    int result = ckpt_claim_read(dir, &claim, &err);

    claim.number++;
    claim.accepts = claim.number;
    claim.pid = (int)getpid();
    if (result < 0 || read(gate, &byte, 1) != 0)
        _exit(9);
    result = ckpt_claim_take(dir, &claim, &err);
    if (result < 0)
        fprintf(stderr, "%s\n", err.text);
    _exit(result < 0 ? 9 : result);
}

static void one_of_many_gets_it(void **state)
{
    struct ckpt_claim owner;
    struct error err = {0};

    for (uint64_t round = 1; round <= ROUNDS; round++) {
        pid_t children[PROCESSES], winner = 0;
        int gate[2], winners = 0, status;

        assert_int_equal(pipe(gate), 0);
        for (int p = 0; p < PROCESSES; p++)
            if ((children[p] = fork()) == 0) {
                close(gate[1]);
                claim_together(gate[0]);
            }
        close(gate[0]);
        close(gate[1]); /* they have read the owner, or do so while others claim: both are races */
        for (int p = 0; p < PROCESSES; p++) {
            assert_int_equal(waitpid(children[p], &status, 0), children[p]);
            assert_true(WIFEXITED(status) && WEXITSTATUS(status) <= 1);
            if (WEXITSTATUS(status) == 1) {
                winners++;
                winner = children[p];
            }
        }
        assert_int_equal(ckpt_claim_read(dir, &owner, &err), 1);
        /* A late reader takes the winner for dead, and the directory from it. */
        assert_true(winners >= 1);
        assert_true(winners > 1 || owner.pid == (int)winner);
        assert_int_equal(owner.number, owner.accepts);
        ckpt_claim_clear(&owner);
        assert_int_equal(count_entries(dir), 1); /* no temporary name, no earlier claim */
    }
}

/* All have read the same owner before any claims. */
static void one_of_many_gets_a_number(void **state)
{
    uint64_t before = take_as(dir, "", 0);
    int winners = 0, status;

    for (int p = 0; p < PROCESSES; p++)
        if (fork() == 0) {
            struct ckpt_claim claim = {.number = before + 1, .accepts = before + 1, .pid = p};

            _exit(ckpt_claim_take(dir, &claim, NULL));
        }
    for (int p = 0; p < PROCESSES; p++) {
        assert_true(wait(&status) > 0);
        winners += WEXITSTATUS(status) == 1;
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) <= 1);
    }
    assert_int_equal(winners, 1);
    assert_int_equal(count_entries(dir), 1);
}

static void a_lost_owner_commits_nothing(void **state)
{
    uint64_t first = take_as(dir, "1", 0), second;
    struct error err = {0};
    char late[CKPT_ATTEMPT_SIZE], early[CKPT_ATTEMPT_SIZE], name[200];

    strcpy(early, attempt_of(first, "early"));
    strcpy(late, attempt_of(first, "late"));
    write_shards(10, early);
    assert_int_equal(check(dir, first, &err), 0);
    second = take_as(dir, "2", 0);
    assert_int_equal(check(dir, first, &err), 1);
    assert_int_equal(err.code, CODE_CONFIG);
    assert_non_null(strstr(err.text, "belongs to job 2 (restart 0) on n3 since "));
    assert_int_equal(check(dir, second, &err), 0);
    /* What it had begun was renamed, so that not even a commit which has looked before can end it. */
    snprintf(name, sizeof name, "step-00000010.%s.partial", early);
    assert_false(exists(name));
    assert_int_equal(ckpt_commit(dir, 10, early, &err), 0);
    /* What it begins afterwards is complete, and not committed. */
    write_shards(20, late);
    assert_int_equal(ckpt_commit(dir, 20, late, &err), -1);
    assert_int_equal(err.code, CODE_CONFIG);
    assert_int_equal(ckpt_recover(dir, &err), 0);
    assert_false(exists("step-00000020"));
    /* The owner's is, and that of a process that knows no claims. */
    write_shards(20, attempt_of(second, "1"));
    assert_int_equal(ckpt_commit(dir, 20, attempt_of(second, "1"), &err), 1);
    write_shards(30, "older.release");
    assert_int_equal(ckpt_commit(dir, 30, "older.release", &err), 1);
}

static void a_requeued_job_commits_what_it_had(void **state)
{
    uint64_t first = take_as(dir, "3", 0);
    struct error err = {0};

    write_shards(40, attempt_of(first, "1"));
    take_as(dir, "3", first);
    assert_int_equal(ckpt_recover(dir, &err), 1);
    assert_true(exists("step-00000040"));
}

static void a_drainer_ends_what_is_lost(void **state)
{
    struct world own_world;
    uint64_t seed = 9, first;
    struct node node;
    struct ckpt_save_status news;

    node_create(&node, &own_world, &seed, 2, false);
    mkdir(node.target, 0777);
    first = take_as(node.target, "1", 0);
    node_open(&node, "a", 2, "a");
    node_stage(&node, 10, attempt_of(first, "1"));
    take_as(node.target, "2", 0);
    assert_int_equal(node_drain(&node), CKPT_DRAIN_DAMAGED);
    news = node_news(&node);
    assert_int_equal(news.state, CKPT_FAILED);
    assert_non_null(strstr(news.reason, "belongs to job 2 "));
    node_stage(&node, 20, attempt_of(first + 1, "1"));
    assert_int_equal(node_drain(&node), CKPT_DRAIN_DONE);
    assert_int_equal(node_news(&node).state, CKPT_COMMITTED);
    node_destroy(&node);
}

/* It may be a claim of the same job, requeued: the save stays in memory until the owner is known. */
static void a_damaged_claim_drops_nothing(void **state)
{
    struct world own_world;
    struct ckpt_drain_options once = {.once = true};
    uint64_t seed = 10;
    struct error err;
    struct node node;
    char path[512];

    node_create(&node, &own_world, &seed, 2, false);
    mkdir(node.target, 0777);
    node_open(&node, "a", 2, "a");
    node_stage(&node, 10, attempt_of(take_as(node.target, "1", 0), "1"));
    write_file(join(path, node.target, "owner-2.json"), "{", 1);
    assert_int_equal(ckpt_drain(ckpt_stage_directory(node.stage), &once, &err), CKPT_DRAIN_LEFT);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(node_drain(&node), CKPT_DRAIN_DONE);
    assert_int_equal(node_news(&node).state, CKPT_COMMITTED);
    node_destroy(&node);
}

static void what_is_written_is_read(void **state)
{
    struct ckpt_claim claim = {.accepts = 3,
                               .cluster = "muster",
                               .job = "12",
                               .array_task = "11_4",
                               .step = "0",
                               .restart = 2,
                               .host = "n1",
                               .machine = "boot pid:[1]",
                               .pid = 99,
                               .pid_started = 1000,
                               .since = 1.5,
                               .heartbeat = 2.5,
                               .keys = json_pack("[s, s]", "optimizer.lr = 0.001", "data.train = \"a\"")},
                      back;
    struct error err = {0};
    char path[700];

    assert_true(ckpt_claim_read(dir, &back, &err) >= 0);
    claim.number = back.number + 1;
    ckpt_claim_clear(&back);
    assert_int_equal(ckpt_claim_take(dir, &claim, &err), 1);
    assert_int_equal(ckpt_claim_take(dir, &claim, &err), 0); /* the number is taken */
    claim.released = 4;
    assert_int_equal(ckpt_claim_refresh(dir, &claim, &err), 0);
    shell("mv %s %s.away && mkdir %s", dir, dir,
          dir); /* as after an unmount: nothing is made beneath the mount point */
    assert_int_equal(ckpt_claim_refresh(dir, &claim, &err), -1);
    assert_non_null(strstr(err.text, " is missing"));
    assert_int_equal(count_entries(dir), 0);
    shell("rmdir %s && mv %s.away %s", dir, dir, dir);
    assert_int_equal(ckpt_claim_read(dir, &back, &err), 1);
    assert_true(json_equal(back.keys, claim.keys));
    assert_int_equal(back.user, geteuid());
    assert_memory_equal(&claim.cluster, &back.cluster,
                        sizeof claim.cluster + sizeof claim.job + sizeof claim.array_task);
    assert_int_equal(back.restart, 2);
    assert_int_equal(back.pid_started, 1000);
    assert_true(back.since == 1.5 && back.heartbeat == 2.5 && back.released == 4);
    ckpt_claim_clear(&back);
    snprintf(path, sizeof path, "%s/owner-%d.json", dir, (int)claim.number);
    shell("sed -i 's/\"since\"/\"life\": 1.5, &/' %s", path); /* an earlier release's member */
    assert_int_equal(check(dir, claim.number, &err), 0);
    /* Damage: a number and a time. Another release: nothing is known, and nothing may be done. */
    shell("sed -i s/cluster/clutter/ %s", path);
    assert_int_equal(ckpt_claim_read(dir, &back, &err), -1);
    assert_int_equal(err.code, CODE_CONFIG);
    shell("sed -i 's/\"version\": 1/\"version\": 2/' %s", path);
    assert_int_equal(ckpt_claim_read(dir, &back, &err), -1);
    assert_non_null(strstr(err.text, "format version 2 is unknown"));
    assert_int_equal(check(dir, claim.number - 1, &err), 1);
    write_file(path, "{", 1);
    assert_int_equal(ckpt_claim_read(dir, &back, &err), 1);
    assert_int_equal(back.number, claim.number);
    assert_true(back.heartbeat > 1e9 && back.pid == 0);
    ckpt_claim_clear(&back);
    ckpt_claim_clear(&claim);
}

static void other_tools_leave_it(void **state)
{
    struct error err = {0};
    char empty[512];
    uint64_t number = take_as(dir, "", 0), *steps;
    size_t count;

    world_write(&world, two, dir, 1000, attempt_of(number, "x"));
    assert_int_equal(ckpt_list(dir, &steps, &count, &err), 0);
    assert_int_equal(steps[0], 1000);
    free(steps);
    assert_int_equal(ckpt_prune(dir, 1, 0, &err), 0);
    assert_int_equal(ckpt_remove(dir, 1000, true, &err), 0);
    assert_int_equal(check(dir, number, &err), 0);
    mkdir(join(empty, base, "empty"), 0777);
    assert_int_equal(check(empty, number, &err), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_of_many_gets_it),           cmocka_unit_test(one_of_many_gets_a_number),
        cmocka_unit_test(a_lost_owner_commits_nothing),  cmocka_unit_test(a_requeued_job_commits_what_it_had),
        cmocka_unit_test(a_damaged_claim_drops_nothing), cmocka_unit_test(a_drainer_ends_what_is_lost),
        cmocka_unit_test(what_is_written_is_read),       cmocka_unit_test(other_tools_leave_it),
    };

    return cmocka_run_group_tests(tests, make, unmake);
}
