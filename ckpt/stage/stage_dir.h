/*
 * stage_dir.h - the files of a stage (stage.h), for the ranks that fill it and the drainer that empties it.
 */
#ifndef MUSTER_CKPT_STAGE_STAGE_DIR_H
#define MUSTER_CKPT_STAGE_STAGE_DIR_H

#include <sys/types.h>

#include "ckpt/file/file.h"
#include "ckpt/format/names.h"

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
    mode_t umask;   /* of the process that staged it, kept as target.json's mode; files in the target get it */
};

/*
 * Open the stage; `make` makes it. Not this user's, not a directory or open to others: CODE_IO. ENOENT is left in
 * errno.
 */
int stage_directory_open(struct directory *stage, const char *path, bool make, struct error *err);

/*
 * Open or make the generation's directory beneath the stage, and its target.json. Ranks of a node may all do it at
 * once; they write the same, except the time.
 */
int generation_make(struct directory *generation, const struct directory *stage, const struct target *target,
                    struct error *err);

/*
 * All generations, oldest first, malloc'ed. Those without a target.json, which are just being made or whose maker died,
 * have started = 0. `unknown` has a code other than CODE_OK where target.json cannot be read or is of an unknown form
 * (json_fields.h), and for directories with names that this muster does not make: those are left alone.
 */
struct generation {
    struct target target;
    char name[FILE_NAME_SIZE];
    struct error unknown;
};
int generation_list(const struct directory *stage, struct generation **generations, size_t *count, struct error *err);

/*
 * Check that this muster knows the forms of all files, those of partners' shards included. If not, -1: the generation
 * must be left alone.
 */
int generation_check_forms(const struct generation *generation, const struct directory *directory, struct error *err);

/* What a generation's own directory holds, or that of its copies of partners' shards. */
struct contents {
    int staged;     /* parts: complete shards whose data is here */
    int drained;    /* shards that are in the target */
    uint64_t bytes; /* of the data files that are here, complete or not */
};
void generation_contents(const struct directory *generation, struct contents *contents);
void generation_partner_contents(const struct directory *generation, struct contents *contents);

/* Make an empty file that marks something; file_exists finds it. */
int stage_mark(const struct directory *directory, const char *mark, struct error *err);

/* Free a data file's memory: move it to .free, where its rank finds it again. A missing `name` is no failure. */
int stage_recycle(const struct directory *stage, const struct directory *from, const char *name, struct error *err);

/* Hold the lock `name` of the stage, shared or not, until the descriptor is closed: -1 and errno EAGAIN when another
 * process holds it. And whether any process does. */
int stage_lock(const struct directory *stage, const char *name, bool shared);
bool stage_is_locked(const struct directory *stage, const char *name);

#endif
