/* stage_dir.h - the files of a stage (stage.h), for the ranks that fill it and the drainer that empties it. */
#ifndef MUSTER_CKPT_STAGE_STAGE_DIR_H
#define MUSTER_CKPT_STAGE_STAGE_DIR_H

#include <sys/types.h>
#include <time.h>

#include "ckpt/format/manifest.h"
#include "ckpt/stage/stage.h"

#define STAGE_SLOTS   ".slots"
#define STAGE_LOCK    "lock"
#define STAGE_USERS   "users"
#define STAGE_FORMAT  "format"
#define STAGE_PARTNER "partner"
#define STAGE_TARGET  "target.json"
#define STAGE_MADE    "made"
#define STAGE_DROPPED "dropped"

#define DROPPED_SILENTLY "-" /* a reason in STAGE_DROPPED: the run reports it */

/* The contents of target.json: a staged save, and the checkpoint directory that it goes to. */
struct staged_save {
    char dir[4096]; /* the checkpoint directory, absolute */
    uint64_t step;
    char attempt[CKPT_ATTEMPT_SIZE];
    int shards, local; /* of the checkpoint, and of this node */
    int keep;
    uint64_t keep_every;
    double started; /* seconds since 1970 */
    mode_t umask;   /* of the process that staged it, kept as target.json's mode; files in the target get it */
};

/* Open a stage. CODE_IO if it is not a directory of this user with mode 0700. If it is missing, errno is ENOENT. */
int stage_directory_open(struct directory *stage, const char *path, struct error *err);

/* Mark a new stage with this release's format; and check that of any. CODE_CONFIG if another release has made it: then
 * nothing in it may be changed. */
int stage_mark_format(const struct directory *stage, struct error *err);
int stage_check_format(const struct directory *stage, struct error *err);

/* True also if that is unknown. */
bool stage_has_saves(const struct directory *stage);

/* Check before anything in it is removed: CODE_USAGE unless it has a stage's name (ckpt_stage_path) or STAGE_USERS, or
 * stage_is_removed. */
int stage_directory_check(const struct directory *stage, struct error *err);

/* Whether it was removed since it was opened. */
bool stage_is_removed(const struct directory *stage);

/*
 * Open or make the save's directory beneath the stage, with its target.json. Ranks of a node may all do it at once;
 * they write the same, except the time. Needs .slots, where it is made.
 */
int staged_make(struct directory *staged, const struct directory *stage, const struct staged_save *save,
                struct error *err);

/*
 * The saves, oldest first, malloc'ed. At most STAGED_MOST of them, so that no user can make a drainer read thousands.
 * Returns 0; 1 if there may be more, which a later call finds when these have ended; -1 on failure. `unread` has a code
 * other than CODE_OK if target.json cannot be read.
 */
#define STAGED_MOST 64

struct staged {
    struct staged_save save;
    char name[FILE_NAME_SIZE];
    struct error unread;
};
int staged_list(const struct directory *stage, struct staged **saves, size_t *count, struct error *err);

/* What a save's directory holds: its own (`within` is "."), or that of its copies of partners' shards. */
struct contents {
    int staged;     /* parts: complete shards whose data is here */
    int drained;    /* shards that are in the target */
    uint64_t bytes; /* of the data files that are here, complete or not */
};
/* Nothing if `within` is missing. -1 if it cannot be read: then *contents is of no use. */
int staged_contents(const struct directory *staged, const char *within, struct contents *contents, struct error *err);

/*
 * A mark with a text, of at least one byte: a symbolic link to that text, so that it can be made in full memory. It
 * replaces an earlier one. file_exists finds it. stage_read_mark: false if there is none.
 */
int stage_mark(const struct directory *directory, const char *mark, const char *text, struct error *err);
bool stage_read_mark(const struct directory *directory, const char *mark, char *text, size_t size);

/* Take the lock `name` of the stage, shared or not. It is held until the returned descriptor is closed. -1 with errno
 * EAGAIN if another process holds it. stage_is_locked: true if any process holds it, or if that is unknown. */
int stage_lock(const struct directory *stage, const char *name, bool shared);
bool stage_is_locked(const struct directory *stage, const char *name);

/* When the drainer last showed that it runs, in seconds since 1970. The time of STAGE_LOCK, which can be set
 * where there is no room for a new status.json. */
double stage_signed_at(const struct directory *stage);

/* ---- status.json ------------------------------------------------------------------------------------------------- */

/*
 * status.json: the state of each save (struct ckpt_save_status). Only the drainer writes it: a whole new file each
 * time, which it renames into place. It is for people (muster-ckpt status), and ranks read from it how their saves
 * ended.
 * The last STATUS_ENDED saves that ended come first, oldest first, and then those under way. serial never decreases: a
 * reader that remembers the greatest one it has seen misses none.
 */

#define STATUS_NAME  "status.json"
#define STATUS_ENDED 32
#define STATUS_MOST  (STAGED_MOST + STATUS_ENDED)

struct status {
    int pid;
    char host[65];
    double updated;
    size_t count;
    struct ckpt_save_status saves[STATUS_MOST];
};

const char *status_state_name(enum ckpt_save_state state);

/* The state by the directory's contents alone, for a node with `local` shards. */
enum ckpt_save_state status_of(const struct contents *contents, int local);

/* As JSON, or NULL. */
json_t *status_json(const struct status *status);

/* A missing file is an empty status: 0. After a failure the status is empty, too. */
int status_read(struct status *status, const struct directory *stage, struct error *err);
int status_write(const struct status *status, const struct directory *stage, struct error *err);

/* A save that begins. */
void status_begin(struct ckpt_save_status *status, const struct staged_save *save);

/* The drainer's status and, from the directories, the saves that it has not seen yet. For people. */
int status_gather(struct status *status, const struct directory *stage, struct error *err);

/* ---- an open stage, for the files stage*.c ---------------------------------------------------------------------- */

#define STAGE_SLOTS_MAPPED 16
#define SLOT_NAME_SIZE     (FILE_NAME_SIZE + 64)

/* A slot that this process has mapped. It stays mapped while a save uses it and the drainer reads it. */
struct slot {
    char name[SLOT_NAME_SIZE]; /* beneath the stage */
    int fd;                    /* -1: none */
    uint64_t bytes;
    unsigned char *data;
};

struct ckpt_stage {
    struct directory directory;
    struct ckpt_stage_config config; /* without its strings; the defaults put in */
    int users;                       /* the shared lock of a process that may stage */
    struct slot slots[STAGE_SLOTS_MAPPED];

    /* The shard that was staged last, for ckpt_stage_lend. */
    const struct slot *last;
    char *last_part;
    size_t last_part_bytes;

    /* The copy that is being received. */
    struct slot *borrowed; /* NULL: none */
    struct staged_save borrowed_save;
    int borrowed_shard;

    struct status status; /* as last read */
    uint64_t seen;        /* the greatest serial that was reported */
    struct timespec status_time;
    uint64_t status_inode;
};

/* ---- stage_slots.c ----------------------------------------------------------------------------------------------- */

/*
 * A slot of that many bytes for the shard, reserved and mapped: one that no save uses any more, or a new one while
 * fewer than `max_staged` saves hold the shard. 0; 1 with CODE_IO when there is no room, or `max_staged` do.
 */
int stage_take_slot(struct ckpt_stage *stage, int shard, int shards, uint64_t bytes, struct slot **slot,
                    struct error *err);

/* Make slots until the shard has `max_staged`, in use or not. 0, or 1 when there is no room. */
int stage_reserve_slots(struct ckpt_stage *stage, int shard, int shards, uint64_t bytes, struct error *err);

void stage_unmap(struct slot *slot);

#endif
