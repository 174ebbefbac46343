/*
 * node.h - what a node is made of, as far as it matters to a rank: cores and memory, GPUs, NICs, which is beside which,
 * and what ought to be there and is not.
 *
 * Two sources: hwloc for cores, NUMA nodes and the tree of PCI devices; sysfs and procfs for what hwloc does not know
 * (link states and rates, drivers, addresses). Both can be saved on one machine and replayed on another (snapshot.h):
 *
 *     struct error err;
 *     struct node *node = node_read("/", NULL, &err);                  // this machine
 *     struct node *dgx = node_read("tests/fixtures/dgx", NULL, &err);  // a saved one
 *
 * A live read opens some dozens of small files of sysfs, in a fraction of a millisecond; where slurmd did not leave
 * what hwloc sees (machine_cache.h), hwloc looks itself, in tens of milliseconds. Once a node, never once a rank.
 * Nothing is executed and no device is opened. hwloc heeds variables of its own (HWLOC_XMLFILE, HWLOC_COMPONENTS, ...):
 * as root, read only in an environment that no user chose.
 *
 * Not seen: NVLink and xGMI (they are in no file; libnvidia-ml would have to be asked), MIG slices, GPUs that the PCI
 * bus does not show at all: what a node should have is for the one who knows it to compare (--muster-preflight).
 */
#ifndef MUSTER_SRUN_PLUGIN_NODE_H
#define MUSTER_SRUN_PLUGIN_NODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"
#include "srun-plugin/cpus.h"

#define NODE_NAME_SIZE 64

/*
 * How far two things are from each other. In NCCL's words: SWITCH is PIX or PXB (only PCI bridges between them), HOST
 * is PHB (the same root complex), NUMA and PACKAGE are NODE, SYSTEM is SYS.
 */
enum node_path { PATH_SWITCH, PATH_HOST, PATH_NUMA, PATH_PACKAGE, PATH_SYSTEM };

struct node_numa {
    unsigned os_index; /* the kernel's number */
    int package;       /* index of the socket, from 0 in hwloc's order; -1 if not known */
    uint64_t memory;   /* bytes */
    struct cpus cpus;  /* empty for memory without CPUs (HBM of its own, CXL) */
};

struct node_core {
    int numa;         /* index into node->numas; -1 if not known */
    struct cpus cpus; /* its hardware threads */
};

/* Only what computes: every NVIDIA GPU; AMD's and Intel's where they are no display of a workstation or laptop. */
enum gpu_state {
    GPU_USABLE,
    GPU_NO_DRIVER, /* on the PCI bus, but no driver holds it, or one that computes nothing (vfio-pci, nouveau) */
    GPU_LOST,      /* NVIDIA's driver holds it but does not list it: it fell off the bus, or its start failed */
    GPU_HIDDEN,    /* this process may not open its device file: a cgroup hides it, seldom its permissions */
};

struct node_gpu {
    char address[16]; /* "0000:07:00.0" */
    char model[NODE_NAME_SIZE];
    char driver[32]; /* "" if none */
    uint16_t vendor, device;
    int numa;  /* index into node->numas; -1 where the firmware does not say */
    int minor; /* of /dev/nvidia<minor>, or the N of renderD<N>; -1 if not known */
    enum gpu_state state;
};

enum nic_kind {
    NIC_INFINIBAND,
    NIC_ROCE,      /* an RDMA device over Ethernet */
    NIC_SLINGSHOT, /* HPE Cassini (cxi) */
    NIC_EFA,       /* Amazon's */
    NIC_ETHERNET,  /* without RDMA; also a bond of Ethernet ports */
    NIC_VIRTUAL,   /* loopback, bridges, tunnels, pairs of containers: nothing that leads to another node by itself */
};

#define NIC_KINDS (NIC_VIRTUAL + 1)

/* A port: an RDMA port with its network interface, if it has one, or an interface alone. */
struct node_nic {
    enum nic_kind kind;
    char hca[NODE_NAME_SIZE];    /* as NCCL_IB_HCA and libfabric want it: "mlx5_0:1", "cxi0", "rdmap16s27"; or "" */
    char netdev[NODE_NAME_SIZE]; /* "ib0", "hsn0"; "" if it has none */
    char bond[NODE_NAME_SIZE];   /* the bond that this interface is part of; "" if none */
    char pci[16];                /* address; "" for one that is no device of its own */
    char driver[32];
    int numa;           /* index into node->numas; -1 if not known */
    int gid_index;      /* of a RoCE port that is up: its GID that routes (gid.h); -1 for none */
    bool up;            /* traffic can flow now; of a virtual one by node_describe */
    unsigned rate;      /* Gbit/s; 0 if not known */
    char inet[48];      /* first IPv4 address with its prefix, "10.1.2.3/16", else the first global IPv6; "" if none */
    bool default_route; /* IPv4's default route leads through it; by node_describe */
};

struct node {
    char title[NODE_NAME_SIZE * 2]; /* what the firmware calls the machine; "" if it does not say */
    bool has_hwloc;                 /* else numas, cores and gpus are empty */
    struct node_numa *numas;
    size_t numa_count;
    struct node_core *cores; /* by NUMA node, then by CPU number */
    size_t core_count;
    struct cpus cpus;      /* all there are */
    struct cpus allowed;   /* those that this process may run on: what Slurm gave it */
    struct node_gpu *gpus; /* by PCI address, as CUDA_DEVICE_ORDER=PCI_BUS_ID counts them */
    size_t gpu_count;
    struct node_nic *nics; /* by kind, then by name */
    size_t nic_count;
    enum node_path *paths;              /* [gpu * nic_count + nic] */
    uint64_t shm_size, shm_free;        /* bytes of /dev/shm; 0 if there is none */
    uint64_t memory_total, memory_free; /* MemTotal and MemAvailable, bytes */
    char **problems;                    /* one line each: what is missing or will be in the way, and what mends it */
    size_t problem_count;
};

/*
 * Reads the machine whose sysfs and procfs lie beneath `root` ("/" for this one). `xml`: hwloc's export of it; NULL is
 * root/machine.xml if there is one, and for "/" slurmd's, or else hwloc looks itself. NULL and *err (CODE_DATA) when
 * the XML is none; (CODE_IO) when root cannot be read. A file of sysfs that is absent is a fact that is not known,
 * never an error.
 */
struct node *node_read(const char *root, const char *xml, struct error *err);
void node_destroy(struct node *node);

/*
 * The same in two parts, for those who need no more than ranks do: node_describe adds what only somebody who reads of
 * the node wants to know (title, memory_*, shm_*, default_route, whether virtual interfaces are up), and what is amiss
 * with /dev/shm. Without `ethernet`, a node that has neither GPUs nor RDMA is left without nics: no profile that muster
 * ships asks for these there, and ranks are bound beside none.
 */
struct node *node_read_bare(const char *root, const char *xml, bool ethernet, struct error *err);
void node_describe(struct node *node, const char *root);

/*
 * Asks again what differs between the processes of a node: `allowed`, and which GPUs may be opened. For a process that
 * got the node from the one that forked it, and has a cgroup or a binding of its own since. No problem is added.
 */
void node_read_own(struct node *node, const char *root);

/* GPUs that a rank can use, in order; returns how many. `indices` holds node->gpu_count, or is NULL. */
size_t node_usable_gpus(const struct node *node, size_t *indices);

/*
 * Can ranks talk over it? It is up, and if it is plain Ethernet, it has an address and is no part of a bond, which is a
 * port of its own here.
 */
bool node_nic_usable(const struct node_nic *nic);

/* What ranks should talk over: the best kind that has a usable port, in the order of enum nic_kind; NIC_VIRTUAL for
 * none.
 */
enum nic_kind node_fabric(const struct node *node);

const char *nic_kind_name(enum nic_kind kind);
const char *node_path_name(enum node_path path);
const char *gpu_state_name(enum gpu_state state);

/* What a person calls that port: its HCA, else its interface. */
const char *node_nic_name(const struct node_nic *nic);

#endif
