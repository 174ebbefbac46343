/*
 * claim.h - tells commits and drains whether the claims on a directory of checkpoints (struct ckpt_claim in
 * ckpt/ckpt.h) allow them to commit an attempt.
 *
 * The name of a run's attempt ends in ".owner-N", where N is the number of the claim that it was made under. So a
 * process of any release that commits knows the claim, and the formats of stages and parts need no member for it. An
 * attempt without that ending belongs to no claim, and is committed.
 *
 * A commit is a rename of step-N.ATTEMPT.partial. A run that takes a directory over from another job first writes its
 * claim, then renames all such directories of earlier claims (abandon_earlier). A commit checks for a newer claim after
 * its directory was created. So one of the two sees the other, even if the committing process was stopped for long
 * between check and rename.
 */
#ifndef MUSTER_CKPT_WRITE_CLAIM_H
#define MUSTER_CKPT_WRITE_CLAIM_H

#include "ckpt/file/file.h"
#include "ckpt/ckpt.h"

/* Whether the attempt may be committed. 0: it may; 1: the directory belongs to a run that does not accept it, as *err
 * says (CODE_CONFIG); -1: that is unknown. */
int claim_check_attempt(const struct directory *parent, const char *attempt, struct error *err);

#endif
