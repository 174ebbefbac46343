/*
 * drain_end.c - what becomes of a save after its turn: it is tried again while its target fails, or it ends: committed,
 * superseded, failed, dropped, replaced or left to other nodes. And the drainer's log and status.json.
 */
#include "config.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt/drain/drain_internal.h"
#include "common/clock.h"

#define STATUS_EVERY 0.2
#define FIRST_PAUSE  0.25
#define MOST_PAUSE   30.0
#define FIRST_LOG    30.0
#define MOST_LOG     600.0
#define STEPS_SHOWN  8

/* ---- the log and status.json ------------------------------------------------------------------------------------- */

void drainer_log(const struct drainer *drainer, const char *format, ...)
{
    char line[1400];
    va_list arguments;

    if (!drainer->options.log)
        return;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    error_tame(line); /* it has paths */
    drainer->options.log(line, drainer->options.log_arg);
}

void drain_log(const struct drain_turn *turn, const char *format, ...)
{
    const struct staged_save *save = &turn->staged->save;
    char line[1200];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    drainer_log(turn->drainer, "step %" PRIu64 " (%s): %s", save->step, save->attempt, line);
}

/* A status that cannot be written now is written at the next change: it must not cost a checkpoint. */
void drainer_write_status(struct drainer *drainer, bool now)
{
    double clock = clock_monotonic();

    if (!now && clock - drainer->status_written < STATUS_EVERY)
        return;
    drainer->status_written = clock;
    drainer->status->updated = clock_realtime();
    status_write(drainer->status, &drainer->stage, NULL);
}

void drain_set_reason(struct drain_turn *turn, const char *text)
{
    char *reason = turn->entry->reason;
    bool same = strncmp(reason, text, sizeof turn->entry->reason - 1) == 0;

    snprintf(reason, sizeof turn->entry->reason, "%.511s", text);
    turn->progress->hung = false;
    drainer_write_status(turn->drainer, !same);
}

void drainer_log_left(struct drainer *drainer)
{
    const char *why = "";
    char steps[STEPS_SHOWN * 24 + 8] = "";
    struct staged *saves;
    uint64_t bytes = 0;
    size_t count, used = 0;

    if (staged_list(&drainer->stage, &saves, &count, NULL) < 0)
        return;
    for (size_t i = 0; i < count; i++) {
        const struct staged_save *save = &saves[i].save;
        const struct status_save *entry = status_find(drainer->status, save->step, save->attempt);

        bytes += entry ? entry->bytes_total - entry->bytes_done : 0;
        if (i < STEPS_SHOWN)
            used += (size_t)snprintf(steps + used, sizeof steps - used, "%s%" PRIu64, i ? ", " : "", save->step);
        else if (i == STEPS_SHOWN)
            snprintf(steps + used, sizeof steps - used, ", ...");
        if (entry && entry->serial == 0 && entry->reason[0])
            why = entry->reason;
    }
    free(saves);
    drainer_log(drainer, "left in %s: %zu save%s (step %s), %" PRIu64 " bytes%s%s", drainer->stage.path, count,
                count == 1 ? "" : "s", steps, bytes, *why ? "; drain failed: " : "", why);
}

/* ---- a target that fails ----------------------------------------------------------------------------------------- */

/* When it begins to fail, and then at intervals that grow: a log line for each try would hide the others. */
static void log_trouble(struct drain_turn *turn, double now, const struct error *why)
{
    const struct drainer *drainer = turn->drainer;
    struct drain_progress *progress = turn->progress;
    double pause = progress->logged_at - progress->failing_since;

    if (progress->failing_since == 0) {
        progress->failing_since = progress->logged_at = now;
        if (!drainer->options.once || drainer->deadline > 0) /* else drainer_log_left follows at once */
            drain_log(turn, "drain failed, it stays in %s and is tried again: %s", drainer->stage.path, why->text);
    } else if (now - progress->logged_at >= fmin(fmax(pause, FIRST_LOG), MOST_LOG)) {
        progress->logged_at = now;
        drain_log(turn, "the drain to %s has failed for %.0f s, %s is kept: %s", turn->staged->save.dir,
                  now - progress->failing_since, drainer->stage.path, why->text);
    }
}

enum turn_result drain_retry(struct drain_turn *turn, const struct error *why)
{
    struct drain_progress *progress = turn->progress;
    double now = clock_monotonic();

    progress->retry_pause = fmin(fmax(2 * progress->retry_pause, FIRST_PAUSE), MOST_PAUSE);
    progress->retry_at = drainer_waits(turn->drainer) ? now + progress->retry_pause : HUGE_VAL;
    turn->drainer->retrying++;
    log_trouble(turn, now, why);
    drain_set_reason(turn, why->text);
    return TURN_LEFT;
}

enum turn_result drain_hang(struct drain_turn *turn, bool at_work)
{
    struct error why;

    error_set(&why, CODE_IO, "%s has not answered for %.0f s", turn->staged->save.dir, turn->drainer->child.silent);
    turn->drainer->retrying++;
    if (at_work)
        log_trouble(turn, clock_monotonic(), &why);
    if (at_work && turn->entry->state < STATUS_HANGING)
        turn->entry->state = STATUS_HANGING;
    drain_set_reason(turn, why.text);
    turn->progress->hung = true;
    return TURN_LEFT;
}

void drainer_end_pauses(struct drainer *drainer)
{
    for (int i = 0; i < STATUS_MOST; i++)
        drainer->shared->progress[i].retry_at = 0;
}

void drain_recover(struct drain_turn *turn)
{
    if (!turn->progress->stalled && turn->entry->reason[0])
        drain_set_reason(turn, "");
    if (turn->progress->failing_since == 0)
        return;
    drain_log(turn, "the drain to %s works again, it had failed for %.0f s", turn->staged->save.dir,
              clock_monotonic() - turn->progress->failing_since);
    turn->progress->retry_pause = turn->progress->failing_since = turn->progress->lost_since = 0;
    drainer_end_pauses(turn->drainer);
}

/* ---- the end ------------------------------------------------------------------------------------------------------ */

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
