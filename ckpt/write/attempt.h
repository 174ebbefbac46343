/*
 * attempt.h - the attempts to save a step: making, listing, checking and removing them. The interface of ckpt/write for
 * the other folders of ckpt/; ckpt_write_shard, ckpt_commit and ckpt_check_owner are in ckpt/ckpt.h.
 *
 * An attempt that can never be committed is *abandoned*, because the other nodes' files would fill the disk for ever:
 * <dir>/step-N.ATTEMPT.partial is renamed to step-N.ATTEMPT.abandoned, which needs no room, and emptied. It stays as a
 * *marker*, with the reason in it (the file `why`, if there is room). The processes of other nodes look for the marker
 * (stage.h). Abandoning and committing rename the same directory, so only one succeeds. A commit
 * of that step, the prune after a later one, or the next save (attempt_remove_stale) removes the markers. Messages to
 * users call such an attempt "given up".
 */
#ifndef MUSTER_CKPT_WRITE_ATTEMPT_H
#define MUSTER_CKPT_WRITE_ATTEMPT_H

#include "ckpt/format/manifest.h"

struct attempt {
    char name[FILE_NAME_SIZE]; /* of its directory */
    uint64_t step;
    char attempt[CKPT_ATTEMPT_SIZE];
    bool abandoned; /* only the marker is left */
};

/* The next attempt or marker in a listing of a directory of checkpoints, or of a stage; false at the end. */
bool attempt_next(struct listing *listing, struct attempt *attempt);

/* All of them, in no order, malloc'ed. */
int attempt_list(const struct directory *parent, struct attempt **attempts, size_t *count, struct error *err);

/* Whether step-N exists and has a manifest, of whatever attempt or run: ckpt_check_owner finds whose it is. */
bool step_is_committed(const struct directory *parent, uint64_t step);

/* The newest step that is committed: 1, or 0 when there is none. */
int step_newest_committed(const struct directory *parent, uint64_t *step, struct error *err);

/* 1: all shards of an attempt exist, with their parts or the manifest, so that ckpt_commit would commit it; 0; -1. */
int attempt_is_complete(const struct directory *parent, uint64_t step, const char *attempt, struct error *err);

/*
 * Only one process may commit an attempt: if two do, GlusterFS can lose manifest.json. It is the one that makes the
 * link `commit` in the attempt's directory, with `who`, its stage's name, as the text. If it dies, only a drainer of
 * that stage can commit, or ckpt_recover, which ignores the link. 1: `who` commits; 0: another one does, has done it,
 * or has died; -1. On a file system without symbolic links each of them commits.
 */
int attempt_take_commit(const struct directory *parent, uint64_t step, const char *attempt, const char *who,
                        struct error *err);

#define ATTEMPT_COMMIT "commit"

/* That commit failed, or the attempt was not complete after all: another process may try. */
void attempt_leave_commit(const struct directory *parent, uint64_t step, const char *attempt);

/*
 * Check the formats of the parts and the manifest in a directory: CODE_CONFIG, with the file, when one is unknown
 * (json_fields.h). Unreadable and damaged files pass.
 */
int attempt_check_formats(const struct directory *directory, struct error *err);

/* The same for the directory `name` in `parent`; a missing one passes. */
int attempt_check_formats_in(const struct directory *parent, const char *name, struct error *err);

/*
 * Abandon an attempt that other nodes may be writing to: leaves the marker for them, with the reason in it. An attempt
 * that is committed meanwhile stays committed. 0 if the marker is there or the step is committed. An attempt with
 * files of an unknown format is left alone: -1.
 */
int attempt_abandon(const struct directory *parent, uint64_t step, const char *attempt, const char *why,
                    struct error *err);

/* Whether an attempt was abandoned, and the reason ("" if it could not be written). */
bool attempt_is_abandoned(const struct directory *parent, uint64_t step, const char *attempt, char *why, size_t size);

/*
 * Remove attempts and their markers. With `older`: all at steps before `step`. Otherwise: all at `step`, except the
 * attempt `except` if that is not NULL. Continues after a failure; -1 with the first error. Those with files of an
 * unknown format are left alone, which is no failure.
 */
int attempt_clear(const struct directory *parent, uint64_t step, bool older, const char *except, struct error *err);

/* file_trash of an attempt or a checkpoint. One with files of an unknown format is left alone, which is no failure. */
int attempt_trash(const struct directory *parent, const char *name, struct error *err);

/*
 * Call before a save writes. Removes earlier attempts, whose room the save may need: those before `step` and
 * the newest committed step; and, if `attempt` is not NULL, those at `step` but `attempt` (other ranks may be writing
 * it). Failures are ignored.
 */
void attempt_remove_stale(const struct directory *parent, uint64_t step, const char *attempt);

/*
 * Whether the claims on the directory (struct ckpt_claim) allow to commit the attempt. 0: they do; 1: the
 * directory belongs to a run that does not accept it, as *err says (CODE_CONFIG); -1: that is unknown.
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
int attempt_check_claim(const struct directory *parent, const char *attempt, struct error *err);

#endif
