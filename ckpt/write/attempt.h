/* attempt.h - the attempts to save a step: making, listing, checking and removing them. The door of ckpt/write. */
#ifndef MUSTER_CKPT_WRITE_ATTEMPT_H
#define MUSTER_CKPT_WRITE_ATTEMPT_H

#include "ckpt/file/file.h"
#include "ckpt/format/manifest.h"

struct attempt {
    uint64_t step;
    char attempt[CKPT_ATTEMPT_SIZE];
    bool abandoned; /* it was given up: only the sign is left (stage.h) */
};

/*
 * A save's part of the manifest, checked, with the shard's header (malloc'ed) and everything but the blocks' checksums,
 * for which there is room. Empty pieces are left out. NULL on failure.
 */
struct manifest *part_create(const struct ckpt_save *save, void **header, struct error *err);

/* All attempts in a directory of checkpoints, signs included, in no order, malloc'ed. */
int attempt_list(const struct directory *parent, struct attempt **attempts, size_t *count, struct error *err);

/* Whether step-N exists and has a manifest. */
bool attempt_is_committed(const struct directory *parent, uint64_t step);

/* The newest step that is committed: 1, or 0 when there is none. */
int attempt_newest_committed(const struct directory *parent, uint64_t *step, struct error *err);

/* ckpt_check_committed in an open directory. */
int attempt_check_committed(const struct directory *parent, const struct ckpt_save *save, struct error *err);

/*
 * Check the forms of the parts and the manifest in a directory: CODE_CONFIG, with the file, when one is unknown
 * (json_fields.h). Unreadable and damaged files pass.
 */
int attempt_check_forms(const struct directory *directory, struct error *err);

/* The same for the directory `name` in `parent`; a missing one passes. */
int attempt_check_forms_in(const struct directory *parent, const char *name, struct error *err);

/*
 * Give up an attempt that other nodes may be writing to: leaves the sign for them, with the reason in it (stage.h). An
 * attempt that is committed meanwhile stays committed. 0 if the sign is there or the step is committed. An attempt with
 * files of an unknown form is left alone: -1.
 */
int attempt_give_up(const struct directory *parent, uint64_t step, const char *attempt, const char *why,
                    struct error *err);

/* Whether an attempt was given up, and the reason ("" if it could not be written). */
bool attempt_is_given_up(const struct directory *parent, uint64_t step, const char *attempt, char *why, size_t size);

/*
 * Remove the attempts at `step` other than `keep` (NULL: all of them), and their signs. All that can be removed go; -1
 * where some cannot, and *err is of the first. Those with files of an unknown form are left alone, which is no failure.
 */
int attempt_clear_others(const struct directory *parent, uint64_t step, const char *keep, struct error *err);

/* Remove all attempts at steps before `step`, and their signs; likewise. */
int attempt_clear_older(const struct directory *parent, uint64_t step, struct error *err);

/*
 * Before a save writes: remove earlier attempts, whose room it may need. Of older steps only those before the newest
 * committed one; at this step all but `attempt`, which other ranks may be writing; NULL: none. Failures are ignored.
 */
void attempt_make_room(const struct directory *parent, uint64_t step, const char *attempt);

#endif
