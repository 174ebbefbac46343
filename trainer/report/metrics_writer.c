/* metrics_writer.c - the process that writes a run's metrics. */
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/io.h"
#include "common/process/launcher.h"
#include "trainer/report/metrics_writer.h"

enum {
    OTHERS_SECONDS = 5, /* for another writer, which may be an earlier one of this run that is ending */
    MOST_NAMES = 100,
    LOOK_MILLISECONDS = 100, /* between two looks for a kill-switch file */
};

ssize_t metrics_receive(int socket, char *text, size_t size)
{
    ssize_t got;

    do /* a peer that ends without reading all resets the connection; what it sent is still there */
        got = recv(socket, text, size - 1, 0);
    while (got < 0 && (errno == ECONNRESET || errno == EINTR));
    text[got > 0 ? got : 0] = '\0';
    return got;
}

void writer_tell(const struct metrics_file *f, char kind, const char *format, ...)
{
    char text[METRICS_ANSWER_SIZE] = {kind};
    va_list args;

    va_start(args, format);
    vsnprintf(text + 1, sizeof text - 1, format, args);
    va_end(args);
    error_tame(text);
    send(f->socket, text, strlen(text), MSG_NOSIGNAL);
}

/* Waits, but not beyond the run's end. */
static void pause_while_it_runs(struct metrics_file *f, int milliseconds)
{
    struct pollfd run = {.fd = f->socket, .events = POLLRDHUP};

    f->ended |= poll(&run, 1, milliseconds) > 0;
}

/* ---- appending --------------------------------------------------------------------------------------------------- */

/* A pipe is full: waits until its reader has read, but not for a reader that was stopped. */
static bool wait_for_reader(int fd)
{
    struct pollfd room = {.fd = fd, .events = POLLOUT};

    if (poll(&room, 1, RETRY_SECONDS * 1000) > 0)
        return true;
    errno = ETIMEDOUT;
    return false;
}

static int trim_file(struct metrics_file *f, struct error *err)
{
    if (f->torn && ftruncate(f->fd, f->length) < 0)
        return error_errno(err, CODE_IO, "cannot cut metrics %s", f->path);
    f->torn = false;
    return 0;
}

static int write_line(struct metrics_file *f, const char *line, size_t length, struct error *err)
{
    if (trim_file(f, err) < 0)
        return -1;
    while (f->part < length) {
        ssize_t done = write(f->fd, line + f->part, length - f->part);

        if (done < 0 && (errno == EINTR || (errno == EAGAIN && wait_for_reader(f->fd))))
            continue;
        if (done < 0)
            return error_errno(err, CODE_IO, "cannot write metrics %s", f->path);
        if (f->is_file && (size_t)done < length) { /* half a line would make the next one invalid too */
            f->torn = true;
            trim_file(f, NULL);
            return error_set(err, CODE_IO, "cannot write metrics %s: no space for a whole line", f->path);
        }
        f->part += (size_t)done;
    }
    f->part = 0;
    f->length += (off_t)length;
    return 0;
}

/* text: "STEP END", as metrics.h has it. */
static int add_validation(struct metrics_file *f, const char *text, struct error *err)
{
    char *end, *line = NULL;
    int length, result;

    if (strtol(text, &end, 10) != f->last_step || !f->last || f->validated)
        return 0;
    length = asprintf(&line, "%.*s%s", (int)strlen(f->last) - 1, f->last, end + 1);
    if (length < 0)
        return error_set(err, CODE_IO, "no memory for a line of %s", f->path);
    f->length = f->last_at;
    f->torn = true;
    result = write_line(f, line, (size_t)length, err);
    f->validated = result == 0;
    free(line);
    return result;
}

/*
 * A newline comes first, since the line before may be torn. A start gets `repeated` and `last`, from the steps that the
 * file had. If this fails, the metrics go on.
 */
static void add_event(struct metrics_file *f, const char *line, size_t length)
{
    static const char START[] = "{\"event\":\"start\"";
    char name[sizeof f->path + 8], text[METRICS_LINE_SIZE + 80] = "\n";
    long after = f->run->after;
    ssize_t done = -1;
    int fd;

    if (!f->is_file)
        return;
    if (strncmp(line, START, strlen(START)) == 0)
        snprintf(text, sizeof text, "\n%s,\"repeated\":%ld,\"last\":%.3f%.*s", START,
                 after >= 0 && f->seen.step > after ? f->seen.step - after : 0, after >= 0 ? f->seen.time : 0,
                 (int)(length - strlen(START)), line + strlen(START));
    else
        snprintf(text, sizeof text, "\n%.*s", (int)length, line);
    length = strlen(text);
    snprintf(name, sizeof name, "%s.events", f->path);
    fd = open(name, O_WRONLY | O_CREAT | O_APPEND | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (fd >= 0) {
        done = write(fd, text, length);
        close(fd);
    }
    if (done != (ssize_t)length && !f->events_failed)
        writer_tell(
            f, ' ',
            "warning: cannot write %s: %s; muster-report shows less of starts, checkpoints and where the time goes",
            name, done < 0 ? strerror(errno) : "no space");
    f->events_failed = done != (ssize_t)length;
}

static int do_line(struct metrics_file *f, const char *line, size_t length, struct error *err)
{
    if (*line == 'v') {
        f->board.offset = f->last_at;
        return add_validation(f, line + 1, err);
    }
    if (*line == 'e') {
        add_event(f, line + 1, length - 1);
        return 0;
    }
    if (*line == 'p') {
        beside_prometheus(f, line + 1);
        return 0;
    }
    if (*line != 's')
        return write_line(f, line, length, err);
    if (fdatasync(f->fd) < 0 && errno != EINVAL) /* EINVAL: a pipe or a terminal has no disk */
        return error_errno(err, CODE_IO, "cannot sync metrics %s", f->path);
    return 0;
}

/* ---- removing the steps that a resumed run will repeat ----------------------------------------------------------- */

struct kept_lines {
    struct metrics_file *file;
    FILE *copy;         /* may be NULL */
    bool beyond, mixed; /* a line was left out; then one was kept */
};

static int keep_line(void *arg, const struct metrics_step *step, const char *line, struct error *err)
{
    struct kept_lines *kept = arg;
    struct metrics_file *f = kept->file;

    (void)err;
    f->seen = *step;
    if (step->step > f->run->after) {
        kept->beyond = true;
        return 0;
    }
    kept->mixed |= kept->beyond;
    if (f->last_step > 0 && step->step > f->last_step + 1 && f->gaps++ == 0) {
        f->gap_first = f->last_step + 1;
        f->gap_last = step->step - 1;
    }
    f->last_step = step->step;
    f->validated = step->validated;
    if (step->validated) {
        f->valid_step = step->step;
        f->valid_at = f->length;
    }
    if (step->step == f->run->after && !f->last) {
        f->last = strdup(line);
        f->last_at = f->length;
    }
    f->length += (off_t)strlen(line) + 1;
    if (kept->copy)
        fprintf(kept->copy, "%s\n", line); /* fclose reports a failure */
    return 0;
}

static int scan_lines(struct metrics_file *f, struct kept_lines *kept, struct metrics_damage *damage, struct error *err)
{
    free(f->last);
    f->last = NULL;
    f->length = 0;
    f->last_step = f->gap_first = f->gaps = f->valid_step = 0;
    return metrics_each_step(f->path, keep_line, kept, damage, err);
}

/* PATH.old, .old-2 and so on: a name that is free. */
static void name_aside(char *aside, size_t size, const char *path, const char *ending)
{
    snprintf(aside, size, "%s.%s", path, ending);
    for (int k = 2; k < 1000 && access(aside, F_OK) == 0; k++)
        snprintf(aside, size, "%s.%s-%d", path, ending, k);
}

/* Where the file system has no locks, every run has the file. */
static bool lock_file(int fd)
{
    return flock(fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
}

/* A copy of the lines that are kept, with the file's owner and mode as far as this user may give them. */
static int write_copy(struct metrics_file *f, int fd, const struct stat *now, struct error *err)
{
    struct metrics_damage ignored;
    int other = dup(fd);
    struct kept_lines kept = {.file = f, .copy = other < 0 ? NULL : fdopen(other, "w")};
    int result = kept.copy ? scan_lines(f, &kept, &ignored, err) : error_errno(err, CODE_IO, "no memory");

    if (kept.copy && fclose(kept.copy) != 0)
        result = -1;
    if (fchown(fd, now->st_uid, now->st_gid) < 0 && fchown(fd, (uid_t)-1, now->st_gid) < 0)
        errno = 0;
    return result == 0 && fchmod(fd, now->st_mode & 0777) == 0 && fsync(fd) == 0 && lock_file(fd) ? 0 : -1;
}

/* Renames the copy over the file. A damaged file is kept: it may be another one, which the job file names by mistake. */
static int replace_file(struct metrics_file *f, const struct stat *now, const struct metrics_damage *damage,
                        struct error *err)
{
    char beside[sizeof f->path + 8], aside[sizeof f->path + 24] = "";
    int fd;

    snprintf(beside, sizeof beside, "%s.tmp", f->path);
    unlink(beside);
    fd = open(beside, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0)
        return error_errno(err, CODE_IO, "cannot create %s", beside);
    if (write_copy(f, fd, now, err) < 0)
        goto fail;
    if (damage->lines > 0) {
        name_aside(aside, sizeof aside, f->path, "damaged");
        if (link(f->path, aside) < 0 && rename(f->path, aside) < 0) /* not every file system has hard links */
            goto fail;
    }
    if (rename(beside, f->path) < 0)
        goto fail;
    io_sync_parent(f->path);
    close(f->fd);
    f->fd = fd;
    if (damage->lines > 0)
        writer_tell(f, ' ', "warning: %s; %zu such line%s left out of the metrics (the file as it was: %s)",
                    damage->first.text, damage->lines, damage->lines == 1 ? " is" : "s are", aside);
    return 0;
fail:
    error_errno(err, CODE_IO, "cannot write %s and rename it to %s", beside, f->path);
    close(fd);
    unlink(beside);
    if (*aside && access(f->path, F_OK) == 0)
        unlink(aside);
    return -1;
}

/* A last line that is torn is not among the steps. */
static int cut_file(struct metrics_file *f, struct error *err)
{
    struct kept_lines kept = {.file = f};
    struct metrics_damage damage;
    struct stat now;

    if (fstat(f->fd, &now) < 0)
        return error_errno(err, CODE_IO, "cannot read metrics %s", f->path);
    if (now.st_size == 0)
        return 0;
    if (scan_lines(f, &kept, &damage, err) < 0)
        return -1;
    if (damage.lines > 0 || kept.mixed)
        return replace_file(f, &now, &damage, err);
    f->torn = f->length < now.st_size;
    if (f->length > now.st_size) { /* the last line lacks its newline */
        f->length = now.st_size;
        return write_line(f, "\n", 1, err);
    }
    return trim_file(f, err);
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static bool is_displaced(const struct metrics_file *f)
{
    struct stat ours, named;

    if (fstat(f->fd, &ours) < 0)
        return errno == ESTALE; /* removed on another node, by NFS */
    if (stat(f->path, &named) < 0)
        return errno == ENOENT;
    return named.st_ino != ours.st_ino || named.st_dev != ours.st_dev;
}

/* As the kernel's protected_symlinks has it, which may be off: where everyone may put a link, another user's is none. */
static bool is_foreign_link(const char *path)
{
    char copy[PATH_MAX + 32];
    struct stat link, dir;

    snprintf(copy, sizeof copy, "%s", path);
    return lstat(path, &link) == 0 && S_ISLNK(link.st_mode) && stat(dirname(copy), &dir) == 0 &&
           (dir.st_mode & S_ISVTX) && (dir.st_mode & S_IWOTH) && link.st_uid != geteuid() && link.st_uid != dir.st_uid;
}

/* Opens the file without waiting: a FIFO without a reader would hang it. Pipes, terminals and /dev/null are files
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

/* The file of f->path. 1: it is open, and this run's; 0: another writer has it; or -1. */
static int own_file(struct metrics_file *f, struct error *err)
{
    char *real;
    struct stat now;

    for (;; close(f->fd)) {
        f->fd = is_foreign_link(f->path)
                    ? error_set(err, CODE_IO, "metrics %s: another user's link, in a directory that all may write to",
                                f->path)
                    : open_file(f->path, &now, err);
        f->is_file = f->fd >= 0 && S_ISREG(now.st_mode) && strcmp(f->path, METRICS_STREAM) != 0;
        if (!f->is_file)
            return f->fd < 0 ? -1 : 1;
        if (!lock_file(f->fd))
            break;
        real = realpath(f->path, NULL); /* a rename replaces the file and not a link to it */
        snprintf(f->path, sizeof f->path, "%s", real ? real : f->path);
        free(real);
        if (!is_displaced(f)) /* else its owner has renamed it */
            return 1;
    }
    close(f->fd);
    f->fd = -1;
    return 0;
}

/* Takes report.metrics; or, where another run has it, PATH.ID: a run that has written there goes on there. */
static int take_file(struct metrics_file *f, struct error *err)
{
    const struct metrics_run *run = f->run;
    double began = clock_monotonic();
    char aside[sizeof f->path];
    int owned;

    snprintf(aside, sizeof aside, "%s.%s", run->path, run->id);
    for (int k = run->after >= 0 && access(aside, F_OK) == 0; k < MOST_NAMES; k++) {
        snprintf(f->suffix, sizeof f->suffix, k == 0 ? "" : k == 1 ? ".%s" : ".%s-%d", run->id, k);
        snprintf(f->path, sizeof f->path, "%s%s", run->path, f->suffix);
        while ((owned = own_file(f, err)) == 0 && k == 0 && !f->ended && clock_monotonic() - began < OTHERS_SECONDS)
            pause_while_it_runs(f, 100);
        if (owned > 0 && k > 0)
            writer_tell(f, ' ', "another run has the metrics %s: those of this run are in %s", run->path, f->path);
        if (owned != 0)
            return owned;
    }
    return error_set(err, CODE_IO, "cannot open metrics %s: other runs write to it, and to all its other names",
                     run->path);
}

/* The file of an earlier run gets another name. */
static int keep_old(struct metrics_file *f, struct error *err)
{
    char aside[sizeof f->path + 24], events[sizeof aside + 8], events_aside[sizeof aside + 8];
    struct stat now;

    if (f->run->after >= 0 || fstat(f->fd, &now) < 0 || !S_ISREG(now.st_mode))
        return 0;
    name_aside(aside, sizeof aside, f->path, "old");
    snprintf(events, sizeof events, "%s.events", f->path);
    snprintf(events_aside, sizeof events_aside, "%s.events", aside);
    if (rename(events, events_aside) < 0 && errno != ENOENT)
        return error_errno(err, CODE_IO, "cannot keep the metrics of an earlier run as %s", events_aside);
    if (now.st_size == 0)
        return 0;
    if (rename(f->path, aside) < 0)
        return error_errno(err, CODE_IO, "cannot keep the metrics of an earlier run as %s", aside);
    writer_tell(f, ' ', "the metrics of an earlier run are now %s", aside);
    close(f->fd);
    f->fd = -1;
    return take_file(f, err);
}

/* After a failure it goes on where it was: the file stays this run's. */
static int open_metrics(struct metrics_file *f, struct error *err)
{
    if (f->fd < 0 && take_file(f, err) < 0)
        return -1;
    if (f->is_file && (keep_old(f, err) < 0 || (f->is_file && cut_file(f, err) < 0)))
        return -1;
    if (f->last_step > 0 && f->last_step < f->run->after && f->gaps++ == 0) {
        f->gap_first = f->last_step + 1;
        f->gap_last = f->run->after;
    }
    if (f->gaps > 0)
        writer_tell(f, ' ', "the metrics %s lack steps %ld to %ld%s", f->path, f->gap_first, f->gap_last,
                    f->gaps > 1 ? ", and more" : "");
    writer_tell(f, 'o', "%ld %d", f->last_step, f->validated);
    return 0;
}

/* ---- the writer -------------------------------------------------------------------------------------------------- */

/* Says once that a second job in the same directory has renamed its own file over this one, whose lines are lost. */
static void look_at_name(struct metrics_file *f)
{
    double now = clock_monotonic();

    if (!f->is_file || f->displaced || now - f->looked < RETRY_SECONDS)
        return;
    f->looked = now;
    f->displaced = is_displaced(f);
    if (f->displaced)
        writer_tell(f, ' ', "the metrics %s were replaced or removed: does another job run in this directory?",
                    f->path);
}

/* Opens the file (no line), or does what the line says, until it is done. False: never, or not before the run ended. */
static bool keep_trying(struct metrics_file *f, const char *line, size_t length)
{
    struct error err;

    while ((line ? do_line(f, line, length, &err) : open_metrics(f, &err)) < 0) {
        bool ended = f->ended, refused = err.code == CODE_CONFIG;

        if (refused || !f->failed)
            writer_tell(f, refused ? 'x' : '!', "%s", err.text);
        if (refused || ended)
            return false;
        f->failed = true;
        pause_while_it_runs(f, RETRY_SECONDS * 1000);
    }
    f->failed = false;
    return true;
}

void kill_file_serve(const char *path, int socket)
{
    struct pollfd run = {.fd = socket, .events = POLLRDHUP};
    bool there, looked = false;

    program_ignore_signals();
    do {
        there = faccessat(AT_FDCWD, path, F_OK, 0) == 0;
        if (there || !looked)
            looked = write(socket, there ? (char[]){KILL_FILE_THERE} : "0", 1) == 1;
    } while (!there && poll(&run, 1, LOOK_MILLISECONDS) == 0);
}

void metrics_serve(const struct metrics_run *run, int socket)
{
    struct metrics_file f = {.run = run, .socket = socket, .fd = -1};
    char line[METRICS_LINE_SIZE];
    ssize_t length;
    bool done;

    program_ignore_signals();
    done = keep_trying(&f, NULL, 0);
    if (done)
        beside_open(&f);
    while (done && (length = metrics_receive(socket, line, sizeof line)) > 0) {
        look_at_name(&f);
        done = keep_trying(&f, line, (size_t)length);
        if (done)
            writer_tell(&f, '+', "%s", "");
        beside_follow(&f);
    }
    beside_close(&f);
    free(f.last);
}
