/*
 * muster-topo node, muster-topo save. The keys of the JSON are those of the structs in node.h and bind.h; null is not
 * known. muster-topo(1) describes them.
 */
#include "srun-plugin/topo/muster_topo.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/option.h"
#include "srun-plugin/node/bind.h"
#include "srun-plugin/node/sysfs.h"

/* More than any job has. */
#define NODES_MAX 1000000

struct node_options {
    const char *root, *xml; /* of node_read */
    unsigned ranks;         /* 0: as many as usable GPUs, else NUMA nodes */
    bool json, environment;
    struct environment_request request; /* for the environment */
};

/* -1: go on; otherwise the exit code. */
static int read_options(int argc, char **argv, struct node_options *options)
{
    struct environment_request *request = &options->request;
    long ranks = 0, nodes = 1;
    const struct option_row rows[] = {
        {"cluster", OPTION_TEXT, .to = &request->cluster},
        {"environment", OPTION_FLAG, .to = &options->environment},
        {"interface", OPTION_TEXT, .to = &request->interface},
        {"json", OPTION_FLAG, .to = &options->json},
        {"nodes", OPTION_WHOLE, .to = &nodes, .least = 1, .most = NODES_MAX},
        {"profiles", OPTION_TEXT, .to = &request->profiles},
        {"ranks", OPTION_WHOLE, .to = &ranks, .least = 1, .most = CPUS_MAX},
        {"site", OPTION_TEXT, .to = &request->site},
        {"xml", OPTION_TEXT, .to = &options->xml},
        {0},
    };
    int code;

    *options = (struct node_options){.request = {.profiles = FABRIC_DIR}};
    code = options_read(rows, argc, argv, topo_usage);
    if (code >= 0)
        return code;
    if (optind + 1 < argc)
        return option_fail("node: at most one directory of a snapshot; unexpected argument '%s'", argv[optind + 1]);
    options->root = optind < argc ? argv[optind] : options->xml ? NULL : "/";
    options->ranks = (unsigned)ranks;
    request->nodes = (unsigned)nodes;
    request->root = options->root;
    if (sysfs_is_live(options->root) && !request->site)
        request->site = "/etc/muster/fabric";
    if (sysfs_is_live(options->root) && !request->cluster)
        request->cluster = getenv("SLURM_CLUSTER_NAME");
    return -1;
}

static unsigned default_ranks(const struct node *node)
{
    size_t gpus = node_usable_gpus(node, NULL), ranks = gpus ? gpus : node->numa_count;

    return ranks ? (unsigned)ranks : 1;
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

static json_t *text_or_null(const char *value)
{
    return value[0] ? json_string(value) : json_null();
}

static json_t *cpus_or_null(const struct cpus *set)
{
    char list[1024];

    return cpus_count(set) ? json_string(cpus_format(set, list, sizeof list)) : json_null();
}

static json_t *numa_or_null(const struct node *node, int index)
{
    return index < 0 ? json_null() : json_integer(node->numas[index].os_index);
}

static json_t *list_numas(const struct node *node)
{
    json_t *list = json_array();

    for (size_t i = 0; i < node->numa_count; i++) {
        const struct node_numa *item = &node->numas[i];

        json_array_append_new(list,
                              json_pack("{s:i, s:i, s:I, s:o}", "numa", (int)item->os_index, "package", item->package,
                                        "memory", (json_int_t)item->memory, "cpus", cpus_or_null(&item->cpus)));
    }
    return list;
}

static json_t *list_gpus(const struct node *node)
{
    json_t *list = json_array();

    for (size_t i = 0; i < node->gpu_count; i++) {
        const struct node_gpu *gpu = &node->gpus[i];
        json_t *paths = json_object();

        for (size_t j = 0; node->paths && j < node->nic_count; j++)
            if (node->nics[j].kind != NIC_VIRTUAL)
                json_object_set_new(paths, node_nic_name(&node->nics[j]),
                                    json_string(node_path_name(node->paths[i * node->nic_count + j])));
        json_array_append_new(list,
                              json_pack("{s:s, s:o, s:o, s:o, s:s, s:o, s:o}", "address", gpu->address, "model",
                                        text_or_null(gpu->model), "driver", text_or_null(gpu->driver), "numa",
                                        numa_or_null(node, gpu->numa), "state", gpu_state_name(gpu->state), "minor",
                                        gpu->minor < 0 ? json_null() : json_integer(gpu->minor), "paths", paths));
    }
    return list;
}

static json_t *list_nics(const struct node *node)
{
    json_t *list = json_array();

    for (size_t i = 0; i < node->nic_count; i++) {
        const struct node_nic *nic = &node->nics[i];

        json_array_append_new(list, json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:b, s:o, s:o, s:b, s:b}", "kind",
                                              nic_kind_name(nic->kind), "hca", text_or_null(nic->hca), "netdev",
                                              text_or_null(nic->netdev), "bond", text_or_null(nic->bond), "pci",
                                              text_or_null(nic->pci), "driver", text_or_null(nic->driver), "numa",
                                              numa_or_null(node, nic->numa), "up", (int)nic->up, "rate",
                                              nic->rate ? json_integer(nic->rate) : json_null(), "inet",
                                              text_or_null(nic->inet), "default_route", (int)nic->default_route,
                                              "usable", (int)node_nic_usable(nic)));
    }
    return list;
}

static json_t *list_lines(char *const *from, size_t count)
{
    json_t *list = json_array();

    for (size_t i = 0; i < count; i++)
        json_array_append_new(list, json_string(from[i]));
    return list;
}

static json_t *describe_node(const struct node *node)
{
    return json_pack("{s:o, s:I, s:I, s:I, s:I, s:i, s:o, s:o, s:s, s:o, s:o, s:o, s:o}", "title",
                     text_or_null(node->title), "memory_total", (json_int_t)node->memory_total, "memory_free",
                     (json_int_t)node->memory_free, "shm_size", (json_int_t)node->shm_size, "shm_free",
                     (json_int_t)node->shm_free, "cores", (int)node->core_count, "cpus", cpus_or_null(&node->cpus),
                     "allowed", cpus_or_null(&node->allowed), "fabric", nic_kind_name(node_fabric(node)), "numas",
                     list_numas(node), "gpus", list_gpus(node), "nics", list_nics(node), "problems",
                     list_lines(node->problems, node->problem_count));
}

static json_t *describe_rank(const struct node *node, const struct bind_rank *rank)
{
    json_t *names = json_array();

    for (size_t i = 0; i < rank->nic_count; i++)
        json_array_append_new(names, json_string(node_nic_name(&node->nics[rank->nics[i]])));
    return json_pack("{s:o, s:o, s:s, s:o, s:o, s:i, s:b}", "gpu",
                     rank->gpu < 0 ? json_null() : json_integer(rank->gpu), "nics", names, "path",
                     node_path_name(rank->path), "cpus", cpus_or_null(&rank->cpus), "mems", cpus_or_null(&rank->mems),
                     "threads", (int)rank->threads, "shares_cores", (int)rank->shares_cores);
}

static json_t *describe_binding(const struct node *node, const struct binding *binding)
{
    json_t *ranks = json_array();

    for (size_t i = 0; i < binding->count; i++)
        json_array_append_new(ranks, describe_rank(node, &binding->ranks[i]));
    return json_pack("{s:o, s:b, s:o}", "ranks", ranks, "by_user", (int)binding->keeps_given, "notes",
                     list_lines(binding->notes, binding->note_count));
}

static int print_json(const struct node *node, const struct binding *binding, const struct environment *environment,
                      struct error *err)
{
    json_t *all = json_pack("{s:o, s:o}", "node", describe_node(node), "binding", describe_binding(node, binding));
    int status = all && environment ? json_object_set_new(all, "environment", environment_json(environment)) : 0;

    if (!all || status < 0 || (status = json_dumpf(all, stdout, JSON_INDENT(2))) < 0)
        status = error_set(err, CODE_IO, "no memory to write JSON");
    json_decref(all);
    if (status == 0)
        putchar('\n');
    return status;
}

/* ---- the commands ------------------------------------------------------------------------------------------------ */

static void print_text(const struct node *node, const struct binding *binding, const struct environment *environment)
{
    node_report(node, stdout);
    putchar('\n');
    bind_report(node, binding, stdout);
    if (environment) {
        putchar('\n');
        environment_print(environment);
    }
}

int topo_node(int argc, char **argv, struct error *err)
{
    struct node_options options;
    struct bind_request request = {0};
    struct node *node;
    struct binding *binding = NULL;
    struct environment *environment = NULL;
    int status = read_options(argc, argv, &options);

    if (status >= 0)
        return status;
    if ((node = node_read(options.root, options.xml, err))) {
        request.local_ranks = options.ranks ? options.ranks : default_ranks(node);
        binding = binding_create(node, &request, err);
    }
    if (binding && options.environment)
        environment = environment_create(node, request.local_ranks, &options.request, err);
    if (binding && (environment || !options.environment)) {
        status = options.json ? print_json(node, binding, environment, err) : 0;
        if (!options.json)
            print_text(node, binding, environment);
    }
    environment_destroy(environment);
    binding_destroy(binding);
    node_destroy(node);
    return status;
}

int topo_save(int argc, char **argv, struct error *err)
{
    int code = options_read(&(const struct option_row){0}, argc, argv, topo_usage);

    if (code >= 0)
        return code;
    if (argc != optind + 1)
        return option_fail("save: missing DIR, a new or empty directory");
    return snapshot_save("/", argv[optind], err) < 0 ? -1 : CODE_OK;
}
