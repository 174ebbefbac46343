#include "tests/cmocka_test.h"
#include "tests/unit/fabric_machines.h"

/* A port that is up. */
#define PORT(type, by, device, name, gid, gbps)                                                                        \
    {                                                                                                                  \
        .kind = type, .driver = by, .hca = device, .netdev = name, .gid_index = gid, .rate = gbps, .up = true          \
    }
#define IB(n, rate)      PORT(NIC_INFINIBAND, "mlx5_core", "mlx5_" #n ":1", "ib" #n, -1, rate)
#define ROCE(n, g, rate) PORT(NIC_ROCE, "mlx5_core", "mlx5_" #n ":1", "eth" #n, g, rate)
#define CXI(n)           PORT(NIC_SLINGSHOT, "cxi_ss1", "cxi" #n, "hsn" #n, -1, 200)
#define EFA(n)           PORT(NIC_EFA, "efa", "rdmap" #n "s0", "", -1, 100)
#define ETH(name, rate)  PORT(NIC_ETHERNET, "ixgbe", "", name, -1, rate)
#define DEAD(n, gbps)                                                                                                  \
    {                                                                                                                  \
        .kind = NIC_INFINIBAND, .hca = "mlx5_" #n ":1", .netdev = "ib" #n, .gid_index = -1, .rate = gbps               \
    }

static const struct node_nic a100_nics[] = {ETH("eno1", 1), IB(0, 200), IB(1, 200), IB(2, 200), IB(3, 200)};
/* A storage port of 100 Gb/s, one whose cable is out, and a management port that could do RoCE. */
static const struct node_nic h100_nics[] = {IB(0, 400), IB(1, 400), IB(2, 100), DEAD(3, 400), ROCE(4, 3, 25)};
static const struct node_nic roce_nics[] = {ROCE(0, 3, 400), ROCE(1, 3, 400), ETH("bond0", 25)};
static const struct node_nic cxi_nics[] = {ETH("nmn0", 1), CXI(0), CXI(1), CXI(2), CXI(3)};
static const struct node_nic efa_nics[] = {ETH("enp71s0", 100), EFA(0), EFA(1)};
static const struct node_nic eth_nics[] = {ETH("eth0", 10), PORT(NIC_VIRTUAL, "bridge", "", "docker0", -1, 0)};
static const struct node_nic dead_nics[] = {ETH("eth0", 10), DEAD(0, 200)};

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

#define GLOO(name)   "GLOO_SOCKET_IFNAME=" name "\n"
#define NO_BACKTRACE "UCX_HANDLE_ERRORS=none\n"

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

const struct machine machines[MACHINES] = {
    {"DGX A100",
     {.nodes = 4, .job_nodes = 8, .gpus = 8, .vendor = "nvidia", .interface = "eno1", NICS(a100_nics)},
     "infiniband",
     "infiniband",
     GLOO("eno1") "NCCL_IB_HCA==mlx5_0:1,mlx5_1:1,mlx5_2:1,mlx5_3:1\nNCCL_SOCKET_IFNAME==eno1\n" NO_BACKTRACE,
     0},
    {"DGX H100 with storage, a dead port and RoCE",
     {.nodes = 2, .job_nodes = 8, .gpus = 8, .vendor = "nvidia", .interface = "eth4", NICS(h100_nics)},
     "infiniband roce",
     "infiniband",
     GLOO("eth4") "NCCL_IB_HCA==mlx5_0:1,mlx5_1:1\nNCCL_SOCKET_IFNAME==eth4\n" NO_BACKTRACE,
     0},
    {"HGX with RoCE",
     {.nodes = 2, .job_nodes = 8, .gpus = 8, .vendor = "nvidia", .interface = "bond0", NICS(roce_nics)},
     "roce",
     "roce",
     GLOO("bond0") "NCCL_IB_GID_INDEX=3\nNCCL_IB_HCA==mlx5_0:1,mlx5_1:1\nNCCL_SOCKET_IFNAME==bond0\n" NO_BACKTRACE,
     0},
    {"Slingshot at NERSC",
     {.nodes = 2,
      .job_nodes = 8,
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
      .job_nodes = 8,
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
      .job_nodes = 8,
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
     {.nodes = 2, .job_nodes = 8, .gpus = 8, .vendor = "amd", .cluster = "lumi", .interface = "hsn0", NICS(cxi_nics)},
     "slingshot-cscs slingshot",
     "slingshot-cscs",
     CSCS "HSA_FORCE_FINE_GRAIN_PCIE=1\nMPICH_GPU_SUPPORT_ENABLED=0\nNCCL_CROSS_NIC=0\nNCCL_NET_GDR_LEVEL=PHB\n" HSN,
     1},
    {"EFA",
     {.nodes = 2,
      .job_nodes = 8,
      .gpus = 8,
      .vendor = "nvidia",
      .interface = "enp71s0",
      .files = has_plugin,
      NICS(efa_nics)},
     "efa",
     "efa",
     "FI_EFA_FORK_SAFE=1\nFI_EFA_USE_HUGE_PAGE=0\n" GLOO("enp71s0") "NCCL_NET=AWS Libfabric\n"
                                                                    "NCCL_SOCKET_IFNAME==enp71s0\n",
     0},
    {"Ethernet and GPUs",
     {.nodes = 2, .job_nodes = 8, .gpus = 2, .vendor = "nvidia", .interface = "eth0", NICS(eth_nics)},
     "tcp",
     "tcp",
     GLOO("eth0") "NCCL_IB_DISABLE=1\nNCCL_SOCKET_IFNAME==eth0\n" NO_BACKTRACE,
     0},
    {"InfiniBand whose only port is dead",
     {.nodes = 2, .job_nodes = 8, .gpus = 2, .vendor = "nvidia", .interface = "eth0", NICS(dead_nics)},
     "tcp",
     "tcp",
     GLOO("eth0") "NCCL_IB_DISABLE=1\nNCCL_SOCKET_IFNAME==eth0\n" NO_BACKTRACE,
     0},
    {"Ethernet, and no way to the others known",
     {.nodes = 2, .job_nodes = 8, .gpus = 2, .vendor = "nvidia", NICS(eth_nics)},
     "tcp",
     "tcp",
     "NCCL_IB_DISABLE=1\n" NO_BACKTRACE,
     2},
    {"one DGX",
     {.nodes = 1, .job_nodes = 1, .gpus = 8, .vendor = "nvidia", NICS(a100_nics)},
     "single-node",
     "single-node",
     GLOO("lo") "NCCL_SOCKET_IFNAME==lo\n" NO_BACKTRACE,
     0},
    {"one node of a larger job",
     {.nodes = 1, .job_nodes = 8, .gpus = 8, .vendor = "nvidia", .interface = "eno1", NICS(a100_nics)},
     "",
     "",
     "",
     0},
    {"one CPU node",
     {.nodes = 1, .job_nodes = 1, NICS(eth_nics)},
     "single-node",
     "single-node",
     GLOO("lo") NO_BACKTRACE,
     0},
    {"CPU nodes with Ethernet",
     {.nodes = 8, .job_nodes = 8, .interface = "eth0", NICS(eth_nics)},
     "cpu-mpi",
     "cpu-mpi",
     "FI_TCP_IFACE=eth0\n" GLOO("eth0") NO_BACKTRACE,
     0},
    {"CPU nodes with InfiniBand",
     {.nodes = 8, .job_nodes = 8, .interface = "eno1", NICS(a100_nics)},
     "cpu-mpi",
     "cpu-mpi",
     GLOO("eno1") NO_BACKTRACE,
     0},
};

const char *const machines_shipped[SHIPPED] = {"cpu-mpi",        "efa",       "infiniband", "roce", "single-node",
                                               "slingshot-cscs", "slingshot", "tcp"};

static void no_complaint(const struct error *err, void *arg)
{
    (void)arg;
    fail_msg("%s", err->text);
}

struct fabric *machines_load_shipped(const char *const *absent)
{
    char path[1024];
    struct fabric *fabric = fabric_create(NULL);
    int read;

    assert_non_null(fabric);
    snprintf(path, sizeof path, "%s/etc/fabric", getenv("top_srcdir"));
    read = fabric_add_directory(fabric, FABRIC_SHIPPED, path, absent, no_complaint, NULL);
    assert_in_range(read, absent ? 1 : SHIPPED, SHIPPED);
    return fabric;
}

void machines_add(struct fabric *fabric, enum fabric_layer layer, const char *text, const char *file)
{
    struct error err = {0};

    if (fabric_add_text(fabric, layer, text, file, &err) < 0)
        fail_msg("%s", err.text);
}

struct env_list *machines_plan(const struct fabric *fabric, const struct fabric_facts *facts,
                               const struct fabric_inputs *inputs)
{
    static const struct fabric_inputs nothing;
    struct env_list *plan = calloc(1, sizeof *plan);

    assert_non_null(plan);
    assert_int_equal(fabric_fill_env(plan, fabric, facts, inputs ? inputs : &nothing, NULL), 0);
    return plan;
}

void machines_plan_destroy(struct env_list *plan)
{
    env_list_clear(plan);
    free(plan);
}

const struct env_variable *machines_find(const struct env_list *plan, const char *name)
{
    for (size_t i = 0; i < plan->count; i++)
        if (strcmp(plan->variables[i].name, name) == 0)
            return &plan->variables[i];
    return NULL;
}

void machines_expect(const struct env_list *plan, const char *name, const char *value, const char *source)
{
    const struct env_variable *variable = machines_find(plan, name);

    if (!value) {
        assert_null(variable);
        return;
    }
    assert_non_null(variable);
    assert_string_equal(variable->value, value);
    assert_string_equal(variable->source, source);
}
