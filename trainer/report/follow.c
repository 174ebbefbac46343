#include "trainer/report/report_commands.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"
#include "trainer/report/progress.h"

enum { RECENT = 20 };

struct follower {
    const struct follow *follow;

    FILE *file;   /* NULL without one. Kept open, so that a new file cannot get the old one's inode number */
    char *line;   /* malloc'ed */
    size_t size;  /* of its memory */
    off_t offset; /* end of the lines read so far */
    char tail[512];
    size_t tail_size; /* the end of the last one of them, in tail[] */
    long line_number;
    struct error damage; /* the first line that was no step; CODE_OK: none yet */
    bool damage_shown;

    struct metrics_step last;   /* step 0: none yet */
    struct metrics_step first;  /* the first one on this mesh */
    double seconds[RECENT];     /* of the latest steps on this mesh, a ring; for the ETA */
    size_t timed;               /* number of steps stored in it */
    bool anew;                  /* the file was replaced, and its lines are being read */
    struct metrics_step before; /* then: the last one of the old file */

    bool drawn;     /* the cursor is behind a live line */
    bool waiting;   /* "waiting for ..." was printed */
    double printed; /* when a plain line was printed */
    long printed_step;
};

static volatile sig_atomic_t stop_requested;

static void on_signal(int number)
{
    (void)number;
    stop_requested = 1;
}

/* ---- the screen -------------------------------------------------------------------------------------------------- */

static void __attribute__((format(printf, 2, 3))) print_event(struct follower *f, const char *format, ...)
{
    struct terminal terminal = terminal_inspect(STDOUT_FILENO);
    va_list args;

    fputs(f->drawn ? "\r\033[K" : "", stdout);
    fputs(terminal.colour ? "\033[33m" : "", stdout);
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    puts(terminal.colour ? "\033[0m" : "");
    f->drawn = false;
}

static double estimate_end(const struct follower *f)
{
    size_t count = f->timed < RECENT ? f->timed : RECENT;
    double sum = 0.0;

    if (!count || f->follow->steps <= 0)
        return NAN;
    for (size_t i = 0; i < count; i++)
        sum += f->seconds[i];
    return f->last.step >= f->follow->steps ? 0.0 : sum / (double)count * (double)(f->follow->steps - f->last.step);
}

static void show_progress(struct follower *f, bool end)
{
    struct terminal terminal = terminal_inspect(STDOUT_FILENO); /* each time: windows are resized */
    double now = clock_monotonic();
    char line[PROGRESS_SIZE];

    if (f->last.step > 0) /* one column is left free: some terminals wrap after a full line, and then \r misses it */
        progress_line(line, terminal.live ? terminal.columns - 1 : PROGRESS_SIZE - 1, &terminal, &f->last,
                      f->follow->steps, estimate_end(f));
    else if (snprintf(line, sizeof line, "waiting for %s", f->follow->path) >= terminal.columns && terminal.live)
        snprintf(line, sizeof line, "waiting");
    if (terminal.live) {
        printf("\r%s\033[K%s", line, end ? "\n" : "");
        f->drawn = true;
    } else if (f->last.step == 0 && !f->waiting) {
        f->waiting = puts(line) >= 0;
    } else if (f->last.step != f->printed_step && (end || now - f->printed >= f->follow->interval)) {
        puts(line);
        f->printed = now;
        f->printed_step = f->last.step;
    }
    fflush(stdout);
}

/* ---- the lines of the file --------------------------------------------------------------------------------------- */

static void print_change(struct follower *f, const struct metrics_step *before, const struct metrics_step *now)
{
    if (now->world != before->world)
        print_event(f, "resumed at step %ld on %d rank%s (was %d)", now->step, now->world, now->world == 1 ? "" : "s",
                    before->world);
    else
        print_event(f, "resumed at step %ld with dp %d, tp %d, pp %d (was %d, %d, %d)", now->step, now->dp, now->tp,
                    now->pp, before->dp, before->tp, before->pp);
}

/* The changes in a file that is read again were shown. */
static void take_line(struct follower *f, size_t length)
{
    struct metrics_step step;
    struct error why;

    if (metrics_parse(&step, f->line, length, &why) < 0) {
        error_prefix(&why, "%s:%ld", f->follow->path, f->line_number);
        if (f->damage.code == CODE_OK)
            f->damage = why;
        return;
    }
    if (f->last.step > 0 && !segments_same_mesh(&f->last, &step) && !f->anew)
        print_change(f, &f->last, &step);
    if (f->last.step == 0 || !segments_same_mesh(&f->last, &step)) {
        f->first = step;
        f->timed = 0;
    }
    f->seconds[f->timed++ % RECENT] = step.step_seconds;
    f->last = step;
}

/* Half a line is read again later, from the file and not from the buffer. */
static int read_present(struct follower *f, struct error *err)
{
    ssize_t got = 0;

    while (!stop_requested && (got = getline(&f->line, &f->size, f->file)) > 0 && f->line[got - 1] == '\n') {
        f->tail_size = (size_t)got < sizeof f->tail ? (size_t)got : sizeof f->tail;
        memcpy(f->tail, f->line + got - f->tail_size, f->tail_size);
        f->line[got - 1] = '\0';
        f->offset += got;
        f->line_number++;
        take_line(f, (size_t)got - 1);
    }
    if ((got < 0 && !feof(f->file)) || fseeko(f->file, f->offset, SEEK_SET) < 0 || fflush(f->file) == EOF)
        return error_errno(err, CODE_IO, "cannot read %s", f->follow->path);
    return 0;
}

/* A job that resumed has cut lines off, and may have written others in their place. */
static bool was_cut(const struct follower *f)
{
    char now[sizeof f->tail];

    return f->offset > 0 &&
           (pread(fileno(f->file), now, f->tail_size, f->offset - (off_t)f->tail_size) != (ssize_t)f->tail_size ||
            memcmp(now, f->tail, f->tail_size) != 0);
}

/* True if the name now belongs to another file, or lines that were read are gone. A removed name is not. */
static bool was_replaced(const struct follower *f)
{
    struct stat named, held;

    if (stat(f->follow->path, &named) < 0 || fstat(fileno(f->file), &held) < 0)
        return false;
    return named.st_dev != held.st_dev || named.st_ino != held.st_ino || was_cut(f);
}

static int reopen_file(struct follower *f, struct error *err)
{
    FILE *file = fopen(f->follow->path, "re");

    if (!file)
        return errno == ENOENT ? 0 : error_errno(err, CODE_IO, "cannot open %s", f->follow->path);
    if (f->file) {
        fclose(f->file);
        f->before = f->last.step > 0 ? f->last : f->before;
        f->anew = f->before.step > 0;
    }
    f->file = file;
    f->offset = 0;
    f->line_number = 0;
    f->last = (struct metrics_step){0};
    return read_present(f, err);
}

/* Reads all present lines. Shows the first damaged line once. A file with no step at all is not one of metrics: -1. */
static int read_lines(struct follower *f, struct error *err)
{
    if (f->file && !was_cut(f) && read_present(f, err) < 0)
        return -1;
    if ((!f->file || was_replaced(f)) && reopen_file(f, err) < 0)
        return -1;
    if (f->anew && f->last.step > 0) {
        if (f->last.step < f->before.step)
            print_event(f, "back at step %ld (was %ld): going on from a checkpoint", f->last.step, f->before.step);
        if (!segments_same_mesh(&f->before, &f->last))
            print_change(f, &f->before, &f->first);
        f->anew = false;
    }
    if (f->damage.code == CODE_OK || f->damage_shown)
        return 0;
    if (f->last.step == 0) {
        *err = f->damage;
        return -1;
    }
    print_event(f, "such lines are left out: %s", f->damage.text);
    f->damage_shown = true;
    return 0;
}

int follow_run(const struct follow *follow, struct error *err)
{
    const struct sigaction action = {.sa_handler = on_signal}; /* no SA_RESTART: a signal ends the sleep */
    const struct timespec pause = {.tv_nsec = 200 * 1000 * 1000};
    struct follower f = {.follow = follow, .printed = -INFINITY};
    bool end = false;
    int result = 0;

    stop_requested = 0;
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    while (result == 0 && !end) {
        /* Before the last read, so that the last lines are not missed. */
        bool ended = follow->pid > 0 && kill((pid_t)follow->pid, 0) < 0 && errno == ESRCH;

        result = read_lines(&f, err);
        end = ended || stop_requested || (follow->steps > 0 && f.last.step >= follow->steps);
        if (result == 0)
            show_progress(&f, end);
        else if (f.drawn)
            putchar('\n');
        if (result == 0 && ferror(stdout))
            result = error_errno(err, CODE_IO, "cannot print");
        if (result == 0 && !end)
            nanosleep(&pause, NULL);
    }
    if (f.file)
        fclose(f.file);
    free(f.line);
    return result;
}
