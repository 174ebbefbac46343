/* What a rank gets in its environment: pure functions, no Slurm needed. */
#include "config.h"
#include "srun-plugin/spank/rank_setup.h"
#include "tests/cmocka_test.h"
#include "tests/unit/fabric_machines.h"

static struct env_list made;

static void add_own(const struct task *task, const char **environment)
{
    struct env_reader reader;

    env_list_clear(&made);
    env_reader_open(&reader, machines_look_up, environment);
    assert_true(env_add_own(task, &reader, &made));
    assert_true(env_add_record(task, &reader, &made));
    assert_string_equal(made.variables[made.count - 1].name, "MUSTER_SET");
}

static const struct env_variable *entry(const char *name)
{
    for (size_t i = 0; i < made.count; i++)
        if (strcmp(made.variables[i].name, name) == 0)
            return &made.variables[i];
    return NULL;
}

static void expect(const char *name, const char *value, enum env_origin origin)
{
    const struct env_variable *found = entry(name);

    assert_non_null(found);
    assert_string_equal(found->value, value);
    assert_int_equal(found->origin, origin);
    assert_int_equal(env_is_to_be_set(found), origin != ENV_FROM_USER);
}

/* The last rank of two nodes with four ranks each. */
static const struct handoff no_plan;
static const struct task task = {
    .step = &no_plan,
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
    .master_address = "n1",
    .job_file = "/home/me/gpt.cfg",
};

static void sets_everything_in_an_empty_environment(void **state)
{
    add_own(&task, (const char *[]){NULL});
    expect("RANK", "7", ENV_FROM_MUSTER);
    expect("WORLD_SIZE", "8", ENV_FROM_MUSTER);
    expect("LOCAL_RANK", "3", ENV_FROM_MUSTER);
    expect("LOCAL_WORLD_SIZE", "4", ENV_FROM_MUSTER);
    expect("NODE_RANK", "1", ENV_FROM_MUSTER);
    expect("MASTER_ADDR", "n1", ENV_FROM_MUSTER);
    expect("MASTER_PORT", "14705", ENV_FROM_MUSTER); /* port_of_step */
    expect("OMP_NUM_THREADS", "8", ENV_FROM_MUSTER);
    expect("MUSTER_NODES", "2", ENV_FROM_MUSTER);
    expect("MUSTER_JOB_ID", "42", ENV_FROM_MUSTER);
    expect("MUSTER_RESTART_COUNT", "0", ENV_FROM_MUSTER);
    expect("MUSTER_PLUGIN_VERSION", PACKAGE_VERSION, ENV_FROM_MUSTER);
    expect("MUSTER_JOB", "/home/me/gpt.cfg", ENV_FROM_MUSTER);
}

static void leaves_out_what_is_not_known(void **state)
{
    struct task bare = task;

    bare.master_address = bare.job_file = NULL;
    add_own(&bare, (const char *[]){NULL});
    assert_null(entry("MASTER_ADDR"));
    assert_null(entry("MUSTER_JOB"));
}

static void keeps_what_the_user_set(void **state)
{
    add_own(&task, (const char *[]){"RANK=0", "MASTER_PORT=29500", "OMP_NUM_THREADS=", NULL});
    expect("RANK", "0", ENV_FROM_USER);
    expect("MASTER_PORT", "29500", ENV_FROM_USER);
    expect("OMP_NUM_THREADS", "", ENV_FROM_USER);
    expect("WORLD_SIZE", "8", ENV_FROM_MUSTER);
}

static void keeps_what_is_too_long_to_copy(void **state)
{
    static char address[2 * ENV_VALUE_SIZE];

    memset(address, 'a', sizeof address - 1);
    memcpy(address, "MASTER_ADDR=", strlen("MASTER_ADDR="));
    add_own(&task, (const char *[]){address, NULL});
    assert_int_equal(entry("MASTER_ADDR")->origin, ENV_FROM_USER);
}

static void takes_back_what_an_outer_srun_set(void **state)
{
    /* The user has changed WORLD_SIZE since the outer step set it, and NODE_RANK, from 11. */
    add_own(&task, (const char *[]){"MUSTER_SET=RANK=1 WORLD_SIZE=2 NODE_RANK=11", "RANK=1", "WORLD_SIZE=3",
                                    "NODE_RANK=1", NULL});
    expect("RANK", "7", ENV_FROM_MUSTER);
    expect("WORLD_SIZE", "3", ENV_FROM_USER);
    expect("NODE_RANK", "1", ENV_FROM_USER);
}

static void a_record_keeps_what_is_similar_apart(void **state)
{
    char record[64] = "", small[12] = "";

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
    static char words[20][ENV_VALUE_SIZE + 64];
    const char *environment[20] = {"MASTER_PORT=29500"};
    struct task inner = task;
    size_t used = 1;

    add_own(&task, environment);
    assert_in_range(made.count, 12, 18);
    for (size_t i = 0; i < made.count; i++) {
        if (made.variables[i].origin == ENV_FROM_USER)
            continue;
        snprintf(words[i], sizeof words[i], "%s=%s", made.variables[i].name, made.variables[i].value);
        environment[used++] = words[i];
    }
    inner.rank = 5;
    inner.step_id = 4;
    inner.job_file = NULL; /* what the outer one left in MUSTER_JOB is not touched */
    add_own(&inner, environment);
    for (size_t i = 0; i < made.count; i++)
        assert_int_equal(env_is_to_be_set(&made.variables[i]), strcmp(made.variables[i].name, "MASTER_PORT") != 0);
    expect("RANK", "5", ENV_FROM_MUSTER);
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

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct handoff step = {.cpus_inherited = cases[i].inherited};
        struct task t = task;

        t.step = &step;
        t.cpus_per_task = cases[i].cpus_per_task;
        t.node_cpus = cases[i].node_cpus;
        t.local_ranks = cases[i].local_ranks;
        t.bound_cpus = cases[i].bound;
        add_own(&t, (const char *[]){cases[i].asked, NULL});
        expect("OMP_NUM_THREADS", cases[i].threads, ENV_FROM_MUSTER);
        assert_int_equal(strstr(entry("OMP_NUM_THREADS")->why, "does not reach srun") != NULL,
                         cases[i].inherited && cases[i].cpus_per_task == 1);
    }
}

static void counts_restarts(void **state)
{
    add_own(&task, (const char *[]){"SLURM_RESTART_COUNT=2", NULL});
    expect("MUSTER_RESTART_COUNT", "2", ENV_FROM_MUSTER);
}

static void takes_the_port_that_srun_found(void **state)
{
    const struct handoff step = {.port = 12345};
    struct task probed = task;

    probed.step = &step;
    add_own(&probed, (const char *[]){NULL});
    expect("MASTER_PORT", "12345", ENV_FROM_MUSTER);
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
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
