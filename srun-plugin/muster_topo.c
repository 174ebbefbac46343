/* muster-topo - what a node or a cluster is made of, and where ranks go on it. */
#include <stdio.h>
#include <string.h>

#include "common/error.h"
#include "srun-plugin/topo.h"

static const struct command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *usage;
} commands[] = {
    {"node", topo_node, "node [--xml FILE] [--ranks N] [--json] [DIR]"},
    {"save", topo_save, "save DIR"},
};

#define COMMANDS (sizeof commands / sizeof *commands)

static void print_usage(FILE *out)
{
    for (size_t i = 0; i < COMMANDS; i++)
        fprintf(out, "%s muster-topo %s\n", i ? "      " : "usage:", commands[i].usage);
    fprintf(out, "muster-topo(1) says more.\n");
}

int main(int argc, char **argv)
{
    for (size_t i = 0; argc > 1 && i < COMMANDS; i++)
        if (strcmp(argv[1], commands[i].name) == 0)
            return commands[i].run(argc - 1, argv + 1);
    if (argc == 2 && strcmp(argv[1], "--help") == 0) {
        print_usage(stdout);
        return CODE_OK;
    }
    print_usage(stderr);
    return CODE_USAGE;
}
