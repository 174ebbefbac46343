/*
 * drain.c - ckpt_drain: the loop of the one process that drains a stage. Each pass looks at every save
 * (drain_save.c), and then leaves or waits. And its child process, its log and status.json, and ckpt_reclaim.
 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "ckpt/drain/drain_internal.h"
#include "common/clock.h"

#define PASS_SECONDS 0.02
#define BEAT_SECONDS 0.2
#define STATUS_EVERY 0.2
#define STEPS_SHOWN  8

#define HANG_SECONDS 10.0
#define KILL_SECONDS 1.0 /* a running process ends so soon after SIGKILL; one that does not is in a system call */
#define STOP_SECONDS 1.0 /* to end in order */

#define SILENT_SECONDS 5.0 /* of another process that has the lock, until it is killed */

bool drainer_must_stop(const struct drainer *drainer)
{
    return atomic_load(&drainer->shared->stop) || (drainer->options.stop && *drainer->options.stop) ||
           (drainer->deadline > 0 && clock_monotonic() >= drainer->deadline);
}

bool drainer_waits(const struct drainer *drainer)
{
    return !drainer->options.once || (drainer->deadline > 0 && !drainer->options.require_unused);
}

/* ---- the log and status.json ------------------------------------------------------------------------------------- */

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

/*
 * ---- the child process that works on the target ----
 *
 * A file system may not answer for hours, and a process that waits for it in the kernel cannot be killed. Only the
 * child waits; the drainer continues.
 */

static void send_line(const char *line, bool failure, void *arg)
{
    const struct drain_child *child = arg;

    dprintf(child->news, "%c%s\n", failure ? '!' : ' ', line);
}

/* Closes the lock, the input and the output: others wait until these are closed, such as srun. */
static void become_child(struct drain_turn *turn, pid_t parent, int news)
{
    struct drainer *drainer = turn->drainer;
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(0);
    close(drainer->lock);
    dup2(null, STDIN_FILENO);
    dup2(null, STDOUT_FILENO);
    dup2(null, STDERR_FILENO);
    drainer->child.news = news;
    if (drainer->options.log)
        drainer->options.log = send_line;
    drainer->options.log_arg = &drainer->child;
    umask(turn->save->staged.save.umask); /* an epilog has slurmd's, with which everybody could read a user's files */
}

/* Processor time of the process, of all its threads. */
static double time_used(pid_t pid)
{
    struct timespec used;
    clockid_t clock;

    if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &used) < 0)
        return 0;
    return (double)used.tv_sec + (double)used.tv_nsec * 1e-9;
}

int drain_child_start(struct drain_turn *turn, struct error *err)
{
    struct drainer *drainer = turn->drainer;
    pid_t parent = getpid(), pid;
    int ends[2];

    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0)
        return error_errno(err, CODE_IO, "a pipe");
    atomic_store(&drainer->shared->bytes, 0);
    atomic_store(&drainer->shared->copying, false);
    atomic_store(&drainer->shared->reported, false);
    drainer->shared->newest = 0;
    pid = fork();
    if (pid == 0) {
        become_child(turn, parent, ends[1]);
        drain_work(turn);
        _exit(0);
    }
    close(ends[1]);
    if (pid < 0) {
        close(ends[0]);
        return error_errno(err, CODE_IO, "a process for the drain");
    }
    drainer->child = (struct drain_child){.pid = pid, .news = ends[0]};
    return 0;
}

/* Its lines; an empty one when it has reported. */
static void read_news(struct drainer *drainer)
{
    struct drain_child *child = &drainer->child;

    while (read(child->news, child->line + child->length, 1) == 1) {
        if (child->line[child->length] != '\n' && child->length + 1 < sizeof child->line) {
            child->length++;
            continue;
        }
        child->line[child->length] = '\0';
        if (child->length > 0)
            drainer_log(drainer, child->line[0] == '!', "%s", child->line + 1);
        child->length = 0;
    }
}

/* Finds out whether it has ended, makes progress, or was stopped. Kills a stopped one. */
static void look_at_child(struct drainer *drainer)
{
    struct drain_child *child = &drainer->child;
    pid_t ended;
    int status;

    if (child->pid == 0)
        return;
    ended = waitpid(child->pid, &status, WNOHANG | WUNTRACED);
    read_news(drainer);
    if (ended > 0 && WIFSTOPPED(status)) {
        child->stopped = true;
        kill(child->pid, SIGKILL);
    } else if (ended != 0) {
        child->pid = 0;
        close(child->news);
        return;
    }
    standstill_look(&child->still, time_used(child->pid));
}

bool drain_child_hangs(const struct drainer *drainer)
{
    return drainer->child.pid != 0 && (drainer->child.killed || drainer->child.still.seconds >= HANG_SECONDS);
}

/* Waits for so long, or until it has reported or ended. */
static void wait_for_child(struct drainer *drainer, double seconds)
{
    struct pollfd news = {.fd = drainer->child.news, .events = POLLIN};

    if (drainer->child.pid == 0)
        clock_sleep(seconds);
    else
        poll(&news, 1, (int)(seconds * 1000));
    look_at_child(drainer);
}

static void wait_for_end(struct drainer *drainer, double seconds)
{
    double end = clock_monotonic() + seconds;

    while (drainer->child.pid != 0 && clock_monotonic() < end)
        wait_for_child(drainer, 0.01);
}

void drain_child_kill(struct drainer *drainer)
{
    drainer->child.name[0] = '\0';
    if (drainer->child.pid == 0)
        return;
    kill(drainer->child.pid, SIGKILL);
    wait_for_end(drainer, KILL_SECONDS);
    drainer->child.killed = true;
}

/* Asks it to end, which it does soon if the target answers. */
static void stop_child(struct drainer *drainer)
{
    atomic_store(&drainer->shared->stop, true);
    if (!drain_child_hangs(drainer))
        wait_for_end(drainer, STOP_SECONDS);
    drain_child_kill(drainer);
}

/* ---- the loop ---------------------------------------------------------------------------------------------------- */

/* That it moves, even where status.json cannot be written: the trainer looks for that (ckpt_stage_updated). */
static void give_sign(struct drainer *drainer)
{
    double now = clock_monotonic();

    if (now - drainer->beat < BEAT_SECONDS)
        return;
    futimens(drainer->lock, NULL);
    drainer->beat = now;
}

/* One pass over all saves: how many are left; -1 if the stage cannot be read. */
static int handle_all(struct drainer *drainer, struct error *err)
{
    struct staged *saves;
    size_t count;
    int left = 0, more;

    drainer->retrying = 0;
    give_sign(drainer);
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

static void remove_directory(const struct drainer *drainer)
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
        remove_directory(drainer);
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
    stop_child(drainer);
    drainer_write_status(drainer, true);
    if (left > 0)
        log_left(drainer, left);
    return left > 0 || !drainer->options.once ? CKPT_DRAIN_LEFT : (int)drainer->result;
}

static bool run_has_ended(const struct drainer *drainer)
{
    return !drainer->options.run_ended || *drainer->options.run_ended;
}

static int drain_until_done(struct drainer *drainer, struct error *err)
{
    for (;;) {
        int left = handle_all(drainer, err);
        bool busy;

        if (left < 0)
            return stage_is_removed(&drainer->stage) ? CKPT_DRAIN_DONE : -1;
        if (!drainer->in_use && !drainer->options.once && run_has_ended(drainer)) { /* tries each save once more */
            drainer->options.once = true;
            drainer->options.idle = -1;
            drainer_end_pauses(drainer);
            continue;
        }
        busy = (drainer_abandon_next(drainer) || drainer->child.pid != 0) && !drain_child_hangs(drainer);
        if (left == 0 && !busy && (drainer->options.once || !drainer->in_use)) {
            free_memory(drainer, true);
            return (int)drainer->result;
        }
        if (stage_is_removed(&drainer->stage))
            return CKPT_DRAIN_DONE;
        if (must_leave(drainer, left, busy))
            return leave_rest(drainer, left);
        wait_for_child(drainer, PASS_SECONDS);
    }
}

/* Kills the muster-ckptd of a run that has ended. Slurm does not end one that the plugin's launcher has started, and the
 * node goes to the next job. */
static void end_leftover(const struct drainer *drainer)
{
    struct status *status = calloc(1, sizeof *status);

    if (status && !stage_is_locked(&drainer->stage, STAGE_USERS) && status_read(status, &drainer->stage, NULL) == 0)
        ckpt_stage_kill_drainer(drainer->stage.path, status->pid);
    free(status);
}

/* True when this process has the stage's lock; else errno says why. With `waits`, waits for another process that has
 * it, which may leave something; and ends that process if it does not move. */
static bool wait_for_lock(struct drainer *drainer, bool waits)
{
    struct standstill still = {0};

    for (;;) {
        drainer->lock = stage_lock(&drainer->stage, STAGE_LOCK, false);
        if (drainer->lock >= 0 || errno != EAGAIN || !waits || drainer_must_stop(drainer) ||
            (!drainer->options.once && run_has_ended(drainer)))
            return drainer->lock >= 0;
        if (standstill_look(&still, stage_signed_at(&drainer->stage)) >= SILENT_SECONDS) {
            drainer_log(drainer, true, "failed: the process that drains %s has not moved for %.0f s: it is killed",
                        drainer->stage.path, still.seconds);
            end_leftover(drainer);
            still.seconds = 0;
        }
        clock_sleep(PASS_SECONDS);
    }
}

/* Takes the lock. If that is not possible, *result is what ckpt_drain returns. */
static bool lock_stage(struct drainer *drainer, int *result, struct error *err)
{
    bool waits = drainer_waits(drainer) && (drainer->options.once || drainer->options.run_ended);

    *result = CKPT_DRAIN_BUSY;
    if (drainer->options.require_unused && stage_is_locked(&drainer->stage, STAGE_USERS))
        return false;
    if (wait_for_lock(drainer, waits))
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

/* Opens and locks it, as lock_stage. A stage that does not exist is done. One of another release is left as it is. */
static bool open_to_drain(struct drainer *drainer, const char *stage_dir, int *result, struct error *err)
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

static void destroy_drainer(struct drainer *drainer)
{
    if (drainer->lock >= 0)
        close(drainer->lock);
    directory_close(&drainer->stage);
    munmap(drainer->shared, sizeof *drainer->shared);
    free(drainer);
}

static struct drainer *create_drainer(const struct ckpt_drain_options *options)
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
    drainer->options.idle = options->idle != 0 ? options->idle : 300;
    drainer->deadline = options->seconds > 0 ? clock_monotonic() + options->seconds : 0;
    pthread_mutex_init(&drainer->mutex, NULL);
    return drainer;
}

int ckpt_drain(const char *stage_dir, const struct ckpt_drain_options *options, struct error *err)
{
    struct drainer *drainer = create_drainer(options);
    int result;

    if (!drainer)
        return error_errno(err, CODE_IO, "%s", stage_dir);
    if (open_to_drain(drainer, stage_dir, &result, err)) {
        begin_status(drainer);
        free_memory(drainer, false);
        result = drain_until_done(drainer, err);
        stop_child(drainer);
        free_memory(drainer, false);
    }
    destroy_drainer(drainer);
    return result;
}

/* ---- saves that could not be drained for long -------------------------------------------------------------------- */

/* The time of target.json; of the directory if that cannot be read. 0 if it must stay. */
static double find_age(const struct drainer *drainer, const struct staged *staged, uint64_t *bytes)
{
    struct directory directory;
    struct contents contents = {0};
    double since = staged->save.started;
    struct stat info;

    if (directory_open(&directory, &drainer->stage, staged->name, NULL) < 0)
        return 0;
    if (since == 0 && fstat(directory.fd, &info) == 0)
        since = (double)info.st_mtim.tv_sec;
    if (staged_contents(&directory, ".", &contents, NULL) < 0)
        since = 0;
    directory_close(&directory);
    *bytes = contents.bytes;
    return since;
}

/* Whether it was removed. */
static bool remove_old(struct drainer *drainer, const struct staged *staged, double before)
{
    const struct staged_save *save = &staged->save;
    uint64_t bytes = 0;
    double since = find_age(drainer, staged, &bytes);

    if (since == 0 || since >= before || file_trash(&drainer->stage, staged->name, NULL) < 0)
        return false;
    drainer_log(drainer, true,
                "step %" PRIu64
                " (%s): failed: staged %.1f hours ago in %s, not committed to %s since; removed, %" PRIu64
                " bytes are lost",
                save->step, save->attempt, (clock_realtime() - since) / 3600, drainer->stage.path,
                save->dir[0] ? save->dir : "any directory", bytes);
    return true;
}

static int reclaim_stage(struct drainer *drainer, double before, struct error *err)
{
    int users = stage_lock(&drainer->stage, STAGE_USERS, false), removed = 0, more, now, left;
    struct staged *saves;
    size_t count;

    if (users < 0)
        return 0;
    file_trash(&drainer->stage, STAGE_SLOTS, NULL);
    do {
        now = 0;
        more = staged_list(&drainer->stage, &saves, &count, err);
        for (size_t i = 0; i < count; i++)
            now += remove_old(drainer, &saves[i], before);
        left = (int)count - now;
        removed += now;
        free(saves);
    } while (more > 0 && now > 0);
    if (more >= 0 && left == 0)
        remove_directory(drainer);
    close(users);
    return more < 0 ? -1 : removed;
}

int ckpt_reclaim(const char *stage_dir, double seconds, ckpt_drain_log *log, void *log_arg, struct error *err)
{
    const struct ckpt_drain_options options = {.require_unused = true, .log = log, .log_arg = log_arg};
    struct drainer *drainer = create_drainer(&options);
    int result;

    if (!drainer)
        return error_errno(err, CODE_IO, "%s", stage_dir);
    if (open_to_drain(drainer, stage_dir, &result, err))
        result = reclaim_stage(drainer, clock_realtime() - seconds, err);
    else if (result > 0)
        result = 0;
    destroy_drainer(drainer);
    return result;
}
