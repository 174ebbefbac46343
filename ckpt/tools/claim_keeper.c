#include "ckpt/tools/claim_keeper.h"

#include <poll.h>
#include <signal.h>
#include <stdbool.h>
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

/* False if it cannot be read. If another run has the number, *claim is one that has lost the directory. */
static bool read_claim(struct ckpt_claim *claim, const char *dir, uint64_t number, pid_t parent)
{
    struct error ignored;

    if (ckpt_claim_read(dir, claim, &ignored) <= 0)
        return false;
    if (claim->number == number && claim->pid == (int)parent)
        return true;
    ckpt_claim_clear(claim);
    *claim = (struct ckpt_claim){.number = number, .pid = (int)parent};
    return true;
}

static void end_claim(const char *dir, struct ckpt_claim *claim, char command)
{
    struct error ignored;

    claim->heartbeat = clock_realtime();
    claim->released = command == CLAIM_STAYS ? 0 : claim->heartbeat;
    if (command == CLAIM_WITHDRAW)
        ckpt_claim_withdraw(dir, claim, &ignored);
    else
        ckpt_claim_refresh(dir, claim, &ignored);
}

int claim_keep(const char *dir, uint64_t number, pid_t parent)
{
    double beat = clock_monotonic() + BEAT_SECONDS;
    struct ckpt_claim claim;
    struct error err;
    bool known;

    serve_parent(parent);
    setvbuf(stdout, NULL, _IOLBF, 0);
    known = read_claim(&claim, dir, number, parent);
    for (;;) {
        struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
        bool asked = poll(&input, 1, LOOK_MS) > 0;
        char command;

        if (asked && read(STDIN_FILENO, &command, 1) != 1)
            return CODE_OK;
        if (!known && !(known = read_claim(&claim, dir, number, parent))) {
            if (asked && command != CLAIM_LOOK)
                return CODE_OK;
            if (asked)
                puts("");
            continue;
        }
        if (ckpt_claim_check(dir, &claim, &err) > 0) { /* a directory that fails is reported by the saves */
            puts(err.text);
            return CODE_CONFIG;
        }
        if (asked && command != CLAIM_LOOK) {
            end_claim(dir, &claim, command);
            return CODE_OK;
        }
        if (asked)
            puts("");
        if (clock_monotonic() < beat)
            continue;
        beat = clock_monotonic() + BEAT_SECONDS;
        claim.heartbeat = clock_realtime();
        ckpt_claim_refresh(dir, &claim, &err);
    }
}
