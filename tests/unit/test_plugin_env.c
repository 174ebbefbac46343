/* What a rank gets in its environment: pure functions, no Slurm needed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "srun-plugin/spank/env.h"
#include "srun-plugin/spank/report.h"

/* An environment: "NAME=value" strings, ended by NULL. */
static bool look_up(const char *name, char *value, size_t size, void *arg)
{
    size_t length = strlen(name);

    for (const char *const *word = arg; *word; word++)
        if (strncmp(*word, name, length) == 0 && (*word)[length] == '=')
            return snprintf(value, size, "%s", *word + length + 1) >= 0;
    return false;
}

static struct env_set set;
static const struct env_entry *const entries = set.entries;

static size_t plan(const struct task *task, const char **environment)
{
    env_plan(task, look_up, environment, &set);
    assert_in_range(set.count, 1, ENV_MAX);
    return set.count;
}

static const struct env_entry *entry(size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(entries[i].name, name) == 0)
            return &entries[i];
    return NULL;
}

static void expect(size_t count, const char *name, const char *value, enum env_source source)
{
    const struct env_entry *found = entry(count, name);

    assert_non_null(found);
    assert_string_equal(found->value, value);
    assert_int_equal(found->source, source);
}

/* The last rank of two nodes with four ranks each. */
static const struct task task = {
    .job_id = 42,
    .step_id = 3,
    .nodes = 2,
    .node = 1,
    .ranks = 8,
    .rank = 7,
    .local_ranks = 4,
    .local_rank = 3,
    .cpus_per_task = 1,
    .node_cpus = 32,
    .bound_cpus = 32,
    .head = "n1",
    .job_file = "/home/me/gpt.cfg",
};

static void sets_everything_in_an_empty_environment(void **state)
{
    size_t count = plan(&task, (const char *[]){NULL});

    (void)state;
    expect(count, "RANK", "7", ENV_MUSTER);
    expect(count, "WORLD_SIZE", "8", ENV_MUSTER);
    expect(count, "LOCAL_RANK", "3", ENV_MUSTER);
    expect(count, "LOCAL_WORLD_SIZE", "4", ENV_MUSTER);
    expect(count, "NODE_RANK", "1", ENV_MUSTER);
    expect(count, "MASTER_ADDR", "n1", ENV_MUSTER);
    expect(count, "MASTER_PORT", "14705", ENV_MUSTER); /* port.h */
    expect(count, "OMP_NUM_THREADS", "8", ENV_MUSTER);
    expect(count, "MUSTER_NODES", "2", ENV_MUSTER);
    expect(count, "MUSTER_JOB_ID", "42", ENV_MUSTER);
    expect(count, "MUSTER_RESTART_COUNT", "0", ENV_MUSTER);
    expect(count, "MUSTER_JOB", "/home/me/gpt.cfg", ENV_MUSTER);
}

static void leaves_out_what_is_not_known(void **state)
{
    struct task bare = task;
    size_t count;

    (void)state;
    bare.head = bare.job_file = NULL;
    count = plan(&bare, (const char *[]){NULL});
    assert_null(entry(count, "MASTER_ADDR"));
    assert_null(entry(count, "MUSTER_JOB"));
}

static void keeps_what_the_user_set(void **state)
{
    size_t count = plan(&task, (const char *[]){"RANK=0", "MASTER_PORT=29500", "OMP_NUM_THREADS=", NULL});

    (void)state;
    expect(count, "RANK", "0", ENV_USER);
    expect(count, "MASTER_PORT", "29500", ENV_USER);
    expect(count, "OMP_NUM_THREADS", "", ENV_USER);
    expect(count, "WORLD_SIZE", "8", ENV_MUSTER);
}

static void keeps_what_is_too_long_to_copy(void **state)
{
    static char address[2 * ENV_VALUE_SIZE];
    size_t count;

    (void)state;
    memset(address, 'a', sizeof address - 1);
    memcpy(address, "MASTER_ADDR=", strlen("MASTER_ADDR="));
    count = plan(&task, (const char *[]){address, NULL});
    assert_int_equal(entry(count, "MASTER_ADDR")->source, ENV_USER);
}

static void takes_back_what_an_outer_srun_set(void **state)
{
    /* The user has changed WORLD_SIZE since the outer step set it, and NODE_RANK, from 11. */
    size_t count = plan(&task, (const char *[]){"MUSTER_SET=RANK=1 WORLD_SIZE=2 NODE_RANK=11", "RANK=1", "WORLD_SIZE=3",
                                                "NODE_RANK=1", NULL});

    (void)state;
    expect(count, "RANK", "7", ENV_MUSTER);
    expect(count, "WORLD_SIZE", "3", ENV_USER);
    expect(count, "NODE_RANK", "1", ENV_USER);
}

static void a_record_keeps_what_is_similar_apart(void **state)
{
    char record[64] = "", small[12] = "";

    (void)state;
    env_record(record, sizeof record, "NCCL_NET", "AWS Libfabric");
    env_record(record, sizeof record, "X", "100% RANK=3");
    env_record(record, sizeof record, "E", "");
    assert_string_equal(record, "NCCL_NET=AWS%20Libfabric X=100%25%20RANK=3 E=");
    assert_true(env_was_set(record, "NCCL_NET", "AWS Libfabric"));
    assert_true(env_was_set(record, "X", "100% RANK=3"));
    assert_true(env_was_set(record, "E", ""));
    assert_false(env_was_set(record, "NCCL_NET", "AWS"));
    assert_false(env_was_set(record, "NCCL_NET", ""));
    assert_false(env_was_set(record, "NET", "AWS Libfabric"));
    assert_false(env_was_set(record, "RANK", "3"));
    assert_false(env_was_set(record, "E", "x"));
    assert_false(env_was_set("", "E", ""));
    env_record(small, sizeof small, "RANK", "1");
    env_record(small, sizeof small, "RANKS", "1"); /* not half of it */
    env_record(small, sizeof small, "N", "1");
    assert_string_equal(small, "RANK=1 N=1");
}

static void an_inner_plan_undoes_all_of_an_outer_one(void **state)
{
    static char words[ENV_MAX][ENV_VALUE_SIZE + 64];
    const char *environment[ENV_MAX + 2] = {"MASTER_PORT=29500"};
    struct task inner = task;
    size_t count = plan(&task, environment), used = 1;

    (void)state;
    for (size_t i = 0; i < count; i++) {
        if (entries[i].source == ENV_USER)
            continue;
        snprintf(words[i], sizeof words[i], "%s=%s", entries[i].name, entries[i].value);
        environment[used++] = words[i];
    }
    inner.rank = 5;
    inner.step_id = 4;
    inner.job_file = NULL; /* what the outer one left in MUSTER_JOB is not touched */
    count = plan(&inner, environment);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(entries[i].source, strcmp(entries[i].name, "MASTER_PORT") == 0 ? ENV_USER : ENV_MUSTER);
    expect(count, "RANK", "5", ENV_MUSTER);
}

static void threads_are_what_the_step_gives(void **state)
{
    static const struct {
        uint32_t cpus_per_task, node_cpus, local_ranks, bound;
        const char *asked, *threads;
        bool inherited;
    } cases[] = {
        {1, 32, 4, 32, NULL, "8", false},                    /* nobody asked: the ranks share the node */
        {1, 3, 4, 32, NULL, "1", false},                     /* more ranks than CPUs */
        {6, 32, 4, 32, "SLURM_CPUS_PER_TASK=6", "6", false}, /* srun -c6 */
        {1, 32, 4, 32, "SLURM_CPUS_PER_TASK=6", "8", false}, /* sbatch -c6, which srun does not inherit */
        {1, 32, 4, 32, "SLURM_CPUS_PER_TASK=1", "1", false}, /* srun -c1 means it */
        {6, 32, 4, 2, "SLURM_CPUS_PER_TASK=6", "2", false},  /* bound to less */
        {0, 32, 4, 0, NULL, "8", false},                     /* a Slurm that does not tell */
        {1, 0, 0, 0, NULL, "1", false},
        {0, 32, 4, 0, "SLURM_CPUS_PER_TASK=1", "1", false}, /* that, and srun -c1 */
        {1, 32, 4, 32, "SLURM_CPUS_PER_TASK=1", "8", true}, /* sbatch -c1 */
        {6, 32, 4, 32, "SLURM_CPUS_PER_TASK=6", "6", true}, /* a Slurm whose srun inherits it */
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct task t = task;
        size_t count;

        t.cpus_per_task = cases[i].cpus_per_task;
        t.node_cpus = cases[i].node_cpus;
        t.local_ranks = cases[i].local_ranks;
        t.bound_cpus = cases[i].bound;
        t.cpus_inherited = cases[i].inherited;
        count = plan(&t, (const char *[]){cases[i].asked, NULL});
        expect(count, "OMP_NUM_THREADS", cases[i].threads, ENV_MUSTER);
        assert_int_equal(strstr(entry(count, "OMP_NUM_THREADS")->why, "does not reach srun") != NULL,
                         cases[i].inherited && cases[i].cpus_per_task == 1);
    }
}

static void counts_restarts(void **state)
{
    size_t count = plan(&task, (const char *[]){"SLURM_RESTART_COUNT=2", NULL});

    (void)state;
    expect(count, "MUSTER_RESTART_COUNT", "2", ENV_MUSTER);
}

static void takes_the_port_that_srun_found(void **state)
{
    struct task probed = task;
    size_t count;

    (void)state;
    probed.port = 12345;
    count = plan(&probed, (const char *[]){NULL});
    expect(count, "MASTER_PORT", "12345", ENV_MUSTER);
}

static void writes_runs_of_ranks(void **state)
{
    static const uint32_t ranks[] = {0, 1, 2, 3, 8, 10, 11};
    char text[64], small[12];

    (void)state;
    assert_string_equal(report_ranks(ranks, 7, text, sizeof text), "0-3,8,10-11");
    assert_string_equal(report_ranks(ranks, 1, text, sizeof text), "0");
    assert_string_equal(report_ranks(ranks, 0, text, sizeof text), "");
    assert_string_equal(report_ranks(ranks, 7, small, sizeof small), "0-3,8...");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sets_everything_in_an_empty_environment),
        cmocka_unit_test(leaves_out_what_is_not_known),
        cmocka_unit_test(keeps_what_the_user_set),
        cmocka_unit_test(keeps_what_is_too_long_to_copy),
        cmocka_unit_test(takes_back_what_an_outer_srun_set),
        cmocka_unit_test(a_record_keeps_what_is_similar_apart),
        cmocka_unit_test(an_inner_plan_undoes_all_of_an_outer_one),
        cmocka_unit_test(threads_are_what_the_step_gives),
        cmocka_unit_test(counts_restarts),
        cmocka_unit_test(takes_the_port_that_srun_found),
        cmocka_unit_test(writes_runs_of_ranks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
