/* drain_generation.c - what a drainer does for one generation, decided anew at each turn from the files. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "ckpt/drain/drain_internal.h"
#include "ckpt/write/attempt.h"
#include "common/clock.h"

#define FIRST_DELAY 0.05
#define MOST_DELAY  1.0

/* Forgets the oldest ended generation, if there are too many. */
static void forget_oldest(struct status *status)
{
    size_t ended = 0, oldest = status->count;

    for (size_t i = 0; i < status->count; i++)
        if (status->generations[i].serial > 0) {
            ended++;
            if (oldest == status->count || status->generations[i].serial < status->generations[oldest].serial)
                oldest = i;
        }
    if (ended < STATUS_ENDED && status->count < STATUS_MOST)
        return;
    if (oldest == status->count)
        oldest = 0;
    memmove(&status->generations[oldest], &status->generations[oldest + 1],
            (status->count - oldest - 1) * sizeof *status->generations);
    status->count--;
}

static struct status_generation *find_entry(struct drainer *drainer, const struct target *target)
{
    struct status_generation *entry = status_find(drainer->status, target->step, target->attempt);

    if (entry && entry->serial == 0)
        return entry;
    if (!entry) {
        forget_oldest(drainer->status);
        entry = &drainer->status->generations[drainer->status->count++];
    }
    memset(entry, 0, sizeof *entry); /* an ended one, if its drainer was killed before it removed it: once more */
    entry->step = target->step;
    memcpy(entry->attempt, target->attempt, sizeof entry->attempt);
    memcpy(entry->dir, target->dir, sizeof entry->dir);
    entry->started = target->started;
    return entry;
}

/* Its progress, before and after copying. */
static void count_bytes(struct drain *drain, const struct contents *contents)
{
    struct waiting *waiting = drain->waiting;

    pthread_mutex_lock(&drain->drainer->mutex);
    /* Shards that are not here any more are drained: by this process, or by one that was killed. */
    if (drain->entry->bytes_total > contents->bytes && contents->drained > 0)
        waiting->drained = drain->entry->bytes_total - contents->bytes;
    drain->entry->bytes_done = waiting->drained;
    drain->entry->bytes_total = waiting->drained + contents->bytes;
    drain->entry->state = status_of(contents, drain->generation->target.local);
    pthread_mutex_unlock(&drain->drainer->mutex);
}

/*
 * It has a file of an unknown form (json_fields.h): left alone, logged once. With one in the target it is tried again.
 */
static int leave_unknown(struct drain *drain, const struct error *why)
{
    if (!drain->waiting->unknown)
        drainer_log(drain->drainer, "%s is left as it is: %s", drain->generation->name, why->text);
    drain->waiting->unknown = true;
    drain->drainer->unknown++;
    return 1;
}

/* Whether it must be left alone. Parts come one by one; each is checked once. */
static bool is_unknown(struct drain *drain, struct error *why)
{
    struct contents own, others;
    int parts;

    if (drain->waiting->unknown)
        return true;
    generation_contents(&drain->source, &own);
    generation_partner_contents(&drain->source, &others);
    parts = own.staged + own.drained + others.staged + others.drained;
    if (drain->generation->unknown.code == CODE_OK && parts == drain->waiting->checked)
        return false;
    if (generation_check_forms(drain->generation, &drain->source, why) < 0)
        return true;
    drain->waiting->checked = parts;
    return false;
}

/* ---- the commit -------------------------------------------------------------------------------------------------- */

/* One of this node's parts, drained or not; NULL if none can be read. */
static struct manifest *read_any_part(const struct drain *drain)
{
    struct manifest *part = NULL;
    struct listing listing;
    const char *name;
    int shard, shards;

    listing_open(&listing, &drain->source);
    while (!part && (name = listing_next(&listing)))
        if ((name_parse_part(name, &shard, &shards) || name_parse_drained(name, &shard, &shards)) &&
            shards == drain->generation->target.shards)
            part = manifest_read(&drain->source, name, shard, shards, NULL);
    listing_close(&listing, NULL);
    return part;
}

/* DRAIN_COMMITTED if the step is committed and is ours; 0 if it is not committed; -1 also if it is another run's. */
static int check_committed(struct drain *drain, struct error *err)
{
    const struct target *target = &drain->generation->target;
    struct ckpt_save save = {.dir = target->dir, .attempt = target->attempt};
    struct manifest *part;
    int result;

    if (drain->parent.fd < 0 && directory_open(&drain->parent, NULL, target->dir, NULL) < 0)
        return 0;
    if (!attempt_is_committed(&drain->parent, target->step))
        return 0;
    part = read_any_part(drain);
    if (!part)
        return DRAIN_COMMITTED;
    save.state = part->state;
    save.job_text = part->job_text;
    result = attempt_check_committed(&drain->parent, &save, err) < 0 ? -1 : DRAIN_COMMITTED;
    manifest_destroy(part);
    return result;
}

/* Whether a newer step than this generation's is committed. */
static bool is_superseded(const struct drain *drain)
{
    uint64_t newest;

    return drain->parent.fd >= 0 && attempt_newest_committed(&drain->parent, &newest, NULL) > 0 &&
           newest > drain->generation->target.step;
}

/* A number that changes whenever a process writes to an attempt in the checkpoint directory. */
static uint64_t measure_activity(const struct directory *parent)
{
    struct attempt *attempts;
    struct directory directory;
    struct listing listing;
    const char *file;
    struct stat info;
    uint64_t sum = 0;
    size_t count;

    if (attempt_list(parent, &attempts, &count, NULL) < 0)
        return 0;
    for (size_t i = 0; i < count; i++) {
        char name[FILE_NAME_SIZE];

        name_partial(name, attempts[i].step, attempts[i].attempt);
        if (attempts[i].abandoned || directory_open(&directory, parent, name, NULL) < 0)
            continue;
        listing_open(&listing, &directory);
        while ((file = listing_next(&listing)))
            if (fstatat(directory.fd, file, &info, AT_SYMLINK_NOFOLLOW) == 0)
                sum += 1 + (uint64_t)info.st_size + (uint64_t)info.st_mtim.tv_sec + (uint64_t)info.st_mtim.tv_nsec;
        listing_close(&listing, NULL);
        directory_close(&directory);
        sum++;
    }
    free(attempts);
    return sum;
}

/* The memory of that generation, new if there is none. */
static struct waiting *find_waiting(struct drainer *drainer, const char *name)
{
    struct waiting *unused = &drainer->waiting[0];

    for (int i = 0; i < STATUS_MOST; i++) {
        if (strcmp(drainer->waiting[i].name, name) == 0)
            return &drainer->waiting[i];
        if (drainer->waiting[i].name[0] == '\0')
            unused = &drainer->waiting[i];
    }
    *unused = (struct waiting){.delay = FIRST_DELAY, .moved = clock_monotonic()};
    snprintf(unused->name, sizeof unused->name, "%s", name);
    return unused;
}

static int check_moving(struct drain *drain, struct waiting *waiting, double now)
{
    uint64_t sum = measure_activity(&drain->parent);

    if (sum != waiting->activity) {
        waiting->activity = sum;
        waiting->moved = now;
        if (waiting->alone)
            drain_set_reason(drain, "");
        waiting->alone = false;
    }
    return now - waiting->moved < drain->drainer->options.idle ? 0 : DRAIN_ALONE;
}

/* Tries to commit when it is time to. As check_committed, or DRAIN_SUPERSEDED or DRAIN_ALONE. */
static int commit_generation(struct drain *drain, struct error *err)
{
    const struct target *target = &drain->generation->target;
    struct waiting *waiting = drain->waiting;
    double now = clock_monotonic();
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
        return check_committed(drain, err);
    if (result < 0) { /* another node may have given it up: then files vanish during the commit */
        struct error why;

        err->code = CODE_IO; /* the staged data is not damaged */
        if (drain_check_given_up(drain, &why) < 0)
            *err = why;
        waiting->next = 0; /* drain_retry has its own pauses */
        return -1;
    }
    return is_superseded(drain) ? DRAIN_SUPERSEDED : check_moving(drain, waiting, now);
}

/* ---- the end ----------------------------------------------------------------------------------------------------- */

static void recycle_shards(const struct directory *stage, const struct directory *from)
{
    struct listing listing;
    const char *name;
    int shard, shards;

    listing_open(&listing, from);
    while ((name = listing_next(&listing)))
        if (name_parse_shard(name, &shard, &shards))
            stage_recycle(stage, from, name, NULL);
    listing_close(&listing, NULL);
}

/* Takes the generation out of the stage: its data files to .free, the rest removed. */
static void remove_generation(struct drain *drain)
{
    const struct directory *stage = &drain->drainer->stage;
    struct directory partner;

    recycle_shards(stage, &drain->source);
    if (directory_open(&partner, &drain->source, STAGE_PARTNER, NULL) == 0) {
        recycle_shards(stage, &partner);
        directory_close(&partner);
    }
    file_trash(stage, drain->generation->name, NULL);
}

/* The status first: if this process is killed in between, the next drainer ends the generation in the same way. */
static void end_generation(struct drain *drain, enum status_state state, const char *reason)
{
    struct drainer *drainer = drain->drainer;

    pthread_mutex_lock(&drainer->mutex);
    drain->entry->state = state;
    drain->entry->ended = clock_realtime();
    drain->entry->serial = status_serial(drainer->status) + 1;
    if (state == STATUS_COMMITTED)
        drain->entry->bytes_done = drain->entry->bytes_total;
    snprintf(drain->entry->reason, sizeof drain->entry->reason, "%s", reason ? reason : "");
    pthread_mutex_unlock(&drainer->mutex);
    drainer_write_status(drainer, true);
    drainer_log(drainer, "step %" PRIu64 " (%s): %s%s%s", drain->generation->target.step,
                drain->generation->target.attempt, status_state_name(state), reason ? ": " : "", reason ? reason : "");
    drain->waiting->name[0] = '\0';
    remove_generation(drain);
}

static int end_failed(struct drain *drain, const struct error *why)
{
    const struct target *target = &drain->generation->target;

    /* Another node's sign stays as it is: it has the reason. */
    if (drain->parent.fd >= 0 && !attempt_is_given_up(&drain->parent, target->step, target->attempt, NULL, 0))
        attempt_give_up(&drain->parent, target->step, target->attempt, why->text, NULL);
    end_generation(drain, STATUS_FAILED, why->text);
    return 0;
}

/* Its ranks know that it failed, or are dead: no report. But other nodes must not wait for this node's shards. */
static int end_dropped(struct drain *drain)
{
    const struct target *target = &drain->generation->target;
    struct status *status = drain->drainer->status;
    size_t at = (size_t)(drain->entry - status->generations);

    if (drain->parent.fd < 0)
        directory_open(&drain->parent, NULL, target->dir, NULL);
    if (drain->parent.fd >= 0)
        attempt_give_up(&drain->parent, target->step, target->attempt, "not all of its shards were staged", NULL);
    drainer_log(drain->drainer, "step %" PRIu64 " (%s): dropped, not all of its shards were staged", target->step,
                target->attempt);
    pthread_mutex_lock(&drain->drainer->mutex);
    memmove(&status->generations[at], &status->generations[at + 1],
            (status->count - at - 1) * sizeof *status->generations);
    status->count--;
    pthread_mutex_unlock(&drain->drainer->mutex);
    drain->waiting->name[0] = '\0';
    remove_generation(drain);
    return 0;
}

/* When old checkpoints cannot be removed the disk fills: logged, but only once. */
static void prune_target(const struct drain *drain)
{
    const struct target *target = &drain->generation->target;
    struct drainer *drainer = drain->drainer;
    struct error err;

    if (ckpt_prune(target->dir, target->keep, target->keep_every, &err) == 0 || drainer->prune_failed)
        return;
    drainer->prune_failed = true;
    drainer_log(drainer, "removing old checkpoints failed, and they stay: %s", err.text);
}

static int end_committed(struct drain *drain)
{
    const struct target *target = &drain->generation->target;
    char first[FILE_NAME_SIZE];
    bool ours;

    name_drained(first, 0, target->shards);
    ours = file_exists(&drain->source, first);
    end_generation(drain, STATUS_COMMITTED, NULL);
    if (ours) /* one node does it; the next prune removes what cannot be removed now */
        prune_target(drain);
    return 0;
}

/* ---- one turn ---------------------------------------------------------------------------------------------------- */

static int copy_shards(struct drain *drain, const struct directory *from, struct error *err)
{
    int result = drain_open_target(drain, err);

    if (drain->waiting->began == 0)
        drain->waiting->began = clock_monotonic();
    pthread_mutex_lock(&drain->drainer->mutex);
    drain->entry->state = STATUS_DRAINING;
    pthread_mutex_unlock(&drain->drainer->mutex);
    return result == 0 ? drain_shards(drain, from, err) : -1;
}

/* Copies of another node's shards, when that node may be lost. */
static int copy_partner(struct drain *drain, struct error *err)
{
    struct contents contents;
    struct directory partner;
    int result = 0;

    if ((!drain->drainer->options.partner && drain->drainer->users && !drain->waiting->alone) ||
        directory_open(&partner, &drain->source, STAGE_PARTNER, NULL) < 0)
        return 0;
    generation_contents(&partner, &contents);
    if (contents.staged > 0)
        result = copy_shards(drain, &partner, err);
    directory_close(&partner);
    return result;
}

/*
 * A newer save needs the memory, and the target fails. The sign keeps other nodes from waiting for this node's shards.
 */
static int end_replaced(struct drain *drain)
{
    const struct target *target = &drain->generation->target;
    struct error why;

    if (check_committed(drain, NULL) == DRAIN_COMMITTED)
        return end_committed(drain);
    if (drain->parent.fd < 0)
        directory_open(&drain->parent, NULL, target->dir, NULL);
    error_set(&why, CODE_IO, "dropped, a newer save needs its memory%s%s", drain->entry->reason[0] ? ": " : "",
              drain->entry->reason);
    return end_failed(drain, &why);
}

/* Copies what the target lacks, and then commits. 0: not complete yet; -1; or one of DRAIN_*. */
static int drain_further(struct drain *drain, struct contents *contents, struct error *err)
{
    int result;

    if (contents->staged > 0) { /* the expensive checks of the target, not at each turn */
        result = check_committed(drain, err);
        if (result != 0)
            return result;
        if (file_exists(&drain->source, STAGE_ADOPTED) && is_superseded(drain))
            return DRAIN_SUPERSEDED;
        result = copy_shards(drain, &drain->source, err);
        if (result != 0)
            return result;
        generation_contents(&drain->source, contents);
        count_bytes(drain, contents);
        drain_recover(drain);
    }
    result = copy_partner(drain, err);
    if (result != 0)
        return result;
    if (contents->staged > 0 || contents->drained < drain->generation->target.local)
        return 0;
    return commit_generation(drain, err);
}

/*
 * The target has all shards of this node, and other nodes' shards do not come. The partial checkpoint stays there: the
 * node that brings the last shard commits it. Saves of the present run are still watched; those of an earlier life, and
 * all with --once, are left to the other nodes.
 */
static int wait_alone(struct drain *drain)
{
    struct drainer *drainer = drain->drainer;
    struct error why;

    error_set(&why, CODE_IO, "other nodes' shards are missing in %s, and nothing has moved there for %.0f seconds",
              drain->parent.path, clock_monotonic() - drain->waiting->moved);
    if (!drain->waiting->alone) {
        drain->waiting->alone = true; /* the next turn copies a partner's shards, if they are here */
        drain_set_reason(drain, why.text);
        drainer_log(drainer, "step %" PRIu64 " (%s): %s", drain->generation->target.step,
                    drain->generation->target.attempt, why.text);
        return 1;
    }
    if (drainer->users && !drainer->options.once && !file_exists(&drain->source, STAGE_ADOPTED))
        return 1;
    end_generation(drain, STATUS_FAILED, why.text);
    drainer->incomplete++;
    return 0;
}

/* 1 if the generation is still there, 0 if it has ended. */
static int handle_generation(struct drain *drain)
{
    struct contents contents;
    struct error err = {0};
    int result;

    generation_contents(&drain->source, &contents);
    count_bytes(drain, &contents);
    if (file_exists(&drain->source, STAGE_DROPPED) ||
        (!drain->drainer->users && contents.staged + contents.drained < drain->generation->target.local))
        return end_dropped(drain);
    /* The mark of a run that is dead says nothing: the save that it was to make room for may never have been staged. */
    if (drain->drainer->users && !file_exists(&drain->source, STAGE_ADOPTED) &&
        file_exists(&drain->source, STAGE_REPLACED))
        return end_replaced(drain);
    if (clock_monotonic() < drain->waiting->retry) {
        drain->drainer->stuck++;
        return 1;
    }
    result = drain_further(drain, &contents, &err);
    if (result < 0 && err.code == CODE_DATA) {
        drain->drainer->failed++;
        return end_failed(drain, &err);
    }
    if (result < 0 && !is_superseded(drain))
        return drain_retry(drain, &err);
    if (result == DRAIN_INTERRUPTED)
        return 1;
    if (result == DRAIN_ALONE)
        return wait_alone(drain);
    if (result == DRAIN_COMMITTED || (result == 0 && drain->waiting->pause > 0))
        drain_recover(drain);
    if (result == 0)
        return 1;
    if (result == DRAIN_COMMITTED)
        return end_committed(drain);
    end_generation(drain, STATUS_SUPERSEDED, NULL);
    return 0;
}

int drain_generation(struct drainer *drainer, struct generation *generation)
{
    struct drain drain = {.drainer = drainer, .generation = generation, .parent = {.fd = -1}, .partial = {.fd = -1}};
    struct error why = {0};
    int result;

    if (directory_open(&drain.source, &drainer->stage, generation->name, NULL) < 0) {
        if (errno == ENOENT)
            return 0;
        drainer->stuck++;
        return 1;
    }
    drain.waiting = find_waiting(drainer, generation->name);
    if (is_unknown(&drain, &why)) {
        directory_close(&drain.source);
        if (drain.waiting->unknown || why.code == CODE_CONFIG)
            return leave_unknown(&drain, &why);
        drainer->stuck++; /* it could not be read; the next turn tries again */
        return 1;
    }
    if (generation->target.started == 0) { /* its first rank is just making it, or died or had no room */
        bool over =
            (!drainer->users || file_exists(&drain.source, STAGE_DROPPED)) && !file_exists(&drain.source, STAGE_TARGET);

        if (over)
            remove_generation(&drain);
        directory_close(&drain.source);
        return over ? 0 : 1;
    }
    umask(generation->target.umask); /* an epilog has slurmd's, with which everybody could read a user's files */
    pthread_mutex_lock(&drainer->mutex);
    drain.entry = find_entry(drainer, &generation->target);
    pthread_mutex_unlock(&drainer->mutex);
    result = handle_generation(&drain);
    directory_close(&drain.partial);
    directory_close(&drain.parent);
    directory_close(&drain.source);
    return result;
}
