/* attempt.h - the attempts at a step that lie in a directory of checkpoints. */
#ifndef MUSTER_CKPT_ATTEMPT_H
#define MUSTER_CKPT_ATTEMPT_H

#include "ckpt/file.h"
#include "ckpt/layout.h"

struct attempt {
    uint64_t step;
    char attempt[CKPT_ATTEMPT_SIZE];
    bool abandoned; /* all that is left is the sign that it was given up */
};

/* All of them, the signs too, in no order, malloc'ed. */
int attempt_list(const struct directory *parent, struct attempt **attempts, size_t *count, struct error *err);

/* Whether step-N is there with a manifest. */
bool attempt_is_committed(const struct directory *parent, uint64_t step);

/* The newest step that is committed: 1, or 0 when there is none. */
int attempt_newest_committed(const struct directory *parent, uint64_t *step, struct error *err);

/* ckpt_check_committed in an open directory. */
int attempt_check_committed(const struct directory *parent, const struct ckpt_save *save, struct error *err);

/*
 * Check the forms of the parts and the manifest that lie in a directory: CODE_CONFIG, with the file, when one is unknown
 * (form.h). What cannot be read or is damaged passes.
 */
int attempt_check_forms(const struct directory *directory, struct error *err);

/* The same for the directory `name` in `parent`; one that is not there passes. */
int attempt_check_forms_in(const struct directory *parent, const char *name, struct error *err);

/*
 * Give up an attempt that other nodes may be writing to, and leave the sign for them with `why` in it (stage.h). One
 * that is committed meanwhile stays committed. 0 if the sign is there or the step is committed. One with files of an
 * unknown form is left alone: -1.
 */
int attempt_give_up(const struct directory *parent, uint64_t step, const char *attempt, const char *why,
                    struct error *err);

/* Whether an attempt was given up, and why ("" if that could not be left). */
bool attempt_is_given_up(const struct directory *parent, uint64_t step, const char *attempt, char *why, size_t size);

/*
 * Remove the attempts at `step` other than `keep` (NULL: all of them), and their signs. All that can be removed go; -1
 * where some cannot, and *err is of the first. Those with files of an unknown form are left alone, which is no failure.
 */
int attempt_clear_others(const struct directory *parent, uint64_t step, const char *keep, struct error *err);

/* Remove all attempts at steps before `step`, and their signs; likewise. */
int attempt_clear_older(const struct directory *parent, uint64_t step, struct error *err);

#endif
