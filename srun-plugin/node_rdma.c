/* RDMA ports: sys/class/infiniband (InfiniBand, RoCE, EFA) and sys/class/cxi (Slingshot). */
#include "srun-plugin/node_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "srun-plugin/sysfs.h"

#define PORT "sys/class/infiniband/%s/ports/%s/"

static enum nic_kind kind_of(const char *driver, const char *link_layer)
{
    if (strcmp(driver, "efa") == 0)
        return NIC_EFA;
    return strcmp(link_layer, "InfiniBand") == 0 ? NIC_INFINIBAND : NIC_ROCE;
}

static struct node_nic *add(struct node *node, const char *root, const char *class, const char *device)
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
    struct node_nic *nic = add(node, root, "infiniband", hca);

    if (!nic)
        return -1;
    sysfs_line(root, link_layer, sizeof link_layer, PORT "link_layer", hca, port);
    sysfs_line(root, state, sizeof state, PORT "state", hca, port); /* "4: ACTIVE" */
    sysfs_line(root, rate, sizeof rate, PORT "rate", hca, port);    /* "200 Gb/sec (4X HDR)" */
    nic->kind = kind_of(nic->driver, link_layer);
    nic->up = strstr(state, "ACTIVE") != NULL;
    nic->rate = (unsigned)strtod(rate, NULL);
    if (nic->kind == NIC_EFA) /* libfabric knows no ports */
        snprintf(nic->hca, sizeof nic->hca, "%s", hca);
    else
        snprintf(nic->hca, sizeof nic->hca, "%.48s:%.12s", hca, port);
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

/* Whether a Cassini is up and how fast, only its network interface tells (node_netdevs.c). */
static int read_cassini(struct node *node, const char *root, const char *device)
{
    struct node_nic *nic = add(node, root, "cxi", device);

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

/* "2: Polling": nothing at the other end. "3: Disabled" is an administrator's wish, and no trouble. */
static void tell_dead(struct node *node, const char *root, const struct node_nic *nic)
{
    char device[NODE_NAME_SIZE], state[32] = "unknown", physical[32] = "unknown", *port;

    snprintf(device, sizeof device, "%s", nic->hca);
    if ((port = strchr(device, ':')))
        *port++ = '\0';
    sysfs_line(root, state, sizeof state, PORT "state", device, port ? port : "1");
    sysfs_line(root, physical, sizeof physical, PORT "phys_state", device, port ? port : "1");
    if (nic->kind == NIC_SLINGSHOT)
        node_problem(node, "%s device %s is not up: interface %s", nic_kind_name(nic->kind), nic->hca,
                     nic->netdev[0] ? nic->netdev : "is missing");
    else if (!strstr(physical, "Disabled"))
        node_problem(node,
                     "%s port %s is not active (state %s, physical state %s): look at its cable and its switch port",
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

/* A link that trained at a lower rate than its fellows holds up every collective, and nothing else says so. */
static void tell_slow(struct node *node, const char *root, const struct node_nic *nic)
{
    const struct node_nic *fastest = nic;

    for (size_t i = 0; i < node->nic_count; i++)
        if (node->nics[i].up && node->nics[i].rate > fastest->rate && same_model(root, nic, &node->nics[i]))
            fastest = &node->nics[i];
    if (fastest != nic)
        node_problem(node, "%s port %s runs at %u Gbit/s, its fellow %s at %u", nic_kind_name(nic->kind), nic->hca,
                     nic->rate, fastest->hca, fastest->rate);
}

void node_check_nics(struct node *node, const char *root)
{
    for (size_t i = 0; i < node->nic_count; i++) {
        const struct node_nic *nic = &node->nics[i];

        if (!nic->hca[0])
            continue;
        if (!nic->up)
            tell_dead(node, root, nic);
        else if (nic->rate > 0)
            tell_slow(node, root, nic);
    }
}
