/*
 * drain.c - ckpt_drain: the loop of the one process that drains a stage. In each pass every generation has a turn
 * (take_turn), which decides by the files alone: it copies shards (drain_shard.c), tries to commit (drain_commit.c),
 * and ends the generation (drain_end.c) or leaves it for a later turn (drain_retry.c).
 */
#include "config.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ckpt/drain/drain_internal.h"
#include "common/clock.h"

#define PASS_SECONDS    0.02
#define ABANDONED_EVERY 0.5
#define FIRST_DELAY     0.05
#define ORPHANED        60.0 /* without a process that may stage: the trainer was killed before it closed the stage */

static bool must_stop(const struct drainer *drainer)
{
    return (drainer->options.stop && *drainer->options.stop) ||
           (drainer->deadline > 0 && clock_monotonic() >= drainer->deadline);
}

int drain_pace(struct drain_turn *turn, uint64_t bytes, struct error *err)
{
    struct drainer *drainer = turn->drainer;
    double now = clock_monotonic(), at = now;
    bool abort, check;

    pthread_mutex_lock(&drainer->mutex);
    abort = turn->abort;
    if (drainer->options.cap > 0) {
        at = drainer->cap_free > now ? drainer->cap_free : now;
        drainer->cap_free = at + (double)bytes / (double)drainer->options.cap;
    }
    check = now - turn->abandoned_checked >= ABANDONED_EVERY;
    if (check)
        turn->abandoned_checked = now;
    turn->entry->bytes_done += bytes;
    if (now > turn->progress->copy_began)
        turn->entry->rate =
            (double)(turn->entry->bytes_done - turn->progress->drained_bytes) / (now - turn->progress->copy_began);
    pthread_mutex_unlock(&drainer->mutex);
    for (; !abort && now < at && !must_stop(drainer); now = clock_monotonic()) {
        double wait = at - now < 0.1 ? at - now : 0.1;

        clock_sleep(wait);
    }
    if (abort || must_stop(drainer))
        return DRAIN_INTERRUPTED;
    drainer_write_status(drainer, false);
    return check ? drain_check_abandoned(turn, err) : 0;
}

/* ---- one generation in its turn ---------------------------------------------------------------------------------- */

static struct drain_progress *find_progress(struct drainer *drainer, const char *name)
{
    struct drain_progress *unused = &drainer->progress[0];

    for (int i = 0; i < STATUS_MOST; i++) {
        if (strcmp(drainer->progress[i].name, name) == 0)
            return &drainer->progress[i];
        if (drainer->progress[i].name[0] == '\0')
            unused = &drainer->progress[i];
    }
    *unused = (struct drain_progress){.commit_delay = FIRST_DELAY, .moved_at = clock_monotonic()};
    snprintf(unused->name, sizeof unused->name, "%s", name);
    return unused;
}

/* Reads the generation's contents, and updates bytes and state of its entry in status.json. Call before and after
 * copying. */
static int count_bytes(struct drain_turn *turn, struct contents *contents, struct error *err)
{
    struct drain_progress *progress = turn->progress;

    if (generation_contents(&turn->source, ".", contents, err) < 0)
        return -1;
    /* Shards that are not here any more are drained: by this process, or by one that was killed. */
    if (turn->entry->bytes_total > contents->bytes && contents->drained > 0)
        progress->drained_bytes = turn->entry->bytes_total - contents->bytes;
    turn->entry->bytes_done = progress->drained_bytes;
    turn->entry->bytes_total = progress->drained_bytes + contents->bytes;
    turn->entry->state = status_of(contents, turn->generation->save.local);
    return 0;
}

/* Whether it has a file of an unknown format (json_fields.h) and must be left alone. Parts come one by one. When their
 * number has changed, all are checked again. -1 if a file could not be read. */
static int is_unknown(struct drain_turn *turn, struct error *why)
{
    struct contents own, others;
    int parts;

    if (turn->progress->unknown)
        return 1;
    if (generation_contents(&turn->source, ".", &own, why) < 0 ||
        generation_contents(&turn->source, STAGE_PARTNER, &others, why) < 0)
        return -1;
    parts = own.staged + own.drained + others.staged + others.drained;
    if (turn->generation->unknown.code == CODE_OK && parts == turn->progress->checked_parts)
        return 0;
    if (generation_check_formats(&turn->source, turn->generation, why) < 0)
        return why->code == CODE_CONFIG ? 1 : -1;
    turn->progress->checked_parts = parts;
    return 0;
}

/* For a file of an unknown format in the stage. Logged once. Such a file in the target is a failure of the target: then
 * take_turn calls drain_retry. */
static enum turn_result leave_unknown(struct drain_turn *turn, const struct error *why)
{
    turn->drainer->unknown++;
    if (turn->progress->unknown)
        return TURN_LEFT;
    turn->progress->unknown = true;
    drainer_log(turn->drainer, "%s is left as it is: %s", turn->generation->name, why->text);
    turn->entry = status_start(turn->drainer->status, &turn->generation->save);
    turn->entry->state = STATUS_UNKNOWN; /* so that no trainer waits for its end */
    drain_set_reason(turn, why->text);
    return TURN_LEFT;
}

static int copy_shards(struct drain_turn *turn, const struct directory *from, struct error *err)
{
    if (turn->progress->copy_began == 0)
        turn->progress->copy_began = clock_monotonic();
    turn->entry->state = STATUS_DRAINING;
    turn->progress->next_gather = 0;
    return drain_shards(turn, from, err);
}

/* Copies of another node's shards, when that node may be lost. */
static int copy_partner(struct drain_turn *turn, struct error *err)
{
    struct contents contents;
    struct directory partner;
    int result = 0;

    if ((!turn->drainer->options.partner && turn->drainer->trainer_alive && !turn->progress->stalled) ||
        directory_open(&partner, &turn->source, STAGE_PARTNER, NULL) < 0)
        return 0;
    result = generation_contents(&partner, ".", &contents, err);
    if (result == 0 && contents.staged > 0)
        result = drain_is_committed(turn, err); /* by another node, which had those shards */
    if (result == 0 && contents.staged > 0)
        result = copy_shards(turn, &partner, err);
    directory_close(&partner);
    return result;
}

/* Copies what the target lacks, and then commits. One of DRAIN_*, or -1. */
static int drain_further(struct drain_turn *turn, struct contents *contents, struct error *err)
{
    int result;

    if (contents->staged > 0) { /* the expensive checks of the target, not at each turn */
        result = drain_is_committed(turn, err);
        if (result != DRAIN_CONTINUE)
            return result;
        if (file_exists(&turn->source, STAGE_ADOPTED) && drain_is_superseded(turn))
            return DRAIN_SUPERSEDED;
        result = copy_shards(turn, &turn->source, err);
        if (result != DRAIN_CONTINUE)
            return result;
        if (count_bytes(turn, contents, err) < 0)
            return -1;
        drain_recover(turn);
    }
    result = copy_partner(turn, err);
    if (result != DRAIN_CONTINUE)
        return result;
    if (contents->staged > 0 || contents->drained < turn->generation->save.local)
        return DRAIN_CONTINUE;
    return drain_commit(turn, err);
}

static enum turn_result take_turn(struct drain_turn *turn)
{
    struct drainer *drainer = turn->drainer;
    struct contents contents;
    struct error err = {0};
    int result;

    if (count_bytes(turn, &contents, &err) < 0)
        return drain_retry(turn, &err);
    if (file_exists(&turn->source, STAGE_DROPPED) ||
        (!drainer->trainer_alive && contents.staged + contents.drained < turn->generation->save.local))
        return drain_end_dropped(turn);
    /* `replaced` is ignored if the run that made the mark has ended: its newer save may not exist, and this one may be
     * the newest. */
    if (drainer->trainer_alive && !file_exists(&turn->source, STAGE_ADOPTED) &&
        file_exists(&turn->source, STAGE_REPLACED))
        return drain_end_replaced(turn);
    if (clock_monotonic() < turn->progress->retry_at) {
        drainer->retrying++;
        return TURN_LEFT;
    }
    result = drain_further(turn, &contents, &err);
    if (result < 0 && (err.code == CODE_DATA || err.code == CODE_PEER)) {
        *(err.code == CODE_DATA ? &drainer->damaged : &drainer->others_missing) = true;
        return drain_end_failed(turn, &err);
    }
    if (result < 0)
        return drain_is_superseded(turn) ? drain_end(turn, STATUS_SUPERSEDED, "") : drain_retry(turn, &err);
    switch (result) {
    case DRAIN_COMMITTED:
        drain_recover(turn);
        return drain_end_committed(turn);
    case DRAIN_SUPERSEDED:
        return drain_end(turn, STATUS_SUPERSEDED, "");
    case DRAIN_STALLED:
        return drain_end_stalled(turn);
    case DRAIN_INTERRUPTED:
        return TURN_LEFT;
    default:
        drain_recover(turn);
        return TURN_LEFT;
    }
}

/* A generation without target.json: the rank that makes it is at work, or it has died or had no room. */
static enum turn_result handle_without_target(struct drain_turn *turn)
{
    if ((turn->drainer->trainer_alive && !file_exists(&turn->source, STAGE_DROPPED)) ||
        file_exists(&turn->source, STAGE_TARGET))
        return TURN_LEFT;
    drain_remove(turn);
    return TURN_ENDED;
}

/* Does for a generation what can be done now. */
static enum turn_result handle_generation(struct drainer *drainer, struct generation *generation)
{
    struct drain_turn turn = {
        .drainer = drainer, .generation = generation, .parent = {.fd = -1}, .partial = {.fd = -1}};
    struct error why = {0};
    enum turn_result result = TURN_LEFT;
    int unknown;

    if (directory_open(&turn.source, &drainer->stage, generation->name, NULL) < 0) {
        drainer->retrying += errno != ENOENT;
        return errno != ENOENT ? TURN_LEFT : TURN_ENDED;
    }
    turn.progress = find_progress(drainer, generation->name);
    unknown = is_unknown(&turn, &why);
    if (unknown > 0) {
        result = leave_unknown(&turn, &why);
    } else if (unknown < 0) { /* the next turn tries again */
        turn.entry = status_start(drainer->status, &generation->save);
        drain_retry(&turn, &why);
    } else if (generation->save.started == 0) {
        result = handle_without_target(&turn);
    } else {
        umask(generation->save.umask); /* an epilog has slurmd's, with which everybody could read a user's files */
        turn.entry = status_start(drainer->status, &generation->save);
        result = take_turn(&turn);
    }
    directory_close(&turn.partial);
    directory_close(&turn.parent);
    directory_close(&turn.source);
    return result;
}

/* ---- the loop ---------------------------------------------------------------------------------------------------- */

/* One pass over all generations: how many are left; -1 if the stage cannot be read. */
static int handle_all(struct drainer *drainer, struct error *err)
{
    struct generation *generations;
    size_t count;
    int left = 0, more;

    drainer->unknown = 0;
    drainer->trainer_alive = stage_is_locked(&drainer->stage, STAGE_USERS);
    drainer->retrying = 0;
    more = generation_list(&drainer->stage, &generations, &count, err);
    if (more < 0)
        return -1;
    if (more && !drainer->more)
        drainer_log(drainer, "%s has %d saves or more: the others are not looked at before one of these ends",
                    drainer->stage.path, GENERATIONS_MOST);
    drainer->more = more;
    for (size_t i = 0; i < count; i++)
        left += must_stop(drainer) || handle_generation(drainer, &generations[i]) == TURN_LEFT;
    free(generations);
    drainer->ended = left < (int)count;
    if (more) { /* the next pass finds some of them, if any of these has ended */
        drainer->retrying += left == (int)count;
        left++;
    }
    if (count > 0)
        drainer_write_status(drainer, false);
    return left;
}

/*
 * A process that opens the stage meanwhile waits for this lock, and then finds the stage removed. False if a process
 * still has it open.
 */
static bool remove_stage(struct drainer *drainer)
{
    int fd = stage_lock(&drainer->stage, STAGE_USERS, false);

    if (fd < 0)
        return false;
    file_remove_all(&drainer->stage);
    rmdir(drainer->stage.path);
    close(fd);
    return true;
}

static bool is_removed(const struct drainer *drainer)
{
    struct stat info;

    return fstat(drainer->stage.fd, &info) == 0 && info.st_nlink == 0;
}

/*
 * With `once`, a target that fails is waited for only if `seconds` is given and `require_unused` is not. The epilog
 * calls it so for the job that has just ended. If a generation has ended, it may supersede those that are left.
 */
static bool must_leave(const struct drainer *drainer, int left)
{
    bool waits = !drainer->options.once || (drainer->deadline > 0 && !drainer->options.require_unused);

    return must_stop(drainer) ||
           (!waits && left > 0 && !drainer->ended && drainer->retrying + drainer->unknown == left);
}

static int result_of(const struct drainer *drainer)
{
    if (drainer->damaged)
        return CKPT_DRAIN_DAMAGED;
    return drainer->others_missing ? CKPT_DRAIN_OTHERS : CKPT_DRAIN_DONE;
}

static int leave_stage(struct drainer *drainer, int left)
{
    drainer_write_status(drainer, true);
    if (left > 0)
        drainer_log_left(drainer);
    if (drainer->options.once && !drainer->trainer_alive) /* this memory is not used again */
        file_trash(&drainer->stage, STAGE_FREE, NULL);
    return left > 0 || !drainer->options.once ? CKPT_DRAIN_LEFT : result_of(drainer);
}

static int drain_until_done(struct drainer *drainer, struct error *err)
{
    double last_alive = clock_monotonic();

    for (;;) {
        bool closed = file_exists(&drainer->stage, STAGE_CLOSED);
        int left;

        if (drainer->options.then_once && *drainer->options.then_once && !drainer->options.once) {
            drainer->options.once = true;
            drainer->options.idle = -1;
            drainer_end_pauses(drainer); /* each save is tried once more */
        }
        left = handle_all(drainer, err);

        if (left < 0)
            return is_removed(drainer) ? CKPT_DRAIN_DONE : -1;
        if (drainer->trainer_alive)
            last_alive = clock_monotonic();
        if (left == drainer->unknown &&
            (closed || drainer->options.once || clock_monotonic() - last_alive > ORPHANED)) {
            bool removed = left == 0 && (closed || !drainer->trainer_alive) && remove_stage(drainer);

            if (left > 0)
                return CKPT_DRAIN_LEFT; /* of a format that another release knows */
            if (removed || drainer->options.once)
                return result_of(drainer);
        }
        if (is_removed(drainer))
            return CKPT_DRAIN_DONE;
        if (must_leave(drainer, left))
            return leave_stage(drainer, left);
        clock_sleep(PASS_SECONDS);
    }
}

/* With `once` and `seconds`, waits for another process that drains this stage: it may leave something. */
static int lock_stage(struct drainer *drainer, struct error *err)
{
    bool waits = drainer->options.once && drainer->deadline > 0 && !drainer->options.require_unused;

    if (drainer->options.require_unused && stage_is_locked(&drainer->stage, STAGE_USERS))
        return CKPT_DRAIN_BUSY;
    while ((drainer->lock = stage_lock(&drainer->stage, STAGE_LOCK, false)) < 0 && errno == EAGAIN && waits &&
           !must_stop(drainer))
        clock_sleep(PASS_SECONDS);
    if (drainer->lock < 0 && errno == EAGAIN && waits) {
        drainer_log(drainer, "failed: another process still drains %s", drainer->stage.path);
        return CKPT_DRAIN_LEFT;
    }
    if (drainer->lock < 0 && errno == EAGAIN)
        return CKPT_DRAIN_BUSY;
    if (drainer->lock < 0)
        return error_errno(err, CODE_IO, "%s/" STAGE_LOCK, drainer->stage.path);
    if (status_read(drainer->status, &drainer->stage, NULL) < 0)
        memset(drainer->status, 0, sizeof *drainer->status); /* it was for information; the directories are the state */
    for (size_t i = 0; i < drainer->status->count; i++)
        if (drainer->status->generations[i].serial == 0) /* what stood in the way of an earlier drainer */
            drainer->status->generations[i].reason[0] = '\0';
    drainer->status->pid = (int)getpid();
    gethostname(drainer->status->host, sizeof drainer->status->host - 1);
    return 0;
}

int ckpt_drain(const char *stage_dir, const struct ckpt_drain_options *options, struct error *err)
{
    struct drainer *drainer = calloc(1, sizeof *drainer);
    mode_t own = umask(077);
    int result = -1;

    umask(own);
    if (!drainer || !(drainer->status = calloc(1, sizeof *drainer->status))) {
        free(drainer);
        return error_errno(err, CODE_IO, "%s", stage_dir);
    }
    drainer->options = *options;
    drainer->options.threads = options->threads > 0 ? options->threads : 2;
    drainer->options.idle = options->idle != 0 ? options->idle : 300;
    drainer->deadline = options->seconds > 0 ? clock_monotonic() + options->seconds : 0;
    drainer->lock = -1;
    pthread_mutex_init(&drainer->mutex, NULL);
    if (stage_directory_open(&drainer->stage, stage_dir, false, err) < 0)
        result = errno == ENOENT ? CKPT_DRAIN_DONE : -1;
    else if (stage_directory_check(&drainer->stage, err) < 0)
        result = -1;
    else if ((result = lock_stage(drainer, err)) == 0)
        result = drain_until_done(drainer, err);
    else if (result < 0 && is_removed(drainer)) /* another drainer has ended, and removed it, since it was opened */
        result = CKPT_DRAIN_DONE;
    umask(own); /* handle_generation's was the trainer's */
    if (drainer->lock >= 0)
        close(drainer->lock);
    directory_close(&drainer->stage);
    pthread_mutex_destroy(&drainer->mutex);
    free(drainer->status);
    free(drainer);
    return result;
}
