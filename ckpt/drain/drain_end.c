/* drain_end.c - the end of a save: committed, superseded, failed, dropped, replaced or left to other nodes. */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "ckpt/drain/drain_internal.h"
#include "common/clock.h"

static void recycle_shards(const struct directory *stage, const struct directory *from)
{
    struct listing listing = listing_open(from);
    const char *name;
    int shard, shards;

    while ((name = listing_next(&listing)))
        if (name_parse_shard(name, SHARD_DATA, &shard, &shards))
            stage_recycle(stage, from, name, NULL);
    listing_close(&listing, NULL);
}

void drain_remove(struct drain_turn *turn)
{
    const struct directory *stage = &turn->drainer->stage;
    struct directory partner;

    turn->progress->name[0] = '\0';
    recycle_shards(stage, &turn->source);
    if (directory_open(&partner, &turn->source, STAGE_PARTNER, NULL) == 0) {
        recycle_shards(stage, &partner);
        directory_close(&partner);
    }
    file_trash(stage, turn->staged->name, NULL);
}

/* The status first: if this process is killed in between, the next drainer ends the save in the same way. */
enum turn_result drain_end(struct drain_turn *turn, enum status_state state, const char *reason)
{
    struct drainer *drainer = turn->drainer;

    turn->entry->state = state;
    turn->entry->ended = clock_realtime();
    turn->entry->serial = status_serial(drainer->status) + 1;
    if (state != STATUS_FAILED)
        turn->entry->newest = drainer->shared->newest;
    if (state == STATUS_COMMITTED) {
        turn->entry->bytes_done = turn->entry->bytes_total;
        drainer_end_pauses(drainer); /* older ones are superseded */
    }
    snprintf(turn->entry->reason, sizeof turn->entry->reason, "%s", reason);
    drainer_write_status(drainer, true);
    drain_log(turn, "%s%s%s", status_state_name(state), *reason ? ": " : "", reason);
    drain_remove(turn);
    return TURN_ENDED;
}

/* Ends with its turn, whatever the child is at: memory is free again even if the target does not answer. */
static void abandon_later(struct drain_turn *turn, const char *why)
{
    struct drainer *drainer = turn->drainer;
    struct drain_abandoned *next = &drainer->abandoned[drainer->abandoned_count];

    if (strcmp(drainer->child.name, turn->staged->name) == 0)
        drain_child_kill(drainer);
    if (drainer->abandoned_count == sizeof drainer->abandoned / sizeof drainer->abandoned[0])
        return;
    drainer->abandoned_count++;
    next->staged = *turn->staged;
    snprintf(next->why, sizeof next->why, "%s", why);
}

enum turn_result drain_end_dropped(struct drain_turn *turn)
{
    static const char why[] = "not all of its shards were staged";

    abandon_later(turn, why);
    drain_log(turn, "dropped, %s", why);
    status_remove(turn->drainer->status, turn->entry);
    drain_remove(turn);
    return TURN_ENDED;
}

enum turn_result drain_end_replaced(struct drain_turn *turn)
{
    const char *reason = turn->entry->reason;
    struct error why;

    error_set(&why, CODE_IO, "dropped, a newer save needs its memory%s%s", *reason ? ": " : "", reason);
    abandon_later(turn, why.text);
    return drain_end(turn, STATUS_FAILED, why.text);
}

enum turn_result drain_end_stalled(struct drain_turn *turn)
{
    struct drainer *drainer = turn->drainer;
    bool at_once = drainer->options.idle < 0 && drainer->options.once;
    struct error why;

    if (at_once)
        error_set(&why, CODE_IO,
                  "other nodes' shards are missing in %s: a node that still has the save commits it when they arrive",
                  turn->staged->save.dir);
    else
        error_set(&why, CODE_IO,
                  "other nodes' shards are missing in %s, and nothing has changed there for %.0f seconds",
                  turn->staged->save.dir, clock_monotonic() - turn->progress->moved_at);
    if (!turn->progress->stalled && !(at_once && drainer->options.partner)) {
        turn->progress->stalled = true; /* the next turn copies a partner's shards, if they are here */
        drain_set_reason(turn, why.text);
        drain_log(turn, "%s", why.text);
        return TURN_LEFT;
    }
    if (drainer->trainer_alive && !drainer->options.once && !file_exists(&turn->source, STAGE_ADOPTED))
        return TURN_LEFT;
    drainer->others_missing = true;
    return drain_end(turn, STATUS_FAILED, why.text);
}
