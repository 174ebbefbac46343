/*
 * muster_preflight.c - the program muster-preflight: one process a node checks it and prints an answer (answer.h). srun
 * --muster-preflight starts it on all nodes of a step and judges the answers (preflight.c).
 *
 * It always ends: each check is bounded in time, and an alarm ends a check that hangs in a library or a file system.
 */
#include "config.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/error.h"
#include "common/option.h"
#include "srun-plugin/preflight/answer.h"
#include "srun-plugin/preflight/checks.h"

struct preflight_options {
    const char *checkpoint, *stage;
    uint64_t checkpoint_bytes, stage_bytes;
    int seconds;
};

static const char usage[] = "usage: srun --mpi=pmi2 --ntasks-per-node=1 muster-preflight [--checkpoint DIR]\n"
                            "       [--checkpoint-bytes N] [--stage DIR] [--stage-bytes N] [--seconds N]\n"
                            "\nSee muster-preflight(1).\n";

static int bad_usage(const char *what, const char *argument)
{
    fprintf(stderr, "muster-preflight: %s%s; muster-preflight --help shows how\n", what, argument);
    return -1;
}

static int read_number(const char *text, uint64_t least, uint64_t most, uint64_t *value)
{
    char *end;

    errno = 0;
    *value = strtoull(text, &end, 10);
    return isdigit((unsigned char)*text) && !*end && errno == 0 && *value >= least && *value <= most ? 0 : -1;
}

static int read_options(int argc, char **argv, struct preflight_options *options)
{
    static const struct option known[] = {
        {"checkpoint", required_argument, NULL, 'c'}, {"checkpoint-bytes", required_argument, NULL, 'C'},
        {"stage", required_argument, NULL, 's'},      {"stage-bytes", required_argument, NULL, 'S'},
        {"seconds", required_argument, NULL, 't'},    {"help", no_argument, NULL, 'h'},
        {"version", no_argument, NULL, 'v'},          {0},
    };
    uint64_t seconds;
    int option;

    *options = (struct preflight_options){.seconds = 15};
    opterr = 0;
    while ((option = getopt_long(argc, argv, ":", known, NULL)) != -1)
        switch (option) {
        case 'c':
            options->checkpoint = optarg;
            break;
        case 'C':
            if (read_number(optarg, 0, UINT64_MAX, &options->checkpoint_bytes) < 0)
                return bad_usage("--checkpoint-bytes takes a whole number of bytes, not ", optarg);
            break;
        case 's':
            options->stage = optarg;
            break;
        case 'S':
            if (read_number(optarg, 0, UINT64_MAX, &options->stage_bytes) < 0)
                return bad_usage("--stage-bytes takes a whole number of bytes, not ", optarg);
            break;
        case 't':
            if (read_number(optarg, 3, 3600, &seconds) < 0)
                return bad_usage("--seconds takes 3 to 3600, not ", optarg);
            options->seconds = (int)seconds;
            break;
        case 'h':
            fputs(usage, stdout);
            exit(error_output(CODE_OK));
        case 'v':
            puts("muster-preflight " PACKAGE_VERSION);
            exit(error_output(CODE_OK));
        case ':':
            return bad_usage("a value is missing after ", option_refused(argv));
        default:
            return bad_usage("unknown option ", option_refused(argv));
        }
    return optind < argc ? bad_usage("belongs to no option: ", argv[optind]) : 0;
}

static char node_name[ANSWER_NAME_SIZE] = "?";

void write_finding(const char *key, const char *format, ...)
{
    char line[ANSWER_LINE_SIZE];
    int length = snprintf(line, sizeof line, "preflight %s %s ", node_name, key);
    size_t end;
    va_list args;

    va_start(args, format);
    vsnprintf(line + length, sizeof line - (size_t)length - 1, format, args);
    va_end(args);
    for (char *c = line; *c; c++)
        if (*c == '\n' || *c == '\r')
            *c = ' ';
    end = strlen(line);
    line[end] = '\n';
    if (write(STDOUT_FILENO, line, end + 1) < 0)
        return; /* the reader has a deadline; nobody else can be told */
}

static void write_clock(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    write_finding("clock", "%lld.%06ld", (long long)now.tv_sec, now.tv_nsec / 1000);
}

int main(int argc, char **argv)
{
    const char *slurm_name = getenv("SLURMD_NODENAME"), *other_root = getenv("MUSTER_PREFLIGHT_ROOT");
    const char *root = other_root && other_root[0] ? other_root : "/";
    double begun = clock_monotonic();
    struct preflight_options options;

    if (read_options(argc, argv, &options) < 0)
        return CODE_USAGE;
    gethostname(node_name, sizeof node_name - 1);
    if (slurm_name)
        snprintf(node_name, sizeof node_name, "%s", slurm_name);
    alarm((unsigned)options.seconds + 1);
    write_clock();
    check_plugin();
    check_versions(root);
    check_machine(root);
    if (root != other_root)
        check_nvml();
    check_directory("checkpoints", options.checkpoint, options.checkpoint_bytes);
    check_directory("staged saves", options.stage, options.stage_bytes);
    check_neighbours(node_name, begun + options.seconds - 1);
    write_finding("end", "%.3f", clock_monotonic() - begun);
    return CODE_OK;
}
