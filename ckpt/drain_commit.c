/* drain_commit.c - the target's side of a drain: its directories, the commit, and giving up. */
#include "config.h"

#include "ckpt/attempt.h"
#include "ckpt/drain_internal.h"
#include "ckpt/manifest.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define FIRST_DELAY 0.05
#define MOST_DELAY  1.0
#define WHY_TRIES   20
#define WHY_NS      20000000

int drain_check_given_up(struct drain *drain, struct error *err)
{
    const struct target *target = &drain->generation->target;
    char why[512];

    if (!attempt_is_given_up(&drain->parent, target->step, target->attempt, why, sizeof why))
        return 0;
    for (int tries = 0; tries < WHY_TRIES && !*why; tries++) { /* it is written a moment later, if there is room */
        nanosleep(&(struct timespec){.tv_nsec = WHY_NS}, NULL);
        attempt_is_given_up(&drain->parent, target->step, target->attempt, why, sizeof why);
    }
    return error_set(err, CODE_DATA, "given up by another node: %s", *why ? why : "it could not say why");
}

/*
 * The checkpoint directory. It is made only if this stage has never seen it: otherwise its file system is not mounted,
 * and what is made would lie beneath the mount point.
 */
static int open_parent(struct drain *drain, bool made, struct error *err)
{
    const struct directory *stage = &drain->drainer->stage;
    const char *dir = drain->generation->target.dir;

    if (drain->parent.fd >= 0)
        return 0;
    made |= stage_has(stage, STAGE_MADE);
    if ((!made && directory_make_path(dir, err) < 0) || directory_open(&drain->parent, NULL, dir, err) < 0)
        return -1;
    return made ? 0 : stage_mark(stage, STAGE_MADE, err);
}

/*
 * What earlier tries left takes room. Attempts at this step are only cleared away for a save of the job's present life:
 * an earlier life's would clear away the present one's.
 */
static void make_room(struct drain *drain)
{
    const struct target *target = &drain->generation->target;
    uint64_t newest;

    file_make_trash(&drain->parent, NULL);
    if (attempt_newest_committed(&drain->parent, &newest, NULL) > 0)
        attempt_clear_older(&drain->parent, newest < target->step ? newest : target->step, NULL);
    if (!stage_has(&drain->source, STAGE_ADOPTED) && drain->drainer->users)
        attempt_clear_others(&drain->parent, target->step, target->attempt, NULL);
}

int drain_open_target(struct drain *drain, struct error *err)
{
    const struct target *target = &drain->generation->target;
    bool made = stage_has(&drain->source, STAGE_MADE), mine = false;
    char name[LAYOUT_NAME_SIZE];

    if (drain->partial.fd >= 0)
        return 0;
    if (open_parent(drain, made, err) < 0 || drain_check_given_up(drain, err) < 0)
        return -1;
    layout_partial_name(name, target->step, target->attempt);
    if (!made) {
        make_room(drain);
        mine = mkdirat(drain->parent.fd, name, 0777) == 0;
        if (!mine && errno != EEXIST)
            return file_write_failed(&drain->parent, name, 0, err);
        /* Another node may have given it up between our look and our mkdir. */
        if (drain_check_given_up(drain, err) < 0) {
            if (mine)
                unlinkat(drain->parent.fd, name, AT_REMOVEDIR);
            return -1;
        }
        if (stage_mark(&drain->source, STAGE_MADE, err) < 0)
            return -1;
    }
    if (directory_open(&drain->partial, &drain->parent, name, err) == 0)
        return 0;
    return made && errno == ENOENT ? error_set(err, CODE_IO, "%s/%s: is not there any more", drain->parent.path, name)
                                   : -1;
}

struct any {
    const struct directory *directory;
    struct manifest *part;
    int shards;
};

static int read_any(const char *name, void *arg)
{
    struct any *any = arg;
    int shard, shards;
    size_t bytes;
    char *text;

    if ((!layout_parse_part(name, &shard, &shards) && !layout_parse_drained(name, &shard, &shards)) ||
        shards != any->shards)
        return 0;
    text = file_read(any->directory, name, MANIFEST_MAX_BYTES, &bytes, NULL);
    if (text)
        any->part = manifest_decode(text, bytes, shard, shards, NULL);
    free(text);
    return any->part ? 1 : 0;
}

int drain_check_committed(struct drain *drain, struct error *err)
{
    const struct target *target = &drain->generation->target;
    struct any any = {.directory = &drain->source, .shards = target->shards};
    struct ckpt_save save = {.dir = target->dir, .attempt = target->attempt};
    int result;

    if (drain->parent.fd < 0 && directory_open(&drain->parent, NULL, target->dir, NULL) < 0)
        return 0;
    if (!attempt_is_committed(&drain->parent, target->step))
        return 0;
    directory_each(&drain->source, read_any, &any, NULL);
    if (!any.part)
        return DRAIN_COMMITTED;
    save.state = any.part->state;
    save.job_text = any.part->job_text;
    result = attempt_check_committed(&drain->parent, &save, err) < 0 ? -1 : DRAIN_COMMITTED;
    manifest_destroy(any.part);
    return result;
}

/* ---- waiting for the others ---- */

struct sum {
    const struct directory *directory;
    uint64_t value;
};

static int add_size(const char *name, void *arg)
{
    struct sum *sum = arg;
    struct stat info;

    if (fstatat(sum->directory->fd, name, &info, AT_SYMLINK_NOFOLLOW) == 0)
        sum->value += 1 + (uint64_t)info.st_size + (uint64_t)info.st_mtim.tv_sec + (uint64_t)info.st_mtim.tv_nsec;
    return 0;
}

/* A number that changes whenever someone writes to some attempt in the checkpoint directory. */
static uint64_t activity(const struct directory *parent)
{
    struct attempt *attempts;
    struct directory directory;
    struct sum sum = {&directory, 0};
    size_t count;

    if (attempt_list(parent, &attempts, &count, NULL) < 0)
        return 0;
    for (size_t i = 0; i < count; i++) {
        char name[LAYOUT_NAME_SIZE];

        layout_partial_name(name, attempts[i].step, attempts[i].attempt);
        if (attempts[i].abandoned || directory_open(&directory, parent, name, NULL) < 0)
            continue;
        directory_each(&directory, add_size, &sum, NULL);
        directory_close(&directory);
        sum.value++;
    }
    free(attempts);
    return sum.value;
}

struct waiting *drain_waiting(struct drainer *drainer, const char *name)
{
    struct waiting *unused = &drainer->waiting[0];

    for (int i = 0; i < STATUS_MOST; i++) {
        if (strcmp(drainer->waiting[i].name, name) == 0)
            return &drainer->waiting[i];
        if (drainer->waiting[i].name[0] == '\0')
            unused = &drainer->waiting[i];
    }
    *unused = (struct waiting){.delay = FIRST_DELAY, .moved = stage_clock()};
    snprintf(unused->name, sizeof unused->name, "%s", name);
    return unused;
}

static int still_moving(struct drain *drain, struct waiting *waiting, double now)
{
    uint64_t sum = activity(&drain->parent);

    if (sum != waiting->activity) {
        waiting->activity = sum;
        waiting->moved = now;
        if (waiting->alone)
            drain_set_reason(drain, "");
        waiting->alone = false;
    }
    return now - waiting->moved < drain->drainer->options.idle ? 0 : DRAIN_ALONE;
}

int drain_commit(struct drain *drain, struct error *err)
{
    const struct target *target = &drain->generation->target;
    struct waiting *waiting = drain->waiting;
    double now = stage_clock();
    int result;

    if (now < waiting->next)
        return 0;
    waiting->next = now + waiting->delay;
    waiting->delay = 1.5 * waiting->delay < MOST_DELAY ? 1.5 * waiting->delay : MOST_DELAY;
    if (drain->parent.fd < 0 && directory_open(&drain->parent, NULL, target->dir, err) < 0) {
        waiting->next = 0;
        return -1;
    }
    if (drain_check_given_up(drain, err) < 0)
        return -1;
    result = ckpt_commit(target->dir, target->step, target->attempt, err);
    if (result > 0 || attempt_is_committed(&drain->parent, target->step))
        return drain_check_committed(drain, err);
    if (result < 0) { /* files that vanish under a commit may mean just that */
        struct error why;

        err->code = CODE_IO; /* nothing that the stage still has is wrong */
        if (drain_check_given_up(drain, &why) < 0)
            *err = why;
        waiting->next = 0; /* drain_retry has its own pauses */
        return -1;
    }
    return drain_is_superseded(drain) ? DRAIN_SUPERSEDED : still_moving(drain, waiting, now);
}

struct recycling {
    const struct directory *stage, *from;
};

static int recycle_one(const char *name, void *arg)
{
    struct recycling *recycling = arg;
    int shard, shards;

    if (layout_parse_shard(name, &shard, &shards))
        stage_recycle(recycling->stage, recycling->from, name, NULL);
    return 0;
}

/* All data of a generation back to .free, and the rest removed. */
void drain_remove(struct drain *drain)
{
    const struct directory *stage = &drain->drainer->stage;
    struct recycling own = {stage, &drain->source};
    struct directory partner;

    directory_each(&drain->source, recycle_one, &own, NULL);
    if (directory_open(&partner, &drain->source, STAGE_PARTNER, NULL) == 0) {
        struct recycling others = {stage, &partner};

        directory_each(&partner, recycle_one, &others, NULL);
        directory_close(&partner);
    }
    file_trash(stage, drain->generation->name, NULL);
}

/* Told before it goes: if we are killed in between, the next drainer finds it again and comes to the same end. */
void drain_end(struct drain *drain, enum status_state state, const char *reason)
{
    struct drainer *drainer = drain->drainer;

    pthread_mutex_lock(&drainer->mutex);
    drain->entry->state = state;
    drain->entry->ended = stage_time();
    drain->entry->serial = status_serial(drainer->status) + 1;
    if (state == STATUS_COMMITTED)
        drain->entry->bytes_done = drain->entry->bytes_total;
    snprintf(drain->entry->reason, sizeof drain->entry->reason, "%s", reason ? reason : "");
    pthread_mutex_unlock(&drainer->mutex);
    drainer_tell(drainer, true);
    drainer_log(drainer, "step %" PRIu64 " (%s): %s%s%s", drain->generation->target.step,
                drain->generation->target.attempt, status_state_name(state), reason ? ": " : "", reason ? reason : "");
    drain->waiting->name[0] = '\0';
    drain_remove(drain);
}
