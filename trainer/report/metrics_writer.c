/*
 * metrics_writer.c - appends to a run's metrics. A thread does it, so that training goes on while the file system does
 * not answer. In general each call waits until the thread is done.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/io.h"
#include "common/text.h"
#include "common/thread.h"
#include "trainer/report/metrics.h"

enum {
    CHECK_SECONDS = 5,      /* between two checks of the name, which need the file system */
    WAIT_SECONDS = 2,       /* for the thread; after that, calls do not wait until it is done again */
    READER_SECONDS = 10,    /* for the reader of a pipe */
    MOST_WAITING = 1 << 20, /* bytes of lines */
};

struct work {
    char *lines; /* malloc'ed */
    size_t length;
    long step;        /* the last one of them */
    bool sync, check; /* flush to disk; see whether the name belongs to another file */
};

struct metrics_writer {
    int fd;
    char path[PATH_MAX];
    double checked; /* clock_monotonic, when the name was last checked */
    bool late;      /* the thread was not done in time */
    long last_step; /* of the lines that metrics_open kept; 0: there are none */
    bool validated; /* that step */
    pthread_t thread;
    pthread_mutex_t mutex; /* of what follows */
    pthread_cond_t changed;
    struct work work; /* for the thread */
    bool busy, end;
    bool displaced, reported; /* the name belongs to another file, and metrics_displaced returned that */
    struct error failure;     /* of the thread, until a call returns it; CODE_OK: none */
};

/* ---- removing the steps that a resumed run will repeat ---- */

static int replace_file(const char *path, mode_t mode, const char *text, size_t length, struct error *err)
{
    char beside[PATH_MAX + 8];
    int fd, result = 0;

    snprintf(beside, sizeof beside, "%s.tmp", path);
    fd = open(beside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NONBLOCK, 0666);
    if (fd < 0)
        return error_errno(err, CODE_IO, "cannot create %s", beside);
    if (fchmod(fd, mode & 0777) < 0 || io_write_all(fd, text, length) < 0 || fsync(fd) < 0 ||
        rename(beside, path) < 0 || io_sync_parent(path) < 0)
        result = error_errno(err, CODE_IO, "cannot write %s and rename it to %s", beside, path);
    close(fd);
    if (result < 0)
        unlink(beside);
    return result;
}

struct kept_lines {
    FILE *text;
    long resume_step;
    struct metrics_writer *writer;
};

static int keep_line(void *arg, const struct metrics_step *step, const char *line, struct error *err)
{
    const struct kept_lines *kept = arg;

    (void)err;
    if (step->step > kept->resume_step)
        return 0;
    fprintf(kept->text, "%s\n", line); /* fclose reports a failure */
    kept->writer->last_step = step->step;
    kept->writer->validated = step->validated;
    return 0;
}

/* The damaged file is kept: it may not be a metrics file, but one that the job file names by mistake. */
static int keep_damaged(const char *path, struct metrics_damage *damage, struct error *err)
{
    snprintf(damage->kept, sizeof damage->kept, "%s.damaged", path);
    for (int k = 2; k < 1000 && access(damage->kept, F_OK) == 0; k++)
        snprintf(damage->kept, sizeof damage->kept, "%s.damaged-%d", path, k);
    if (link(path, damage->kept) < 0 && rename(path, damage->kept) < 0) /* not every file system has hard links */
        return error_errno(err, CODE_IO, "cannot keep the damaged metrics as %s", damage->kept);
    return 0;
}

/* A last line that is torn is not among the steps. */
static int drop_beyond(struct metrics_writer *writer, const struct stat *now, long resume_step,
                       struct metrics_damage *damage, struct error *err)
{
    const char *path = writer->path;
    char *text = NULL;
    size_t length = 0;
    struct kept_lines kept = {open_memstream(&text, &length), resume_step, writer};
    int result = kept.text ? metrics_each_step(path, keep_line, &kept, damage, err) : 0;

    if ((!kept.text || fclose(kept.text) != 0) && result == 0)
        result = error_errno(err, CODE_IO, "no memory to read %s", path);
    if (result == 0 && damage->lines > 0)
        result = keep_damaged(path, damage, err);
    if (result == 0 && (damage->lines > 0 || (off_t)length != now->st_size))
        result = replace_file(path, now->st_mode, text, length, err);
    free(text);
    return result;
}

/* ---- the thread -------------------------------------------------------------------------------------------------- */

/* A pipe is full: waits until its reader has read, but not for a reader that was stopped. */
static bool wait_for_reader(int fd)
{
    struct pollfd room = {.fd = fd, .events = POLLOUT};

    if (poll(&room, 1, READER_SECONDS * 1000) > 0)
        return true;
    errno = ETIMEDOUT;
    return false;
}

static int write_lines(const struct metrics_writer *writer, const struct work *work, struct error *err)
{
    struct stat now;
    size_t at = 0;

    while (at < work->length) {
        ssize_t done = write(writer->fd, work->lines + at, work->length - at);

        if (done < 0 && (errno == EINTR || (errno == EAGAIN && wait_for_reader(writer->fd))))
            continue;
        if (done < 0)
            return error_errno(err, CODE_IO, "cannot write step %ld to metrics %s", work->step, writer->path);
        at += (size_t)done;
        if (at == work->length || (fstat(writer->fd, &now) == 0 && !S_ISREG(now.st_mode)))
            continue;
        /* Half a line would make the next one invalid too. */
        if (ftruncate(writer->fd, now.st_size - done) < 0)
            return error_errno(err, CODE_IO, "step %ld is written only in part to metrics %s", work->step,
                               writer->path);
        return error_set(err, CODE_IO, "cannot write step %ld to metrics %s: no space for the whole line", work->step,
                         writer->path);
    }
    return 0;
}

static bool is_displaced(const struct metrics_writer *writer)
{
    struct stat ours, named;

    if (fstat(writer->fd, &ours) < 0)
        return errno == ESTALE; /* removed on another node, by NFS */
    if (!S_ISREG(ours.st_mode))
        return false;
    if (stat(writer->path, &named) < 0)
        return errno == ENOENT;
    return named.st_ino != ours.st_ino || named.st_dev != ours.st_dev;
}

static int do_work(const struct metrics_writer *writer, const struct work *work, struct error *err)
{
    if (work->length > 0 && write_lines(writer, work, err) < 0)
        return -1;
    if (work->sync && fdatasync(writer->fd) < 0 && errno != EINVAL) /* EINVAL: a pipe or a terminal has no disk */
        return error_errno(err, CODE_IO, "cannot sync metrics %s", writer->path);
    return 0;
}

static bool has_work(const struct metrics_writer *writer)
{
    return writer->work.length > 0 || writer->work.sync || writer->work.check;
}

static void *work_until_end(void *arg)
{
    struct metrics_writer *writer = arg;

    pthread_mutex_lock(&writer->mutex);
    while (!writer->end || has_work(writer)) {
        struct work work = writer->work;
        struct error err = {0};
        bool displaced;

        if (!has_work(writer)) {
            pthread_cond_wait(&writer->changed, &writer->mutex);
            continue;
        }
        writer->work = (struct work){0};
        writer->busy = true;
        pthread_mutex_unlock(&writer->mutex);
        do_work(writer, &work, &err);
        displaced = work.check && is_displaced(writer);
        free(work.lines);
        pthread_mutex_lock(&writer->mutex);
        writer->busy = false;
        writer->displaced |= displaced;
        if (err.code != CODE_OK)
            writer->failure = err;
        pthread_cond_broadcast(&writer->changed);
    }
    pthread_mutex_unlock(&writer->mutex);
    return NULL;
}

/* With the mutex: gives the thread its work, and waits until it is done, or `late`. */
static void wait_for_thread(struct metrics_writer *writer)
{
    double at = clock_monotonic() + (writer->busy && writer->late ? 0 : WAIT_SECONDS);
    struct timespec until = {.tv_sec = (time_t)at, .tv_nsec = (long)((at - floor(at)) * 1e9)};

    writer->late = false;
    pthread_cond_broadcast(&writer->changed);
    while (!writer->late && (writer->busy || has_work(writer)))
        writer->late = pthread_cond_clockwait(&writer->changed, &writer->mutex, CLOCK_MONOTONIC, &until) != 0;
}

/* The same; unlocks the mutex. -1 with the thread's failure. */
static int finish_call(struct metrics_writer *writer, struct error *err)
{
    struct error failure;

    wait_for_thread(writer);
    failure = writer->failure;
    writer->failure.code = CODE_OK;
    pthread_mutex_unlock(&writer->mutex);
    if (failure.code == CODE_OK)
        return 0;
    *err = failure;
    return -1;
}

/* ---- appending --------------------------------------------------------------------------------------------------- */

static void destroy_writer(struct metrics_writer *writer)
{
    if (writer->fd >= 0)
        close(writer->fd);
    free(writer->work.lines);
    free(writer);
}

/* After the file was replaced. */
static int open_again(struct metrics_writer *writer, struct error *err)
{
    close(writer->fd);
    writer->fd = open(writer->path, O_WRONLY | O_CLOEXEC | O_APPEND);
    return writer->fd < 0 ? error_errno(err, CODE_IO, "cannot open metrics %s", writer->path) : 0;
}

/* Opens the file without waiting: a FIFO without a reader would hang the run. Pipes, terminals and /dev/null are files
 * to append to; what can never be one is the job file's mistake. */
static int open_file(const char *path, struct stat *now, struct error *err)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_APPEND | O_NONBLOCK, 0666), failure = errno;
    bool known = fd < 0 ? stat(path, now) == 0 : fstat(fd, now) == 0;
    const char *what = !known                   ? NULL
                       : S_ISDIR(now->st_mode)  ? "a directory"
                       : S_ISSOCK(now->st_mode) ? "a socket"
                       : S_ISBLK(now->st_mode)  ? "a disk"
                       : S_ISFIFO(now->st_mode) && fd < 0 && failure == ENXIO
                           ? "a FIFO that nobody reads; start the reader first, or"
                           : NULL;

    if (fd >= 0 && known && !what)
        return fd;
    if (fd >= 0)
        close(fd);
    errno = failure;
    if (what)
        return error_set(err, CODE_CONFIG, "metrics %s: it is %s%s name a file", path, what,
                         S_ISFIFO(now->st_mode) ? "" : ";");
    return error_errno(err, CODE_IO, "cannot open metrics %s", path);
}

struct metrics_writer *metrics_open(const char *path, long resume_step, struct metrics_damage *damage,
                                    struct error *err)
{
    struct metrics_writer *writer = error_calloc(1, sizeof *writer, err);
    struct stat now;
    int failure;

    damage->lines = 0;
    if (!writer)
        return NULL;
    writer->fd = open_file(path, &now, err);
    if (writer->fd < 0)
        goto fail;
    snprintf(writer->path, sizeof writer->path, "%s", path);
    /* Resolve symbolic links, so that the rename replaces the file and not a link to it. A pipe or a terminal has no
     * lines to remove, and /dev/stdout then leads to no name. */
    if (S_ISREG(now.st_mode) && !realpath(path, writer->path)) {
        error_errno(err, CODE_IO, "cannot resolve metrics %s", path);
        goto fail;
    }
    if (S_ISREG(now.st_mode) && now.st_size > 0 &&
        (drop_beyond(writer, &now, resume_step, damage, err) < 0 || open_again(writer, err) < 0))
        goto fail;
    pthread_mutex_init(&writer->mutex, NULL);
    pthread_cond_init(&writer->changed, NULL);
    failure = thread_start(&writer->thread, work_until_end, writer);
    if (failure == 0)
        return writer;
    error_set(err, CODE_IO, "no thread for metrics %s: %s", writer->path, strerror(failure));
fail:
    destroy_writer(writer);
    return NULL;
}

bool metrics_has_validation(const struct metrics_writer *writer, long step)
{
    return writer->last_step == step && writer->validated;
}

int metrics_add_validation(struct metrics_writer *writer, const struct metrics_step *step, struct error *err)
{
    char *text, *room;
    struct stat now;
    size_t bytes;
    int result;

    if (writer->last_step != step->step || writer->validated)
        return 0;
    text = text_read_file(writer->path, SIZE_MAX / 2, &bytes, err);
    if (!text)
        return -1;
    room = realloc(text, bytes + METRICS_LINE_SIZE);
    if (!room || fstat(writer->fd, &now) < 0) {
        result = error_errno(err, CODE_IO, "cannot change metrics %s", writer->path);
    } else {
        bytes += metrics_format_end(room + bytes - 2, METRICS_LINE_SIZE, step) - 2; /* in place of "}\n" */
        result = replace_file(writer->path, now.st_mode, room, bytes, err) < 0 ? -1 : open_again(writer, err);
    }
    writer->validated = result == 0;
    free(room ? room : text);
    return result;
}

bool metrics_displaced(struct metrics_writer *writer)
{
    double now = clock_monotonic();

    if (writer->reported || (writer->checked > 0 && now - writer->checked < CHECK_SECONDS))
        return false;
    writer->checked = now;
    pthread_mutex_lock(&writer->mutex);
    writer->work.check = true;
    wait_for_thread(writer); /* a failure is for the next call that can fail */
    writer->reported = writer->displaced;
    pthread_mutex_unlock(&writer->mutex);
    return writer->reported;
}

int metrics_write(struct metrics_writer *writer, const struct metrics_step *step, struct error *err)
{
    char line[METRICS_LINE_SIZE], *lines = NULL;
    size_t length = metrics_format(line, step);
    struct work *work = &writer->work;

    pthread_mutex_lock(&writer->mutex);
    if (work->length + length <= MOST_WAITING)
        lines = realloc(work->lines, work->length + length);
    if (!lines) {
        pthread_mutex_unlock(&writer->mutex);
        return error_set(err, CODE_IO, "cannot write step %ld to metrics %s: it does not answer", step->step,
                         writer->path);
    }
    memcpy(lines + work->length, line, length);
    work->lines = lines;
    work->length += length;
    work->step = step->step;
    return finish_call(writer, err);
}

int metrics_sync(struct metrics_writer *writer, struct error *err)
{
    pthread_mutex_lock(&writer->mutex);
    writer->work.sync = true;
    if (finish_call(writer, err) < 0)
        return -1;
    return writer->late ? error_set(err, CODE_IO, "%s does not answer", writer->path) : 0;
}

/* A thread that waits for the file system is left behind. */
void metrics_close(struct metrics_writer *writer)
{
    struct error ignored;

    if (!writer)
        return;
    pthread_mutex_lock(&writer->mutex);
    writer->end = true;
    finish_call(writer, &ignored);
    if (writer->late)
        return;
    pthread_join(writer->thread, NULL);
    pthread_mutex_destroy(&writer->mutex);
    pthread_cond_destroy(&writer->changed);
    destroy_writer(writer);
}
