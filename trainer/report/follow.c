#include "trainer/report/follow.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"
#include "trainer/report/metrics.h"
#include "trainer/report/progress.h"
#include "trainer/report/summary.h"

static volatile sig_atomic_t stop_requested;

static void on_signal(int number)
{
    (void)number;
    stop_requested = 1;
}

/* ---- the screen ---- */

struct screen {
    bool drawn;     /* the cursor is behind a live line */
    bool waiting;   /* "waiting for ..." was printed */
    double began;   /* when following began */
    double last;    /* when a plain line was printed */
    long last_step; /* its step */
};

static void print_event(struct screen *screen, const char *event)
{
    struct terminal terminal = terminal_inspect(STDOUT_FILENO);

    if (screen->drawn)
        fputs("\r\033[K", stdout);
    printf(terminal.colour ? "\033[33m%s\033[0m\n" : "%s\n", event);
    screen->drawn = false;
}

static void draw_live(struct screen *screen, const struct terminal *terminal, const struct watch *watch,
                      const char *path)
{
    unsigned flags = (terminal->utf8 ? PROGRESS_UTF8 : 0) | (terminal->colour ? PROGRESS_COLOUR : 0);
    struct progress progress = watch_progress(watch);
    char line[PROGRESS_SIZE];

    /* One column is left free: some terminals wrap after a full line, and then \r does not reach it. */
    if (watch->last.step > 0)
        progress_line(line, sizeof line, terminal->columns - 1, flags, &progress);
    else if (snprintf(line, sizeof line, "waiting for %s", path) >= terminal->columns)
        snprintf(line, sizeof line, "waiting");
    printf("\r%s\033[K", line);
    screen->drawn = true;
}

static void print_plain(struct screen *screen, const struct watch *watch, double now)
{
    struct progress progress = watch_progress(watch);
    char line[PROGRESS_SIZE];

    progress_line(line, sizeof line, PROGRESS_SIZE - 1, PROGRESS_NO_BAR, &progress);
    printf("%s\n", line);
    screen->last = now;
    screen->last_step = watch->last.step;
}

static void show_progress(struct screen *screen, const struct follow *follow, const struct watch *watch, bool end)
{
    struct terminal terminal = terminal_inspect(STDOUT_FILENO); /* each time: windows are resized */
    double now = clock_monotonic();

    if (terminal.live)
        draw_live(screen, &terminal, watch, follow->path);
    else if (watch->last.step == 0 && !screen->waiting && now - screen->began >= follow->interval)
        screen->waiting = printf("waiting for %s\n", follow->path) > 0;
    else if (watch->last.step != screen->last_step && (end || now - screen->last >= follow->interval))
        print_plain(screen, watch, now);
    if (terminal.live && end)
        putchar('\n');
    fflush(stdout);
}

/* ---- the run ---- */

static int show_line(struct screen *screen, struct watch *watch, const struct tail *tail, const char *path,
                     const char *line, size_t length, struct error *err)
{
    struct metrics_step step;
    char event[160];

    if (metrics_parse(&step, line, length, err) < 0)
        return error_prefix(err, "%s:%ld", path, tail_line_number(tail));
    if (watch_step(watch, &step, event, sizeof event))
        print_event(screen, event);
    return 0;
}

/* Reads all present lines. */
static int read_lines(struct screen *screen, struct watch *watch, struct tail *tail, const char *path,
                      struct error *err)
{
    const char *line;
    char event[160];
    size_t length;

    while (!stop_requested) {
        switch (tail_next(tail, &line, &length, err)) {
        case TAIL_ERROR:
            return -1;
        case TAIL_LINE:
            if (show_line(screen, watch, tail, path, line, length, err) < 0)
                return -1;
            break;
        case TAIL_ANEW:
            watch_anew(watch);
            break;
        case TAIL_NOTHING:
            if (watch_rewound(watch, event, sizeof event))
                print_event(screen, event);
            return 0;
        }
    }
    return 0;
}

static bool process_ended(pid_t pid)
{
    return pid > 0 && kill(pid, 0) < 0 && errno == ESRCH;
}

static void catch_signals(void)
{
    struct sigaction action = {.sa_handler = on_signal}; /* no SA_RESTART: a signal ends the sleep */

    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

static int follow_tail(const struct follow *follow, struct tail *tail, struct error *err)
{
    const struct timespec pause = {.tv_nsec = 200 * 1000 * 1000};
    struct screen screen = {.began = clock_monotonic(), .last = -INFINITY};
    struct watch watch;
    bool end = false;

    watch_start(&watch, follow->steps);
    while (!end) {
        bool ended = process_ended(follow->pid); /* before the last read, so that the last lines are not missed */

        if (read_lines(&screen, &watch, tail, follow->path, err) < 0) {
            if (screen.drawn)
                putchar('\n');
            return -1;
        }
        end = ended || stop_requested || (follow->steps > 0 && watch.last.step >= follow->steps);
        show_progress(&screen, follow, &watch, end);
        if (ferror(stdout))
            return error_errno(err, CODE_IO, "cannot print");
        if (!end)
            nanosleep(&pause, NULL);
    }
    return 0;
}

int follow_run(const struct follow *follow, struct error *err)
{
    struct tail *tail = tail_create(follow->path, err);
    int result;

    if (!tail)
        return -1;
    stop_requested = 0;
    catch_signals();
    result = follow_tail(follow, tail, err);
    tail_destroy(tail);
    return result;
}

/* ---- the lines of the file ---- */

struct tail {
    char *path;
    int fd; /* -1 without a file. Kept open, so that a new file cannot get the old one's inode number */
    long line_number;
    off_t offset; /* end of the bytes read so far */
    char *buf;    /* [begin, end) is read and not returned yet */
    size_t begin, end, size;
};

enum { CHUNK = 64 * 1024 };

struct tail *tail_create(const char *path, struct error *err)
{
    struct tail *tail = calloc(1, sizeof *tail);

    if (!tail || !(tail->path = strdup(path))) {
        error_errno(err, CODE_IO, "no memory to follow %s", path);
        free(tail);
        return NULL;
    }
    tail->fd = -1;
    return tail;
}

void tail_destroy(struct tail *tail)
{
    if (!tail)
        return;
    if (tail->fd >= 0)
        close(tail->fd);
    free(tail->buf);
    free(tail->path);
    free(tail);
}

long tail_line_number(const struct tail *tail)
{
    return tail->line_number;
}

/* True if the name now belongs to another file, or the file is shorter than what was read. A removed name is not. */
static bool was_replaced(const struct tail *tail)
{
    struct stat named, held;

    if (stat(tail->path, &named) < 0 || fstat(tail->fd, &held) < 0)
        return false;
    return named.st_dev != held.st_dev || named.st_ino != held.st_ino || held.st_size < tail->offset;
}

static enum tail_news reopen_file(struct tail *tail, struct error *err)
{
    bool first = tail->fd < 0;
    int fd = open(tail->path, O_RDONLY | O_CLOEXEC);

    if (fd < 0 && errno == ENOENT)
        return TAIL_NOTHING;
    if (fd < 0)
        return error_errno(err, CODE_IO, "cannot open %s", tail->path);
    if (!first)
        close(tail->fd);
    tail->fd = fd;
    tail->offset = 0;
    tail->line_number = 0;
    tail->begin = tail->end = 0;
    return first ? TAIL_NOTHING : TAIL_ANEW;
}

/* Reads more into the buffer; returns the bytes, 0 at the end of the file. */
static ssize_t fill_buffer(struct tail *tail, struct error *err)
{
    ssize_t got;

    if (tail->begin > 0)
        memmove(tail->buf, tail->buf + tail->begin, tail->end - tail->begin);
    tail->end -= tail->begin;
    tail->begin = 0;
    if (tail->size - tail->end < CHUNK) {
        char *more = realloc(tail->buf, tail->end + 2 * CHUNK);

        if (!more)
            return error_errno(err, CODE_IO, "no memory for a line of %s", tail->path);
        tail->buf = more;
        tail->size = tail->end + 2 * CHUNK;
    }
    got = read(tail->fd, tail->buf + tail->end, tail->size - tail->end);
    if (got < 0)
        return error_errno(err, CODE_IO, "cannot read %s", tail->path);
    tail->end += (size_t)got;
    tail->offset += got;
    return got;
}

static bool next_buffered_line(struct tail *tail, const char **line, size_t *length)
{
    char *begin = tail->buf + tail->begin, *newline = NULL;

    if (tail->end > tail->begin)
        newline = memchr(begin, '\n', tail->end - tail->begin);
    if (!newline)
        return false;
    *newline = '\0';
    *line = begin;
    *length = (size_t)(newline - begin);
    tail->begin += *length + 1;
    tail->line_number++;
    return true;
}

enum tail_news tail_next(struct tail *tail, const char **line, size_t *length, struct error *err)
{
    if (tail->fd >= 0 && next_buffered_line(tail, line, length))
        return TAIL_LINE;
    if (tail->fd < 0 || was_replaced(tail)) {
        enum tail_news news = reopen_file(tail, err);

        if (news != TAIL_NOTHING || tail->fd < 0)
            return news;
    }
    for (;;) {
        ssize_t got = fill_buffer(tail, err);

        if (got <= 0)
            return got < 0 ? TAIL_ERROR : TAIL_NOTHING;
        if (next_buffered_line(tail, line, length))
            return TAIL_LINE;
    }
}
