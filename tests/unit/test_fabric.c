/* What profiles set on which machine, and that what others have set wins. See test_fabric_broken.c for broken ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/philox.h"
#include "srun-plugin/fabric.h"

/* ---- machines ---------------------------------------------------------------------------------------------------- */

#define IB(n, rate)                                                                                                    \
    {                                                                                                                  \
        "infiniband", "mlx5_core", "mlx5_" #n, "ib" #n, 1, -1, rate, true                                              \
    }
#define ROCE(n, g, rate)                                                                                               \
    {                                                                                                                  \
        "roce", "mlx5_core", "mlx5_" #n, "eth" #n, 1, g, rate, true                                                    \
    }
#define CXI(n)                                                                                                         \
    {                                                                                                                  \
        "slingshot", "cxi_ss1", "cxi" #n, "hsn" #n, 1, -1, 200, true                                                   \
    }
#define EFA(n)                                                                                                         \
    {                                                                                                                  \
        "efa", "efa", "rdmap" #n "s0", NULL, 1, -1, 100, true                                                          \
    }
#define ETH(name, rate)                                                                                                \
    {                                                                                                                  \
        "ethernet", "ixgbe", NULL, name, 0, -1, rate, true                                                             \
    }
#define NICS(list) .nics = (list), .nic_count = sizeof(list) / sizeof(list)[0]

static const struct fabric_nic a100_nics[] = {ETH("eno1", 1), IB(0, 200), IB(1, 200), IB(2, 200), IB(3, 200)};
/* A storage port of 100 Gb/s, one whose cable is out, and a management port that could do RoCE. */
static const struct fabric_nic h100_nics[] = {IB(0, 400),
                                              IB(1, 400),
                                              IB(2, 100),
                                              {"infiniband", "mlx5_core", "mlx5_3", "ib3", 1, -1, 400, false},
                                              ROCE(4, 3, 25)};
static const struct fabric_nic roce_nics[] = {ROCE(0, 3, 400), ROCE(1, 3, 400), ETH("bond0", 25)};
static const struct fabric_nic cxi_nics[] = {ETH("nmn0", 1), CXI(0), CXI(1), CXI(2), CXI(3)};
static const struct fabric_nic efa_nics[] = {ETH("enp71s0", 100), EFA(0), EFA(1)};
static const struct fabric_nic eth_nics[] = {ETH("eth0", 10), ETH("docker0", 0)};
static const struct fabric_nic dead_nics[] = {ETH("eth0", 10),
                                              {"infiniband", "mlx5_core", "mlx5_0", "ib0", 1, -1, 200, false}};

static bool no_files(const char *name, void *arg)
{
    (void)name;
    (void)arg;
    return false;
}

static bool has_plugin(const char *name, void *arg)
{
    (void)arg;
    return strcmp(name, "libnccl-net.so") == 0;
}

#define GLOO(name) "GLOO_SOCKET_IFNAME=" name "\n"

/* HPE's ccl_env.sh, but for NCCL_NET and what RCCL wants. */
#define HPE                                                                                                            \
    "FI_CXI_DEFAULT_CQ_SIZE=131072\nFI_CXI_DEFAULT_TX_SIZE=2048\nFI_CXI_DISABLE_HOST_REGISTER=1\n"                     \
    "FI_CXI_RDZV_EAGER_SIZE=0\nFI_CXI_RDZV_GET_MIN=0\nFI_CXI_RDZV_PROTO=alt_read\nFI_CXI_RDZV_THRESHOLD=0\n"           \
    "FI_CXI_RX_MATCH_MODE=hybrid\nFI_MR_CACHE_MONITOR=userfaultfd\n" GLOO("hsn0")
#define CSCS                                                                                                           \
    "FI_CXI_DEFAULT_CQ_SIZE=131072\nFI_CXI_DEFAULT_TX_SIZE=32768\nFI_CXI_DISABLE_HOST_REGISTER=1\n"                    \
    "FI_CXI_RDZV_EAGER_SIZE=0\nFI_CXI_RDZV_GET_MIN=0\nFI_CXI_RDZV_THRESHOLD=0\nFI_CXI_RX_MATCH_MODE=software\n"        \
    "FI_MR_CACHE_MONITOR=userfaultfd\n" GLOO("hsn0")
#define HSN "NCCL_SOCKET_IFNAME==hsn0,hsn1,hsn2,hsn3\n"

/* `matches`: every shipped profile that would, alone; `chosen`: the one whose variables these are. */
static const struct machine {
    const char *name;
    struct fabric_facts facts;
    const char *matches, *chosen, *variables;
    int notes;
} machines[] = {
    {"DGX A100",
     {.nodes = 4, .gpus = 8, .vendor = "nvidia", .interface = "eno1", NICS(a100_nics)},
     "infiniband",
     "infiniband",
     GLOO("eno1") "NCCL_IB_HCA==mlx5_0:1,mlx5_1:1,mlx5_2:1,mlx5_3:1\nNCCL_SOCKET_IFNAME==eno1\n",
     0},
    {"DGX H100 with storage, a dead port and RoCE",
     {.nodes = 2, .gpus = 8, .vendor = "nvidia", .interface = "eth4", NICS(h100_nics)},
     "infiniband roce",
     "infiniband",
     GLOO("eth4") "NCCL_IB_HCA==mlx5_0:1,mlx5_1:1\nNCCL_SOCKET_IFNAME==eth4\n",
     0},
    {"HGX with RoCE",
     {.nodes = 2, .gpus = 8, .vendor = "nvidia", .interface = "bond0", NICS(roce_nics)},
     "roce",
     "roce",
     GLOO("bond0") "NCCL_IB_GID_INDEX=3\nNCCL_IB_HCA==mlx5_0:1,mlx5_1:1\nNCCL_SOCKET_IFNAME==bond0\n",
     0},
    {"Slingshot at NERSC",
     {.nodes = 2,
      .gpus = 4,
      .vendor = "nvidia",
      .cluster = "perlmutter",
      .interface = "hsn0",
      .files = has_plugin,
      NICS(cxi_nics)},
     "slingshot",
     "slingshot",
     HPE "NCCL_CROSS_NIC=1\nNCCL_NET=AWS Libfabric\nNCCL_NET_GDR_LEVEL=PHB\n" HSN,
     0},
    {"Slingshot and AMD, plugin not loaded",
     {.nodes = 2,
      .gpus = 8,
      .vendor = "amd",
      .cluster = "frontier",
      .interface = "hsn0",
      .files = no_files,
      NICS(cxi_nics)},
     "slingshot",
     "slingshot",
     HPE "HSA_FORCE_FINE_GRAIN_PCIE=1\nNCCL_CROSS_NIC=1\nNCCL_NET_GDR_LEVEL=PHB\n" HSN,
     1},
    {"Slingshot at CSCS",
     {.nodes = 2,
      .gpus = 4,
      .vendor = "nvidia",
      .cluster = "daint",
      .interface = "hsn0",
      .files = has_plugin,
      NICS(cxi_nics)},
     "slingshot-cscs slingshot",
     "slingshot-cscs",
     CSCS "MPICH_GPU_SUPPORT_ENABLED=0\nNCCL_CROSS_NIC=0\nNCCL_NET=AWS Libfabric\nNCCL_NET_GDR_LEVEL=PHB\n"
          "NCCL_PROTO=^LL128\n" HSN,
     0},
    {"Slingshot at LUMI",
     {.nodes = 2, .gpus = 8, .vendor = "amd", .cluster = "lumi", .interface = "hsn0", NICS(cxi_nics)},
     "slingshot-cscs slingshot",
     "slingshot-cscs",
     CSCS "HSA_FORCE_FINE_GRAIN_PCIE=1\nMPICH_GPU_SUPPORT_ENABLED=0\nNCCL_CROSS_NIC=0\nNCCL_NET_GDR_LEVEL=PHB\n" HSN,
     1},
    {"EFA",
     {.nodes = 2, .gpus = 8, .vendor = "nvidia", .interface = "enp71s0", .files = has_plugin, NICS(efa_nics)},
     "efa",
     "efa",
     "FI_EFA_FORK_SAFE=1\nFI_EFA_USE_HUGE_PAGE=0\n" GLOO("enp71s0") "NCCL_NET=AWS Libfabric\n"
                                                                    "NCCL_SOCKET_IFNAME==enp71s0\n",
     0},
    {"Ethernet and GPUs",
     {.nodes = 2, .gpus = 2, .vendor = "nvidia", .interface = "eth0", NICS(eth_nics)},
     "tcp",
     "tcp",
     GLOO("eth0") "NCCL_IB_DISABLE=1\nNCCL_SOCKET_IFNAME==eth0\n",
     0},
    {"InfiniBand whose only port is dead",
     {.nodes = 2, .gpus = 2, .vendor = "nvidia", .interface = "eth0", NICS(dead_nics)},
     "tcp",
     "tcp",
     GLOO("eth0") "NCCL_IB_DISABLE=1\nNCCL_SOCKET_IFNAME==eth0\n",
     0},
    {"Ethernet, and no way to the others known",
     {.nodes = 2, .gpus = 2, .vendor = "nvidia", NICS(eth_nics)},
     "tcp",
     "tcp",
     "NCCL_IB_DISABLE=1\n",
     2},
    {"one DGX",
     {.nodes = 1, .gpus = 8, .vendor = "nvidia", NICS(a100_nics)},
     "single-node",
     "single-node",
     GLOO("lo") "NCCL_SOCKET_IFNAME==lo\n",
     0},
    {"one CPU node", {.nodes = 1, NICS(eth_nics)}, "single-node", "single-node", GLOO("lo"), 0},
    {"CPU nodes with Ethernet",
     {.nodes = 8, .interface = "eth0", NICS(eth_nics)},
     "cpu-mpi",
     "cpu-mpi",
     "FI_TCP_IFACE=eth0\n" GLOO("eth0"),
     0},
    {"CPU nodes with InfiniBand",
     {.nodes = 8, .interface = "eno1", NICS(a100_nics)},
     "cpu-mpi",
     "cpu-mpi",
     GLOO("eno1"),
     0},
};

#define MACHINES (sizeof machines / sizeof machines[0])

static const char *const shipped[] = {"cpu-mpi",        "efa",       "infiniband", "roce", "single-node",
                                      "slingshot-cscs", "slingshot", "tcp"};

#define SHIPPED (sizeof shipped / sizeof shipped[0])

/* ---- help -------------------------------------------------------------------------------------------------------- */

static void no_complaint(const struct error *err, void *arg)
{
    (void)arg;
    fail_msg("%s", err->text);
}

static struct fabric *load_shipped(void)
{
    char path[1024];
    struct fabric *fabric = fabric_create(NULL);

    assert_non_null(fabric);
    snprintf(path, sizeof path, "%s/etc/fabric", getenv("top_srcdir"));
    assert_int_equal(fabric_add_directory(fabric, FABRIC_SHIPPED, path, no_complaint, NULL), SHIPPED);
    return fabric;
}

static void add(struct fabric *fabric, enum fabric_layer layer, const char *text, const char *file)
{
    struct error err = {0};

    if (fabric_add_text(fabric, layer, text, file, &err) < 0)
        fail_msg("%s", err.text);
}

static struct fabric_plan *make(const struct fabric *fabric, const struct fabric_facts *facts,
                                const struct fabric_inputs *inputs)
{
    static const struct fabric_inputs nothing;
    struct fabric_plan *plan = fabric_plan_create(fabric, facts, inputs ? inputs : &nothing, NULL);

    assert_non_null(plan);
    return plan;
}

static const struct fabric_variable *find(const struct fabric_plan *plan, const char *name)
{
    for (size_t i = 0; i < plan->count; i++)
        if (strcmp(plan->variables[i].name, name) == 0)
            return &plan->variables[i];
    return NULL;
}

static void expect(const struct fabric_plan *plan, const char *name, const char *value, const char *source)
{
    const struct fabric_variable *variable = find(plan, name);

    if (!value) {
        assert_null(variable);
        return;
    }
    assert_non_null(variable);
    assert_string_equal(variable->value, value);
    assert_string_equal(variable->source, source);
}

/* An environment: "NAME=value" strings, ended by NULL. */
static bool look_up(const char *name, char *value, size_t size, void *arg)
{
    size_t length = strlen(name);

    for (char *const *word = arg; *word; word++)
        if (strncmp(*word, name, length) == 0 && (*word)[length] == '=')
            return snprintf(value, size, "%s", *word + length + 1) >= 0;
    return false;
}

/* ---- the shipped profiles ---------------------------------------------------------------------------------------- */

static void each_machine_gets_its_variables(void **state)
{
    struct fabric *fabric = load_shipped();

    (void)state;
    for (size_t i = 0; i < MACHINES; i++) {
        struct fabric_plan *plan = make(fabric, &machines[i].facts, NULL);
        char text[4096] = "";

        for (size_t v = 0; v < plan->count; v++) {
            size_t used = strlen(text);

            assert_true(fabric_sets(&plan->variables[v]));
            snprintf(text + used, sizeof text - used, "%s=%s\n", plan->variables[v].name, plan->variables[v].value);
        }
        if (strcmp(plan->profile, machines[i].chosen) != 0 || strcmp(text, machines[i].variables) != 0)
            fail_msg("%s: %s\n%s", machines[i].name, plan->profile, text);
        assert_int_equal(plan->note_count, machines[i].notes);
        fabric_plan_destroy(plan);
    }
    fabric_destroy(fabric);
}

static char *read_shipped(const char *name)
{
    static char text[65536];
    char path[1024];
    FILE *file;

    snprintf(path, sizeof path, "%s/etc/fabric/%s.cfg", getenv("top_srcdir"), name);
    file = fopen(path, "r");
    assert_non_null(file);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    return text;
}

/* Whether a list of words has the word, "slingshot" not being in "slingshot-cscs". */
static bool lists(const char *words, const char *word)
{
    char padded[256], wanted[64];

    snprintf(padded, sizeof padded, " %s ", words);
    snprintf(wanted, sizeof wanted, " %s ", word);
    return strstr(padded, wanted) != NULL;
}

static void each_profile_matches_its_machines_and_no_others(void **state)
{
    (void)state;
    for (size_t p = 0; p < SHIPPED; p++) {
        struct fabric *fabric = fabric_create(NULL);
        int matched = 0;

        add(fabric, FABRIC_SHIPPED, read_shipped(shipped[p]), shipped[p]);
        for (size_t i = 0; i < MACHINES; i++) {
            struct fabric_plan *plan = make(fabric, &machines[i].facts, NULL);

            if ((plan->profile[0] != '\0') != lists(machines[i].matches, shipped[p]))
                fail_msg("%s on %s: \"%s\"", shipped[p], machines[i].name, plan->profile);
            matched += strcmp(machines[i].chosen, shipped[p]) == 0;
            fabric_plan_destroy(plan);
        }
        assert_in_range(matched, 1, MACHINES);
        fabric_destroy(fabric);
    }
}

/* ---- who wins ---------------------------------------------------------------------------------------------------- */

/* All 32 cases of who has a say on one variable. */
static void the_first_who_has_a_say_wins(void **state)
{
    static const char *const sources[] = {"user", "gpt.cfg:7", "nccl.conf", "site.cfg:1", "ours.cfg:1"};
    static const char *const values[] = {"u", "j", "c", "s", "o"};
    static const char profile[] =
        "name = \"p%d\"; match = { }; set = ( { name = \"NCCL_X\"; value = \"%s\"; why = \"w\"; "
        "source = \"d\"; } );\n";
    static const struct fabric_facts facts;

    (void)state;
    for (unsigned who = 0; who < 32; who++) {
        struct fabric *fabric = fabric_create(NULL);
        struct fabric_givens job = {0}, conf = {0};
        const char *environment[] = {who & 1 ? "NCCL_X=u" : NULL, NULL};
        struct fabric_inputs inputs = {.user = look_up, .user_arg = environment, .job = &job, .conf = &conf};
        struct fabric_plan *plan;
        char text[512];
        int first = who ? __builtin_ctz(who) : -1;

        if (who & 2)
            assert_int_equal(fabric_givens_add(&job, "NCCL_X", "j", sources[1], NULL), 0);
        if (who & 4)
            assert_int_equal(fabric_conf_parse(&conf, "NCCL_X=c\n", sources[2], NULL), 0);
        for (int layer = 3; layer < 5; layer++) {
            snprintf(text, sizeof text, profile, layer, values[layer]);
            if (who & 1u << layer)
                add(fabric, layer == 3 ? FABRIC_SITE : FABRIC_SHIPPED, text, layer == 3 ? "site.cfg" : "ours.cfg");
        }
        plan = make(fabric, &facts, &inputs);
        /* What only the user has a say on is none of the plan's business. */
        if (who == 1)
            first = -1;
        assert_int_equal(plan->count, first >= 0);
        expect(plan, "NCCL_X", first >= 0 ? values[first] : NULL, first >= 0 ? sources[first] : NULL);
        if (first >= 0)
            assert_int_equal(fabric_sets(find(plan, "NCCL_X")), first == 1 || first > 2);
        fabric_plan_destroy(plan);
        fabric_givens_clear(&job);
        fabric_givens_clear(&conf);
        fabric_destroy(fabric);
    }
}

static uint32_t draw(uint64_t *counter, uint32_t below)
{
    return philox_u32((struct philox_stream){.seed = 20260401}, (*counter)++) % below;
}

static char names[64][64];
static size_t name_count;

/* Every variable that a shipped profile sets on any of the machines. */
static void collect_names(const struct fabric *fabric)
{
    name_count = 0;
    for (size_t i = 0; i < MACHINES; i++) {
        struct fabric_plan *plan = make(fabric, &machines[i].facts, NULL);

        for (size_t v = 0; v < plan->count; v++) {
            size_t n = 0;

            while (n < name_count && strcmp(names[n], plan->variables[v].name) != 0)
                n++;
            if (n == name_count)
                snprintf(names[name_count++], sizeof names[0], "%s", plan->variables[v].name);
        }
        fabric_plan_destroy(plan);
    }
    assert_in_range(name_count, 20, 63);
}

static void make_environment(char *environment[], uint64_t *counter)
{
    static const char *const values[] = {"", "0", "1", "^docker,lo", "=eth9", "x=y", "AWS Libfabric", "\xff\n$(true)"};
    size_t used = 0;

    for (size_t n = 0; n < name_count; n++)
        if (draw(counter, 3) == 0 && asprintf(&environment[used++], "%s=%s", names[n], values[draw(counter, 8)]) < 0)
            fail();
    environment[used] = NULL;
}

/* Whatever the machine, the job file and nccl.conf: what the user set stays, in the plan as in the environment. */
static void nothing_that_the_user_set_is_changed(void **state)
{
    struct fabric *fabric = load_shipped();
    uint64_t counter = 0;
    int kept = 0, set = 0;

    (void)state;
    collect_names(fabric);
    for (int round = 0; round < 1000; round++) {
        const struct machine *machine = &machines[draw(&counter, MACHINES)];
        char *environment[64];
        struct fabric_givens job = {0}, conf = {0};
        struct fabric_inputs inputs = {.user = look_up, .user_arg = environment, .job = &job, .conf = &conf};
        struct fabric_plan *plan;

        make_environment(environment, &counter);
        for (int i = 0; i < 4; i++) {
            fabric_givens_add(&job, names[draw(&counter, (uint32_t)name_count)], "job", "gpt.cfg:7", NULL);
            fabric_givens_add(&conf, names[draw(&counter, (uint32_t)name_count)], "conf", "nccl.conf", NULL);
        }
        plan = make(fabric, &machine->facts, &inputs);
        for (size_t v = 0; v < plan->count; v++) {
            const struct fabric_variable *variable = &plan->variables[v];
            char value[ENV_VALUE_SIZE];
            bool users = look_up(variable->name, value, sizeof value, environment);

            assert_int_equal(variable->origin == FABRIC_FROM_USER, users);
            if (v > 0)
                assert_true(strcmp(plan->variables[v - 1].name, variable->name) < 0); /* each once */
            set += fabric_sets(variable);
            if (!users)
                continue;
            assert_false(fabric_sets(variable));
            assert_string_equal(variable->value, value);
            kept++;
        }
        fabric_plan_destroy(plan);
        fabric_givens_clear(&job);
        fabric_givens_clear(&conf);
        for (size_t i = 0; environment[i]; i++)
            free(environment[i]);
    }
    assert_in_range(kept, 1000, 100000);
    assert_in_range(set, 1000, 100000);
    fabric_destroy(fabric);
}

static void the_report_says_what_muster_would_have_set(void **state)
{
    struct fabric *fabric = load_shipped();
    const char *environment[] = {"NCCL_SOCKET_IFNAME=^docker", NULL};
    struct fabric_inputs inputs = {.user = look_up, .user_arg = environment};
    struct fabric_plan *plan = make(fabric, &machines[0].facts, &inputs);
    const struct fabric_variable *variable = find(plan, "NCCL_SOCKET_IFNAME");

    (void)state;
    assert_non_null(strstr(variable->why, "etc/fabric/infiniband.cfg:"));
    assert_non_null(strstr(variable->why, " would have =eno1"));
    variable = find(plan, "NCCL_IB_HCA");
    assert_non_null(strstr(variable->source, "etc/fabric/infiniband.cfg:"));
    assert_non_null(strstr(variable->why, "the fastest only"));
    fabric_plan_destroy(plan);
    fabric_destroy(fabric);
}

/* ---- the site's directory ---------------------------------------------------------------------------------------- */

#define SET(name, value) "{ name = \"" name "\"; value = \"" value "\"; why = \"w\"; source = \"d\"; }"

static void a_site_lays_its_own_over_the_shipped_one(void **state)
{
    struct fabric *fabric = load_shipped();
    struct fabric_plan *plan;

    (void)state;
    add(fabric, FABRIC_SITE,
        "name = \"low\"; priority = 10; match = { };\n"
        "set = ( " SET("NCCL_A", "low") ", " SET("NCCL_B", "low") ", " SET("NCCL_IB_TC", "low") " );\n",
        "low.cfg");
    add(fabric, FABRIC_SITE,
        "name = \"high\"; priority = 20; match = { nics = [ \"infiniband\" ]; };\n"
        "set = ( " SET("NCCL_A", "high") ",\n" SET("NCCL_SOCKET_IFNAME",
                                                   "=ib0") " );\n"
                                                           "leave = [ \"NCCL_IB_HCA\", \"NCCL_B\" ];\n",
        "high.cfg");
    plan = make(fabric, &machines[0].facts, NULL);
    assert_string_equal(plan->profile, "high, low, infiniband");
    expect(plan, "NCCL_A", "high", "high.cfg:2");
    expect(plan, "NCCL_B", NULL, NULL); /* left, though a profile behind it sets it */
    expect(plan, "NCCL_IB_TC", "low", "low.cfg:2");
    expect(plan, "NCCL_SOCKET_IFNAME", "=ib0", "high.cfg:3");
    expect(plan, "NCCL_IB_HCA", NULL, NULL);
    assert_int_equal(find(plan, "GLOO_SOCKET_IFNAME")->origin, FABRIC_FROM_SHIPPED);
    fabric_plan_destroy(plan);
    fabric_destroy(fabric);
}

static void a_site_replaces_a_shipped_one_by_its_name(void **state)
{
    struct fabric *fabric = load_shipped();
    struct fabric_plan *plan;

    (void)state;
    /* Also where it does not match: whatever is known as infiniband is the site's. */
    add(fabric, FABRIC_SITE, "name = \"infiniband\"; match = { least_nodes = 100; }; set = ( " SET("NCCL_A", "1") " );",
        "site.cfg");
    plan = make(fabric, &machines[0].facts, NULL);
    assert_string_equal(plan->profile, "");
    assert_int_equal(plan->count, 0);
    fabric_plan_destroy(plan);
    fabric_destroy(fabric);
}

static void what_is_not_known_is_left_out_and_told(void **state)
{
    static const struct fabric_nic mixed[] = {ROCE(0, 3, 100), ROCE(1, 5, 100)};
    static const struct fabric_facts facts = {.nodes = 2, .local_rank = 3, NICS(mixed)};
    struct fabric *fabric = fabric_create(NULL);
    struct fabric_plan *plan;

    (void)state;
    add(fabric, FABRIC_SITE,
        "name = \"site\"; match = { nics = [ \"roce\" ]; };\n"
        "set = (\n" SET("NCCL_IB_GID_INDEX", "${gid_index}") ",\n" SET("OMP_PLACES", "${cores}") ",\n" SET(
            "X_RANK", "$${local_rank}$") " );\n",
        "site.cfg");
    add(fabric, FABRIC_SHIPPED, "name = \"ours\"; match = { }; set = ( " SET("OMP_PLACES", "cores") " );", "ours.cfg");
    plan = make(fabric, &facts, NULL);
    assert_int_equal(plan->note_count, 2);
    assert_string_equal(plan->notes[0], "site.cfg:3: NCCL_IB_GID_INDEX is left out: gid_index is not known here");
    assert_string_equal(plan->notes[1], "site.cfg:4: OMP_PLACES is left out: cores is not known here");
    expect(plan, "NCCL_IB_GID_INDEX", NULL, NULL); /* the ports differ, and NCCL takes one for all */
    expect(plan, "OMP_PLACES", "cores", "ours.cfg:1");
    expect(plan, "X_RANK", "$3$", "site.cfg:5");
    fabric_plan_destroy(plan);
    fabric_destroy(fabric);
}

static void the_first_setting_whose_condition_holds_counts(void **state)
{
    static const struct fabric_facts amd = {.vendor = "amd"}, nvidia = {.vendor = "nvidia"};
    struct fabric *fabric = fabric_create(NULL);
    struct fabric_plan *plan;

    (void)state;
    add(fabric, FABRIC_SHIPPED,
        "name = \"p\"; match = { }; set = (\n{ name = \"X\"; value = \"a\"; why = \"w\"; source = \"d\"; when = "
        "{ vendors = [ \"amd\" ]; }; },\n" SET("X", "b") " );\n",
        "p.cfg");
    plan = make(fabric, &amd, NULL);
    expect(plan, "X", "a", "p.cfg:2");
    fabric_plan_destroy(plan);
    plan = make(fabric, &nvidia, NULL);
    expect(plan, "X", "b", "p.cfg:3");
    fabric_plan_destroy(plan);
    fabric_destroy(fabric);
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

static void reads_nccl_conf_as_nccl_does(void **state)
{
    struct fabric_givens conf = {0};

    (void)state;
    assert_int_equal(fabric_conf_parse(&conf,
                                       "# NCCL_A=0\nNCCL_DEBUG=WARN\nNCCL_SOCKET_IFNAME==ens1f0\n\n NCCL_B=1\nNCCL_C\n"
                                       "NCCL_D = 1\n9X=1\nNCCL_DEBUG=INFO\nNCCL_E=\nNCCL_F=a b ",
                                       "nccl.conf", NULL),
                     0);
    assert_int_equal(conf.count, 4);
    assert_string_equal(conf.items[0].value, "WARN"); /* the first counts */
    assert_string_equal(conf.items[1].value, "=ens1f0");
    assert_string_equal(conf.items[2].name, "NCCL_E");
    assert_string_equal(conf.items[2].value, "");
    assert_string_equal(conf.items[3].value, "a b ");
    fabric_givens_clear(&conf);
    assert_int_equal(conf.count, 0);
}

static void finds_libraries_where_the_loader_looks(void **state)
{
    char path[1024];

    (void)state;
    snprintf(path, sizeof path, "/nowhere::%s/etc/fabric:/", getenv("top_srcdir"));
    assert_true(fabric_find_file("tcp.cfg", path));
    assert_false(fabric_find_file("no-such.cfg", path));
    assert_false(fabric_find_file("tcp.cfg", NULL));
    assert_true(fabric_find_file("/proc/self/status", NULL));
    assert_false(fabric_find_file("/no/such/file", path));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_machine_gets_its_variables),
        cmocka_unit_test(each_profile_matches_its_machines_and_no_others),
        cmocka_unit_test(the_first_who_has_a_say_wins),
        cmocka_unit_test(nothing_that_the_user_set_is_changed),
        cmocka_unit_test(the_report_says_what_muster_would_have_set),
        cmocka_unit_test(a_site_lays_its_own_over_the_shipped_one),
        cmocka_unit_test(a_site_replaces_a_shipped_one_by_its_name),
        cmocka_unit_test(what_is_not_known_is_left_out_and_told),
        cmocka_unit_test(the_first_setting_whose_condition_holds_counts),
        cmocka_unit_test(reads_nccl_conf_as_nccl_does),
        cmocka_unit_test(finds_libraries_where_the_loader_looks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
