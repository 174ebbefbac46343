#include "ckpt/tools/claim_keeper.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "ckpt/ckpt.h"
#include "common/clock.h"

#define LOOK_MS      2000 /* between looks for a newer claim */
#define BEAT_SECONDS 10.0 /* between heartbeats */

/* Slurm's signals to all of a job's processes are for the trainer, which saves then. */
static void serve_parent(pid_t parent)
{
    static const int ends[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2};

    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        signal(ends[i], SIG_IGN);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(CODE_OK);
}

/* A claim that has not been read yet cannot be written. */
static void write_heartbeat(const char *dir, struct ckpt_claim *claim, char command)
{
    struct error ignored;

    claim->heartbeat = clock_realtime();
    claim->released = command == CLAIM_RELEASE ? claim->heartbeat : 0;
    if (claim->accepts > 0)
        ckpt_claim_refresh(dir, claim, &ignored);
}

int claim_keep(const char *dir, uint64_t number, pid_t parent)
{
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    struct ckpt_claim claim = {.number = number};
    double beat = clock_monotonic() + BEAT_SECONDS;
    struct error err;

    serve_parent(parent);
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
