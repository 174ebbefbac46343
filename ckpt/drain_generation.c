/* drain_generation.c - what is to be done for one generation, decided anew at each look by what lies there. */
#include "config.h"

#include "ckpt/attempt.h"
#include "ckpt/drain_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* The oldest of those that ended makes room; there are fewer than STATUS_ENDED others. */
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

static struct status_generation *entry_of(struct drainer *drainer, const struct target *target)
{
    struct status_generation *entry = status_find(drainer->status, target->step, target->attempt);

    if (entry && entry->serial == 0)
        return entry;
    if (!entry) {
        forget_oldest(drainer->status);
        entry = &drainer->status->generations[drainer->status->count++];
    }
    memset(entry, 0, sizeof *entry); /* one that had ended, if its drainer was killed before it was gone: again */
    entry->step = target->step;
    memcpy(entry->attempt, target->attempt, sizeof entry->attempt);
    memcpy(entry->dir, target->dir, sizeof entry->dir);
    entry->started = target->started;
    return entry;
}

/* How far it is, before and after copying. */
static void account(struct drain *drain, const struct contents *contents)
{
    struct waiting *waiting = drain->waiting;

    pthread_mutex_lock(&drain->drainer->mutex);
    /* Shards that are here no more, and were, are drained: by us, or by whoever was killed. */
    if (drain->entry->bytes_total > contents->bytes && contents->drained > 0)
        waiting->drained = drain->entry->bytes_total - contents->bytes;
    drain->entry->bytes_done = waiting->drained;
    drain->entry->bytes_total = waiting->drained + contents->bytes;
    drain->entry->state = status_of(contents, drain->generation->target.local);
    pthread_mutex_unlock(&drain->drainer->mutex);
}

/* It has a file of an unknown form (form.h): left alone, and logged once. Such a file in the target is tried again. */
static int leave(struct drain *drain, const struct error *why)
{
    if (!drain->waiting->unknown)
        drainer_log(drain->drainer, "%s is left as it is: %s", drain->generation->name, why->text);
    drain->waiting->unknown = true;
    drain->drainer->unknown++;
    return 1;
}

/* Whether it must be left alone. Parts come one by one, and are looked at once. */
static bool is_unknown(struct drain *drain, struct error *why)
{
    struct contents own, others = {0};
    struct directory partner;
    int parts;

    if (drain->waiting->unknown)
        return true;
    generation_contents(&drain->source, &own);
    if (directory_open(&partner, &drain->source, STAGE_PARTNER, NULL) == 0) {
        generation_contents(&partner, &others);
        directory_close(&partner);
    }
    parts = own.staged + own.drained + others.staged + others.drained;
    if (drain->generation->unknown.code == CODE_OK && parts == drain->waiting->checked)
        return false;
    if (generation_check_forms(drain->generation, &drain->source, why) < 0)
        return true;
    drain->waiting->checked = parts;
    return false;
}

static int fail(struct drain *drain, const struct error *why)
{
    const struct target *target = &drain->generation->target;

    /* Another node's sign stays as it is: it says why. */
    if (drain->parent.fd >= 0 && !attempt_is_given_up(&drain->parent, target->step, target->attempt, NULL, 0))
        attempt_give_up(&drain->parent, target->step, target->attempt, why->text, NULL);
    drain_end(drain, STATUS_FAILED, why->text);
    return 0;
}

/* Its ranks know that it failed, or are dead: no news. But other nodes must not wait for our shards. */
static int drop(struct drain *drain)
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
    drain_remove(drain);
    return 0;
}

bool drain_is_superseded(const struct drain *drain)
{
    uint64_t newest;

    return drain->parent.fd >= 0 && attempt_newest_committed(&drain->parent, &newest, NULL) > 0 &&
           newest > drain->generation->target.step;
}

/* That nothing is removed any more fills the disk: said, but once, for it goes on. */
static void prune(const struct drain *drain)
{
    const struct target *target = &drain->generation->target;
    struct drainer *drainer = drain->drainer;
    struct error err;

    if (ckpt_prune(target->dir, target->keep, target->keep_every, &err) == 0 || drainer->prune_failed)
        return;
    drainer->prune_failed = true;
    drainer_log(drainer, "removing old checkpoints failed, and they stay: %s", err.text);
}

static int committed(struct drain *drain)
{
    const struct target *target = &drain->generation->target;
    char first[LAYOUT_NAME_SIZE];
    bool ours;

    layout_drained_name(first, 0, target->shards);
    ours = stage_has(&drain->source, first);
    drain_end(drain, STATUS_COMMITTED, NULL);
    if (ours) /* one node does it; what cannot be removed now will be next time */
        prune(drain);
    return 0;
}

static int copy(struct drain *drain, const struct directory *from, struct error *err)
{
    int result = drain_open_target(drain, err);

    if (drain->waiting->began == 0)
        drain->waiting->began = stage_clock();
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
        result = copy(drain, &partner, err);
    directory_close(&partner);
    return result;
}

/* A newer save needs the memory, and the target fails. The sign keeps other nodes from waiting for our shards. */
static int replaced(struct drain *drain)
{
    const struct target *target = &drain->generation->target;
    struct error why;

    if (drain_check_committed(drain, NULL) == DRAIN_COMMITTED)
        return committed(drain);
    if (drain->parent.fd < 0)
        directory_open(&drain->parent, NULL, target->dir, NULL);
    error_set(&why, CODE_IO, "dropped, a newer save needs its memory%s%s", drain->entry->reason[0] ? ": " : "",
              drain->entry->reason);
    return fail(drain, &why);
}

/* What the target still lacks, and then the commit. 0: not over; -1; or one of DRAIN_*. */
static int advance(struct drain *drain, struct contents *contents, struct error *err)
{
    int result;

    if (contents->staged > 0) { /* the one look at the target that costs something, and not at every turn */
        result = drain_check_committed(drain, err);
        if (result != 0)
            return result;
        if (stage_has(&drain->source, STAGE_ADOPTED) && drain_is_superseded(drain))
            return DRAIN_SUPERSEDED;
        result = copy(drain, &drain->source, err);
        if (result != 0)
            return result;
        generation_contents(&drain->source, contents);
        account(drain, contents);
        drain_recover(drain);
    }
    result = copy_partner(drain, err);
    if (result != 0)
        return result;
    if (contents->staged > 0 || contents->drained < drain->generation->target.local)
        return 0;
    return drain_commit(drain, err);
}

/*
 * Nothing of this node's is missing in the target, and other nodes' shards do not come. The partial checkpoint stays
 * there: whoever brings the last shard commits it. Of the present run's saves we go on to look whether someone did;
 * those of an earlier life, and with --once, are left to the others.
 */
static int wait_alone(struct drain *drain)
{
    struct drainer *drainer = drain->drainer;
    struct error why;

    error_set(&why, CODE_IO, "other nodes' shards are missing in %s, and nothing has moved there for %.0f seconds",
              drain->parent.path, stage_clock() - drain->waiting->moved);
    if (!drain->waiting->alone) {
        drain->waiting->alone = true; /* the next look copies a partner's shards, if we have them */
        drain_set_reason(drain, why.text);
        drainer_log(drainer, "step %" PRIu64 " (%s): %s", drain->generation->target.step,
                    drain->generation->target.attempt, why.text);
        return 1;
    }
    if (drainer->users && !drainer->options.once && !stage_has(&drain->source, STAGE_ADOPTED))
        return 1;
    drain_end(drain, STATUS_FAILED, why.text);
    drainer->incomplete++;
    return 0;
}

/* 1 if the generation is still there, 0 if it has ended. */
static int look(struct drain *drain)
{
    struct contents contents;
    struct error err = {0};
    int result;

    generation_contents(&drain->source, &contents);
    account(drain, &contents);
    if (stage_has(&drain->source, STAGE_DROPPED) ||
        (!drain->drainer->users && contents.staged + contents.drained < drain->generation->target.local))
        return drop(drain);
    if (stage_has(&drain->source, STAGE_REPLACED))
        return replaced(drain);
    if (stage_clock() < drain->waiting->retry) {
        drain->drainer->stuck++;
        return 1;
    }
    result = advance(drain, &contents, &err);
    if (result < 0 && err.code == CODE_DATA) {
        drain->drainer->failed++;
        return fail(drain, &err);
    }
    if (result < 0 && !drain_is_superseded(drain))
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
        return committed(drain);
    drain_end(drain, STATUS_SUPERSEDED, NULL);
    return 0;
}

int drain_generation(struct drainer *drainer, struct generation *generation)
{
    struct drain drain = {.drainer = drainer, .generation = generation, .parent = {.fd = -1}, .partial = {.fd = -1}};
    struct error why = {0};
    int result;

    if (directory_open(&drain.source, &drainer->stage, generation->name, NULL) < 0)
        return errno == ENOENT ? 0 : 1;
    drain.waiting = drain_waiting(drainer, generation->name);
    if (is_unknown(&drain, &why)) {
        directory_close(&drain.source);
        return leave(&drain, &why);
    }
    if (generation->target.started == 0) { /* its first rank is just making it, or died doing so, or had no room */
        bool over =
            (!drainer->users || stage_has(&drain.source, STAGE_DROPPED)) && !stage_has(&drain.source, STAGE_TARGET);

        if (over)
            drain_remove(&drain);
        directory_close(&drain.source);
        return over ? 0 : 1;
    }
    umask(generation->target.umask); /* an epilog has slurmd's, under which a user's files would be everybody's */
    pthread_mutex_lock(&drainer->mutex);
    drain.entry = entry_of(drainer, &generation->target);
    pthread_mutex_unlock(&drainer->mutex);
    result = look(&drain);
    directory_close(&drain.partial);
    directory_close(&drain.parent);
    directory_close(&drain.source);
    return result;
}
