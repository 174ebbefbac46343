/* muster-topo node, muster-topo save. */
#include "srun-plugin/muster_topo.h"

#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "srun-plugin/node_json.h"
#include "srun-plugin/node_report.h"
#include "srun-plugin/snapshot.h"

struct options {
    const char *root, *xml;
    unsigned ranks; /* 0: as many as usable GPUs, else NUMA nodes */
    bool json;
};

static int read_ranks(const char *text, unsigned *ranks, struct error *err)
{
    char *end;
    unsigned long value = strtoul(text, &end, 10);

    if (*end || text[0] == '-' || value < 1 || value > CPUS_MAX)
        return error_set(err, CODE_USAGE, "--ranks=%s: a number from 1 to %d is wanted", text, CPUS_MAX);
    *ranks = (unsigned)value;
    return 0;
}

static int read_options(int argc, char **argv, struct options *options, struct error *err)
{
    static const struct option known[] = {{"json", no_argument, NULL, 'j'},
                                          {"ranks", required_argument, NULL, 'r'},
                                          {"xml", required_argument, NULL, 'x'},
                                          {0}};
    int option;

    *options = (struct options){.root = "/"};
    opterr = 0;
    while ((option = getopt_long(argc, argv, "", known, NULL)) != -1) {
        if (option == 'j')
            options->json = true;
        else if (option == 'x')
            options->xml = optarg;
        else if (option != 'r')
            return error_set(err, CODE_USAGE, "node: %s: unknown, or its value is missing; see muster-topo(1)",
                             argv[optind - 1]);
        else if (read_ranks(optarg, &options->ranks, err) < 0)
            return -1;
    }
    if (optind + 1 < argc)
        return error_set(err, CODE_USAGE, "node: one directory of a snapshot at most, not also '%s'", argv[optind + 1]);
    if (optind < argc)
        options->root = argv[optind];
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

static int print_json(const struct node *node, const struct bind_plan *plan, struct error *err)
{
    json_t *all = json_pack("{s:o, s:o}", "node", node_json(node), "binding", bind_json(node, plan));

    if (!all || json_dumpf(all, stdout, JSON_INDENT(2)) < 0) {
        json_decref(all);
        return error_set(err, CODE_IO, "no memory to write JSON");
    }
    json_decref(all);
    putchar('\n');
    return 0;
}

static void print_text(const struct node *node, const struct bind_plan *plan)
{
    node_report(node, print_line, NULL);
    putchar('\n');
    bind_report(node, plan, print_line, NULL);
}

int topo_node(int argc, char **argv, struct error *err)
{
    struct options options;
    struct bind_request request = {0};
    struct node *node = NULL;
    struct bind_plan *plan = NULL;
    int status = -1;

    if (read_options(argc, argv, &options, err) < 0 || !(node = node_read(options.root, options.xml, err)))
        goto done;
    request.local_ranks = options.ranks ? options.ranks : default_ranks(node);
    if (!(plan = bind_plan_create(node, &request, err)))
        goto done;
    if (!options.json)
        print_text(node, plan);
    else if (print_json(node, plan, err) < 0)
        goto done;
    status = 0;
done:
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
