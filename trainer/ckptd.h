/*
 * ckptd.h - the muster-ckptd(8) of this node, as the child of its first rank.
 */
#ifndef MUSTER_TRAINER_CKPTD_H
#define MUSTER_TRAINER_CKPTD_H

#include <stdbool.h>
#include <sys/types.h>

#include "common/error.h"

struct ckptd {
    pid_t pid; /* 0: not running */
};

/*
 * Start it on a stage: the one beside this program, else the one in PATH. It gets a session of its own, so that a
 * terminal's ^C ends the trainer, which then saves, and not what drains the save. mib: the most MiB a second; 0 is no
 * limit.
 */
int ckptd_start(struct ckptd *ckptd, const char *stage, int mib, struct error *err);

/* Whether it has ended since it was started; then it can be started again. */
bool ckptd_ended(struct ckptd *ckptd);

/* Wait until it has ended, but not for longer than so many seconds. */
void ckptd_join(struct ckptd *ckptd, double seconds);

#endif
