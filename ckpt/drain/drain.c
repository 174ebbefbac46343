/*
 * drain.c - ckpt_drain: the loop of the one process that drains a stage. Each pass looks at every save
 * (drain_save.c), and then leaves or waits.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ckpt/drain/drain_internal.h"

#define PASS_SECONDS 0.02
#define STEPS_SHOWN  8

#define SILENT_SECONDS 5.0 /* of another process that has the lock, until it is killed */

/* When the drainer ends first: the steps of the saves that are left, and the reason. */
static void log_left(struct drainer *drainer, int left)
{
    const char *why = "";
    char steps[STEPS_SHOWN * 24 + 8] = "";
    uint64_t bytes = 0;
    size_t used = 0;
    int shown = 0;

    for (int i = 0; i < DRAIN_SAVES; i++) {
        const struct ckpt_save_status *save = &drainer->shared->saves[i].status;

        if (!drainer->shared->saves[i].staged.name[0])
            continue;
        bytes += save->bytes_total - save->bytes_done;
        if (shown++ < STEPS_SHOWN)
            used += (size_t)snprintf(steps + used, sizeof steps - used, "%s%" PRIu64, used ? ", " : "", save->step);
        if (save->reason[0])
            why = save->reason;
    }
    drainer_log(drainer, *why, "left in %s: %d save%s (step %s%s), %" PRIu64 " bytes%s%s", drainer->stage.path, left,
                left == 1 ? "" : "s", steps, shown > STEPS_SHOWN ? ", ..." : "", bytes, *why ? "; drain failed: " : "",
                why);
}

/* One pass over all saves: how many are left; -1 if the stage cannot be read. */
static int handle_all(struct drainer *drainer, struct error *err)
{
    struct staged *saves;
    size_t count;
    int left = 0, more;

    drainer->retrying = 0;
    futimens(drainer->lock, NULL); /* it moves, even where status.json cannot be written: ckpt_stage_updated */
    more = staged_list(&drainer->stage, &saves, &count, err);
    if (more < 0)
        return -1;
    drainer->in_use = stage_is_locked(&drainer->stage, STAGE_USERS);
    if (more && !drainer->more)
        drainer_log(drainer, false, "%s has %d saves or more: the others wait until one of these ends",
                    drainer->stage.path, STAGED_MOST);
    drainer->more = more;
    for (size_t i = 0; i < count; i++)
        left += drainer_must_stop(drainer) || drain_handle(drainer, &saves[i]);
    free(saves);
    drainer->progress = left < (int)count;
    if (more) { /* the next pass finds some of them, if any of these has ended */
        drainer->retrying += left == (int)count;
        left++;
    }
    if (count > 0)
        drainer_write_status(drainer, false);
    return left;
}

void drainer_remove_stage(const struct drainer *drainer)
{
    file_remove_all(&drainer->stage);
    rmdir(drainer->stage.path);
}

/*
 * Unless a run uses the stage. Removes it if `all`, else its slots: no rank uses them again, and what is left of the
 * saves keeps its data. A process that opens the stage meanwhile waits for this lock, and may find the stage removed.
 */
static void free_memory(struct drainer *drainer, bool all)
{
    int users = stage_lock(&drainer->stage, STAGE_USERS, false);

    if (users < 0)
        return;
    if (all)
        drainer_remove_stage(drainer);
    else if (file_exists(&drainer->stage, STAGE_SLOTS))
        file_trash(&drainer->stage, STAGE_SLOTS, NULL);
    close(users);
}

/* Not after a pass in which a save ended: it may supersede those that are left, so they are looked at once more. */
static bool must_leave(const struct drainer *drainer, int left, bool busy)
{
    return drainer_must_stop(drainer) ||
           (!drainer_waits(drainer) && !busy && left > 0 && !drainer->progress && drainer->retrying == left);
}

static int leave_rest(struct drainer *drainer, int left)
{
    drain_child_stop(drainer);
    drainer_write_status(drainer, true);
    if (left > 0)
        log_left(drainer, left);
    return left > 0 || !drainer->options.once ? CKPT_DRAIN_LEFT : (int)drainer->result;
}

static int drain_until_done(struct drainer *drainer, struct error *err)
{
    const struct ckpt_drain_options *options = &drainer->options;

    for (bool first = true;; first = false) {
        int left = handle_all(drainer, err);
        bool ended = options->run_ended ? *options->run_ended : !options->once, busy;

        if (left < 0)
            return stage_is_removed(&drainer->stage) ? CKPT_DRAIN_DONE : -1;
        if (first) /* beside the child: to free memory takes 0.1 s a GB */
            free_memory(drainer, false);
        if (!drainer->last_try && ended && !drainer_run_goes_on(drainer)) {
            drainer->last_try = drainer->options.once = true;
            drainer_end_pauses(drainer);
            continue;
        }
        busy = (drainer_abandon_next(drainer) || drainer->child.pid != 0) && !drain_child_hangs(drainer);
        if (left == 0 && !busy && !drainer_run_goes_on(drainer)) {
            free_memory(drainer, true);
            return (int)drainer->result;
        }
        if (stage_is_removed(&drainer->stage))
            return CKPT_DRAIN_DONE;
        if (must_leave(drainer, left, busy))
            return leave_rest(drainer, left);
        drain_child_wait(drainer, PASS_SECONDS);
    }
}

/* Kills the muster-ckptd of a run that has ended. Slurm does not end one that the plugin's launcher has started, and
 * the node goes to the next job. */
static void end_leftover(const struct drainer *drainer)
{
    struct status *status = calloc(1, sizeof *status);

    if (status && !stage_is_locked(&drainer->stage, STAGE_USERS) && status_read(status, &drainer->stage, NULL) == 0)
        ckpt_stage_kill_drainer(drainer->stage.path, status->pid);
    free(status);
}

/* Takes the lock. May wait for another process that has it, which may leave something; and ends that process if it does
 * not move. If false, *result is what ckpt_drain returns. */
static bool lock_stage(struct drainer *drainer, int *result, struct error *err)
{
    bool waits = drainer->options.once && drainer_waits(drainer);
    struct standstill still = {0};

    *result = CKPT_DRAIN_BUSY;
    if (drainer->options.require_unused && stage_is_locked(&drainer->stage, STAGE_USERS))
        return false;
    while ((drainer->lock = stage_lock(&drainer->stage, STAGE_LOCK, false)) < 0 && errno == EAGAIN && waits &&
           !drainer_must_stop(drainer) && drainer_waits(drainer)) {
        if (standstill_look(&still, stage_signed_at(&drainer->stage)) >= SILENT_SECONDS &&
            !stage_is_locked(&drainer->stage, STAGE_USERS)) {
            drainer_log(drainer, true, "failed: the process that drains %s has not moved for %.0f s: it is killed",
                        drainer->stage.path, still.seconds);
            end_leftover(drainer);
            still.seconds = 0;
        }
        clock_sleep(PASS_SECONDS);
    }
    if (drainer->lock >= 0)
        return true;
    if (stage_is_removed(&drainer->stage)) { /* another drainer has ended, and removed it, since it was opened */
        *result = CKPT_DRAIN_DONE;
    } else if (errno != EAGAIN) {
        *result = error_errno(err, CODE_IO, "%s/" STAGE_LOCK, drainer->stage.path);
    } else if (waits) {
        drainer_log(drainer, true, "failed: another process still drains %s", drainer->stage.path);
        end_leftover(drainer);
        *result = CKPT_DRAIN_LEFT;
    }
    return false;
}

bool drainer_open(struct drainer *drainer, const char *stage_dir, int *result, struct error *err)
{
    bool opened = stage_directory_open(&drainer->stage, stage_dir, err) == 0;
    struct error why;

    *result = opened || errno != ENOENT ? -1 : CKPT_DRAIN_DONE;
    if (!opened || stage_directory_check(&drainer->stage, err) < 0)
        return false;
    if (stage_check_format(&drainer->stage, &why) == 0)
        return lock_stage(drainer, result, err);
    drainer_log(drainer, true, "left as it is: %s", why.text);
    *result = CKPT_DRAIN_LEFT;
    return false;
}

/* What an earlier drainer wrote of the saves that had ended. It was for information; the directories are the state. */
static void begin_status(struct drainer *drainer)
{
    struct status *status = &drainer->status;

    file_empty_trash(&drainer->stage); /* slots that it holds cannot be used */
    status_read(status, &drainer->stage, NULL);
    for (size_t i = 0; i < status->count && drainer->ended < STATUS_ENDED; i++)
        if (status->saves[i].serial > 0)
            status->saves[drainer->ended++] = status->saves[i];
    status->pid = (int)getpid();
    gethostname(status->host, sizeof status->host - 1);
    drainer_write_status(drainer, true);
}

void drainer_destroy(struct drainer *drainer)
{
    if (drainer->lock >= 0)
        close(drainer->lock);
    directory_close(&drainer->stage);
    munmap(drainer->shared, sizeof *drainer->shared);
    free(drainer);
}

struct drainer *drainer_create(const struct ckpt_drain_options *options)
{
    struct drainer *drainer = calloc(1, sizeof *drainer);

    if (!drainer)
        return NULL;
    drainer->lock = drainer->stage.fd = -1;
    drainer->shared = mmap(NULL, sizeof *drainer->shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (drainer->shared == MAP_FAILED) {
        free(drainer);
        return NULL;
    }
    drainer->options = *options;
    drainer->options.threads = options->threads > 0 ? options->threads : 2;
    drainer->deadline = options->seconds > 0 ? clock_monotonic() + options->seconds : 0;
    pthread_mutex_init(&drainer->mutex, NULL);
    return drainer;
}

int ckpt_drain(const char *stage_dir, const struct ckpt_drain_options *options, struct error *err)
{
    struct drainer *drainer = drainer_create(options);
    int result;

    if (!drainer)
        return error_errno(err, CODE_IO, "%s", stage_dir);
    if (drainer_open(drainer, stage_dir, &result, err)) {
        begin_status(drainer);
        result = drain_until_done(drainer, err);
        drain_child_stop(drainer);
        free_memory(drainer, false);
    }
    drainer_destroy(drainer);
    return result;
}
