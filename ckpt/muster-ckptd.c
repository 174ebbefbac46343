/* muster-ckptd.c - the program muster-ckptd: drains one node's stage. See muster-ckptd(8). */
#include "config.h"

#include "ckpt/drain.h"

#include <getopt.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char help[] =
    "Usage: muster-ckptd [OPTION]... STAGE_DIR\n"
    "Copy what a training has staged in this node's memory to its checkpoint directory, and commit it.\n"
    "\n"
    "      --once         end when nothing is left, not only when the stage is closed\n"
    "      --seconds=N    end after N seconds, whatever is left\n"
    "      --cap=N        write at most N MiB a second\n"
    "      --partner      also drain copies of other nodes' shards\n"
    "      --idle=N       give up a save when other nodes' shards are missing and nothing moves for N seconds (300)\n"
    "  -j, --threads=N    shards copied at the same time (2)\n"
    "  -q, --quiet        log failures only\n"
    "      --help         this text\n"
    "      --version      the version\n"
    "\n"
    "One runs for a stage; a second one ends at once with 0. Killed at any moment, a new one goes on.\n"
    "Ends with 0 when all is committed; 74 when a save failed; 75 when it was stopped with something left.\n";

static volatile sig_atomic_t stop;

static void on_signal(int number)
{
    (void)number;
    stop = 1;
}

static int usage(const char *format, const char *what)
{
    struct error err;

    error_set(&err, CODE_USAGE, "%s%s (see muster-ckptd --help)", format, what);
    return error_report(&err);
}

static void log_line(const char *line, void *arg)
{
    const bool *quiet = arg;
    time_t now = time(NULL);
    struct tm parts;
    char when[32] = "-";

    if (*quiet && !strstr(line, "failed"))
        return;
    if (localtime_r(&now, &parts))
        strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%S", &parts);
    fprintf(stderr, "%s muster-ckptd[%d]: %s\n", when, (int)getpid(), line);
}

static int parse_number(const char *text, double most, double *value)
{
    char *end;

    *value = strtod(text, &end);
    return *text == '\0' || *end != '\0' || !(*value > 0) || *value > most ? -1 : 0;
}

static int drain(const char *stage, const struct ckpt_drain_options *options)
{
    struct error err = {0};
    int failed, result = ckpt_drain(stage, options, &failed, &err);

    if (result < 0)
        return error_report(&err);
    if (failed > 0)
        return CODE_IO;
    return result == CKPT_DRAIN_LEFT ? CODE_STOPPED : CODE_OK;
}

int main(int argc, char **argv)
{
    enum { OPT_ONCE = 256, OPT_SECONDS, OPT_CAP, OPT_PARTNER, OPT_IDLE, OPT_HELP, OPT_VERSION };
    static const struct option table[] = {
        {"once", no_argument, NULL, OPT_ONCE},       {"seconds", required_argument, NULL, OPT_SECONDS},
        {"cap", required_argument, NULL, OPT_CAP},   {"partner", no_argument, NULL, OPT_PARTNER},
        {"idle", required_argument, NULL, OPT_IDLE}, {"threads", required_argument, NULL, 'j'},
        {"quiet", no_argument, NULL, 'q'},           {"help", no_argument, NULL, OPT_HELP},
        {"version", no_argument, NULL, OPT_VERSION}, {NULL, 0, NULL, 0},
    };
    static bool quiet;
    struct ckpt_drain_options options = {.stop = &stop, .log = log_line, .log_arg = &quiet};
    struct sigaction action = {.sa_handler = on_signal};
    double value;
    int option;

    while ((option = getopt_long(argc, argv, "qj:", table, NULL)) != -1)
        switch (option) {
        case OPT_ONCE:
            options.once = true;
            break;
        case OPT_SECONDS:
            if (parse_number(optarg, 1e9, &options.seconds) < 0)
                return usage("--seconds must be a number above 0, not ", optarg);
            break;
        case OPT_CAP:
            if (parse_number(optarg, 1e9, &value) < 0)
                return usage("--cap must be MiB a second, above 0, not ", optarg);
            options.cap = (uint64_t)ceil(value * 1048576);
            break;
        case OPT_PARTNER:
            options.partner = true;
            break;
        case OPT_IDLE:
            if (parse_number(optarg, 1e9, &options.idle) < 0)
                return usage("--idle must be a number above 0, not ", optarg);
            break;
        case 'j':
            if (parse_number(optarg, 16, &value) < 0 || value != floor(value))
                return usage("--threads must be 1 to 16, not ", optarg);
            options.threads = (int)value;
            break;
        case 'q':
            quiet = true;
            break;
        case OPT_HELP:
            fputs(help, stdout);
            return 0;
        case OPT_VERSION:
            puts("muster-ckptd " PACKAGE_VERSION);
            return 0;
        default:
            return CODE_USAGE; /* getopt has said what is wrong */
        }
    if (optind + 1 != argc)
        return usage("one staging directory is needed", "");
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    return drain(argv[optind], &options);
}
