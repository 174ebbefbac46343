/* muster-ckptd.c - the program muster-ckptd: drains one node's stage. See muster-ckptd(8). */
#include "config.h"

#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "ckpt/drain/drain.h"
#include "common/clock.h"
#include "common/option.h"

static const char help[] =
    "Usage: muster-ckptd [OPTION]... STAGE\n"
    "Copy saves that are staged in this node's memory to the checkpoint directory, and commit them.\n"
    "\n"
    "      --once         end when nothing is left, also if the stage is not closed\n"
    "      --seconds=N    end after N seconds, even if something is left\n"
    "      --cap=MIB      write at most so many MiB/s\n"
    "      --child=PID    drain for the parent process, which has that PID: ignore the signals that end a job; if the\n"
    "                     parent ends, go on as with --once --idle=0\n"
    "      --claim=N      with --child: keep its claim N on a checkpoint directory, which is given in place of STAGE\n"
    "      --partner      also drain copies of other nodes' shards\n"
    "      --idle=N       do not wait for other nodes' shards when nothing moves for N seconds (300); 0: try once\n"
    "      --reclaim=AGE  of a job that has ended: end at once with 0 if a process uses STAGE; remove saves that "
    "cannot\n"
    "                     be drained and are older than AGE (90s, 30m, 24h, 7d)\n"
    "  -j, --threads=N    shards copied at the same time (2)\n"
    "  -q, --quiet        log failures only\n"
    "      --help         this text\n"
    "      --version      the version\n"
    "\n"
    "One process drains a stage. A second one waits for it with --once --seconds, else it ends at once with 0. If the\n"
    "first one is killed, the next one continues.\n"
    "Exits with 0 when all is committed; 75 when something is left, because it was stopped or the checkpoint "
    "directory\n"
    "cannot be written; 74 when staged data is damaged; 76 when a save is not committed because of other nodes; 64 "
    "for a\n"
    "wrong command line. See muster-ckptd(8).\n";

static volatile sig_atomic_t stop;

static void on_signal(int number)
{
    (void)number;
    stop = 1;
}

/* With --child, in a step of Slurm, until the output is closed when the parent has ended. Slurm waits for that when a
 * step ends, and drains the node after 60 s. */
#define OUTPUT_SECONDS 40

static void on_orphaned(int number)
{
    (void)number;
    alarm(OUTPUT_SECONDS);
}

static void close_output(int number)
{
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC);

    (void)number;
    dup2(null, STDOUT_FILENO);
    dup2(null, STDERR_FILENO);
}

static void log_line(const char *line, bool failure, void *arg)
{
    const bool *quiet = arg;
    time_t now = time(NULL);
    struct tm parts;
    char when[32] = "-";

    if (*quiet && !failure)
        return;
    if (localtime_r(&now, &parts))
        strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%S", &parts);
    fprintf(stderr, "%s muster-ckptd[%d]: %s\n", when, (int)getpid(), line);
}

static int run_drain(const char *stage, const struct ckpt_drain_options *options, double reclaim)
{
    struct error err = {0};
    int result = ckpt_drain(stage, options, &err), removed = 0;

    if (result == CKPT_DRAIN_LEFT && reclaim > 0)
        removed = ckpt_reclaim(stage, reclaim, options->log, options->log_arg, &err);
    if (result < 0 || removed < 0)
        return error_report(&err);
    return removed > 0 ? CODE_IO : result == CKPT_DRAIN_BUSY ? CODE_OK : result;
}

/* Slurm ends a job by signals to all of its processes, and the trainer then saves once more: the drain must go on. */
static void ignore_signals(void)
{
    static const int ends[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2, SIGCONT};

    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        signal(ends[i], SIG_IGN);
}

static void close_output_later(pid_t parent)
{
    struct sigaction action = {.sa_handler = on_orphaned};

    signal(SIGALRM, close_output);
    sigaction(SIGRTMIN, &action, NULL);
    prctl(PR_SET_PDEATHSIG, SIGRTMIN);
    if (getppid() != parent)
        on_orphaned(0);
}

/* ---- --claim: see CLAIM_LOOK in ckpt.h --------------------------------------------------------------------------- */

#define LOOK_MS      2000 /* between looks for a newer claim */
#define BEAT_SECONDS 10.0 /* between heartbeats */

/* A claim that has not been read yet cannot be written. */
static void write_heartbeat(const char *dir, struct ckpt_claim *claim, char command)
{
    struct error ignored;

    claim->heartbeat = clock_realtime();
    claim->released = command == CLAIM_RELEASE ? claim->heartbeat : 0;
    if (claim->accepts > 0)
        ckpt_claim_refresh(dir, claim, &ignored);
}

/* Returns the exit code. */
static int keep_claim(const char *dir, uint64_t number, pid_t parent)
{
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    struct ckpt_claim claim = {.number = number};
    double beat = clock_monotonic() + BEAT_SECONDS;
    struct error err;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        return CODE_OK;
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (char command = 0;;) {
        if (ckpt_claim_check(dir, &claim, &err) > 0) { /* a directory that fails is reported by the saves */
            fputs(err.text, stdout);
            return CODE_CONFIG;
        }
        if (command == CLAIM_LOOK)
            puts("");
        if (command == CLAIM_RELEASE || clock_monotonic() >= beat) {
            write_heartbeat(dir, &claim, command);
            beat = clock_monotonic() + BEAT_SECONDS;
        }
        if (command == CLAIM_RELEASE)
            return CODE_OK;
        command = 0;
        if (poll(&input, 1, LOOK_MS) > 0 && read(STDIN_FILENO, &command, 1) != 1)
            return CODE_OK;
    }
}

/* ---- the command line -------------------------------------------------------------------------------------------- */

struct command_line {
    struct ckpt_drain_options drain; /* but cap and threads */
    double cap, reclaim;             /* 0: not given */
    bool quiet;
    long threads; /* 0: not given */
    long parent;  /* with --child; 0 else */
    long claim;   /* with --claim; 0 else */
};

/* -1: go on; otherwise the exit code. */
static int parse_options(struct command_line *line, int argc, char **argv)
{
    const struct option_row rows[] = {
        {"once", OPTION_FLAG, .to = &line->drain.once},
        {"seconds", OPTION_REAL, .to = &line->drain.seconds, .least = 0.001, .most = 1e9},
        {"cap", OPTION_REAL, .to = &line->cap, .least = 0.001, .most = 1e9},
        {"partner", OPTION_FLAG, .to = &line->drain.partner},
        {"reclaim", OPTION_TIME, .to = &line->reclaim},
        {"idle", OPTION_REAL, .to = &line->drain.idle, .most = 1e9},
        {"threads", OPTION_WHOLE, .to = &line->threads, .least = 1, .most = 16, .letter = 'j'},
        {"child", OPTION_WHOLE, .to = &line->parent, .least = 1, .most = INT_MAX},
        {"claim", OPTION_WHOLE, .to = &line->claim, .least = 1},
        {"quiet", OPTION_FLAG, .to = &line->quiet, .letter = 'q'},
        {0},
    };
    int code;

    line->drain.idle = NAN;
    code = options_read(rows, argc, argv, help);
    if (code >= 0)
        return code;
    /* In struct ckpt_drain_options 0 is the default, and less is to try once. */
    line->drain.idle = isnan(line->drain.idle) ? 0 : line->drain.idle == 0 ? -1 : line->drain.idle;
    line->drain.require_unused = line->reclaim > 0;
    line->drain.cap = (uint64_t)ceil(line->cap * 1048576);
    line->drain.threads = (int)line->threads;
    return optind + 1 == argc ? -1 : option_fail("one staging directory is needed");
}

int main(int argc, char **argv)
{
    struct command_line line = {.drain = {.stop = &stop, .log = log_line, .log_arg = &line.quiet}};
    struct sigaction action = {.sa_handler = on_signal};
    int code = parse_options(&line, argc, argv);

    if (code >= 0)
        return error_output(code);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* "ulimit -f": a write that fails, as on a full disk */
    signal(SIGHUP, SIG_IGN);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    if (line.parent)
        ignore_signals();
    if (line.parent && line.claim)
        return keep_claim(argv[optind], (uint64_t)line.claim, (pid_t)line.parent);
    if (line.parent && getenv("SLURM_STEP_ID"))
        close_output_later((pid_t)line.parent);
    return run_drain(argv[optind], &line.drain, line.reclaim);
}
