#include "trainer/report/follow.h"

#include <errno.h>
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
#include "trainer/report/summary.h"

static volatile sig_atomic_t stop_requested;

static void on_signal(int number)
{
    (void)number;
    stop_requested = 1;
}

/* ---- the state of the run ---- */

/* True once for each change. */
static bool remember_change(struct followed_run *run, const struct metrics_step *s)
{
    for (size_t i = 0; i < run->nshown && i < FOLLOWED_EVENTS; i++)
        if (run->shown[i].step == s->step && segments_same_mesh(&run->shown[i], s))
            return false;
    run->shown[run->nshown++ % FOLLOWED_EVENTS] = *s;
    return true;
}

static void describe_mesh(char *event, size_t size, const struct metrics_step *before, const struct metrics_step *now)
{
    if (now->world != before->world)
        snprintf(event, size, "resumed at step %ld on %d rank%s (was %d)", now->step, now->world,
                 now->world == 1 ? "" : "s", before->world);
    else
        snprintf(event, size, "resumed at step %ld with dp %d, tp %d, pp %d (was %d, %d, %d)", now->step, now->dp,
                 now->tp, now->pp, before->dp, before->tp, before->pp);
}

bool followed_step(struct followed_run *run, const struct metrics_step *step, char *event, size_t size)
{
    bool changed = run->last.step > 0 && !segments_same_mesh(&run->last, step);
    bool event_due = changed && remember_change(run, step);

    if (event_due)
        describe_mesh(event, size, &run->last, step);
    if (changed)
        run->timed = 0;
    run->seconds[run->timed++ % FOLLOWED_RECENT] = step->step_seconds;
    run->last = *step;
    if (step->step > run->furthest)
        run->furthest = step->step;
    return event_due;
}

void followed_anew(struct followed_run *run)
{
    run->anew = true;
    run->last = (struct metrics_step){0};
    run->timed = 0;
}

bool followed_rewound(struct followed_run *run, char *event, size_t size)
{
    bool back = run->anew && run->last.step < run->furthest;

    if (back) {
        snprintf(event, size, "back at step %ld (was %ld): going on from a checkpoint", run->last.step, run->furthest);
        run->furthest = run->last.step;
    }
    run->anew = false;
    return back;
}

static double estimate_end(const struct followed_run *run)
{
    size_t count = run->timed < FOLLOWED_RECENT ? run->timed : FOLLOWED_RECENT;
    double sum = 0.0;

    if (!count || run->steps <= 0)
        return NAN;
    for (size_t i = 0; i < count; i++)
        sum += run->seconds[i];
    return run->last.step >= run->steps ? 0.0 : sum / (double)count * (double)(run->steps - run->last.step);
}

struct progress followed_progress(const struct followed_run *run)
{
    return (struct progress){
        .step = run->last.step,
        .steps = run->steps,
        .loss = run->last.loss,
        .tokens_per_second = run->last.tokens_per_second,
        .mfu = run->last.mfu,
        .eta_seconds = estimate_end(run),
        .ranks = run->last.world,
    };
}

/* ---- the screen ---- */

struct screen {
    bool drawn;          /* the cursor is behind a live line */
    bool waiting;        /* "waiting for ..." was printed */
    double began;        /* when following began */
    double last;         /* when a plain line was printed */
    long last_step;      /* its step */
    struct error damage; /* the first line that was no step; CODE_OK: none yet */
    bool damage_shown;
};

static void print_event(struct screen *screen, const char *event)
{
    struct terminal terminal = terminal_inspect(STDOUT_FILENO);

    if (screen->drawn)
        fputs("\r\033[K", stdout);
    printf(terminal.colour ? "\033[33m%s\033[0m\n" : "%s\n", event);
    screen->drawn = false;
}

static void draw_live(struct screen *screen, const struct terminal *terminal, const struct followed_run *run,
                      const char *path)
{
    struct progress progress = followed_progress(run);
    char line[PROGRESS_SIZE];

    /* One column is left free: some terminals wrap after a full line, and then \r does not reach it. */
    if (run->last.step > 0)
        progress_line(line, terminal->columns - 1, terminal, &progress);
    else if (snprintf(line, sizeof line, "waiting for %s", path) >= terminal->columns)
        snprintf(line, sizeof line, "waiting");
    printf("\r%s\033[K", line);
    screen->drawn = true;
}

static void print_plain(struct screen *screen, const struct followed_run *run, double now)
{
    struct progress progress = followed_progress(run);
    char line[PROGRESS_SIZE];

    progress_line(line, PROGRESS_SIZE - 1, &(struct terminal){0}, &progress);
    printf("%s\n", line);
    screen->last = now;
    screen->last_step = run->last.step;
}

static void show_progress(struct screen *screen, const struct follow *follow, const struct followed_run *run, bool end)
{
    struct terminal terminal = terminal_inspect(STDOUT_FILENO); /* each time: windows are resized */
    double now = clock_monotonic();

    if (terminal.live)
        draw_live(screen, &terminal, run, follow->path);
    else if (run->last.step == 0 && !screen->waiting && now - screen->began >= follow->interval)
        screen->waiting = printf("waiting for %s\n", follow->path) > 0;
    else if (run->last.step != screen->last_step && (end || now - screen->last >= follow->interval))
        print_plain(screen, run, now);
    if (terminal.live && end)
        putchar('\n');
    fflush(stdout);
}

/* ---- the run ---- */

/* Shows the first damaged line once. A file with no step at all is not one of metrics: -1. */
static int show_damage(struct screen *screen, const struct followed_run *run, struct error *err)
{
    struct error shown = screen->damage;

    if (screen->damage.code == CODE_OK || screen->damage_shown)
        return 0;
    if (run->last.step == 0) {
        *err = shown;
        return -1;
    }
    error_prefix(&shown, "such lines are left out");
    print_event(screen, shown.text);
    screen->damage_shown = true;
    return 0;
}

/* Reads all present lines. */
static int read_lines(struct screen *screen, struct followed_run *run, struct tail *tail, const char *path,
                      struct error *err)
{
    struct metrics_step step;
    struct tail_line line;
    struct error why;
    char event[160];

    while (!stop_requested) {
        switch (tail_next(tail, &line, err)) {
        case TAIL_ERROR:
            return -1;
        case TAIL_LINE:
            if (metrics_parse(&step, line.text, line.length, &why) < 0) {
                error_prefix(&why, "%s:%ld", path, line.number);
                if (screen->damage.code == CODE_OK)
                    screen->damage = why;
                break;
            }
            if (followed_step(run, &step, event, sizeof event))
                print_event(screen, event);
            break;
        case TAIL_ANEW:
            followed_anew(run);
            break;
        case TAIL_NOTHING:
            if (followed_rewound(run, event, sizeof event))
                print_event(screen, event);
            return show_damage(screen, run, err);
        }
    }
    return 0;
}

static void catch_signals(void)
{
    struct sigaction action = {.sa_handler = on_signal}; /* no SA_RESTART: a signal ends the sleep */

    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

int follow_run(const struct follow *follow, struct error *err)
{
    const struct timespec pause = {.tv_nsec = 200 * 1000 * 1000};
    struct tail *tail = tail_create(follow->path, err);
    struct screen screen = {.began = clock_monotonic(), .last = -INFINITY};
    struct followed_run run = {.steps = follow->steps};
    bool end = false;
    int result = 0;

    if (!tail)
        return -1;
    stop_requested = 0;
    catch_signals();
    while (result == 0 && !end) {
        /* Before the last read, so that the last lines are not missed. */
        bool ended = follow->pid > 0 && kill(follow->pid, 0) < 0 && errno == ESRCH;

        result = read_lines(&screen, &run, tail, follow->path, err);
        end = ended || stop_requested || (follow->steps > 0 && run.last.step >= follow->steps);
        if (result == 0)
            show_progress(&screen, follow, &run, end);
        else if (screen.drawn)
            putchar('\n');
        if (result == 0 && ferror(stdout))
            result = error_errno(err, CODE_IO, "cannot print");
        if (result == 0 && !end)
            nanosleep(&pause, NULL);
    }
    tail_destroy(tail);
    return result;
}

/* ---- the lines of the file ---- */

struct tail {
    char *path;
    FILE *file; /* NULL without one. Kept open, so that a new file cannot get the old one's inode number */
    long line_number;
    off_t offset; /* end of the lines returned so far */
    char *line;
    size_t size; /* of its memory */
};

struct tail *tail_create(const char *path, struct error *err)
{
    struct tail *tail = calloc(1, sizeof *tail);

    if (!tail || !(tail->path = strdup(path))) {
        error_errno(err, CODE_IO, "no memory to follow %s", path);
        free(tail);
        return NULL;
    }
    return tail;
}

void tail_destroy(struct tail *tail)
{
    if (!tail)
        return;
    if (tail->file)
        fclose(tail->file);
    free(tail->line);
    free(tail->path);
    free(tail);
}

/* True if the name now belongs to another file, or the file is shorter than what was read. A removed name is not. */
static bool was_replaced(const struct tail *tail)
{
    struct stat named, held;

    if (stat(tail->path, &named) < 0 || fstat(fileno(tail->file), &held) < 0)
        return false;
    return named.st_dev != held.st_dev || named.st_ino != held.st_ino || held.st_size < tail->offset;
}

static enum tail_news reopen_file(struct tail *tail, struct error *err)
{
    bool first = !tail->file;
    FILE *file = fopen(tail->path, "re");

    if (!file && errno == ENOENT)
        return TAIL_NOTHING;
    if (!file)
        return error_errno(err, CODE_IO, "cannot open %s", tail->path);
    if (!first)
        fclose(tail->file);
    tail->file = file;
    tail->offset = 0;
    tail->line_number = 0;
    return first ? TAIL_NOTHING : TAIL_ANEW;
}

/* Reads a line; half a line is read again later, from the file and not from the buffer. */
static enum tail_news read_line(struct tail *tail, struct tail_line *line, struct error *err)
{
    ssize_t got = getline(&tail->line, &tail->size, tail->file);

    if (got > 0 && tail->line[got - 1] == '\n') {
        tail->line[got - 1] = '\0';
        *line = (struct tail_line){.text = tail->line, .length = (size_t)got - 1, .number = ++tail->line_number};
        tail->offset += got;
        return TAIL_LINE;
    }
    if (!feof(tail->file))
        return error_errno(err, CODE_IO, "cannot read %s", tail->path);
    if (fseeko(tail->file, tail->offset, SEEK_SET) < 0 || fflush(tail->file) == EOF)
        return error_errno(err, CODE_IO, "cannot read %s", tail->path);
    return TAIL_NOTHING;
}

enum tail_news tail_next(struct tail *tail, struct tail_line *line, struct error *err)
{
    enum tail_news news = tail->file ? read_line(tail, line, err) : TAIL_NOTHING;

    if (news != TAIL_NOTHING || (tail->file && !was_replaced(tail)))
        return news;
    news = reopen_file(tail, err);
    return news == TAIL_NOTHING && tail->file ? read_line(tail, line, err) : news;
}
