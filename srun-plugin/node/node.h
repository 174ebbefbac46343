/*
 * node.h - the hardware of a node that matters to ranks: cores and memory, GPUs, NICs, how near they are to each other,
 * and problems with them.
 *
 * Two sources: hwloc for cores, NUMA nodes and the tree of PCI devices, unless slurmd has saved them (machine.h); sysfs
 * and procfs for facts that hwloc lacks (link states and rates, drivers, addresses). Both can be saved on one machine
 * and replayed on another (muster-topo save).
 *
 * Read once a node, never once a rank. Executes nothing and opens no device. hwloc reads environment variables
 * (HWLOC_XMLFILE, HWLOC_COMPONENTS, ...): as root, call this only in an environment that no user has set.
 *
 * Not known: NVLink and xGMI (they are in no file; libnvidia-ml would have them), MIG slices, and GPUs that are missing
 * from the PCI bus: --muster-preflight compares nodes to find those.
 */
#ifndef MUSTER_SRUN_PLUGIN_NODE_NODE_H
#define MUSTER_SRUN_PLUGIN_NODE_NODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"
#include "srun-plugin/node/cpus.h"

#define NODE_NAME_SIZE 64

/*
 * How far two devices are from each other. In NCCL's terms: SWITCH is PIX or PXB (only PCI bridges between them), HOST
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

/* Only GPUs that compute: every NVIDIA GPU; AMD's and Intel's unless they are displays of a workstation or laptop. */
enum gpu_state {
    GPU_USABLE,
    GPU_NO_DRIVER, /* on the PCI bus, but without a driver, or with one that does not compute (vfio-pci, nouveau) */
    GPU_LOST,      /* NVIDIA's driver is bound to it but does not list it: it fell off the bus, or failed to start */
    GPU_HIDDEN,    /* this process cannot open its device file, mostly because of a cgroup */
};

struct node_gpu {
    char address[16]; /* "0000:07:00.0" */
    char model[NODE_NAME_SIZE];
    char driver[32]; /* "" if none */
    uint16_t vendor, device;
    int numa;  /* index into node->numas; -1 if the firmware does not tell */
    int minor; /* of /dev/nvidia<minor>, or the N of renderD<N>; -1 if not known */
    enum gpu_state state;
};

#define GPU_NVIDIA 0x10de

/* A vendor of GPUs; NULL for another. */
struct gpu_vendor {
    uint16_t id;         /* PCI's */
    const char *name;    /* as fabric profiles have it */
    const char *visible; /* the variable that selects its GPUs */
};

const struct gpu_vendor *gpu_vendor_find(unsigned id);

enum nic_kind {
    NIC_INFINIBAND,
    NIC_ROCE,      /* an RDMA device over Ethernet */
    NIC_SLINGSHOT, /* HPE Cassini (cxi) */
    NIC_EFA,       /* Amazon's */
    NIC_ETHERNET,  /* without RDMA; also a bond of Ethernet ports */
    NIC_VIRTUAL,   /* loopback, bridges, tunnels, veth pairs: no direct way to another node */
};

#define NIC_KINDS (NIC_VIRTUAL + 1)

/* A port: an RDMA port with its network interface, if it has one, or an interface alone. */
struct node_nic {
    enum nic_kind kind;
    char hca[NODE_NAME_SIZE];    /* in the form of NCCL_IB_HCA and libfabric: "mlx5_0:1", "cxi0", "rdmap16s27"; or "" */
    char netdev[NODE_NAME_SIZE]; /* "ib0", "hsn0"; "" if it has none */
    char bond[NODE_NAME_SIZE];   /* the bond that this interface is part of; "" if none */
    char pci[16];                /* address; "" for an interface without a device */
    char driver[32];
    int numa;           /* index into node->numas; -1 if not known */
    int gid_index;      /* of a RoCE port that is up: its GID that routes (node_gid_index); -1 for none */
    bool up;            /* has a link; of a virtual one by node_describe */
    unsigned rate;      /* Gbit/s; 0 if not known */
    char inet[48];      /* first IPv4 address with its prefix, "10.1.2.3/16", else the first global IPv6; "" if none */
    bool default_route; /* of the IPv4 default route; by node_describe */
};

struct pci_object;

struct node {
    char title[NODE_NAME_SIZE * 2]; /* name of the machine in its firmware; "" if there is none */
    struct node_numa *numas;
    size_t numa_count;
    struct node_core *cores; /* by NUMA node, then by CPU number */
    size_t core_count;       /* 0 without hwloc: then numas and gpus are empty too */
    struct cpus cpus;        /* all of the machine */
    struct cpus allowed;     /* that this process may run on: those Slurm gave it */
    struct node_gpu *gpus;   /* by PCI address, as CUDA_DEVICE_ORDER=PCI_BUS_ID counts them */
    size_t gpu_count;
    struct node_nic *nics; /* by kind, then by name */
    size_t nic_count;
    enum node_path *paths;      /* [gpu * nic_count + nic] */
    struct pci_object *objects; /* the PCI tree, for node_tree.c */
    size_t object_count;
    uint64_t shm_size, shm_free;        /* bytes of /dev/shm; 0 if there is none */
    uint64_t memory_total, memory_free; /* MemTotal and MemAvailable, bytes */
    char **problems;                    /* one line each: the problem and its remedy */
    size_t problem_count;
};

/*
 * Reads the machine whose sysfs and procfs are below `root` ("/" for this one; NULL if `xml` is all that is known of
 * it). `xml`: hwloc's export of it; NULL means root/machine.xml if it exists, and for "/" the text that slurmd saved,
 * else hwloc reads the machine. NULL and *err if
 * the XML is invalid (CODE_DATA) or root cannot be read (CODE_IO). A file of sysfs that is absent is a fact that is not
 * known, never an error.
 */
struct node *node_read(const char *root, const char *xml, struct error *err);
void node_destroy(struct node *node);

/*
 * The same in two parts. node_read_bare reads what ranks need; node_describe adds what only a report shows (title,
 * memory_*, shm_*, default_route, whether virtual interfaces are up) and problems with /dev/shm. Without `ethernet`, a
 * node with neither GPUs nor RDMA gets no nics: no shipped fabric profile matches them there, and no rank is bound
 * beside them.
 */
struct node *node_read_bare(const char *root, const char *xml, bool ethernet, struct error *err);
void node_describe(struct node *node, const char *root);

/*
 * Reads again what differs between the processes of a node: `allowed`, and which GPUs can be opened. For a forked
 * process that has a cgroup or a binding of its own. Adds no problem.
 */
void node_read_own(struct node *node, const char *root);

/* The GPUs that a rank can use, in order; returns their number. `indices` holds node->gpu_count, or is NULL. */
size_t node_usable_gpus(const struct node *node, size_t *indices);

/* True if ranks can communicate over it: it is up, and plain Ethernet has an address and is not part of a bond. */
bool node_nic_usable(const struct node_nic *nic);

/* The network for ranks: the first kind of enum nic_kind that has a usable port; NIC_VIRTUAL for none. */
enum nic_kind node_fabric(const struct node *node);

const char *nic_kind_name(enum nic_kind kind);
const char *node_path_name(enum node_path path);
const char *gpu_state_name(enum gpu_state state);

/* The usual name of the port: its HCA, else its interface. */
const char *node_nic_name(const struct node_nic *nic);

/* The NUMA node with one of these CPUs: an index into node->numas, or -1. */
int node_numa_of_cpus(const struct node *node, const struct cpus *cpus);

/* The path between two NUMA nodes, where no PCI bridge is shared; from and to are indices, or -1 if not known. */
enum node_path node_numa_path(const struct node *node, int from, int to);

#endif
