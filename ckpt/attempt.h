/* attempt.h - the attempts at a step that lie in a directory of checkpoints. */
#ifndef MUSTER_CKPT_ATTEMPT_H
#define MUSTER_CKPT_ATTEMPT_H

#include "ckpt/file.h"
#include "ckpt/layout.h"

struct attempt {
    uint64_t step;
    char attempt[CKPT_ATTEMPT_SIZE];
};

/* All of them, in no order, malloc'ed. */
int attempt_list(const struct directory *parent, struct attempt **attempts, size_t *count, struct error *err);

/* Whether step-N is there with a manifest. */
bool attempt_is_committed(const struct directory *parent, uint64_t step);

/* The newest step that is committed: 1, or 0 when there is none. */
int attempt_newest_committed(const struct directory *parent, uint64_t *step, struct error *err);

/* ckpt_check_committed in an open directory. */
int attempt_check_committed(const struct directory *parent, const struct ckpt_save *save, struct error *err);

/* Remove the attempts at `step` other than `keep` (NULL: all of them). */
int attempt_clear_others(const struct directory *parent, uint64_t step, const char *keep, struct error *err);

/* Remove all attempts at steps before `step`. */
int attempt_clear_older(const struct directory *parent, uint64_t step, struct error *err);

#endif
