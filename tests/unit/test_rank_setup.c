/* What one rank of a replayed machine gets: its CPUs, its GPU, its variables; and when muster keeps its hands off. */
#include "srun-plugin/spank/rank_setup.h"
#include "srun-plugin/spank/report.h"
#include "tests/cmocka_test.h"
#include "tests/unit/fabric_machines.h"
#include "tests/unit/machines.h"

static struct node_view view;

static const char *const nothing[] = {NULL};
static struct handoff step = {.step_known = true};

/* Rank 8 + local_rank, the second of two such machines with eight ranks each, its CPUs all the step's. */
static struct rank_request ask_on(const char *machine, unsigned local_rank)
{
    struct error err;
    struct rank_request ask = {
        .task = {.step = &step,
                 .job_id = 42,
                 .nodes = 2,
                 .node = 1,
                 .ranks = 16,
                 .rank = 8 + local_rank,
                 .local_ranks = 8,
                 .local_rank = local_rank,
                 .cpus_per_task = 1,
                 .master_address = "n1"},
        .view = &view,
        .affinity_known = true,
        .job_nodes = 2,
        .environment = machines_look_up,
        .environment_arg = (void *)(uintptr_t)nothing,
    };

    node_destroy(view.node);
    view.node = machines_read(machine);
    if (!view.fabric) {
        view.fabric = fabric_create(&err);
        machines_add_shipped(view.fabric);
    }
    ask.affinity.own = ask.affinity.all = view.node->allowed = view.node->cpus;
    ask.task.node_cpus = cpus_count(&view.node->cpus);
    return ask;
}

static struct rank_setup *make_setup(const struct rank_request *ask)
{
    struct error err;
    struct rank_setup *setup = rank_setup_create(ask, &err);

    if (!setup)
        fail_msg("%s", err.text);
    return setup;
}

static const char *entry(const struct rank_setup *setup, const char *name)
{
    for (size_t i = 0; i < setup->env.count; i++)
        if (strcmp(setup->env.variables[i].name, name) == 0)
            return setup->env.variables[i].value;
    return NULL;
}

static void a_rank_runs_beside_its_gpu(void **state)
{
    for (unsigned local = 0; local < 8; local++) {
        struct rank_request ask = ask_on("dgx-a100", local);
        struct rank_setup *setup = make_setup(&ask);
        const struct bind_rank *rank = setup->own;
        const struct node_gpu *gpu = &view.node->gpus[rank->gpu];

        assert_true(setup->do_bind);
        assert_null(setup->why_not_bound);
        assert_int_equal(rank->gpu, local);
        assert_true(cpus_has(&rank->mems, view.node->numas[gpu->numa].os_index));
        assert_int_equal(atoi(entry(setup, "OMP_NUM_THREADS")), rank->threads);
        assert_string_equal(entry(setup, "CUDA_DEVICE_ORDER"), "PCI_BUS_ID");
        assert_string_equal(setup->isolation, "");
        assert_string_equal(setup->env.profile, "infiniband");
        assert_non_null(strstr(entry(setup, "MUSTER_SET"), "NCCL_IB_HCA=")); /* for an srun inside the step */
        rank_setup_destroy(setup);
    }
}

static void expect_unbound(struct rank_request *ask, const char *why)
{
    struct rank_setup *setup = make_setup(ask);

    assert_false(setup->do_bind);
    assert_non_null(setup->why_not_bound);
    assert_non_null(strstr(setup->why_not_bound, why));
    assert_true(cpus_equal(&setup->own->cpus, &ask->affinity.own));
    rank_setup_destroy(setup);
}

static void muster_binds_only_where_it_may(void **state)
{
    struct rank_request ask = ask_on("dgx-a100", 2);
    struct cpus few = {0};

    for (unsigned cpu = 10; cpu < 14; cpu++)
        cpus_add(&few, cpu);
    ask.affinity.own = few;
    step.user_binds = true;
    expect_unbound(&ask, "the user requested");
    step.user_binds = false;
    step.step_known = false;
    expect_unbound(&ask, "handoff did not arrive");
    step.step_known = true;
    ask.task.node_cpus /= 2; /* other jobs' CPUs are among those that the kernel would give */
    expect_unbound(&ask, "no cgroup");
    step.cpus_are_cores = true; /* two hardware threads a core, of which Slurm counts one: the node is the step's */
    ask.affinity.own = ask.affinity.all;
    struct rank_setup *setup = make_setup(&ask);
    assert_true(setup->do_bind);
    rank_setup_destroy(setup);
    step.cpus_are_cores = false;
}

static void threads_that_the_user_asked_for_stay(void **state)
{
    struct rank_request ask = ask_on("dgx-a100", 0);
    struct rank_setup *setup;

    ask.task.cpus_per_task = 4;
    setup = make_setup(&ask);
    assert_string_equal(entry(setup, "OMP_NUM_THREADS"), "4");
    rank_setup_destroy(setup);
}

/* --gpus-per-task: each rank sees one GPU, numbered 0 or by itself, and the neighbours' cores are not its own. */
static void a_rank_alone_with_its_gpu_is_told(void **state)
{
    const char *masked[] = {"CUDA_VISIBLE_DEVICES=5", "SLURM_GPUS_ON_NODE=8", "SLURM_GPUS_PER_TASK=1", NULL};
    struct rank_request ask = ask_on("dgx-a100", 5);
    struct rank_setup *setup;

    ask.environment_arg = masked;
    setup = make_setup(&ask);
    assert_non_null(strstr(setup->isolation, "--gpus-per-task"));
    assert_ptr_equal(setup->own, &setup->binding->ranks[5]);
    assert_int_equal(setup->binding->ranks[5].gpu, 5);
    assert_true(setup->binding->ranks[5].threads > 4);
    rank_setup_destroy(setup);
}

/* The same with a cgroup that hides the others' files: ranks beside one NUMA node must not be put on the same cores. */
static void ranks_whose_neighbours_are_hidden_share_no_core(void **state)
{
    const char *hidden[] = {"CUDA_VISIBLE_DEVICES=0", "SLURM_GPUS_ON_NODE=8", "SLURM_GPUS_PER_TASK=1", NULL};
    struct cpus taken = {0};

    for (unsigned local = 0; local < 8; local++) {
        struct rank_request ask = ask_on("dgx-a100", local);
        struct rank_setup *setup;

        for (unsigned gpu = 0; gpu < 8; gpu++)
            view.node->gpus[gpu].state = gpu == local ? GPU_USABLE : GPU_HIDDEN;
        ask.environment_arg = hidden;
        setup = make_setup(&ask);
        assert_non_null(strstr(setup->isolation, "--gpus-per-task"));
        assert_int_equal(setup->own->gpu, local);
        assert_true(setup->do_bind);
        assert_false(cpus_intersect(&taken, &setup->own->cpus));
        cpus_or(&taken, &setup->own->cpus);
        rank_setup_destroy(setup);
    }
}

static void without_a_node_there_are_variables_still(void **state)
{
    struct rank_request ask = ask_on("dgx-a100", 1);
    struct rank_setup *setup;

    node_destroy(view.node);
    view.node = NULL;
    setup = make_setup(&ask);
    assert_null(setup->binding);
    assert_null(setup->env.profile);
    assert_false(setup->do_bind);
    assert_string_equal(entry(setup, "RANK"), "9");
    rank_setup_destroy(setup);
}

static char printed[64][1024];
static size_t lines;

/* The text of a stream, by lines. */
static void keep_lines(FILE *out)
{
    rewind(out);
    for (lines = 0; lines < 64 && fgets(printed[lines], sizeof printed[0], out); lines++)
        printed[lines][strcspn(printed[lines], "\n")] = '\0';
    fclose(out);
}

static size_t lines_with(const char *text)
{
    size_t count = 0;

    for (size_t i = 0; i < lines; i++)
        count += strstr(printed[i], text) != NULL;
    return count;
}

static void the_report_has_every_variable_and_rank(void **state)
{
    const char *environment[] = {"MASTER_PORT=29500", "NCCL_DEBUG=WARN", NULL};
    struct rank_request ask = ask_on("dgx-a100", 0);
    struct rank_setup *setup;
    FILE *out;

    ask.environment_arg = environment;
    setup = make_setup(&ask);
    assert_non_null(out = tmpfile());
    report_variables(setup, false, out);
    keep_lines(out);
    assert_string_equal(printed[0], "muster: the environment of rank 8");
    for (size_t i = 0; i < setup->env.count; i++)
        assert_int_equal(lines_with(setup->env.variables[i].name) >= 1,
                         strcmp(setup->env.variables[i].name, "MUSTER_SET") != 0);
    assert_int_equal(lines_with("29500"), 1);
    assert_non_null(out = tmpfile());
    report_node("n2", "8,9,10,11,12,13,14,15", view.node, setup, false, out);
    keep_lines(out);
    assert_int_equal(lines, 1 + 1 + 8); /* not rank 0's node, and nothing amiss: a heading, the table's, the ranks */
    for (size_t i = 1; i < lines; i++)
        assert_memory_equal(printed[i], "  n2: ", 6);
    rank_setup_destroy(setup);
}

static int tear_down(void **state)
{
    node_destroy(view.node);
    fabric_destroy(view.fabric);
    return machines_remove(state);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_runs_beside_its_gpu),
        cmocka_unit_test(muster_binds_only_where_it_may),
        cmocka_unit_test(threads_that_the_user_asked_for_stay),
        cmocka_unit_test(a_rank_alone_with_its_gpu_is_told),
        cmocka_unit_test(ranks_whose_neighbours_are_hidden_share_no_core),
        cmocka_unit_test(without_a_node_there_are_variables_still),
        cmocka_unit_test(the_report_has_every_variable_and_rank),
    };

    return cmocka_run_group_tests(tests, machines_make, tear_down);
}
