/* muster-ckptd.c - the program muster-ckptd: drains one node's stage. See muster-ckptd(8). */
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "ckpt/drain/drain.h"
#include "common/clock.h"
#include "common/process/launcher.h"
#include "common/option.h"

static const char help[] =
    "Usage: muster-ckptd [OPTION]... STAGE\n"
    "Copy saves that are staged in this node's memory to the checkpoint directory, and commit them.\n"
    "\n"
    "      --once         end when nothing is left, also if the stage is not closed\n"
    "      --seconds=N    end after N seconds, even if something is left\n"
    "      --cap=MIB      write at most so many MiB/s\n"
    "      --child        drain for the run at the other end of the input: ignore signals; when that run has ended,\n"
    "                     go on as with --once; with --once: try again what fails until then\n"
    "      --claim        claim a checkpoint directory, given in place of STAGE, for the run at the other end\n"
    "      --serve        start such processes outside a step of Slurm; the plugin starts this one\n"
    "      --partner      also drain copies of other nodes' shards\n"
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

/* With --child in a step of Slurm: from the end of the run until the output is closed, for which Slurm waits when the
 * step ends. */
#define OUTPUT_SECONDS 2

static volatile sig_atomic_t run_ended;
static unsigned output_seconds; /* 0: it stays open */

static void on_run_ended(int number)
{
    (void)number;
    run_ended = 1;
    alarm(output_seconds);
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

/* The kernel sends SIGIO when the other end of the input is closed. */
static void watch_run(void)
{
    struct sigaction action = {.sa_handler = on_run_ended};
    struct pollfd input = {.fd = STDIN_FILENO};

    signal(SIGALRM, close_output);
    sigaction(SIGIO, &action, NULL);
    output_seconds = getenv("SLURM_JOB_ID") ? OUTPUT_SECONDS : 0;
    if (fcntl(STDIN_FILENO, F_SETOWN, getpid()) < 0 || fcntl(STDIN_FILENO, F_SETFL, O_ASYNC) < 0 ||
        poll(&input, 1, 0) != 0) /* it has ended before */
        on_run_ended(0);
}

/* ---- --claim: see enum claim_command in ckpt.h ------------------------------------------------------------------- */

#define LOOK_MS      2000 /* between looks for a newer claim */
#define BEAT_SECONDS 10.0 /* between heartbeats */

/*
 * First commits a complete save of another job: once the directory is claimed, that save is not accepted any more. If
 * there was no owner, several runs may try to take number 1. The one that gets it then takes the time as its number.
 */
static int take_directory(const char *dir, struct ckpt_claim *claim, struct error *err)
{
    bool others = claim->number > 1 && claim->accepts == claim->number;
    int taken;

    if (ckpt_probe(dir, err) < 0 || (others && ckpt_recover(dir, err) < 0))
        return -1;
    claim->since = claim->heartbeat = clock_realtime();
    taken = ckpt_claim_take(dir, claim, err);
    if (taken <= 0 || claim->number > 1)
        return taken;
    claim->number = claim->accepts = (uint64_t)(claim->since * 1e3);
    return ckpt_claim_take(dir, claim, err);
}

/* Does nothing before CLAIM_TAKE or CLAIM_KEEP. */
static int write_heartbeat(const char *dir, struct ckpt_claim *claim, bool release, struct error *err)
{
    claim->heartbeat = clock_realtime();
    claim->released = release ? claim->heartbeat : 0;
    return claim->accepts > 0 ? ckpt_claim_refresh(dir, claim, err) : 0;
}

/* *m is the command, and becomes its answer. */
static void do_command(const char *dir, struct ckpt_claim *kept, struct claim_message *m)
{
    m->result = 0;
    if (m->command == CLAIM_READ) {
        ckpt_claim_clear(&m->claim);
        m->result = ckpt_claim_read(dir, &m->claim, &m->error);
    } else if (m->command == CLAIM_TAKE) {
        m->result = take_directory(dir, &m->claim, &m->error);
    } else if (m->command == CLAIM_LOOK) {
        m->result = ckpt_claim_check(dir, kept, &m->error);
    } else if (m->command == CLAIM_RELEASE) {
        m->result = write_heartbeat(dir, kept, true, &m->error);
    }
}

/* After a command: keeps the claim that the run has from now on; drops one that was released or is lost. */
static void change_kept(struct ckpt_claim *kept, struct claim_message *m)
{
    if (m->command == CLAIM_KEEP || (m->command == CLAIM_TAKE && m->result > 0)) {
        ckpt_claim_clear(kept);
        *kept = m->claim;
        m->claim = (struct ckpt_claim){0};
    } else if (m->command == CLAIM_RELEASE || (m->command == CLAIM_LOOK && m->result > 0)) {
        ckpt_claim_clear(kept);
    }
}

/* Returns the exit code. */
static int keep_claim(const char *dir)
{
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    struct ckpt_claim kept = {0}; /* number 0: none */
    double beat = clock_monotonic() + BEAT_SECONDS;

    for (;;) {
        struct claim_message m = {.command = CLAIM_LOOK};
        bool told = poll(&input, 1, kept.number > 0 ? LOOK_MS : -1) > 0, due = clock_monotonic() >= beat;

        if (told ? claim_message_receive(STDIN_FILENO, &m) < 0 : kept.number == 0)
            return CODE_OK;
        do_command(dir, &kept, &m);
        if (m.command == CLAIM_LOOK && m.result == 0 && due) {
            m.result = write_heartbeat(dir, &kept, false, &m.error);
            beat = clock_monotonic() + BEAT_SECONDS;
        }
        if (told || m.result != 0) /* unasked: the claim is lost, or cannot be refreshed at present */
            claim_message_send(STDIN_FILENO, &m);
        change_kept(&kept, &m);
        ckpt_claim_clear(&m.claim);
    }
}

/* ---- the command line -------------------------------------------------------------------------------------------- */

struct command_line {
    struct ckpt_drain_options drain; /* but cap and threads */
    double cap, reclaim;             /* 0: not given */
    bool quiet;
    long threads; /* 0: not given */
    bool child, claim, serve;
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
        {"threads", OPTION_WHOLE, .to = &line->threads, .least = 1, .most = 16, .letter = 'j'},
        {"child", OPTION_FLAG, .to = &line->child},
        {"claim", OPTION_FLAG, .to = &line->claim},
        {"serve", OPTION_FLAG, .to = &line->serve},
        {"quiet", OPTION_FLAG, .to = &line->quiet, .letter = 'q'},
        {0},
    };
    int code;

    code = options_read(rows, argc, argv, help);
    if (code >= 0)
        return code;
    line->drain.require_unused = line->reclaim > 0;
    line->drain.cap = (uint64_t)ceil(line->cap * 1048576);
    line->drain.threads = (int)line->threads;
    return optind + !line->serve == argc ? -1 : option_fail("one staging directory is needed");
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
    if (line.child || line.claim || line.serve)
        program_ignore_signals();
    if (line.serve) {
        launcher_serve(STDIN_FILENO, STDOUT_FILENO);
        return CODE_OK;
    }
    if (line.claim)
        return keep_claim(argv[optind]);
    if (line.child) {
        line.drain.run_ended = &run_ended;
        watch_run();
    }
    return run_drain(argv[optind], &line.drain, line.reclaim);
}
