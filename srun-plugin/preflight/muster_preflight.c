/*
 * muster_preflight.c - the program muster-preflight: one process a node says what it finds there (record.h). srun
 * --muster-preflight starts it on all nodes of a step and judges (run.h).
 *
 * It always ends by itself: each check has its bound, and an alarm ends what hangs in a library or on a file system.
 */
#include "config.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/error.h"
#include "srun-plugin/preflight/checks.h"
#include "srun-plugin/preflight/deadline.h"
#include "srun-plugin/preflight/exchange.h"
#include "srun-plugin/preflight/record.h"
#include "srun-plugin/preflight/say.h"

struct options {
    const char *checkpoint, *stage;
    uint64_t checkpoint_bytes, stage_bytes;
    int seconds;
};

static const char usage[] = "usage: srun --mpi=pmi2 --ntasks-per-node=1 muster-preflight [--checkpoint DIR]\n"
                            "       [--checkpoint-bytes N] [--stage DIR] [--stage-bytes N] [--seconds N]\n"
                            "\nSee muster-preflight(1).\n";

static int read_options(int argc, char **argv, struct options *options)
{
    static const struct option known[] = {
        {"checkpoint", required_argument, NULL, 'c'}, {"checkpoint-bytes", required_argument, NULL, 'C'},
        {"stage", required_argument, NULL, 's'},      {"stage-bytes", required_argument, NULL, 'S'},
        {"seconds", required_argument, NULL, 't'},    {"help", no_argument, NULL, 'h'},
        {"version", no_argument, NULL, 'v'},          {0},
    };
    int option;

    *options = (struct options){.seconds = 15};
    while ((option = getopt_long(argc, argv, "", known, NULL)) != -1)
        switch (option) {
        case 'c':
            options->checkpoint = optarg;
            break;
        case 'C':
            options->checkpoint_bytes = strtoull(optarg, NULL, 10);
            break;
        case 's':
            options->stage = optarg;
            break;
        case 'S':
            options->stage_bytes = strtoull(optarg, NULL, 10);
            break;
        case 't':
            options->seconds = atoi(optarg);
            break;
        case 'h':
            fputs(usage, stdout);
            exit(CODE_OK);
        case 'v':
            puts("muster-preflight " PACKAGE_VERSION);
            exit(CODE_OK);
        default:
            fputs(usage, stderr);
            return -1;
        }
    if (optind < argc || options->seconds < 3 || options->seconds > 3600) {
        fputs(usage, stderr);
        return -1;
    }
    return 0;
}

static void say_clock(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    say("clock", "%lld.%06ld", (long long)now.tv_sec, now.tv_nsec / 1000);
}

int main(int argc, char **argv)
{
    const char *slurm_name = getenv("SLURMD_NODENAME"), *other_root = getenv("MUSTER_PREFLIGHT_ROOT");
    const char *root = other_root && other_root[0] ? other_root : "/";
    char name[RECORD_NAME_SIZE] = "?";
    double begun = deadline_now();
    struct options options;

    if (read_options(argc, argv, &options) < 0)
        return CODE_USAGE;
    gethostname(name, sizeof name - 1);
    if (slurm_name)
        snprintf(name, sizeof name, "%s", slurm_name);
    alarm((unsigned)options.seconds + 1);
    say_as(name);
    say_clock();
    check_plugin();
    check_versions(root);
    check_machine(root);
    if (root != other_root)
        check_nvml();
    check_directory("checkpoints", options.checkpoint, options.checkpoint_bytes);
    check_directory("staged saves", options.stage, options.stage_bytes);
    exchange(name, begun + options.seconds - 1);
    say("end", "%.3f", deadline_now() - begun);
    return CODE_OK;
}
