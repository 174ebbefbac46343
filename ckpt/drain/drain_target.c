/* drain_target.c - the checkpoint directory as the child finds it: there, owned, the attempt abandoned or missing. */
#include <sys/stat.h>

#include "ckpt/drain/drain_internal.h"
#include "ckpt/write/attempt.h"

#define WHY_TRIES   20 /* to read why another node has abandoned the attempt */
#define WHY_SECONDS 0.02

#define LOST_SECONDS 5.0 /* a network file system may show another node's rename late */

int drain_check_abandoned(struct drain_turn *turn, struct error *err)
{
    const struct staged_save *save = &turn->save->staged.save;
    char why[512];

    if (!attempt_is_abandoned(&turn->target, save->step, save->attempt, why, sizeof why))
        return 0;
    for (int tries = 0; tries < WHY_TRIES && !*why; tries++) { /* written a moment later, if there is room */
        clock_sleep(WHY_SECONDS);
        attempt_is_abandoned(&turn->target, save->step, save->attempt, why, sizeof why);
    }
    return error_set(err, CODE_PEER, "given up by another node: %s", *why ? why : "its reason could not be written");
}

int drain_check_claim(struct drain_turn *turn, struct error *err)
{
    int lost = attempt_check_claim(&turn->target, turn->save->staged.save.attempt, err);

    if (lost == 0)
        return 0;
    err->code = lost > 0 ? CODE_DATA : CODE_IO;
    return -1;
}

int drain_judge_missing(struct drain_turn *turn, struct error *err)
{
    struct drain_save *state = turn->save;
    struct stat now;

    err->code = CODE_IO;
    if (!turn->drainer->in_use || fstat(turn->target.fd, &now) < 0 || now.st_dev != state->target_device ||
        now.st_ino != state->target_inode)
        return -1;
    if (state->lost_since == 0)
        state->lost_since = clock_monotonic();
    if (clock_monotonic() - state->lost_since >= LOST_SECONDS)
        err->code = CODE_DATA;
    return -1;
}
