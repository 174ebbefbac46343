/*
 * claim.h - one directory, one run: what commits and drains ask about the claims on a directory of checkpoints
 * (struct ckpt_claim in ckpt/ckpt.h).
 *
 * The name of a run's attempt ends in ".owner-N", where N is the number of the claim that it was made under. So every
 * process that commits knows the claim, of whatever release it is and whatever it finds the attempt in, and the formats
 * of stages and parts have no member for it. An attempt without that ending belongs to no claim, and is committed.
 *
 * A commit is a rename of step-N.ATTEMPT.partial. Who takes a directory over from another job renames all such
 * directories of earlier claims after its own claim is there (abandon_earlier), and a commit looks for a newer
 * claim after its directory was made. So one of them finds the other, even if the process that commits was stopped for
 * long between looking and renaming.
 */
#ifndef MUSTER_CKPT_WRITE_CLAIM_H
#define MUSTER_CKPT_WRITE_CLAIM_H

#include "ckpt/file/file.h"
#include "ckpt/ckpt.h"

/* Whether the attempt may be committed. 0: it may; 1: the directory belongs to a run that does not accept it, as *err
 * says (CODE_CONFIG); -1: that is unknown. */
int claim_check_attempt(const struct directory *parent, const char *attempt, struct error *err);

#endif
