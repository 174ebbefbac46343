/* muster-ckptd.c - the program muster-ckptd: drains one node's stage. See muster-ckptd(8). */
#include "config.h"

#include "ckpt/drain.h"

#include <getopt.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

static const char help[] =
    "Usage: muster-ckptd [OPTION]... STAGE\n"
    "Copy what a training has staged in this node's memory to its checkpoint directory, and commit it.\n"
    "\n"
    "      --once         end when nothing is left, not only when the stage is closed\n"
    "      --seconds=N    end after N seconds, whatever is left\n"
    "      --cap=MIB      write at most so many MiB a second\n"
    "      --child        serve the process that started it: go on through signals that end a job, until the stage is\n"
    "                     closed or that process is gone; then as --once\n"
    "      --partner      also drain copies of other nodes' shards\n"
    "      --idle=N       with --once: do not wait for other nodes' shards when nothing moves for N seconds (300)\n"
    "  -j, --threads=N    shards copied at the same time (2)\n"
    "  -q, --quiet        log failures only\n"
    "      --help         this text\n"
    "      --version      the version\n"
    "\n"
    "One runs for a stage; a second one ends at once with 0. Killed at any moment, a new one goes on.\n"
    "Ends with 0 when all is committed; 75 when something is left, because it was stopped or the checkpoint directory\n"
    "cannot be written; 74 when staged data is damaged; 64 for a wrong command line. See muster-ckptd(8).\n";

static volatile sig_atomic_t stop;
static volatile sig_atomic_t orphaned; /* with --child: who started it is gone */

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

static int usage(const char *wrong, const char *what)
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
    if (result == CKPT_DRAIN_LEFT)
        return CODE_STOPPED;
    return failed > 0 ? CODE_IO : CODE_OK;
}

/* Slurm ends a job by signals to all of its processes, and so asks the trainer for a last save: the time to be here. */
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
    code = drain(stage, options);
    if (!orphaned)
        return code;
    options->stop = NULL;
    options->once = true;
    return drain(stage, options);
}

enum { OPT_ONCE = 256, OPT_SECONDS, OPT_CAP, OPT_PARTNER, OPT_IDLE, OPT_CHILD, OPT_HELP, OPT_VERSION };

/* What the command line says. */
struct words {
    struct ckpt_drain_options options;
    bool quiet, child;
};

/* An option with a number. Returns 0, or the exit code. */
static int set_number(struct ckpt_drain_options *options, int option, const char *text)
{
    double value;

    switch (option) {
    case OPT_SECONDS:
        return parse_number(text, 1e9, &options->seconds) < 0 ? usage("--seconds must be above 0, not ", text) : 0;
    case OPT_IDLE:
        return parse_number(text, 1e9, &options->idle) < 0 ? usage("--idle must be seconds above 0, not ", text) : 0;
    case OPT_CAP:
        if (parse_number(text, 1e9, &value) < 0)
            return usage("--cap must be MiB a second, above 0, not ", text);
        options->cap = (uint64_t)ceil(value * 1048576);
        return 0;
    default:
        if (parse_number(text, 16, &value) < 0 || value != floor(value))
            return usage("--threads must be 1 to 16, not ", text);
        options->threads = (int)value;
        return 0;
    }
}

/* -1: go on; otherwise the exit code. */
static int parse_options(struct words *words, int argc, char **argv)
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
            words->options.once = true;
        } else if (option == OPT_PARTNER) {
            words->options.partner = true;
        } else if (option == OPT_CHILD) {
            words->child = true;
        } else if (option == 'q') {
            words->quiet = true;
        } else if (option == OPT_HELP) {
            fputs(help, stdout);
            return 0;
        } else if (option == OPT_VERSION) {
            puts("muster-ckptd " PACKAGE_VERSION);
            return 0;
        } else if (option == '?') {
            return CODE_USAGE; /* getopt has said what is wrong */
        } else if ((code = set_number(&words->options, option, optarg)) != 0) {
            return code;
        }
    }
    return optind + 1 == argc ? -1 : usage("one staging directory is needed", "");
}

int main(int argc, char **argv)
{
    struct words words = {.options = {.stop = &stop, .log = log_line, .log_arg = &words.quiet}};
    struct sigaction action = {.sa_handler = on_signal};
    int code = parse_options(&words, argc, argv);

    if (code >= 0)
        return error_output(code);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* "ulimit -f": a write that fails, as on a full disk */
    signal(SIGHUP, SIG_IGN);
    if (words.child)
        return serve_parent(argv[optind], &words.options);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    return drain(argv[optind], &words.options);
}
