/* drain.c - ckpt_drain: one process a stage, looking again and again at what lies there. */
#include "config.h"

#include "ckpt/drain_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define LOOK_NS     20000000
#define TELL_EVERY  0.2
#define SIGN_EVERY  0.5
#define ALONE_AFTER 60.0 /* without anyone who may stage: the trainer was killed, and nobody closed the stage */

static bool must_stop(const struct drainer *drainer)
{
    return (drainer->options.stop && *drainer->options.stop) ||
           (drainer->deadline > 0 && stage_clock() >= drainer->deadline);
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
void drainer_tell(struct drainer *drainer, bool now)
{
    double clock = stage_clock();

    pthread_mutex_lock(&drainer->mutex);
    if (now || clock - drainer->status_written >= TELL_EVERY) {
        drainer->status_written = clock;
        drainer->status->updated = stage_time();
        status_write(drainer->status, &drainer->stage, NULL);
    }
    pthread_mutex_unlock(&drainer->mutex);
}

int drain_pace(struct drain *drain, uint64_t bytes, struct error *err)
{
    struct drainer *drainer = drain->drainer;
    double now = stage_clock(), at = now;
    bool abort, sign;

    pthread_mutex_lock(&drainer->mutex);
    abort = drain->abort;
    if (drainer->options.cap > 0) {
        at = drainer->cap_free > now ? drainer->cap_free : now;
        drainer->cap_free = at + (double)bytes / (double)drainer->options.cap;
    }
    sign = now - drain->sign_looked >= SIGN_EVERY;
    if (sign)
        drain->sign_looked = now;
    drain->entry->bytes_done += bytes;
    if (now > drain->waiting->began)
        drain->entry->rate =
            (double)(drain->entry->bytes_done - drain->waiting->drained) / (now - drain->waiting->began);
    pthread_mutex_unlock(&drainer->mutex);
    for (; !abort && now < at && !must_stop(drainer); now = stage_clock()) {
        double wait = at - now < 0.1 ? at - now : 0.1;

        nanosleep(&(struct timespec){.tv_nsec = (long)(wait * 1e9)}, NULL);
    }
    if (abort || must_stop(drainer))
        return DRAIN_INTERRUPTED;
    drainer_tell(drainer, false);
    return sign ? drain_check_given_up(drain, err) : 0;
}

/* How many generations are left after each has been looked at; -1 if the stage cannot be read. */
static int look_at_all(struct drainer *drainer, struct error *err)
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
        drainer_tell(drainer, false);
    return left;
}

/*
 * Nobody may begin to use it meanwhile: whoever opens it waits for this lock, and then finds it gone. False if somebody
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

static bool is_gone(const struct drainer *drainer)
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

static int leave(struct drainer *drainer, int left)
{
    drainer_tell(drainer, true);
    if (left > 0)
        drain_log_left(drainer);
    if (drainer->options.once && !drainer->users) /* nobody uses this memory again */
        file_trash(&drainer->stage, STAGE_FREE, NULL);
    return left > 0 || !drainer->options.once || drainer->incomplete > 0 ? CKPT_DRAIN_LEFT : CKPT_DRAIN_DONE;
}

static int loop(struct drainer *drainer, struct error *err)
{
    double alone = stage_clock();

    for (;;) {
        bool closed = stage_has(&drainer->stage, STAGE_CLOSED);
        int left = look_at_all(drainer, err);

        if (left < 0)
            return is_gone(drainer) ? CKPT_DRAIN_DONE : -1;
        if (drainer->users)
            alone = stage_clock();
        if (left == drainer->unknown && (closed || drainer->options.once || stage_clock() - alone > ALONE_AFTER)) {
            bool removed = left == 0 && (closed || !drainer->users) && remove_stage(drainer);

            if (left > 0)
                return CKPT_DRAIN_LEFT; /* of a form that another release knows */
            if (removed || drainer->options.once)
                return drainer->incomplete > 0 ? CKPT_DRAIN_LEFT : CKPT_DRAIN_DONE;
        }
        if (is_gone(drainer))
            return CKPT_DRAIN_DONE;
        if (must_leave(drainer, left))
            return leave(drainer, left);
        nanosleep(&(struct timespec){.tv_nsec = LOOK_NS}, NULL);
    }
}

static int start(struct drainer *drainer, struct error *err)
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
    drainer->deadline = options->seconds > 0 ? stage_clock() + options->seconds : 0;
    drainer->lock = -1;
    pthread_mutex_init(&drainer->mutex, NULL);
    if (stage_directory_open(&drainer->stage, stage_dir, false, err) < 0)
        result = errno == ENOENT ? CKPT_DRAIN_DONE : -1;
    else if ((result = start(drainer, err)) == 0)
        result = loop(drainer, err);
    else if (result < 0 && is_gone(drainer)) /* another drainer has ended, and removed it, since we opened it */
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
