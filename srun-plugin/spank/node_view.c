#include "srun-plugin/spank/node_view.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "srun-plugin/spank/trust.h"

#define LINE_SIZE (sizeof((struct error *)0)->text + 64)
#define ADDRESSES 8

static void warn_of(const struct node_view_request *request, const struct error *err)
{
    char line[LINE_SIZE];

    snprintf(line, sizeof line, "muster: warning: %s", err->text);
    request->warn(line);
}

static void warn_of_profile(const struct error *err, void *arg)
{
    warn_of(arg, err);
}

/*
 * The interface and address for other nodes of the step. On rank 0's node it is the interface with the address that
 * Slurm has for this node, or if Slurm has a name, the route to the peer; on the others, the route to rank 0's node.
 */
static void find_way(const struct node_view_request *request, struct node_view *view)
{
    const char *other = request->head_is_here ? request->plan->peer : request->plan->head;
    struct error err;

    if (!other[0] || (request->head_is_here && route_is_own(request->plan->head, &view->way)))
        return;
    if (route_to(other, &view->way, &err) < 0) {
        view->way = (struct route_address){0};
        warn_of(request, &err);
    }
}

/* If the name of rank 0's node resolves to 127.0.1.1 there, its ranks must not listen on that. */
static void find_head(const struct node_view_request *request, struct node_view *view)
{
    char addresses[ADDRESSES][INET6_ADDRSTRLEN];
    const char *head = request->plan->head;
    struct error ignored;
    int count;

    if (head[0] && request->head_is_here && view->way.address[0]) {
        count = route_resolve(head, addresses, ADDRESSES, &ignored);
        if (count > 0)
            head = route_head(head, addresses, (size_t)count, view->way.address);
    }
    snprintf(view->head, sizeof view->head, "%s", head);
}

/* The kinds of RDMA port that the node does not have, NULL behind the last. */
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

static void add_profiles(const struct node_view_request *request, struct node_view *view)
{
    const char *absent[NIC_KINDS + 1];
    void *arg = (void *)(uintptr_t)request;
    char own[PATH_MAX];
    struct error err;

    if (request->profiles)
        fabric_add_directory(view->fabric, FABRIC_SHIPPED, request->profiles, NULL, warn_of_profile, arg);
    else if (trust_profiles(own, &err) < 0)
        warn_of(request, &err);
    else
        fabric_add_directory(view->fabric, FABRIC_SHIPPED, own, absent_kinds(view->node, absent), warn_of_profile, arg);
    fabric_add_directory(view->fabric, FABRIC_SITE, request->site, NULL, warn_of_profile, arg);
}

void node_view_read(const struct node_view_request *request, struct node_view *view)
{
    /* A site's profile may request for anything. */
    bool ethernet = request->describe || request->profiles || access(request->site, F_OK) == 0;
    struct error err;

    *view = (struct node_view){.node = node_read_bare("/", NULL, ethernet, &err)};
    if (!view->node)
        warn_of(request, &err);
    else if (request->describe)
        node_describe(view->node, "/");
    view->fabric = fabric_create(&err);
    if (view->fabric)
        add_profiles(request, view);
    find_way(request, view);
    find_head(request, view);
}
