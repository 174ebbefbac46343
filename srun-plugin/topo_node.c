/* muster-topo node, muster-topo save. */
#include "srun-plugin/topo.h"

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
    while ((option = getopt_long(argc, argv, "", known, NULL)) != -1) {
        if (option == 'j')
            options->json = true;
        else if (option == 'x')
            options->xml = optarg;
        else if (option != 'r')
            return error_set(err, CODE_USAGE, "node: muster-topo(1) lists the options");
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

int topo_node(int argc, char **argv)
{
    struct options options;
    struct node *node = NULL;
    struct bind_plan *plan = NULL;
    struct error err;
    int code = CODE_OK;

    if (read_options(argc, argv, &options, &err) < 0 || !(node = node_read(options.root, options.xml, &err)))
        goto fail;
    plan =
        bind_plan_create(node, &(struct bind_request){options.ranks ? options.ranks : default_ranks(node), NULL}, &err);
    if (!plan || (options.json && print_json(node, plan, &err) < 0))
        goto fail;
    if (!options.json) {
        node_report(node, print_line, NULL);
        putchar('\n');
        bind_report(node, plan, print_line, NULL);
    }
    goto done;
fail:
    code = error_report(&err);
done:
    bind_plan_destroy(plan);
    node_destroy(node);
    return code;
}

int topo_save(int argc, char **argv)
{
    struct error err;

    if (argc != 2 || argv[1][0] == '-') {
        error_set(&err, CODE_USAGE, "save: one directory is wanted, which is new or empty");
        return error_report(&err);
    }
    return snapshot_save("/", argv[1], &err) < 0 ? error_report(&err) : CODE_OK;
}
