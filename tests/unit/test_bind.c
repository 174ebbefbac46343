/* The binding of ranks: promises that hold on every node, and bindings that sites publish. */
#include "srun-plugin/node/bind.h"
#include "tests/cmocka_test.h"
#include "tests/unit/machines.h"

static unsigned pick(unsigned below)
{
    return (unsigned)rand() % below;
}

/* A node that no factory builds: any numbers of everything anywhere, and any cores taken away by Slurm. */
static struct node *random_node(void)
{
    struct node *node = calloc(1, sizeof *node);
    unsigned cores = 1 + pick(12), threads = 1 + pick(2), cpu = 0;

    assert_non_null(node);
    node->numa_count = 1 + pick(8);
    node->core_count = node->numa_count * cores;
    node->gpu_count = pick(10);
    node->nic_count = pick(10);
    node->numas = calloc(node->numa_count, sizeof *node->numas);
    node->cores = calloc(node->core_count, sizeof *node->cores);
    node->gpus = calloc(node->gpu_count + 1, sizeof *node->gpus);
    node->nics = calloc(node->nic_count + 1, sizeof *node->nics);
    node->paths = calloc(node->gpu_count * node->nic_count + 1, sizeof *node->paths);
    for (size_t i = 0; i < node->core_count; i++) {
        node->cores[i].numa = (int)(i / cores);
        node->numas[i / cores].os_index = (unsigned)(i / cores);
        node->numas[i / cores].package = (int)(i / cores / 2);
        for (unsigned thread = 0; thread < threads; thread++, cpu++) {
            cpus_add(&node->cores[i].cpus, cpu);
            cpus_add(&node->numas[i / cores].cpus, cpu);
            cpus_add(&node->cpus, cpu);
            if (pick(4) || cpu == 0)
                cpus_add(&node->allowed, cpu);
        }
    }
    for (size_t i = 0; i < node->gpu_count; i++) {
        node->gpus[i].numa = (int)pick((unsigned)node->numa_count + 1) - 1;
        node->gpus[i].state = pick(5) ? GPU_USABLE : GPU_HIDDEN;
    }
    for (size_t i = 0; i < node->nic_count; i++) {
        struct node_nic *nic = &node->nics[i];

        nic->kind = (enum nic_kind)pick(NIC_KINDS);
        nic->up = pick(4) > 0;
        nic->rate = 25u << pick(5);
        nic->numa = (int)pick((unsigned)node->numa_count + 1) - 1;
        snprintf(nic->inet, sizeof nic->inet, "%s", pick(2) ? "10.0.0.1/8" : "");
        for (size_t j = 0; j < node->gpu_count; j++)
            node->paths[j * node->nic_count + i] = (enum node_path)pick(PATH_SYSTEM + 1);
    }
    return node;
}

static unsigned allowed_cores(const struct node *node, int numa)
{
    unsigned count = 0;

    for (size_t i = 0; i < node->core_count; i++)
        count += (numa < 0 || node->cores[i].numa == numa) && cpus_intersect(&node->cores[i].cpus, &node->allowed);
    return count;
}

/* One rank that is to start a process for each of several GPUs. */
static bool is_launcher(const struct binding *binding)
{
    return binding->count == 1 && binding->gpu_count > 1;
}

/* The NUMA node of the rank's GPU, if it can be bound there: it says where it is, and a core is left there. */
static int home(const struct node *node, const struct binding *binding, const struct bind_rank *rank)
{
    int numa = rank->gpu >= 0 && !is_launcher(binding) ? node->gpus[rank->gpu].numa : -1;

    return numa >= 0 && allowed_cores(node, numa) > 0 ? numa : -1;
}

static unsigned at_home(const struct node *node, const struct binding *binding, int numa)
{
    unsigned count = 0;

    for (size_t i = 0; i < binding->count; i++)
        count += home(node, binding, &binding->ranks[i]) == numa;
    return count;
}

static void check_cores(const struct node *node, const struct binding *binding)
{
    for (size_t i = 0; i < binding->count; i++) {
        const struct bind_rank *rank = &binding->ranks[i];
        struct cpus both = rank->cpus;
        int numa = home(node, binding, rank);

        cpus_and(&both, &node->allowed);
        assert_true(cpus_equal(&both, &rank->cpus));
        assert_true(cpus_count(&rank->cpus) > 0 && rank->threads > 0);
        if (is_launcher(binding))
            assert_true(cpus_equal(&rank->cpus, &node->allowed));
        if (numa >= 0) {
            cpus_and(&both, &node->numas[numa].cpus);
            assert_true(cpus_equal(&both, &rank->cpus));
            assert_int_equal(rank->shares_cores, allowed_cores(node, numa) < at_home(node, binding, numa));
        }
        for (size_t j = 0; j < i; j++) {
            const struct bind_rank *other = &binding->ranks[j];
            unsigned more = rank->threads > other->threads ? rank->threads : other->threads;

            if (numa >= 0 && home(node, binding, other) == numa)
                assert_true(more - rank->threads <= 1 && more - other->threads <= 1);
            /* Two ranks on one core only where the cores did not suffice, or where nothing was left beside the GPUs. */
            if (cpus_intersect(&rank->cpus, &other->cpus))
                assert_true(rank->shares_cores || other->shares_cores ||
                            (numa < 0) != (home(node, binding, other) < 0) || allowed_cores(node, -1) < binding->count);
        }
    }
}

static void check_nics(const struct node *node, const struct binding *binding)
{
    for (size_t i = 0; i < binding->count; i++) {
        const struct bind_rank *rank = &binding->ranks[i];

        assert_int_equal(rank->nic_count > 0, node_fabric(node) != NIC_VIRTUAL);
        for (size_t j = 0; j < rank->nic_count; j++) {
            const struct node_nic *nic = &node->nics[rank->nics[j]];

            assert_true(node_nic_usable(nic));
            assert_int_equal(nic->kind, node_fabric(node));
            if (rank->gpu >= 0)
                assert_int_equal(node->paths[(size_t)rank->gpu * node->nic_count + rank->nics[j]], rank->path);
        }
        for (size_t j = 0; j < node->nic_count; j++) {
            bool slow = false;

            for (size_t k = 0; k < node->nic_count; k++)
                slow = slow || (node_nic_usable(&node->nics[k]) && node->nics[k].kind == node_fabric(node) &&
                                node->nics[k].rate > 2 * node->nics[j].rate);
            if (rank->gpu >= 0 && node_nic_usable(&node->nics[j]) && node->nics[j].kind == node_fabric(node) && !slow)
                assert_true(node->paths[(size_t)rank->gpu * node->nic_count + j] >= rank->path);
        }
        for (size_t j = 0; j < i; j++)
            if (rank->gpu >= 0 && binding->ranks[j].gpu == rank->gpu) {
                assert_int_equal(rank->nic_count, binding->ranks[j].nic_count);
                assert_memory_equal(rank->nics, binding->ranks[j].nics, rank->nic_count * sizeof *rank->nics);
            }
    }
}

static void check_gpus(const struct node *node, const struct binding *binding)
{
    size_t indices[16], count = node_usable_gpus(node, indices);

    for (size_t i = 0; i < binding->count; i++)
        assert_int_equal(binding->ranks[i].gpu, count ? (int)indices[i % count] : -1);
}

static void test_promises(void **state)
{
    for (unsigned seed = 1; seed <= 2000; seed++) {
        struct error err = {0};
        struct node *node;
        struct binding *binding;

        srand(seed);
        node = random_node();
        binding = binding_create(node, &(struct bind_request){.local_ranks = 1 + pick(12)}, &err);
        if (!binding)
            fail_msg("seed %u: %s", seed, err.text);
        check_gpus(node, binding);
        check_cores(node, binding);
        check_nics(node, binding);
        binding_destroy(binding);
        node_destroy(node);
    }
}

/* What the user asked Slurm for stands, whatever it is. */
static void test_given(void **state)
{
    for (unsigned seed = 1; seed <= 300; seed++) {
        struct cpus given = {{0}};
        struct bind_request request = {.given = &given};
        struct node *node;
        struct binding *binding;

        srand(seed);
        node = random_node();
        request.local_ranks = 1 + pick(12);
        for (unsigned j = 0; j <= pick(5); j++)
            cpus_add(&given, pick(200));
        binding = binding_create(node, &request, NULL);
        assert_non_null(binding);
        assert_true(binding->keeps_given);
        for (unsigned i = 0; i < request.local_ranks; i++)
            assert_true(cpus_equal(&binding->ranks[i].cpus, &given));
        binding_destroy(binding);
        node_destroy(node);
    }
}

static struct binding *plan_of(const char *machine, unsigned ranks, struct node **node)
{
    struct binding *binding;

    *node = machines_read(machine);
    binding = binding_create(*node, &(struct bind_request){.local_ranks = ranks}, NULL);
    assert_non_null(binding);
    return binding;
}

/* The eight masks that LUMI's documentation has its users write by hand ("Distribution and binding", mask_cpu). */
static void test_lumi_masks(void **state)
{
    static const uint64_t masks[] = {0x7e000000000000, 0x7e00000000000000, 0x7e0000,      0x7e000000, 0x7e,
                                     0x7e00,           0x7e00000000,       0x7e0000000000};
    struct node *node;
    struct binding *binding = plan_of("ex-mi250x", 8, &node);

    for (size_t i = 0; i < 8; i++) {
        /* LUMI leaves out one core more of each L3 than low-noise mode does. */
        assert_int_equal(masks[i] & ~binding->ranks[i].cpus.word[0], 0);
        assert_int_equal(binding->ranks[i].threads, 7);
    }
    binding_destroy(binding);
    node_destroy(node);
}

static void expect_nics(const char *machine, unsigned ranks, const char *const *expected)
{
    struct node *node;
    struct binding *binding = plan_of(machine, ranks, &node);

    for (unsigned i = 0; i < ranks; i++) {
        assert_int_equal(binding->ranks[i].nic_count, 1);
        assert_string_equal(node->nics[binding->ranks[i].nics[0]].hca, expected[i]);
    }
    binding_destroy(binding);
    node_destroy(node);
}

/* The HCAs that sites list for these by hand: NCCL_IB_HCA=mlx5_0,mlx5_3,mlx5_4,mlx5_5,mlx5_6,mlx5_9,mlx5_10,mlx5_11. */
static void test_dgx_nics(void **state)
{
    static const char *const h100[] = {"mlx5_0:1", "mlx5_3:1", "mlx5_4:1",  "mlx5_5:1",
                                       "mlx5_6:1", "mlx5_9:1", "mlx5_10:1", "mlx5_11:1"};
    static const char *const a100[] = {"mlx5_0:1", "mlx5_1:1", "mlx5_2:1", "mlx5_3:1",
                                       "mlx5_6:1", "mlx5_7:1", "mlx5_8:1", "mlx5_9:1"};
    static const char *const dead[] = {"mlx5_0:1", "mlx5_3:1", "mlx5_4:1",  "mlx5_0:1",
                                       "mlx5_6:1", "mlx5_9:1", "mlx5_10:1", "mlx5_11:1"};

    expect_nics("dgx-h100", 8, h100);
    expect_nics("dgx-a100", 8, a100);
    expect_nics("dgx-h100-dead-port", 8, dead); /* not mlx5_1, the storage's */
}

/* What NCCL_IB_HCA should hold: not the storage's ports, nor those that are down. */
static void test_uses(void **state)
{
    struct node *node;
    struct binding *binding = plan_of("dgx-h100", 8, &node);
    size_t used = 0;

    for (size_t i = 0; i < node->nic_count; i++) {
        used += binding_uses(binding, i);
        if (strcmp(node->nics[i].hca, "mlx5_1:1") == 0 || !node->nics[i].up)
            assert_false(binding_uses(binding, i));
    }
    assert_int_equal(used, 8);
    binding_destroy(binding);
    node_destroy(node);
}

static void test_more_ranks_than_cores(void **state)
{
    struct node *node;
    struct binding *binding = plan_of("laptop", 20, &node);

    for (size_t i = 0; i < 20; i++) {
        assert_true(binding->ranks[i].shares_cores);
        assert_int_equal(binding->ranks[i].threads, 1);
    }
    assert_int_equal(binding->note_count, 1);
    binding_destroy(binding);
    node_destroy(node);
}

static void test_no_ranks(void **state)
{
    struct node node = {0};
    struct error err;

    assert_null(binding_create(&node, &(struct bind_request){0}, &err));
    assert_int_equal(err.code, CODE_USAGE);
    binding_destroy(NULL);
    node_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_promises),
        cmocka_unit_test(test_given),
        cmocka_unit_test(test_lumi_masks),
        cmocka_unit_test(test_dgx_nics),
        cmocka_unit_test(test_uses),
        cmocka_unit_test(test_no_ranks),
        cmocka_unit_test(test_more_ranks_than_cores),
    };

    return cmocka_run_group_tests(tests, machines_make, machines_remove);
}
