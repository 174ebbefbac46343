/* Network interfaces: sys/class/net, and which RDMA port each belongs to. */
#include "srun-plugin/node_impl.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "srun-plugin/sysfs.h"

/* ARPHRD_ETHER and ARPHRD_INFINIBAND of linux/if_arp.h. */
#define TYPE_ETHERNET   1
#define TYPE_INFINIBAND 32

/* "unknown" is what drivers say that do not watch their link: loopback, tunnels, some virtual machines. */
static bool read_up(const char *root, const char *name)
{
    char state[32] = "";

    sysfs_line(root, state, sizeof state, "sys/class/net/%s/operstate", name);
    return strcmp(state, "up") == 0 || strcmp(state, "unknown") == 0;
}

/* sysfs tells Mbit/s, asking the driver; -1 where there is no link; virtual machines often tell nothing. */
static unsigned read_rate(const char *root, const char *name)
{
    char speed[32];
    long value = sysfs_line(root, speed, sizeof speed, "sys/class/net/%s/speed", name) ? strtol(speed, NULL, 10) : 0;

    return value > 0 ? (unsigned)(value / 1000) : 0;
}

static long read_number(const char *root, const char *name, const char *file)
{
    char text[32];

    return sysfs_line(root, text, sizeof text, "sys/class/net/%s/%s", name, file) ? strtol(text, NULL, 10) : -1;
}

/* The port of the same PCI device: of an adapter with several ports on one device, the one with that number. */
static struct node_nic *port_of(struct node *node, const char *root, const char *name, const char *pci)
{
    struct node_nic *found = NULL;
    long port;

    if (!pci[0] || !node->nic_count)
        return NULL;
    port = read_number(root, name, "dev_port") + 1;
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

/* `type` is the kernel's word for what is no device: "bond", "vlan", "bridge"; "" for many. */
static enum nic_kind kind_of(const char *root, const char *name, bool is_device, const char *type)
{
    if (!is_device && strcmp(type, "bond") != 0 && strcmp(type, "vlan") != 0)
        return NIC_VIRTUAL;
    return read_number(root, name, "type") == TYPE_ETHERNET ? NIC_ETHERNET : NIC_VIRTUAL;
}

/* *is_bond: its ports are to be asked for. */
static int read_netdev(struct node *node, const char *root, const char *name, bool *is_bond)
{
    char pci[16] = "", driver[32] = "", type[32] = "";
    struct node_nic *nic;
    const struct sysfs_key keys[] = {{"PCI_SLOT_NAME=", pci, sizeof pci}, {"DRIVER=", driver, sizeof driver}};
    bool is_loopback = strcmp(name, "lo") == 0; /* nobody can give it another name, nor its own to another */
    bool is_device = !is_loopback && sysfs_fields(root, keys, 2, "sys/class/net/%s/device/uevent", name);

    if (!is_device && !is_loopback)
        sysfs_field(root, "DEVTYPE=", type, sizeof type, "sys/class/net/%s/uevent", name);
    *is_bond = strcmp(type, "bond") == 0;
    if (!(nic = port_of(node, root, name, pci))) {
        if (!(nic = node_grow(&node->nics, &node->nic_count, sizeof *nic)))
            return -1;
        nic->numa = -1;
        nic->kind = kind_of(root, name, is_device, type);
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
        if (is_bond) { /* kept at the front, for when all their ports are known */
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

/* An address that another node may reach: fe80:: leads nowhere without its interface. IPv4 first, NCCL prefers it. */
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
