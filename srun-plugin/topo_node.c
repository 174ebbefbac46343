/* muster-topo node, muster-topo save. */
#include "common/option.h"
#include "srun-plugin/topo/muster_topo.h"

#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "srun-plugin/node_json.h"
#include "srun-plugin/node_report.h"
#include "srun-plugin/snapshot.h"
#include "srun-plugin/topo_environment.h"

/* More than any machine has. */
#define NODES_MAX 1000000

struct options {
    const char *root, *xml;
    unsigned ranks; /* 0: as many as usable GPUs, else NUMA nodes */
    bool json, environment;
    struct environment_request wanted;
};

static int read_number(const char *name, const char *text, unsigned most, unsigned *number, struct error *err)
{
    char *end;
    unsigned long value = strtoul(text, &end, 10);

    if (*end || text[0] == '-' || value < 1 || value > most)
        return error_set(err, CODE_USAGE, "--%s=%s: a number from 1 to %u is wanted", name, text, most);
    *number = (unsigned)value;
    return 0;
}

static int keep_option(int option, struct options *options, struct error *err)
{
    switch (option) {
    case 'j':
        options->json = true;
        return 0;
    case 'x':
        options->xml = optarg;
        return 0;
    case 'e':
        options->environment = true;
        return 0;
    case 'c':
        options->wanted.cluster = optarg;
        return 0;
    case 'i':
        options->wanted.interface = optarg;
        return 0;
    case 'p':
        options->wanted.profiles = optarg;
        return 0;
    case 's':
        options->wanted.site = optarg;
        return 0;
    case 'r':
        return read_number("ranks", optarg, CPUS_MAX, &options->ranks, err);
    default:
        return read_number("nodes", optarg, NODES_MAX, &options->wanted.nodes, err);
    }
}

static int read_options(int argc, char **argv, struct options *options, struct error *err)
{
    static const struct option known[] = {
        {"cluster", required_argument, NULL, 'c'},   {"environment", no_argument, NULL, 'e'},
        {"interface", required_argument, NULL, 'i'}, {"json", no_argument, NULL, 'j'},
        {"nodes", required_argument, NULL, 'n'},     {"profiles", required_argument, NULL, 'p'},
        {"ranks", required_argument, NULL, 'r'},     {"site", required_argument, NULL, 's'},
        {"xml", required_argument, NULL, 'x'},       {0}};
    int option;

    *options = (struct options){.root = "/", .wanted = {.nodes = 1}};
    opterr = 0;
    while ((option = getopt_long(argc, argv, "", known, NULL)) != -1) {
        if (option == '?')
            return error_set(err, CODE_USAGE, "node: %s: unknown, or its value is missing; see muster-topo(1)",
                             option_refused(argv));
        if (keep_option(option, options, err) < 0)
            return -1;
    }
    if (optind + 1 < argc)
        return error_set(err, CODE_USAGE, "node: one directory of a snapshot at most, not also '%s'", argv[optind + 1]);
    if (optind < argc)
        options->root = argv[optind];
    options->wanted.root = options->root;
    if (strcmp(options->root, "/") == 0 && !options->wanted.site)
        options->wanted.site = "/etc/muster/fabric";
    if (strcmp(options->root, "/") == 0 && !options->wanted.cluster)
        options->wanted.cluster = getenv("SLURM_CLUSTER_NAME");
    return 0;
}

static unsigned default_ranks(const struct node *node)
{
    size_t gpus = node_usable_gpus(node, NULL), ranks = gpus ? gpus : node->numa_count;

    return ranks ? (unsigned)ranks : 1;
}

static void print_line(const char *line, void *arg)
{
    (void)arg;
    puts(line);
}

static int print_json(const struct node *node, const struct bind_plan *plan, const struct environment *environment,
                      struct error *err)
{
    json_t *all = json_pack("{s:o, s:o}", "node", node_json(node), "binding", bind_json(node, plan));
    int status = all && environment ? json_object_set_new(all, "environment", environment_json(environment)) : 0;

    if (!all || status < 0 || json_dumpf(all, stdout, JSON_INDENT(2)) < 0) {
        json_decref(all);
        return error_set(err, CODE_IO, "no memory to write JSON");
    }
    json_decref(all);
    putchar('\n');
    return 0;
}

static void print_text(const struct node *node, const struct bind_plan *plan, const struct environment *environment)
{
    node_report(node, print_line, NULL);
    putchar('\n');
    bind_report(node, plan, print_line, NULL);
    if (environment) {
        putchar('\n');
        environment_print(environment);
    }
}

int topo_node(int argc, char **argv, struct error *err)
{
    struct options options;
    struct bind_request request = {0};
    struct node *node = NULL;
    struct bind_plan *plan = NULL;
    struct environment *environment = NULL;
    int status = -1;

    if (read_options(argc, argv, &options, err) < 0 || !(node = node_read(options.root, options.xml, err)))
        goto done;
    request.local_ranks = options.ranks ? options.ranks : default_ranks(node);
    if (!(plan = bind_plan_create(node, &request, err)))
        goto done;
    if (options.environment && !(environment = environment_create(node, request.local_ranks, &options.wanted, err)))
        goto done;
    if (!options.json)
        print_text(node, plan, environment);
    else if (print_json(node, plan, environment, err) < 0)
        goto done;
    status = 0;
done:
    environment_destroy(environment);
    bind_plan_destroy(plan);
    node_destroy(node);
    return status;
}

int topo_save(int argc, char **argv, struct error *err)
{
    if (argc != 2 || argv[1][0] == '-')
        return error_set(err, CODE_USAGE, "save: one directory is wanted, which is new or empty");
    return snapshot_save("/", argv[1], err);
}
