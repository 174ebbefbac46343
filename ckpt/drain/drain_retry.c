/*
 * drain_retry.c - a target that fails, and is tried again; and the drainer's log and status.json.
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
