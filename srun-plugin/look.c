#include "srun-plugin/look.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "srun-plugin/trust.h"

#define LINE_SIZE (sizeof((struct error *)0)->text + 64)
#define ADDRESSES 8

static void complain_of(const struct look_ask *ask, const struct error *err)
{
    char line[LINE_SIZE];

    snprintf(line, sizeof line, "muster: warning: %s", err->text);
    ask->complain(line);
}

static void profile_is_broken(const struct error *err, void *arg)
{
    complain_of(arg, err);
}

/*
 * The way to another node of the step. From rank 0's it is the interface by whose address the others reach that, where
 * Slurm has an address for it and no name, and else the way to the peer; from the others it is that to rank 0's.
 */
static void find_way(const struct look_ask *ask, struct look *look)
{
    const char *other = ask->head_is_here ? ask->plan->peer : ask->plan->head;
    struct error err;

    if (!other[0] || (ask->head_is_here && route_is_own(ask->plan->head, &look->way)))
        return;
    if (route_to(other, &look->way, &err) < 0) {
        look->way = (struct route_address){0};
        complain_of(ask, &err);
    }
}

/* Where rank 0's node calls itself 127.0.1.1, its ranks must not listen there. */
static void find_head(const struct look_ask *ask, struct look *look)
{
    char addresses[ADDRESSES][INET6_ADDRSTRLEN];
    const char *head = ask->plan->head;
    struct error ignored;
    int count;

    if (head[0] && ask->head_is_here && look->way.address[0]) {
        count = route_resolve(head, addresses, ADDRESSES, &ignored);
        if (count > 0)
            head = route_head(head, addresses, (size_t)count, look->way.address);
    }
    snprintf(look->head, sizeof look->head, "%s", head);
}

/* The kinds of RDMA port that the node has not, NULL behind the last: the profiles for them are not read. */
static const char *const *absent_kinds(const struct node *node, const char *absent[NIC_KINDS + 1])
{
    size_t count = 0;

    for (enum nic_kind kind = 0; kind < NIC_ETHERNET; kind++) {
        bool found = false;

        for (size_t i = 0; node && i < node->nic_count; i++)
            found = found || (node->nics[i].kind == kind && node_nic_usable(&node->nics[i]));
        if (!found)
            absent[count++] = nic_kind_name(kind);
    }
    absent[count] = NULL;
    return absent;
}

static void add_profiles(const struct look_ask *ask, struct look *look)
{
    const char *absent[NIC_KINDS + 1];
    void *arg = (void *)(uintptr_t)ask;
    char own[PATH_MAX];
    struct error err;

    if (ask->shipped)
        fabric_add_directory(look->fabric, FABRIC_SHIPPED, ask->shipped, NULL, profile_is_broken, arg);
    else if (trust_profiles(own, &err) < 0)
        complain_of(ask, &err);
    else
        fabric_add_directory(look->fabric, FABRIC_SHIPPED, own, absent_kinds(look->node, absent), profile_is_broken,
                             arg);
    fabric_add_directory(look->fabric, FABRIC_SITE, ask->site, NULL, profile_is_broken, arg);
}

void look_around(const struct look_ask *ask, struct look *look)
{
    /* A site's profile may ask for anything. */
    bool ethernet = ask->describe || ask->shipped || access(ask->site, F_OK) == 0;
    struct error err;

    *look = (struct look){.node = node_read_bare("/", NULL, ethernet, &err)};
    if (!look->node)
        complain_of(ask, &err);
    else if (ask->describe)
        node_describe(look->node, "/");
    look->fabric = fabric_create(&err);
    if (look->fabric)
        add_profiles(ask, look);
    find_way(ask, look);
    find_head(ask, look);
}
