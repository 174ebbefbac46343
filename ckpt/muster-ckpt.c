/* muster-ckpt.c - the program muster-ckpt: looks at checkpoints, never changes them. */
#include "config.h"

#include "ckpt/tool.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char help[] =
    "Usage: muster-ckpt COMMAND [OPTION]... PATH...\n"
    "Look at muster's checkpoints. PATH is a checkpoint (.../step-00000100) or a directory of them.\n"
    "\n"
    "  list DIR        one line a checkpoint, newest first\n"
    "      --json      as JSON\n"
    "  show PATH       what is in a checkpoint; of a directory, in the newest\n"
    "      --tensors   with the table of tensors\n"
    "      --job       the job file it was written by, and nothing else\n"
    "      --json      as JSON\n"
    "  verify PATH     read every byte and check it; of a directory, the newest\n"
    "      --all       every checkpoint of the directory\n"
    "  -j, --threads=N (as many as there are processors, at most 8)\n"
    "  -q, --quiet     no progress bar\n"
    "  status [STAGE]...  what is staged on this node and how far its drain is\n"
    "      --json      as JSON\n"
    "  diff A B        compare all tensors bit by bit, whatever topologies wrote them\n"
    "\n"
    "      --help      this text\n"
    "      --version   the version\n"
    "\n"
    "Ends with 0 when all is well; diff with 1 when A and B differ; 65 for a checkpoint that is broken or not there,\n"
    "64 for a wrong command line, 74 when the system refused to read. See muster-ckpt(1).\n";

static int usage(const char *format, const char *what)
{
    struct error err;

    error_set(&err, CODE_USAGE, "%s%s (see muster-ckpt --help)", format, what);
    return error_report(&err);
}

static int default_threads(void)
{
    long processors = sysconf(_SC_NPROCESSORS_ONLN);

    return processors < 1 ? 1 : processors > 8 ? 8 : (int)processors;
}

static int parse_threads(const char *text, int *threads)
{
    char *end;
    long value = strtol(text, &end, 10);

    if (*text == '\0' || *end != '\0' || value < 1 || value > 256)
        return -1;
    *threads = (int)value;
    return 0;
}

static int run(const char *command, char **paths, int count, const struct options *options)
{
    static const struct {
        const char *name;
        int paths;
    } commands[] = {{"list", 1}, {"show", 1}, {"verify", 1}, {"diff", 2}};

    if (strcmp(command, "status") == 0)
        return tool_status(paths, count, options);
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        if (strcmp(command, commands[i].name) == 0 && count != commands[i].paths)
            return usage(command, commands[i].paths == 1 ? ": takes one path" : ": takes two paths");
    if (strcmp(command, "list") == 0)
        return tool_list(paths[0], options);
    if (strcmp(command, "show") == 0)
        return tool_show(paths[0], options);
    if (strcmp(command, "verify") == 0)
        return tool_verify(paths[0], options);
    if (strcmp(command, "diff") == 0)
        return tool_diff(paths[0], paths[1], options);
    return usage("no such command: ", command);
}

int main(int argc, char **argv)
{
    enum { OPT_JSON = 256, OPT_ALL, OPT_TENSORS, OPT_JOB, OPT_HELP, OPT_VERSION };
    static const struct option table[] = {
        {"json", no_argument, NULL, OPT_JSON},
        {"all", no_argument, NULL, OPT_ALL},
        {"tensors", no_argument, NULL, OPT_TENSORS},
        {"job", no_argument, NULL, OPT_JOB},
        {"quiet", no_argument, NULL, 'q'},
        {"threads", required_argument, NULL, 'j'},
        {"help", no_argument, NULL, OPT_HELP},
        {"version", no_argument, NULL, OPT_VERSION},
        {NULL, 0, NULL, 0},
    };
    struct options options = {.threads = default_threads()};
    int option, code;

    while ((option = getopt_long(argc, argv, "qj:", table, NULL)) != -1)
        switch (option) {
        case OPT_JSON:
            options.json = true;
            break;
        case OPT_ALL:
            options.all = true;
            break;
        case OPT_TENSORS:
            options.tensors = true;
            break;
        case OPT_JOB:
            options.job = true;
            break;
        case 'q':
            options.quiet = true;
            break;
        case 'j':
            if (parse_threads(optarg, &options.threads) < 0)
                return usage("--threads must be 1 to 256, not ", optarg);
            break;
        case OPT_HELP:
            fputs(help, stdout);
            return 0;
        case OPT_VERSION:
            puts("muster-ckpt " PACKAGE_VERSION);
            return 0;
        default:
            return CODE_USAGE; /* getopt has said what is wrong */
        }
    if (optind == argc)
        return usage("a command is needed: list, show, verify, diff or status", "");
    code = run(argv[optind], argv + optind + 1, argc - optind - 1, &options);
    if (fflush(stdout) != 0 || ferror(stdout)) {
        struct error err;

        error_errno(&err, CODE_IO, "standard output");
        return error_report(&err);
    }
    return code;
}
