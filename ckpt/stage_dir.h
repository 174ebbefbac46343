/*
 * stage_dir.h - what lies in a stage (stage.h), for those who fill it and those who empty it.
 */
#ifndef MUSTER_CKPT_STAGE_DIR_H
#define MUSTER_CKPT_STAGE_DIR_H

#include "ckpt/file.h"
#include "ckpt/layout.h"

#include <sys/types.h>

#define STAGE_FREE     ".free"
#define STAGE_LOCK     "lock"
#define STAGE_USERS    "users"
#define STAGE_CLOSED   "closed"
#define STAGE_PARTNER  "partner"
#define STAGE_TARGET   "target.json"
#define STAGE_MADE     "made"
#define STAGE_ADOPTED  "adopted"
#define STAGE_DROPPED  "dropped"
#define STAGE_REPLACED "replaced"

#define STAGE_MAX_TARGET ((size_t)64 << 10)

/* Where a generation goes. */
struct target {
    char dir[4096]; /* absolute */
    uint64_t step;
    char attempt[CKPT_ATTEMPT_SIZE];
    int shards, local;
    int keep;
    uint64_t keep_every;
    double started; /* seconds since 1970 */
    mode_t umask;   /* of who staged it, and what is made of it has: it is target.json's own mode */
};

/* Open the stage; `make` makes it. Not ours, not a directory or open to others: CODE_IO. ENOENT is left in errno. */
int stage_directory_open(struct directory *stage, const char *path, bool make, struct error *err);

/*
 * Open or make the generation's directory beneath the stage, and its target.json. Ranks of a node may all do it at
 * once; they write the same, the time aside.
 */
int generation_make(struct directory *generation, const struct directory *stage, const struct target *target,
                    struct error *err);

/*
 * All generations, oldest first, malloc'ed. Those without a target.json, which are just being made or whose maker died,
 * have started = 0. `unknown` has a code other than CODE_OK where target.json is there but cannot be read, or is of an
 * unknown form (form.h), and for directories that this muster gives no such name: those are left alone.
 */
struct generation {
    struct target target;
    char name[LAYOUT_NAME_SIZE];
    struct error unknown;
};
int generation_list(const struct directory *stage, struct generation **generations, size_t *count, struct error *err);

/*
 * Check that this muster knows the forms of all of it, the copies of partners' shards included: else -1 and the
 * generation must be left alone.
 */
int generation_check_forms(const struct generation *generation, const struct directory *directory, struct error *err);

/* What a generation's own directory, or that of its partner's copies, holds. */
struct contents {
    int staged;     /* parts: complete shards whose data is here */
    int drained;    /* shards that are in the target */
    uint64_t bytes; /* of the data files that are here, complete or not */
};
void generation_contents(const struct directory *generation, struct contents *contents);

/* Files that mark something. A mark that cannot be set is an error only where it is looked at. */
bool stage_has(const struct directory *directory, const char *mark);
int stage_mark(const struct directory *directory, const char *mark, struct error *err);

/* Give a data file's memory back: move it to .free, from where its rank takes it again. `name` gone is fine. */
int stage_recycle(const struct directory *stage, const struct directory *from, const char *name, struct error *err);

/* The lock `name` of the stage: hold it (-1 and errno EAGAIN when another has it), shared or not; or ask whether anyone
 * does. The descriptor holds the lock until it is closed. */
int stage_lock(const struct directory *stage, const char *name, bool shared);
bool stage_is_locked(const struct directory *stage, const char *name);

/* Seconds since 1970, and of a clock that only goes forward. */
double stage_time(void);
double stage_clock(void);

#endif
