/* The ports of a node: RDMA devices (sys/class/infiniband, sys/class/cxi) and network interfaces (sys/class/net). */
#include "srun-plugin/node/node_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "srun-plugin/node/sysfs.h"

/* ---- RDMA: InfiniBand, RoCE, EFA and Slingshot ------------------------------------------------------------------- */

/* The first line of a file of an RDMA port, "mlx5_0:1" (port 1 without ":1"); false if it cannot be read. */
static bool read_port_line(const char *root, const char *hca, const char *file, char *line, size_t size)
{
    size_t device = strcspn(hca, ":");
    const char *port = hca[device] ? hca + device + 1 : "1";

    return sysfs_line(root, line, size, "sys/class/infiniband/%.*s/ports/%s/%s", (int)device, hca, port, file);
}

static struct node_nic *add_rdma(struct node *node, const char *root, const char *class, const char *device)
{
    struct node_nic *nic = node_grow(&node->nics, &node->nic_count, sizeof *nic);

    if (!nic)
        return NULL;
    nic->numa = -1;
    sysfs_field(root, "PCI_SLOT_NAME=", nic->pci, sizeof nic->pci, "sys/class/%s/%s/device/uevent", class, device);
    sysfs_field(root, "DRIVER=", nic->driver, sizeof nic->driver, "sys/class/%s/%s/device/uevent", class, device);
    return nic;
}

static int read_port(struct node *node, const char *root, const char *hca, const char *port)
{
    char link_layer[32] = "", state[32] = "", rate[64] = "";
    struct node_nic *nic = add_rdma(node, root, "infiniband", hca);

    if (!nic)
        return -1;
    snprintf(nic->hca, sizeof nic->hca, "%.48s:%.12s", hca, port);
    read_port_line(root, nic->hca, "link_layer", link_layer, sizeof link_layer);
    read_port_line(root, nic->hca, "state", state, sizeof state); /* "4: ACTIVE" */
    read_port_line(root, nic->hca, "rate", rate, sizeof rate);    /* "200 Gb/sec (4X HDR)" */
    nic->kind = strcmp(nic->driver, "efa") == 0         ? NIC_EFA
                : strcmp(link_layer, "InfiniBand") == 0 ? NIC_INFINIBAND
                                                        : NIC_ROCE;
    nic->up = strstr(state, "ACTIVE") != NULL;
    nic->rate = (unsigned)strtod(rate, NULL);
    if (nic->kind == NIC_EFA) /* libfabric does not number ports */
        nic->hca[strcspn(nic->hca, ":")] = '\0';
    return 0;
}

static int read_ports(struct node *node, const char *root, const char *hca)
{
    char **ports = sysfs_list(root, "sys/class/infiniband/%s/ports", hca);
    int status = 0;

    for (char **port = ports; port && *port && status == 0; port++)
        status = read_port(node, root, hca, *port);
    sysfs_list_free(ports);
    return status;
}

/* Only the network interface of a Cassini has its state and its rate. */
static int read_cassini(struct node *node, const char *root, const char *device)
{
    struct node_nic *nic = add_rdma(node, root, "cxi", device);

    if (!nic)
        return -1;
    nic->kind = NIC_SLINGSHOT;
    snprintf(nic->hca, sizeof nic->hca, "%s", device);
    return 0;
}

int node_read_rdma(struct node *node, const char *root)
{
    char **hcas = sysfs_list(root, "sys/class/infiniband"), **cassinis = sysfs_list(root, "sys/class/cxi");
    int status = 0;

    for (char **hca = hcas; hca && *hca && status == 0; hca++)
        status = read_ports(node, root, *hca);
    for (char **cassini = cassinis; cassini && *cassini && status == 0; cassini++)
        status = read_cassini(node, root, *cassini);
    sysfs_list_free(hcas);
    sysfs_list_free(cassinis);
    return status;
}

/* ---- network interfaces ------------------------------------------------------------------------------------------ */

#define TYPE_ETHERNET 1 /* ARPHRD_ETHER of linux/if_arp.h */

/* "unknown": the driver does not report its link, as those of loopback, tunnels and some virtual machines. */
static bool read_up(const char *root, const char *name)
{
    char state[32] = "";

    sysfs_line(root, state, sizeof state, "sys/class/net/%s/operstate", name);
    return strcmp(state, "up") == 0 || strcmp(state, "unknown") == 0;
}

static long read_integer(const char *root, const char *name, const char *file)
{
    char text[32];

    return sysfs_line(root, text, sizeof text, "sys/class/net/%s/%s", name, file) ? strtol(text, NULL, 10) : -1;
}

/* sysfs has Mbit/s, from the driver: -1 without a link; often none in virtual machines. */
static unsigned read_rate(const char *root, const char *name)
{
    long speed = read_integer(root, name, "speed");

    return speed > 0 ? (unsigned)(speed / 1000) : 0;
}

/* The RDMA port of the same PCI device; if one device has several ports, the one with the same number. */
static struct node_nic *find_port(struct node *node, const char *root, const char *name, const char *pci)
{
    struct node_nic *found = NULL;
    long port;

    if (!pci[0] || !node->nic_count)
        return NULL;
    port = read_integer(root, name, "dev_port") + 1;
    for (size_t i = 0; i < node->nic_count; i++) {
        struct node_nic *nic = &node->nics[i];
        const char *colon = strchr(nic->hca, ':');

        if (!nic->hca[0] || strcmp(nic->pci, pci) != 0 || nic->netdev[0])
            continue;
        if (!found || (colon && strtol(colon + 1, NULL, 10) == port))
            found = nic;
    }
    return found;
}

/* `type` is the kernel's DEVTYPE of an interface without a device: "bond", "vlan", "bridge"; "" for many. */
static enum nic_kind netdev_kind(const char *root, const char *name, bool is_device, const char *type)
{
    if (!is_device && strcmp(type, "bond") != 0 && strcmp(type, "vlan") != 0)
        return NIC_VIRTUAL;
    return read_integer(root, name, "type") == TYPE_ETHERNET ? NIC_ETHERNET : NIC_VIRTUAL;
}

/* *is_bond: its ports are to be read. */
static int read_netdev(struct node *node, const char *root, const char *name, bool *is_bond)
{
    char pci[16] = "", driver[32] = "", type[32] = "";
    struct node_nic *nic;
    bool is_loopback = strcmp(name, "lo") == 0; /* it cannot be renamed, and no other interface can have its name */
    bool is_device = !is_loopback && sysfs_exists(root, "sys/class/net/%s/device/uevent", name);

    if (is_device) {
        sysfs_field(root, "PCI_SLOT_NAME=", pci, sizeof pci, "sys/class/net/%s/device/uevent", name);
        sysfs_field(root, "DRIVER=", driver, sizeof driver, "sys/class/net/%s/device/uevent", name);
    }
    if (!is_device && !is_loopback)
        sysfs_field(root, "DEVTYPE=", type, sizeof type, "sys/class/net/%s/uevent", name);
    *is_bond = strcmp(type, "bond") == 0;
    if (!(nic = find_port(node, root, name, pci))) {
        if (!(nic = node_grow(&node->nics, &node->nic_count, sizeof *nic)))
            return -1;
        nic->numa = -1;
        nic->kind = netdev_kind(root, name, is_device, type);
        snprintf(nic->pci, sizeof nic->pci, "%s", pci);
        memcpy(nic->driver, driver, sizeof driver);
    }
    snprintf(nic->netdev, sizeof nic->netdev, "%s", name);
    if (nic->kind == NIC_SLINGSHOT || (!nic->hca[0] && nic->kind != NIC_VIRTUAL))
        nic->up = read_up(root, name);
    if (nic->rate == 0 && nic->kind != NIC_VIRTUAL)
        nic->rate = read_rate(root, name);
    return 0;
}

static struct node_nic *find_netdev(struct node *node, const char *name)
{
    for (size_t i = 0; i < node->nic_count; i++)
        if (strcmp(node->nics[i].netdev, name) == 0)
            return &node->nics[i];
    return NULL;
}

static void read_slaves(struct node *node, const char *root, const char *bond)
{
    char slaves[1024], *rest = slaves, *name;

    if (!sysfs_line(root, slaves, sizeof slaves, "sys/class/net/%s/bonding/slaves", bond))
        return;
    while ((name = strsep(&rest, " "))) {
        struct node_nic *slave = find_netdev(node, name);

        if (slave)
            snprintf(slave->bond, sizeof slave->bond, "%s", bond);
    }
}

static int by_kind(const void *a, const void *b)
{
    const struct node_nic *left = a, *right = b;

    if (left->kind != right->kind)
        return left->kind < right->kind ? -1 : 1;
    return strverscmp(node_nic_name(left), node_nic_name(right));
}

int node_read_netdevs(struct node *node, const char *root)
{
    char **names = sysfs_list(root, "sys/class/net"), **bonds = names;
    int status = 0;

    for (char **name = names; name && *name && status == 0; name++) {
        bool is_bond = false;

        status = read_netdev(node, root, *name, &is_bond);
        if (is_bond) { /* moved to the front: read when all their ports are known */
            char *bond = *name;

            *name = *bonds;
            *bonds++ = bond;
        }
    }
    for (char **bond = names; bond < bonds && status == 0; bond++)
        read_slaves(node, root, *bond);
    sysfs_list_free(names);
    if (node->nic_count)
        qsort(node->nics, node->nic_count, sizeof *node->nics, by_kind);
    return status;
}

/* An address that another node can reach: not fe80::, which needs its interface. IPv4 first: NCCL prefers it. */
static void keep_address(struct node_nic *nic, const char *address)
{
    bool is_v6 = strchr(address, ':') != NULL;

    if (strncmp(address, "fe80:", 5) == 0)
        return;
    if (!nic->inet[0] || (!is_v6 && strchr(nic->inet, ':')))
        snprintf(nic->inet, sizeof nic->inet, "%s", address);
}

static void read_default_routes(struct node *node, const char *root)
{
    char *routes = sysfs_text(root, "proc/net/route"), *rest = routes, *line, name[NODE_NAME_SIZE];
    unsigned long destination, mask;
    struct node_nic *nic;

    while (rest && (line = strsep(&rest, "\n")))
        if (sscanf(line, "%63s %lx %*x %*x %*d %*d %*d %lx", name, &destination, &mask) == 3 && destination == 0 &&
            mask == 0 && (nic = find_netdev(node, name)))
            nic->default_route = true;
    free(routes);
}

void node_read_addresses(struct node *node, const char *root)
{
    char name[NODE_NAME_SIZE], address[48], *text = sysfs_text(root, "addresses");

    for (const char *line = text; line; line = strchr(line, '\n')) {
        struct node_nic *nic;

        line += *line == '\n';
        if (sscanf(line, "%63s %47s", name, address) == 2 && (nic = find_netdev(node, name)))
            keep_address(nic, address);
    }
    free(text);
}

void node_describe_netdevs(struct node *node, const char *root)
{
    for (size_t i = 0; i < node->nic_count; i++)
        if (node->nics[i].kind == NIC_VIRTUAL)
            node->nics[i].up = read_up(root, node->nics[i].netdev);
    read_default_routes(node, root);
}

#define GIDS_MOST 256 /* no card has more */

int node_gid_index(const char *root, const char *hca)
{
    static const char mapped[] = "0000:0000:0000:0000:0000:ffff:"; /* an IPv4 address, as the kernel writes it */
    char type_file[32], gid_file[32], type[32], gid[64];

    for (int index = 0; index < GIDS_MOST; index++) {
        snprintf(type_file, sizeof type_file, "gid_attrs/types/%d", index);
        snprintf(gid_file, sizeof gid_file, "gids/%d", index);
        if (read_port_line(root, hca, type_file, type, sizeof type) && strcmp(type, "RoCE v2") == 0 &&
            read_port_line(root, hca, gid_file, gid, sizeof gid) && strncmp(gid, mapped, sizeof mapped - 1) == 0)
            return index;
    }
    return -1;
}

/* ---- problems ---------------------------------------------------------------------------------------------------- */

/* "2: Polling": nothing at the other end. "3: Disabled": an administrator's choice, and no problem. */
static void check_down(struct node *node, const char *root, const struct node_nic *nic)
{
    char state[32] = "unknown", physical[32] = "unknown";

    read_port_line(root, nic->hca, "state", state, sizeof state);
    read_port_line(root, nic->hca, "phys_state", physical, sizeof physical);
    if (nic->kind == NIC_SLINGSHOT)
        node_problem(node, "%s device %s is not up: interface %s", nic_kind_name(nic->kind), nic->hca,
                     nic->netdev[0] ? nic->netdev : "is missing");
    else if (!strstr(physical, "Disabled"))
        node_problem(node,
                     "%s port %s is not active (state %s, physical state %s): check its cable and its switch port",
                     nic_kind_name(nic->kind), nic->hca, state, physical);
}

static bool same_model(const char *root, const struct node_nic *a, const struct node_nic *b)
{
    char id_a[32], id_b[32];

    return a->kind == b->kind &&
           sysfs_field(root, "PCI_ID=", id_a, sizeof id_a, "sys/bus/pci/devices/%s/uevent", a->pci) &&
           sysfs_field(root, "PCI_ID=", id_b, sizeof id_b, "sys/bus/pci/devices/%s/uevent", b->pci) &&
           strcmp(id_a, id_b) == 0;
}

/* A link that trained at a lower rate than the others slows down every collective, and no log reports it. */
static void check_slow(struct node *node, const char *root, const struct node_nic *nic)
{
    const struct node_nic *fastest = nic;

    for (size_t i = 0; i < node->nic_count; i++)
        if (node->nics[i].up && node->nics[i].rate > fastest->rate && same_model(root, nic, &node->nics[i]))
            fastest = &node->nics[i];
    if (fastest != nic)
        node_problem(node, "%s port %s runs at %u Gbit/s, %s of the same model at %u", nic_kind_name(nic->kind),
                     nic->hca, nic->rate, fastest->hca, fastest->rate);
}

void node_check_nics(struct node *node, const char *root)
{
    for (size_t i = 0; i < node->nic_count; i++) {
        const struct node_nic *nic = &node->nics[i];

        if (!nic->hca[0])
            continue;
        if (!nic->up)
            check_down(node, root, nic);
        else if (nic->rate > 0)
            check_slow(node, root, nic);
    }
}
