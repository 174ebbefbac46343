/* Which GPUs a rank sees, and what profiles are told of a node. */
#include "srun-plugin/fabric/fabric.h"
#include "srun-plugin/node/bind.h"
#include "srun-plugin/node/visible.h"
#include "tests/cmocka_test.h"
#include "tests/unit/machines.h"

struct visible {
    const char *cuda, *rocr, *ze; /* the values; NULL if not set */
};

static bool look_up(const char *name, char *value, size_t size, void *arg)
{
    const struct visible *visible = arg;
    const char *found = name[0] == 'C' ? visible->cuda : name[0] == 'R' ? visible->rocr : visible->ze;

    return found && snprintf(value, size, "%s", found) >= 0;
}

static void expect_seen(const struct node *node, struct visible visible, const char *wanted)
{
    size_t indices[VISIBLE_MOST], count = visible_gpus(node, look_up, &visible, indices), used = 0;
    char text[1024] = "";

    for (size_t i = 0; i < count; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%zu", i ? " " : "", indices[i]);
    assert_string_equal(text, wanted);
}

static void a_rank_sees_what_its_variable_leaves(void **state)
{
    static const char all[] = "0 1 2 3 4 5 6 7";
    struct node *node = machines_read("dgx-a100");

    expect_seen(node, (struct visible){0}, all);
    expect_seen(node, (struct visible){.cuda = "0,1,2,3,4,5,6,7"}, all);
    expect_seen(node, (struct visible){.cuda = "3"}, "3");
    expect_seen(node, (struct visible){.cuda = "7,5,0"}, "7 5 0");
    expect_seen(node, (struct visible){.cuda = ""}, "");
    expect_seen(node, (struct visible){.cuda = "-1"}, "");
    expect_seen(node, (struct visible){.cuda = "NoDevFiles"}, "");
    expect_seen(node, (struct visible){.cuda = "2,-1,3"}, "2");
    expect_seen(node, (struct visible){.cuda = "2,8,3"}, "2");
    expect_seen(node, (struct visible){.cuda = "99999999999999999999"}, "");
    expect_seen(node, (struct visible){.cuda = "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6"}, all);
    expect_seen(node, (struct visible){.cuda = "MIG-GPU-8932f937-d72c-4106-c12f-20bd9faed9f6/1/0"}, all);
    expect_seen(node, (struct visible){.rocr = "1", .ze = "2"}, all); /* no business of NVIDIA's */
    node_destroy(node);
}

/* ConstrainDevices: Slurm counts from 0 what the cgroup leaves. */
static void indices_count_what_the_cgroup_leaves(void **state)
{
    struct node *node = machines_read("dgx-a100-cgroup");

    expect_seen(node, (struct visible){0}, "0 1");
    expect_seen(node, (struct visible){.cuda = "0,1"}, "0 1");
    expect_seen(node, (struct visible){.cuda = "1"}, "1");
    node_destroy(node);
    node = machines_read("dgx-a100-gpu-lost");
    expect_seen(node, (struct visible){.cuda = "3,5"}, "4 7"); /* 3 fell off the bus, 6 is vfio-pci's */
    node_destroy(node);
}

static void the_variable_is_the_vendors(void **state)
{
    struct node *node = machines_read("ex-mi250x");

    expect_seen(node, (struct visible){.rocr = "4,5", .cuda = "0"}, "4 5");
    for (size_t i = 0; i < node->gpu_count; i++)
        node->gpus[i].vendor = 0x8086;
    expect_seen(node, (struct visible){.ze = "0.0,0.1,1.0,1.1"}, "0 0 1 1");
    node_destroy(node);
    node = machines_read("a64fx");
    expect_seen(node, (struct visible){.cuda = "0"}, "");
    node_destroy(node);
}

static void facts_of(const struct node *node, unsigned local_ranks, const char *cuda, struct fabric_facts *facts)
{
    size_t gpus[VISIBLE_MOST], count = visible_gpus(node, look_up, &(struct visible){.cuda = cuda}, gpus);
    struct error err = {0};

    *facts = (struct fabric_facts){.nodes = 2};
    if (fabric_facts_fill(facts, node, local_ranks, gpus, count, &err) < 0)
        fail_msg("%s", err.text);
}

/* The HCAs of the kind that are live, as "mlx5_0:1 mlx5_1:1". */
static void expect_live(const struct node *node, unsigned local_ranks, const char *cuda, const char *kind,
                        const char *wanted)
{
    struct fabric_facts facts;
    char text[1024] = "";
    size_t used = 0;

    facts_of(node, local_ranks, cuda, &facts);
    for (size_t i = 0; i < facts.nic_count; i++)
        if (facts.live[i] && strcmp(nic_kind_name(facts.nics[i].kind), kind) == 0)
            used += (size_t)snprintf(text + used, sizeof text - used, "%s%s", used ? " " : "",
                                     node_nic_name(&facts.nics[i]));
    assert_string_equal(text, wanted);
    free(facts.live);
}

static void the_rails_are_those_of_the_gpus(void **state)
{
    static const char h100[] = "mlx5_0:1 mlx5_3:1 mlx5_4:1 mlx5_5:1 mlx5_6:1 mlx5_9:1 mlx5_10:1 mlx5_11:1";
    struct node *node = machines_read("dgx-h100");

    expect_live(node, 8, NULL, "infiniband", h100);
    expect_live(node, 1, NULL, "infiniband", h100); /* torchrun: one rank, eight processes */
    expect_live(node, 16, NULL, "infiniband", h100);
    expect_live(node, 2, "0,7", "infiniband", "mlx5_0:1 mlx5_11:1");
    expect_live(node, 2, NULL, "roce", "");
    expect_live(node, 2, NULL, "ethernet", "eno3");
    node_destroy(node);
    node = machines_read("dgx-h100-dead-port");
    expect_live(node, 8, NULL, "infiniband", "mlx5_0:1 mlx5_3:1 mlx5_4:1 mlx5_6:1 mlx5_9:1 mlx5_10:1 mlx5_11:1");
    node_destroy(node);
}

static void a_part_of_a_bond_is_the_bond(void **state)
{
    struct node *node = machines_read("bonded");
    struct fabric_facts facts;
    size_t parts = 0;

    expect_live(node, 2, NULL, "ethernet", "bond0 bond0.200");
    facts_of(node, 2, NULL, &facts);
    assert_int_equal(facts.gpus, 0);
    assert_null(facts.vendor);
    for (size_t i = 0; i < facts.nic_count; i++)
        parts += strcmp(fabric_interface(&facts.nics[i]), "bond0") == 0;
    assert_int_equal(parts, 3); /* itself and two ports */
    free(facts.live);
    node_destroy(node);
}

static void gids_and_vendors_are_told(void **state)
{
    struct node *node = machines_read("hgx-roce");
    struct fabric_facts facts;

    facts_of(node, 8, NULL, &facts);
    assert_int_equal(facts.gpus, 8);
    assert_string_equal(facts.vendor, "nvidia");
    assert_int_equal(facts.nodes, 2); /* left as it was */
    assert_string_equal(facts.nics[0].hca, "mlx5_0:1");
    assert_int_equal(facts.nics[0].gid_index, 3);
    assert_int_equal(facts.nics[0].rate, 400);
    free(facts.live);
    node_destroy(node);
}

static void no_ranks_are_an_error(void **state)
{
    struct node *node = machines_read("hgx-roce");
    struct fabric_facts facts = {.nodes = 1};
    struct error err;

    assert_int_equal(fabric_facts_fill(&facts, node, 0, NULL, 0, &err), -1);
    assert_int_equal(err.code, CODE_USAGE);
    assert_null(facts.live);
    node_destroy(node);
}

/* torchrun, or one process with all GPUs, must not be locked beside the first. */
static void one_rank_with_many_gpus_has_all_cores(void **state)
{
    struct node *node = machines_read("dgx-a100");
    const size_t second[] = {1};
    struct binding *binding = binding_create(node, &(struct bind_request){.local_ranks = 1}, NULL);

    assert_true(cpus_equal(&binding->ranks[0].cpus, &node->allowed));
    assert_int_equal(binding->ranks[0].threads, 16);
    assert_int_equal(binding->note_count, 1);
    binding_destroy(binding);
    binding = binding_create(node, &(struct bind_request){.local_ranks = 1, .gpus = second, .gpu_count = 1}, NULL);
    assert_int_equal(binding->ranks[0].gpu, 1);
    assert_true(cpus_equal(&binding->ranks[0].cpus, &node->numas[3].cpus));
    assert_int_equal(binding->note_count, 0);
    binding_destroy(binding);
    node_destroy(node);
}

/* A task that was forked from the process that read the node, and lives in a cgroup of its own. */
static void a_task_reads_what_is_its_own(void **state)
{
    struct node *node = machines_read("dgx-a100");
    size_t problems = node->problem_count;

    node_read_own(node, machines_snapshot("dgx-a100-cgroup"));
    assert_int_equal(node_usable_gpus(node, NULL), 2);
    assert_int_equal(cpus_count(&node->allowed), 32);
    assert_int_equal(node->problem_count, problems);
    node_read_own(node, machines_snapshot("dgx-a100"));
    assert_int_equal(node_usable_gpus(node, NULL), 8);
    assert_int_equal(cpus_count(&node->allowed), 256);
    node_destroy(node);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_sees_what_its_variable_leaves),
        cmocka_unit_test(indices_count_what_the_cgroup_leaves),
        cmocka_unit_test(the_variable_is_the_vendors),
        cmocka_unit_test(the_rails_are_those_of_the_gpus),
        cmocka_unit_test(a_part_of_a_bond_is_the_bond),
        cmocka_unit_test(gids_and_vendors_are_told),
        cmocka_unit_test(no_ranks_are_an_error),
        cmocka_unit_test(one_rank_with_many_gpus_has_all_cores),
        cmocka_unit_test(a_task_reads_what_is_its_own),
    };

    return cmocka_run_group_tests(tests, machines_make, machines_remove);
}
