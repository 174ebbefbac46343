/* drain_retry.c - a target that fails: pauses, what the log says of it, and what is left in the stage. */
#include "config.h"

#include "ckpt/drain_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_PAUSE 0.25
#define MOST_PAUSE  30.0
#define FIRST_LOG   30.0
#define MOST_LOG    600.0
#define STEPS_SHOWN 8

static double twice(double seconds, double least, double most)
{
    double longer = seconds > 0 ? 2 * seconds : least;

    return longer < most ? longer : most;
}

void drain_set_reason(struct drain *drain, const char *text)
{
    struct drainer *drainer = drain->drainer;
    char *reason = drain->entry->reason;
    bool same;

    pthread_mutex_lock(&drainer->mutex);
    same = strncmp(reason, text, sizeof drain->entry->reason - 1) == 0;
    snprintf(reason, sizeof drain->entry->reason, "%s", text);
    pthread_mutex_unlock(&drainer->mutex);
    drainer_tell(drainer, !same);
}

/* When it begins to fail, and then at intervals that grow: a log line for each try would hide the others. */
static void log_trouble(struct drain *drain, double now, const struct error *why)
{
    struct drainer *drainer = drain->drainer;
    struct trouble *trouble = &drainer->trouble;

    if (trouble->since == 0) {
        *trouble = (struct trouble){.since = now, .next = now + FIRST_LOG, .pause = FIRST_LOG};
        if (!drainer->options.once || drainer->deadline > 0) /* else drain_log_left follows at once */
            drainer_log(drainer, "step %" PRIu64 " (%s): drain failed, it stays in %s and is tried again: %s",
                        drain->generation->target.step, drain->generation->target.attempt, drainer->stage.path,
                        why->text);
    } else if (now >= trouble->next) {
        trouble->pause = twice(trouble->pause, FIRST_LOG, MOST_LOG);
        trouble->next = now + trouble->pause;
        drainer_log(drainer, "the drain to %s has failed for %.0f s, %s is kept: %s", drain->generation->target.dir,
                    now - trouble->since, drainer->stage.path, why->text);
    }
}

int drain_retry(struct drain *drain, const struct error *why)
{
    struct waiting *waiting = drain->waiting;
    double now = stage_clock();

    waiting->pause = twice(waiting->pause, FIRST_PAUSE, MOST_PAUSE);
    waiting->retry = now + waiting->pause;
    drain->drainer->stuck++;
    log_trouble(drain, now, why);
    if (drain->entry->state == STATUS_DRAINING)
        drain->entry->state = STATUS_STAGED;
    drain_set_reason(drain, why->text);
    return 1;
}

void drain_recover(struct drain *drain)
{
    struct drainer *drainer = drain->drainer;

    if (drain->waiting->pause > 0)
        drain_set_reason(drain, "");
    drain->waiting->pause = 0;
    if (drainer->trouble.since == 0)
        return;
    drainer_log(drainer, "the drain to %s works again, it had failed for %.0f s", drain->generation->target.dir,
                stage_clock() - drainer->trouble.since);
    drainer->trouble.since = 0;
    for (int i = 0; i < STATUS_MOST; i++) /* nobody need wait for the end of a pause */
        drainer->waiting[i].retry = 0;
}

/* Bytes of a generation that are not in the target, a partner's included. */
static uint64_t bytes_left(const struct drainer *drainer, const char *name)
{
    struct directory generation, partner;
    struct contents own, others = {0};

    if (directory_open(&generation, &drainer->stage, name, NULL) < 0)
        return 0;
    generation_contents(&generation, &own);
    if (directory_open(&partner, &generation, STAGE_PARTNER, NULL) == 0) {
        generation_contents(&partner, &others);
        directory_close(&partner);
    }
    directory_close(&generation);
    return own.bytes + others.bytes;
}

void drain_log_left(struct drainer *drainer)
{
    const char *why = "";
    char steps[STEPS_SHOWN * 24 + 8] = "";
    struct generation *generations;
    uint64_t bytes = 0;
    size_t count, used = 0;

    if (generation_list(&drainer->stage, &generations, &count, NULL) < 0)
        return;
    for (size_t i = 0; i < count; i++) {
        const struct target *target = &generations[i].target;
        const struct status_generation *entry = status_find(drainer->status, target->step, target->attempt);

        bytes += bytes_left(drainer, generations[i].name);
        if (i < STEPS_SHOWN)
            used += (size_t)snprintf(steps + used, sizeof steps - used, "%s%" PRIu64, i ? ", " : "", target->step);
        else if (i == STEPS_SHOWN)
            snprintf(steps + used, sizeof steps - used, ", ...");
        if (entry && entry->serial == 0 && entry->reason[0])
            why = entry->reason;
    }
    free(generations);
    drainer_log(drainer, "left in %s: %zu save%s (step %s), %" PRIu64 " bytes%s%s", drainer->stage.path, count,
                count == 1 ? "" : "s", steps, bytes, *why ? "; drain failed: " : "", why);
}
