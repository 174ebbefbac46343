/* muster-ckptd.c - the program muster-ckptd: drains one node's stage. See muster-ckptd(8). */
#include "config.h"

#include <getopt.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "ckpt/drain/drain.h"
#include "common/text.h"

static const char help[] =
    "Usage: muster-ckptd [OPTION]... STAGE\n"
    "Copy saves that are staged in this node's memory to the checkpoint directory, and commit them.\n"
    "\n"
    "      --once         end when nothing is left, also if the stage is not closed\n"
    "      --seconds=N    end after N seconds, even if something is left\n"
    "      --cap=MIB      write at most so many MiB/s\n"
    "      --child        drain for the parent process: ignore the signals that end a job, until the stage is closed "
    "or\n"
    "                     the parent ends; then as --once\n"
    "      --partner      also drain copies of other nodes' shards\n"
    "      --idle=N       with --once: do not wait for other nodes' shards when nothing moves for N seconds (300)\n"
    "  -j, --threads=N    shards copied at the same time (2)\n"
    "  -q, --quiet        log failures only\n"
    "      --help         this text\n"
    "      --version      the version\n"
    "\n"
    "One process drains a stage; a second one ends at once with 0. If it is killed, the next one continues.\n"
    "Exits with 0 when all is committed; 75 when something is left, because it was stopped or the checkpoint "
    "directory\n"
    "cannot be written; 74 when staged data is damaged; 64 for a wrong command line. See muster-ckptd(8).\n";

static volatile sig_atomic_t stop;
static volatile sig_atomic_t orphaned; /* with --child: its parent has ended */

static void on_signal(int number)
{
    (void)number;
    stop = 1;
}

static void on_orphaned(int number)
{
    (void)number;
    orphaned = 1;
}

static int report_usage(const char *wrong, const char *what)
{
    struct error err;

    error_set(&err, CODE_USAGE, "%s%s (see muster-ckptd --help)", wrong, what);
    return error_report(&err);
}

static void log_line(const char *line, void *arg)
{
    const bool *quiet = arg;
    time_t now = time(NULL);
    struct tm parts;
    char when[32] = "-";

    if (*quiet && !strstr(line, "failed") && !strstr(line, " is left as it is: "))
        return;
    if (localtime_r(&now, &parts))
        strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%S", &parts);
    fprintf(stderr, "%s muster-ckptd[%d]: %s\n", when, (int)getpid(), line);
}

static int run_drain(const char *stage, const struct ckpt_drain_options *options)
{
    struct error err = {0};
    int failed, result = ckpt_drain(stage, options, &failed, &err);

    if (result < 0)
        return error_report(&err);
    if (result == CKPT_DRAIN_LEFT)
        return CODE_STOPPED;
    return failed > 0 ? CODE_IO : CODE_OK;
}

/* Slurm ends a job by signals to all of its processes, and the trainer then saves once more: the drain must go on. */
static int serve_parent(const char *stage, struct ckpt_drain_options *options)
{
    static const int ends[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2, SIGCONT};
    struct sigaction action = {.sa_handler = on_orphaned};
    pid_t parent = getppid();
    int code;

    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        signal(ends[i], SIG_IGN);
    sigaction(SIGRTMIN, &action, NULL);
    prctl(PR_SET_PDEATHSIG, SIGRTMIN);
    if (getppid() != parent)
        orphaned = 1;
    options->stop = &orphaned;
    code = run_drain(stage, options);
    if (!orphaned)
        return code;
    options->stop = NULL;
    options->once = true;
    return run_drain(stage, options);
}

enum { OPT_ONCE = 256, OPT_SECONDS, OPT_CAP, OPT_PARTNER, OPT_IDLE, OPT_CHILD, OPT_HELP, OPT_VERSION };

/* The command line. */
struct command_line {
    struct ckpt_drain_options options;
    bool quiet, child;
};

static bool read_positive(const char *text, double *value)
{
    return text_to_double(text, 0, 1e9, value) && *value > 0;
}

/* An option with a number. Returns 0, or the exit code. */
static int set_number(struct ckpt_drain_options *options, int option, const char *text)
{
    double value;
    long threads;

    switch (option) {
    case OPT_SECONDS:
        return read_positive(text, &options->seconds) ? 0 : report_usage("--seconds must be above 0, not ", text);
    case OPT_IDLE:
        return read_positive(text, &options->idle) ? 0 : report_usage("--idle must be seconds above 0, not ", text);
    case OPT_CAP:
        if (!read_positive(text, &value))
            return report_usage("--cap must be MiB a second, above 0, not ", text);
        options->cap = (uint64_t)ceil(value * 1048576);
        return 0;
    default:
        if (!text_to_long(text, 1, 16, &threads))
            return report_usage("--threads must be 1 to 16, not ", text);
        options->threads = (int)threads;
        return 0;
    }
}

/* -1: go on; otherwise the exit code. */
static int parse_options(struct command_line *line, int argc, char **argv)
{
    static const struct option table[] = {
        {"once", no_argument, NULL, OPT_ONCE},
        {"seconds", required_argument, NULL, OPT_SECONDS},
        {"cap", required_argument, NULL, OPT_CAP},
        {"partner", no_argument, NULL, OPT_PARTNER},
        {"idle", required_argument, NULL, OPT_IDLE},
        {"threads", required_argument, NULL, 'j'},
        {"child", no_argument, NULL, OPT_CHILD},
        {"quiet", no_argument, NULL, 'q'},
        {"help", no_argument, NULL, OPT_HELP},
        {"version", no_argument, NULL, OPT_VERSION},
        {NULL, 0, NULL, 0},
    };
    int option, code;

    while ((option = getopt_long(argc, argv, "qj:", table, NULL)) != -1) {
        if (option == OPT_ONCE) {
            line->options.once = true;
        } else if (option == OPT_PARTNER) {
            line->options.partner = true;
        } else if (option == OPT_CHILD) {
            line->child = true;
        } else if (option == 'q') {
            line->quiet = true;
        } else if (option == OPT_HELP) {
            fputs(help, stdout);
            return 0;
        } else if (option == OPT_VERSION) {
            puts("muster-ckptd " PACKAGE_VERSION);
            return 0;
        } else if (option == '?') {
            return CODE_USAGE; /* getopt has printed the error */
        } else if ((code = set_number(&line->options, option, optarg)) != 0) {
            return code;
        }
    }
    return optind + 1 == argc ? -1 : report_usage("one staging directory is needed", "");
}

int main(int argc, char **argv)
{
    struct command_line line = {.options = {.stop = &stop, .log = log_line, .log_arg = &line.quiet}};
    struct sigaction action = {.sa_handler = on_signal};
    int code = parse_options(&line, argc, argv);

    if (code >= 0)
        return error_output(code);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* "ulimit -f": a write that fails, as on a full disk */
    signal(SIGHUP, SIG_IGN);
    if (line.child)
        return serve_parent(argv[optind], &line.options);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    return run_drain(argv[optind], &line.options);
}
