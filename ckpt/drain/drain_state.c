/* drain_state.c - what a drainer may do at present, its log, and status.json. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "ckpt/drain/drain_internal.h"

#define STATUS_EVERY 0.2

bool drainer_must_stop(const struct drainer *drainer)
{
    return atomic_load(&drainer->shared->stop) || (drainer->options.stop && *drainer->options.stop) ||
           (drainer->deadline > 0 && clock_monotonic() >= drainer->deadline);
}

bool drainer_waits(const struct drainer *drainer)
{
    const struct ckpt_drain_options *options = &drainer->options;

    if (!options->once)
        return true;
    return options->run_ended ? !*options->run_ended : drainer->deadline > 0 && !options->require_unused;
}

void drainer_log(const struct drainer *drainer, bool failure, const char *format, ...)
{
    char line[1400];
    va_list arguments;

    if (!drainer->options.log)
        return;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    error_tame(line); /* it has paths */
    drainer->options.log(line, failure, drainer->options.log_arg);
}

void drain_log(const struct drain_turn *turn, bool failure, const char *format, ...)
{
    const struct staged_save *save = &turn->save->staged.save;
    char line[1200];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    drainer_log(turn->drainer, failure, "step %" PRIu64 " (%s): %s", save->step, save->attempt, line);
}

/* A status that cannot be written now is written at the next change: it must not cost a checkpoint. */
void drainer_write_status(struct drainer *drainer, bool now)
{
    double clock = clock_monotonic();

    if (!now && clock - drainer->status_written < STATUS_EVERY)
        return;
    drainer->status_written = clock;
    drainer->status.updated = clock_realtime();
    drainer->status.count = drainer->ended;
    for (int i = 0; i < DRAIN_SAVES && drainer->status.count < STATUS_MOST; i++)
        if (drainer->shared->saves[i].staged.name[0])
            drainer->status.saves[drainer->status.count++] = drainer->shared->saves[i].status;
    status_write(&drainer->status, &drainer->stage, NULL);
}
