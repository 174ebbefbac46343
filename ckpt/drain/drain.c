/* drain.c - ckpt_drain: the loop of the one process that drains a stage, its pauses and its log. */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ckpt/drain/drain_internal.h"
#include "common/clock.h"

#define TURN_SECONDS 0.02
#define STATUS_EVERY 0.2
#define SIGN_EVERY   0.5
#define ALONE_AFTER  60.0 /* without a process that may stage: the trainer was killed, and the stage was not closed */

static bool must_stop(const struct drainer *drainer)
{
    return (drainer->options.stop && *drainer->options.stop) ||
           (drainer->deadline > 0 && clock_monotonic() >= drainer->deadline);
}

void drainer_log(const struct drainer *drainer, const char *format, ...)
{
    char line[1400];
    va_list arguments;

    if (!drainer->options.log)
        return;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    drainer->options.log(line, drainer->options.log_arg);
}

/* A status that cannot be written now is written at the next change: it must not cost a checkpoint. */
void drainer_write_status(struct drainer *drainer, bool now)
{
    double clock = clock_monotonic();

    pthread_mutex_lock(&drainer->mutex);
    if (now || clock - drainer->status_written >= STATUS_EVERY) {
        drainer->status_written = clock;
        drainer->status->updated = clock_realtime();
        status_write(drainer->status, &drainer->stage, NULL);
    }
    pthread_mutex_unlock(&drainer->mutex);
}

int drain_pace(struct drain *drain, uint64_t bytes, struct error *err)
{
    struct drainer *drainer = drain->drainer;
    double now = clock_monotonic(), at = now;
    bool abort, sign;

    pthread_mutex_lock(&drainer->mutex);
    abort = drain->abort;
    if (drainer->options.cap > 0) {
        at = drainer->cap_free > now ? drainer->cap_free : now;
        drainer->cap_free = at + (double)bytes / (double)drainer->options.cap;
    }
    sign = now - drain->sign_checked >= SIGN_EVERY;
    if (sign)
        drain->sign_checked = now;
    drain->entry->bytes_done += bytes;
    if (now > drain->waiting->began)
        drain->entry->rate =
            (double)(drain->entry->bytes_done - drain->waiting->drained) / (now - drain->waiting->began);
    pthread_mutex_unlock(&drainer->mutex);
    for (; !abort && now < at && !must_stop(drainer); now = clock_monotonic()) {
        double wait = at - now < 0.1 ? at - now : 0.1;

        clock_sleep(wait);
    }
    if (abort || must_stop(drainer))
        return DRAIN_INTERRUPTED;
    drainer_write_status(drainer, false);
    return sign ? drain_check_given_up(drain, err) : 0;
}

/* One turn: how many generations are left; -1 if the stage cannot be read. */
static int handle_all(struct drainer *drainer, struct error *err)
{
    struct generation *generations;
    size_t count;
    int left = 0;

    drainer->unknown = 0;
    drainer->users = stage_is_locked(&drainer->stage, STAGE_USERS);
    drainer->stuck = 0;
    if (generation_list(&drainer->stage, &generations, &count, err) < 0)
        return -1;
    for (size_t i = 0; i < count; i++)
        left += must_stop(drainer) ? 1 : drain_generation(drainer, &generations[i]);
    free(generations);
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

/* With --once and no --seconds a target that fails is not waited for. */
static bool must_leave(const struct drainer *drainer, int left)
{
    return must_stop(drainer) ||
           (drainer->options.once && drainer->deadline == 0 && left > 0 && drainer->stuck + drainer->unknown == left);
}

static int leave_stage(struct drainer *drainer, int left)
{
    drainer_write_status(drainer, true);
    if (left > 0)
        drain_log_left(drainer);
    if (drainer->options.once && !drainer->users) /* this memory is not used again */
        file_trash(&drainer->stage, STAGE_FREE, NULL);
    return left > 0 || !drainer->options.once || drainer->incomplete > 0 ? CKPT_DRAIN_LEFT : CKPT_DRAIN_DONE;
}

static int drain_until_done(struct drainer *drainer, struct error *err)
{
    double alone = clock_monotonic();

    for (;;) {
        bool closed = file_exists(&drainer->stage, STAGE_CLOSED);
        int left = handle_all(drainer, err);

        if (left < 0)
            return is_removed(drainer) ? CKPT_DRAIN_DONE : -1;
        if (drainer->users)
            alone = clock_monotonic();
        if (left == drainer->unknown && (closed || drainer->options.once || clock_monotonic() - alone > ALONE_AFTER)) {
            bool removed = left == 0 && (closed || !drainer->users) && remove_stage(drainer);

            if (left > 0)
                return CKPT_DRAIN_LEFT; /* of a form that another release knows */
            if (removed || drainer->options.once)
                return drainer->incomplete > 0 ? CKPT_DRAIN_LEFT : CKPT_DRAIN_DONE;
        }
        if (is_removed(drainer))
            return CKPT_DRAIN_DONE;
        if (must_leave(drainer, left))
            return leave_stage(drainer, left);
        clock_sleep(TURN_SECONDS);
    }
}

static int lock_stage(struct drainer *drainer, struct error *err)
{
    drainer->lock = stage_lock(&drainer->stage, STAGE_LOCK, false);
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

int ckpt_drain(const char *stage_dir, const struct ckpt_drain_options *options, int *failed, struct error *err)
{
    struct drainer *drainer = calloc(1, sizeof *drainer);
    mode_t own = umask(077);
    int result = -1;

    umask(own);
    if (failed)
        *failed = 0;
    if (!drainer || !(drainer->status = calloc(1, sizeof *drainer->status))) {
        free(drainer);
        return error_errno(err, CODE_IO, "%s", stage_dir);
    }
    drainer->options = *options;
    drainer->options.threads = options->threads > 0 ? options->threads : 2;
    drainer->options.idle = options->idle > 0 ? options->idle : 300;
    drainer->deadline = options->seconds > 0 ? clock_monotonic() + options->seconds : 0;
    drainer->lock = -1;
    pthread_mutex_init(&drainer->mutex, NULL);
    if (stage_directory_open(&drainer->stage, stage_dir, false, err) < 0)
        result = errno == ENOENT ? CKPT_DRAIN_DONE : -1;
    else if ((result = lock_stage(drainer, err)) == 0)
        result = drain_until_done(drainer, err);
    else if (result < 0 && is_removed(drainer)) /* another drainer has ended, and removed it, since it was opened */
        result = CKPT_DRAIN_DONE;
    umask(own); /* drain_generation's was that of who staged */
    if (failed)
        *failed = drainer->failed;
    if (drainer->lock >= 0)
        close(drainer->lock);
    directory_close(&drainer->stage);
    pthread_mutex_destroy(&drainer->mutex);
    free(drainer->status);
    free(drainer);
    return result;
}

/* ---- a target that fails ----------------------------------------------------------------------------------------- */

#define FIRST_PAUSE 0.25
#define MOST_PAUSE  30.0
#define FIRST_LOG   30.0
#define MOST_LOG    600.0
#define STEPS_SHOWN 8

static double next_pause(double seconds, double least, double most)
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
    drainer_write_status(drainer, !same);
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
        trouble->pause = next_pause(trouble->pause, FIRST_LOG, MOST_LOG);
        trouble->next = now + trouble->pause;
        drainer_log(drainer, "the drain to %s has failed for %.0f s, %s is kept: %s", drain->generation->target.dir,
                    now - trouble->since, drainer->stage.path, why->text);
    }
}

int drain_retry(struct drain *drain, const struct error *why)
{
    struct waiting *waiting = drain->waiting;
    double now = clock_monotonic();

    waiting->pause = next_pause(waiting->pause, FIRST_PAUSE, MOST_PAUSE);
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
                clock_monotonic() - drainer->trouble.since);
    drainer->trouble.since = 0;
    for (int i = 0; i < STATUS_MOST; i++) /* no generation needs to wait for the end of its pause */
        drainer->waiting[i].retry = 0;
}

/* Bytes of a generation that are not in the target, a partner's included. */
static uint64_t bytes_left(const struct drainer *drainer, const char *name)
{
    struct directory generation;
    struct contents own, others;

    if (directory_open(&generation, &drainer->stage, name, NULL) < 0)
        return 0;
    generation_contents(&generation, &own);
    generation_partner_contents(&generation, &others);
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
