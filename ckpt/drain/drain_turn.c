/*
 * drain_turn.c - decides from the files alone what to do next for one save. Marks take effect at once. If there
 * is work in the target, the save gets a turn: a child process copies shards, tries to commit, and reports the
 * result.
 */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "ckpt/drain/drain_internal.h"
#include "common/clock.h"

#define FIRST_DELAY 0.05

/* Whether the child has it. */
static bool is_under_way(const struct drain_turn *turn)
{
    return strcmp(turn->drainer->child.name, turn->staged->name) == 0;
}

static struct drain_progress *find_progress(struct drainer *drainer, const char *name)
{
    struct drain_progress *progress = drainer->shared->progress, *unused = progress;

    for (int i = 0; i < STATUS_MOST; i++) {
        if (strcmp(progress[i].name, name) == 0)
            return &progress[i];
        if (progress[i].name[0] == '\0')
            unused = &progress[i];
    }
    *unused = (struct drain_progress){.commit_delay = FIRST_DELAY, .moved_at = clock_monotonic()};
    snprintf(unused->name, sizeof unused->name, "%s", name);
    return unused;
}

/* Reads the save's contents, and updates bytes and state of its entry in status.json. Not while the child has it.
 */
static int count_bytes(struct drain_turn *turn, struct contents *contents, struct error *err)
{
    struct drain_progress *progress = turn->progress;

    if (staged_contents(&turn->source, ".", contents, err) < 0)
        return -1;
    /* Shards that are not here any more are drained: by this process, or by one that was killed. */
    if (turn->entry->bytes_total > contents->bytes && contents->drained > 0)
        progress->drained_bytes = turn->entry->bytes_total - contents->bytes;
    turn->entry->bytes_done = progress->drained_bytes;
    turn->entry->bytes_total = progress->drained_bytes + contents->bytes;
    turn->entry->state = status_of(contents, turn->staged->save.local);
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
    if (staged_contents(&turn->source, ".", &own, why) < 0 ||
        staged_contents(&turn->source, STAGE_PARTNER, &others, why) < 0)
        return -1;
    parts = own.staged + own.drained + others.staged + others.drained;
    if (turn->staged->unknown.code == CODE_OK && parts == turn->progress->checked_parts)
        return 0;
    if (staged_check_formats(&turn->source, turn->staged, why) < 0)
        return why->code == CODE_CONFIG ? 1 : -1;
    turn->progress->checked_parts = parts;
    return 0;
}

/* For a file of an unknown format in the stage. Logged once. Such a file in the target is a failure of the target:
 * end_turn then calls drain_retry. */
static enum turn_result leave_unknown(struct drain_turn *turn, const struct error *why)
{
    turn->drainer->unknown++;
    if (turn->progress->unknown)
        return TURN_LEFT;
    turn->progress->unknown = true;
    drainer_log(turn->drainer, "%s is left as it is: %s", turn->staged->name, why->text);
    turn->entry = status_start(turn->drainer->status, &turn->staged->save);
    turn->entry->state = STATUS_UNKNOWN; /* so that no trainer waits for its end */
    drain_set_reason(turn, why->text);
    return TURN_LEFT;
}

/* ---- in the child ------------------------------------------------------------------------------------------------ */

static int copy_shards(struct drain_turn *turn, const struct directory *from, struct error *err)
{
    int result;

    if (turn->progress->copy_began == 0)
        turn->progress->copy_began = clock_monotonic();
    atomic_store(&turn->drainer->shared->copying, true);
    turn->progress->next_gather = 0;
    result = drain_shards(turn, from, err);
    atomic_store(&turn->drainer->shared->copying, false);
    return result;
}

/* Copies of another node's shards, when that node may be lost: 1 if there are any, 0, -1. */
static int has_copies(struct drain_turn *turn, struct directory *partner, struct error *err)
{
    struct contents contents;
    int result;

    if ((!turn->drainer->options.partner && turn->drainer->trainer_alive && !turn->progress->stalled) ||
        directory_open(partner, &turn->source, STAGE_PARTNER, NULL) < 0)
        return 0;
    result = staged_contents(partner, ".", &contents, err) < 0 ? -1 : contents.staged > 0;
    if (result <= 0)
        directory_close(partner);
    return result;
}

static int copy_partner(struct drain_turn *turn, struct error *err)
{
    struct directory partner;
    int result = has_copies(turn, &partner, err);

    if (result <= 0)
        return result;
    result = drain_is_committed(turn, err); /* by another node, which had those shards */
    if (result == DRAIN_CONTINUE)
        result = copy_shards(turn, &partner, err);
    directory_close(&partner);
    return result;
}

/* Copies what the target lacks, and then commits. One of DRAIN_*, or -1. */
static int drain_further(struct drain_turn *turn, struct error *err)
{
    struct contents contents;
    int result;

    if (staged_contents(&turn->source, ".", &contents, err) < 0)
        return -1;
    if (contents.staged > 0) { /* the expensive checks of the target, not at each turn */
        result = drain_is_committed(turn, err);
        if (result != DRAIN_CONTINUE)
            return result;
        if (file_exists(&turn->source, STAGE_ADOPTED) && drain_is_superseded(turn))
            return DRAIN_SUPERSEDED;
        result = copy_shards(turn, &turn->source, err);
        if (result != DRAIN_CONTINUE)
            return result;
        if (staged_contents(&turn->source, ".", &contents, err) < 0)
            return -1;
    }
    result = copy_partner(turn, err);
    if (result != DRAIN_CONTINUE)
        return result;
    if (contents.staged > 0 || contents.drained < turn->staged->save.local)
        return DRAIN_CONTINUE;
    return drain_commit(turn, err);
}

static void work_on(struct drain_turn *turn)
{
    struct error err = {0};
    char first[FILE_NAME_SIZE];
    int result = drain_further(turn, &err);
    bool prunes;

    if (result < 0 && (err.code == CODE_DATA || err.code == CODE_PEER))
        drain_abandon(turn, err.text);
    else if (result < 0 && drain_is_superseded(turn))
        result = DRAIN_SUPERSEDED;
    name_shard(first, SHARD_DRAINED, 0, turn->staged->save.shards);
    if (result == DRAIN_COMMITTED)
        drain_is_superseded(turn); /* another job's step may be newer; the trainer must know */
    prunes = result == DRAIN_COMMITTED && file_exists(&turn->source, first); /* one node does it */
    drain_child_report(turn, result, &err);
    if (prunes)
        drain_prune(turn);
}

/* ---- one save ---------------------------------------------------------------------------------------------- */

/* Its turn is over: what the child reported, or that it ended without a word. */
static enum turn_result end_turn(struct drain_turn *turn)
{
    struct drainer *drainer = turn->drainer;
    struct error err = drainer->shared->err;
    int result = drainer->shared->result;
    struct contents contents;

    drainer->child.name[0] = '\0';
    if (!atomic_load(&drainer->shared->reported) && drainer->child.stopped) {
        drain_log(turn, "failed: the process that drains it was stopped; another one continues");
        return TURN_LEFT;
    }
    if (!atomic_load(&drainer->shared->reported))
        result = error_set(&err, CODE_IO, "the process that drains it ended unexpectedly");
    count_bytes(turn, &contents, NULL);
    if (result < 0 && (err.code == CODE_DATA || err.code == CODE_PEER)) {
        *(err.code == CODE_DATA ? &drainer->damaged : &drainer->others_missing) = true;
        return drain_end(turn, STATUS_FAILED, err.text);
    }
    if (result < 0)
        return drain_retry(turn, &err);
    switch (result) {
    case DRAIN_COMMITTED:
        drain_recover(turn);
        return drain_end(turn, STATUS_COMMITTED, "");
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

/* While the child has it. */
static enum turn_result watch_turn(struct drain_turn *turn)
{
    const struct drain_shared *shared = turn->drainer->shared;
    const struct drain_progress *progress = turn->progress;
    struct status_save *entry = turn->entry;
    struct contents contents;
    double now = clock_monotonic();

    if (drain_child_hangs(turn->drainer)) {
        count_bytes(turn, &contents, NULL);
        return drain_hang(turn, true);
    }
    if (progress->hung)
        drain_set_reason(turn, "");
    if (atomic_load(&shared->copying) && now > progress->copy_began) {
        entry->state = STATUS_DRAINING;
        entry->bytes_done = progress->drained_bytes + atomic_load(&shared->bytes);
        entry->rate = (double)atomic_load(&shared->bytes) / (now - progress->copy_began);
    }
    return TURN_LEFT;
}

/* Whether there is work in the target now. */
static bool has_work(struct drain_turn *turn, const struct contents *contents)
{
    struct directory partner;

    if (contents->staged > 0)
        return true;
    if (has_copies(turn, &partner, NULL) > 0) {
        directory_close(&partner);
        return true;
    }
    return contents->drained >= turn->staged->save.local && clock_monotonic() >= turn->progress->next_commit;
}

static enum turn_result begin_turn(struct drain_turn *turn)
{
    struct drainer *drainer = turn->drainer;
    struct error err;

    if (drain_child_hangs(drainer))
        return drain_hang(turn, false);
    if (drainer->child.pid != 0)
        return TURN_LEFT;
    if (drain_child_start(turn, work_on, &err) < 0)
        return drain_retry(turn, &err);
    memcpy(drainer->child.name, turn->staged->name, sizeof drainer->child.name);
    return TURN_LEFT;
}

static enum turn_result take_turn(struct drain_turn *turn)
{
    struct drainer *drainer = turn->drainer;
    bool under_way = is_under_way(turn);
    struct contents contents = {0};
    struct error err = {0};

    if (under_way && (atomic_load(&drainer->shared->reported) || drainer->child.pid == 0))
        return end_turn(turn);
    if (!under_way && count_bytes(turn, &contents, &err) < 0)
        return drain_retry(turn, &err);
    if (file_exists(&turn->source, STAGE_DROPPED) ||
        (!under_way && !drainer->trainer_alive && contents.staged + contents.drained < turn->staged->save.local))
        return drain_end_dropped(turn);
    /* `replaced` is ignored if the run that made the mark has ended: its newer save may not exist, and this one may be
     * the newest. */
    if (drainer->trainer_alive && file_exists(&turn->source, STAGE_REPLACED))
        return drain_end_replaced(turn);
    if (under_way)
        return watch_turn(turn);
    if (clock_monotonic() < turn->progress->retry_at) {
        drainer->retrying++;
        return TURN_LEFT;
    }
    return has_work(turn, &contents) ? begin_turn(turn) : TURN_LEFT;
}

/* A save without target.json: the rank that makes it is at work, or it has died or had no room. */
static enum turn_result handle_without_target(struct drain_turn *turn)
{
    if ((turn->drainer->trainer_alive && !file_exists(&turn->source, STAGE_DROPPED)) ||
        file_exists(&turn->source, STAGE_TARGET))
        return TURN_LEFT;
    drain_remove(turn);
    return TURN_ENDED;
}

enum turn_result drain_handle(struct drainer *drainer, struct staged *staged)
{
    struct drain_turn turn = {.drainer = drainer, .staged = staged, .parent = {.fd = -1}, .partial = {.fd = -1}};
    struct error why = {0};
    enum turn_result result = TURN_LEFT;
    int unknown;

    bool under_way = is_under_way(&turn);

    if (directory_open(&turn.source, &drainer->stage, staged->name, NULL) < 0) {
        drainer->retrying += errno != ENOENT;
        return errno != ENOENT ? TURN_LEFT : TURN_ENDED;
    }
    turn.progress = find_progress(drainer, staged->name);
    unknown = under_way ? 0 : is_unknown(&turn, &why);
    if (unknown > 0) {
        result = leave_unknown(&turn, &why);
    } else if (unknown < 0) { /* the next turn tries again */
        turn.entry = status_start(drainer->status, &staged->save);
        drain_retry(&turn, &why);
    } else if (staged->save.started == 0) {
        result = handle_without_target(&turn);
    } else {
        turn.entry = status_start(drainer->status, &staged->save);
        result = take_turn(&turn);
    }
    directory_close(&turn.source);
    return result;
}
