/*
 * muster_topo.c - the program muster-topo: what srun --muster would do, on a laptop, without a cluster.
 */
#include "config.h"

#include "srun-plugin/topo/muster_topo.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *word, *usage;
    int (*run)(int argc, char **argv, struct error *err);
} commands[] = {
    {"node",
     "node [--xml FILE] [--ranks N] [--json] [--environment [--nodes N] [--cluster NAME] [--interface NAME]\n"
     "                        [--profiles DIR] [--site DIR]] [DIR]",
     topo_node},
    {"save", "save DIR", topo_save},
    {"place",
     "place --nodes LIST [--topology FILE] [--slots COUNTS] [--mesh dp=N,tp=N,pp=N] [--job FILE]\n"
     "                         [--bytes dp=N,tp=N,pp=N] [--svg FILE] [--hostfile FILE]",
     topo_place},
};

static void print_help(FILE *out)
{
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        fprintf(out, "%s muster-topo %s\n", i ? "      " : "usage:", commands[i].usage);
    fprintf(out, "\nSee muster-topo(1).\n");
}

int main(int argc, char **argv)
{
    struct error err = {0};

    if (argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
        print_help(stdout);
        return fflush(stdout) == 0 ? CODE_OK : CODE_IO;
    }
    if (argc == 2 && strcmp(argv[1], "--version") == 0)
        return puts("muster-topo " PACKAGE_VERSION) >= 0 && fflush(stdout) == 0 ? CODE_OK : CODE_IO;
    for (size_t i = 0; argc > 1 && i < sizeof commands / sizeof *commands; i++)
        if (strcmp(argv[1], commands[i].word) == 0) {
            if (commands[i].run(argc - 1, argv + 1, &err) < 0)
                return error_report(&err);
            if (fflush(stdout) != 0 || ferror(stdout)) {
                error_errno(&err, CODE_IO, "cannot write to standard output");
                return error_report(&err);
            }
            return CODE_OK;
        }
    if (argc > 1)
        fprintf(stderr, "muster-topo: there is no \"%s\"\n", argv[1]);
    print_help(stderr);
    return CODE_USAGE;
}
