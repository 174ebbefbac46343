/*
 * claim_keeper.h - a trainer's claim on its checkpoint directory, kept by a process of its own: muster-ckptd --claim.
 * It may wait for the file system for as long as that takes, and the trainer goes on and ends without it.
 *
 * It refreshes the heartbeat, and looks whether another run has taken the directory over: every two seconds, and when it
 * reads CLAIM_LOOK from its input. The answer to that is an empty line. It ends
 *   - when it reads another of CLAIM_*, after the heartbeat was written once more;
 *   - at once when its input or its parent, the trainer, ends;
 *   - with CODE_CONFIG, when the directory is lost: the reason is a line on its output.
 */
#ifndef MUSTER_CKPT_TOOLS_CLAIM_KEEPER_H
#define MUSTER_CKPT_TOOLS_CLAIM_KEEPER_H

#include <stdint.h>
#include <sys/types.h>

enum {
    CLAIM_LOOK = 'l',
    CLAIM_STAYS = 's',    /* as if the run had been killed */
    CLAIM_RELEASE = 'r',  /* the directory is free */
    CLAIM_WITHDRAW = 'w', /* the directory is free, and the claim is removed (ckpt_claim_withdraw) */
};

/* Returns the exit code. */
int claim_keep(const char *dir, uint64_t number, pid_t parent);

#endif
