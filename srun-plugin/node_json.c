#include "srun-plugin/node_json.h"

static json_t *text(const char *value)
{
    return value[0] ? json_string(value) : json_null();
}

static json_t *cpus(const struct cpus *set)
{
    char list[1024];

    return cpus_count(set) ? json_string(cpus_format(set, list, sizeof list)) : json_null();
}

static json_t *numa(const struct node *node, int index)
{
    return index < 0 ? json_null() : json_integer(node->numas[index].os_index);
}

static json_t *numas(const struct node *node)
{
    json_t *list = json_array();

    for (size_t i = 0; i < node->numa_count; i++) {
        const struct node_numa *item = &node->numas[i];

        json_array_append_new(list,
                              json_pack("{s:i, s:i, s:I, s:o}", "numa", (int)item->os_index, "package", item->package,
                                        "memory", (json_int_t)item->memory, "cpus", cpus(&item->cpus)));
    }
    return list;
}

static json_t *gpus(const struct node *node)
{
    json_t *list = json_array();

    for (size_t i = 0; i < node->gpu_count; i++) {
        const struct node_gpu *gpu = &node->gpus[i];
        json_t *paths = json_object();

        for (size_t j = 0; node->paths && j < node->nic_count; j++)
            if (node->nics[j].kind != NIC_VIRTUAL)
                json_object_set_new(paths, node_nic_name(&node->nics[j]),
                                    json_string(node_path_name(node->paths[i * node->nic_count + j])));
        json_array_append_new(list, json_pack("{s:s, s:o, s:o, s:o, s:s, s:o, s:o}", "address", gpu->address, "model",
                                              text(gpu->model), "driver", text(gpu->driver), "numa",
                                              numa(node, gpu->numa), "state", gpu_state_name(gpu->state), "minor",
                                              gpu->minor < 0 ? json_null() : json_integer(gpu->minor), "paths", paths));
    }
    return list;
}

static json_t *nics(const struct node *node)
{
    json_t *list = json_array();

    for (size_t i = 0; i < node->nic_count; i++) {
        const struct node_nic *nic = &node->nics[i];

        json_array_append_new(list,
                              json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:b, s:o, s:o, s:b, s:b}", "kind",
                                        nic_kind_name(nic->kind), "hca", text(nic->hca), "netdev", text(nic->netdev),
                                        "bond", text(nic->bond), "pci", text(nic->pci), "driver", text(nic->driver),
                                        "numa", numa(node, nic->numa), "up", (int)nic->up, "rate",
                                        nic->rate ? json_integer(nic->rate) : json_null(), "inet", text(nic->inet),
                                        "default_route", (int)nic->default_route, "usable", (int)node_nic_usable(nic)));
    }
    return list;
}

static json_t *lines(char *const *from, size_t count)
{
    json_t *list = json_array();

    for (size_t i = 0; i < count; i++)
        json_array_append_new(list, json_string(from[i]));
    return list;
}

json_t *node_json(const struct node *node)
{
    return json_pack("{s:o, s:I, s:I, s:I, s:I, s:i, s:o, s:o, s:s, s:o, s:o, s:o, s:o}", "title", text(node->title),
                     "memory_total", (json_int_t)node->memory_total, "memory_free", (json_int_t)node->memory_free,
                     "shm_size", (json_int_t)node->shm_size, "shm_free", (json_int_t)node->shm_free, "cores",
                     (int)node->core_count, "cpus", cpus(&node->cpus), "allowed", cpus(&node->allowed), "fabric",
                     nic_kind_name(node_fabric(node)), "numas", numas(node), "gpus", gpus(node), "nics", nics(node),
                     "problems", lines(node->problems, node->problem_count));
}

static json_t *rank_json(const struct node *node, const struct bind_rank *rank)
{
    json_t *names = json_array();

    for (size_t i = 0; i < rank->nic_count; i++)
        json_array_append_new(names, json_string(node_nic_name(&node->nics[rank->nics[i]])));
    return json_pack("{s:o, s:o, s:s, s:o, s:o, s:i, s:b}", "gpu",
                     rank->gpu < 0 ? json_null() : json_integer(rank->gpu), "nics", names, "path",
                     node_path_name(rank->path), "cpus", cpus(&rank->cpus), "mems", cpus(&rank->mems), "threads",
                     (int)rank->threads, "shares_cores", (int)rank->shares_cores);
}

json_t *bind_json(const struct node *node, const struct bind_plan *plan)
{
    json_t *ranks = json_array();

    for (size_t i = 0; i < plan->count; i++)
        json_array_append_new(ranks, rank_json(node, &plan->ranks[i]));
    return json_pack("{s:o, s:b, s:o}", "ranks", ranks, "by_user", (int)plan->by_user, "notes",
                     lines(plan->notes, plan->note_count));
}
