#include "srun-plugin/fabric/fabric_facts.h"

#include <stdlib.h>

static const char *vendor_name(uint16_t vendor)
{
    switch (vendor) {
    case 0x10de:
        return "nvidia";
    case 0x1002:
        return "amd";
    case 0x8086:
        return "intel";
    default:
        return NULL;
    }
}

/* At least as many ranks as GPUs: then each GPU has its NICs, whatever process uses it. */
static struct bind_plan *plan_gpus(const struct node *node, const struct fabric_facts_request *request,
                                   struct error *err)
{
    unsigned gpus = (unsigned)request->gpu_count;
    struct bind_request all = {.local_ranks = request->local_ranks, .gpus = request->gpus, .gpu_count = gpus};

    if (all.local_ranks > 0 && all.local_ranks < gpus)
        all.local_ranks = gpus;
    return bind_plan_create(node, &all, err);
}

static struct fabric_nic describe_nic(const struct node *node, const struct bind_plan *plan, size_t index)
{
    const struct node_nic *nic = &node->nics[index];
    bool of_fabric = nic->kind == node_fabric(node) && nic->kind != NIC_ETHERNET;

    return (struct fabric_nic){
        .kind = nic_kind_name(nic->kind),
        .driver = nic->driver[0] ? nic->driver : NULL,
        .hca = nic->hca[0] ? nic->hca : NULL,
        .interface = nic->bond[0]     ? nic->bond
                     : nic->netdev[0] ? nic->netdev
                                      : NULL,
        .gid_index = nic->gid_index,
        .gbps = nic->rate,
        .live = node_nic_usable(nic) && (!of_fabric || bind_plan_uses(plan, index)),
    };
}

int fabric_facts_fill(const struct node *node, const struct fabric_facts_request *request, struct fabric_facts *facts,
                      struct error *err)
{
    struct bind_plan *plan = plan_gpus(node, request, err);
    struct fabric_nic *nics = plan ? calloc(node->nic_count + 1, sizeof *nics) : NULL;

    *facts = (struct fabric_facts){0};
    if (plan && !nics)
        error_set(err, CODE_IO, "no memory for the facts of a node");
    for (size_t i = 0; nics && i < node->nic_count; i++)
        nics[i] = describe_nic(node, plan, i);
    bind_plan_destroy(plan);
    if (!nics)
        return -1;
    *facts = (struct fabric_facts){
        .nodes = request->nodes,
        .job_nodes = request->job_nodes,
        .gpus = (unsigned)request->gpu_count,
        .vendor = request->gpu_count ? vendor_name(node->gpus[request->gpus[0]].vendor) : NULL,
        .cluster = request->cluster,
        .interface = request->interface,
        .local_rank = request->local_rank,
        .cores = request->cores,
        .files = request->files,
        .files_arg = request->files_arg,
        .nics = nics,
        .nic_count = node->nic_count,
    };
    return 0;
}

void fabric_facts_clear(struct fabric_facts *facts)
{
    free((struct fabric_nic *)facts->nics);
    *facts = (struct fabric_facts){0};
}
