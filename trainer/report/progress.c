#include "trainer/report/progress.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "trainer/report/compare.h"

/* The fields, in the order of the line. */
enum field { STEP, BAR, LOSS, RATE, RANKS, MFU, ETA, FIELDS };

/* The order in which fields are left out; the step never is. */
static const enum field DROPPED_FIRST[] = {MFU, RANKS, RATE, BAR, ETA, LOSS};

enum { GAP = 2, BAR_LEAST = 8, BAR_MOST = 48 };

struct progress_fields {
    char text[FIELDS][64]; /* "" is not shown. The bar is drawn at the end, when its width is known */
    bool shown[FIELDS];
    int bar; /* columns */
};

static void fill_fields(struct progress_fields *line, unsigned flags, const struct progress *p)
{
    char number[UNITS_SIZE];
    int width = p->steps > 0 ? snprintf(NULL, 0, "%ld", p->steps) : 0;

    memset(line, 0, sizeof *line);
    if (p->steps > 0)
        snprintf(line->text[STEP], sizeof line->text[STEP], "%*ld/%ld", width, p->step, p->steps);
    else
        snprintf(line->text[STEP], sizeof line->text[STEP], "step %ld", p->step);
    snprintf(line->text[LOSS], sizeof line->text[LOSS], fabs(p->loss) < 1e4 ? "loss %.4f" : "loss %.3e", p->loss);
    if (!isnan(p->tokens_per_second))
        snprintf(line->text[RATE], sizeof line->text[RATE], "%5s tok/s", units_count(number, p->tokens_per_second));
    if (p->ranks > 0)
        snprintf(line->text[RANKS], sizeof line->text[RANKS], "%d rank%s", p->ranks, p->ranks == 1 ? "" : "s");
    if (!isnan(p->mfu))
        snprintf(line->text[MFU], sizeof line->text[MFU], "MFU %.1f%%", 100.0 * p->mfu);
    if (p->steps > 0 && !isnan(p->eta_seconds))
        snprintf(line->text[ETA], sizeof line->text[ETA], "ETA %s", units_duration(number, p->eta_seconds));
    for (int i = 0; i < FIELDS; i++)
        line->shown[i] = line->text[i][0] != '\0';
    line->shown[BAR] = p->steps > 0 && !(flags & PROGRESS_NO_BAR);
    line->bar = BAR_LEAST;
}

/* All text is ASCII: a byte is a column. */
static int text_width(const struct progress_fields *line)
{
    int columns = -GAP;

    for (int i = 0; i < FIELDS; i++)
        if (line->shown[i])
            columns += GAP + (i == BAR ? line->bar : (int)strlen(line->text[i]));
    return columns;
}

static void fit_parts(struct progress_fields *line, int columns)
{
    for (size_t i = 0; i < sizeof DROPPED_FIRST / sizeof DROPPED_FIRST[0] && text_width(line) > columns; i++)
        line->shown[DROPPED_FIRST[i]] = false;
    if (line->shown[BAR]) {
        line->bar += columns - text_width(line);
        if (line->bar > BAR_MOST)
            line->bar = BAR_MOST;
    }
    if (columns < (int)strlen(line->text[STEP]))
        line->text[STEP][columns > 0 ? columns : 0] = '\0';
}

struct text_buffer {
    char *buf;
    size_t size, used;
};

/* Completely or not at all, so that no character and no escape sequence is truncated. */
static void put_part(struct text_buffer *out, const char *text)
{
    size_t length = strlen(text);

    if (out->used + length + 1 > out->size) {
        out->size = 0; /* then nothing more either */
        return;
    }
    memcpy(out->buf + out->used, text, length + 1);
    out->used += length;
}

static void put_bar(struct text_buffer *out, int columns, unsigned flags, const struct progress *p)
{
    const char *full = flags & PROGRESS_UTF8 ? "\u2501" : "=", *rest = flags & PROGRESS_UTF8 ? "\u2500" : ".";
    double part = p->step >= p->steps ? 1.0 : p->step > 0 ? (double)p->step / (double)p->steps : 0.0;
    int filled = (int)(part * columns);

    if (flags & PROGRESS_COLOUR)
        put_part(out, "\033[32m");
    for (int i = 0; i < columns; i++) {
        if (i == filled && (flags & PROGRESS_COLOUR))
            put_part(out, "\033[0;2m");
        put_part(out, i < filled ? full : rest);
    }
    if (flags & PROGRESS_COLOUR)
        put_part(out, "\033[0m");
}

size_t progress_line(char *buf, size_t size, int columns, unsigned flags, const struct progress *progress)
{
    struct text_buffer out = {.buf = buf, .size = size};
    struct progress_fields line;
    bool first = true;

    if (!size)
        return 0;
    buf[0] = '\0';
    fill_fields(&line, flags, progress);
    fit_parts(&line, columns);
    for (int i = 0; i < FIELDS; i++) {
        if (!line.shown[i])
            continue;
        if (!first)
            put_part(&out, "  ");
        first = false;
        if (i == BAR)
            put_bar(&out, line.bar, flags, progress);
        else
            put_part(&out, line.text[i]);
    }
    return out.used;
}

void watch_start(struct watch *watch, long steps)
{
    memset(watch, 0, sizeof *watch);
    watch->steps = steps;
}

/* True once for each change. */
static bool remember_change(struct watch *watch, const struct metrics_step *s)
{
    const struct watch_event now = {.step = s->step, .world = s->world, .dp = s->dp, .tp = s->tp, .pp = s->pp};

    for (size_t i = 0; i < watch->nshown && i < WATCH_EVENTS; i++) {
        const struct watch_event *e = &watch->shown[i];

        if (e->step == now.step && e->world == now.world && e->dp == now.dp && e->tp == now.tp && e->pp == now.pp)
            return false;
    }
    watch->shown[watch->nshown++ % WATCH_EVENTS] = now;
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

bool watch_step(struct watch *watch, const struct metrics_step *step, char *event, size_t size)
{
    bool changed = watch->last.step > 0 && !segments_same_mesh(&watch->last, step);
    bool event_due = changed && remember_change(watch, step);

    if (event_due)
        describe_mesh(event, size, &watch->last, step);
    if (changed)
        watch->timed = 0;
    watch->seconds[watch->timed++ % WATCH_RECENT] = step->step_seconds;
    watch->last = *step;
    if (step->step > watch->furthest)
        watch->furthest = step->step;
    return event_due;
}

void watch_anew(struct watch *watch)
{
    watch->anew = true;
    watch->last = (struct metrics_step){0};
    watch->timed = 0;
}

bool watch_rewound(struct watch *watch, char *event, size_t size)
{
    bool back = watch->anew && watch->last.step < watch->furthest;

    if (back) {
        snprintf(event, size, "back at step %ld (was %ld): going on from a checkpoint", watch->last.step,
                 watch->furthest);
        watch->furthest = watch->last.step;
    }
    watch->anew = false;
    return back;
}

static double estimate_end(const struct watch *watch)
{
    size_t count = watch->timed < WATCH_RECENT ? watch->timed : WATCH_RECENT;
    double sum = 0.0;

    if (!count || watch->steps <= 0)
        return NAN;
    for (size_t i = 0; i < count; i++)
        sum += watch->seconds[i];
    return watch->last.step >= watch->steps ? 0.0 : sum / (double)count * (double)(watch->steps - watch->last.step);
}

struct progress watch_progress(const struct watch *watch)
{
    return (struct progress){
        .step = watch->last.step,
        .steps = watch->steps,
        .loss = watch->last.loss,
        .tokens_per_second = watch->last.tokens_per_second,
        .mfu = watch->last.mfu,
        .eta_seconds = estimate_end(watch),
        .ranks = watch->last.world,
    };
}

const char *units_count(char buf[UNITS_SIZE], double value)
{
    static const char *const suffix[] = {"", "k", "M", "G", "T", "P"};
    const size_t last = sizeof suffix / sizeof suffix[0] - 1;
    size_t i = 0;

    if (!isfinite(value)) {
        snprintf(buf, UNITS_SIZE, "-");
        return buf;
    }
    while (fabs(value) >= 999.5 && i < last) { /* 999.5 would print as 1000 */
        value /= 1000.0;
        i++;
    }
    if (fabs(value) >= 1e6) /* beyond the last suffix */
        snprintf(buf, UNITS_SIZE, "%.2e%s", value, suffix[i]);
    else if (i == 0 && value == floor(value))
        snprintf(buf, UNITS_SIZE, "%.0f", value);
    else
        snprintf(buf, UNITS_SIZE, "%.*f%s", fabs(value) < 9.995 ? 2 : fabs(value) < 99.95 ? 1 : 0, value, suffix[i]);
    return buf;
}

const char *units_duration(char buf[UNITS_SIZE], double seconds)
{
    long s;

    if (!(seconds >= 0.0 && seconds < 1e12)) {
        snprintf(buf, UNITS_SIZE, "-");
        return buf;
    }
    s = lround(seconds);
    if (s < 3600)
        snprintf(buf, UNITS_SIZE, "%ld:%02ld", s / 60, s % 60);
    else if (s < 86400)
        snprintf(buf, UNITS_SIZE, "%ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
    else
        snprintf(buf, UNITS_SIZE, "%ldd%02ld:%02ld", s / 86400, s / 3600 % 24, s / 60 % 60);
    return buf;
}

const char *units_grouped(char buf[UNITS_SIZE], long value)
{
    char digits[UNITS_SIZE];
    size_t count = (size_t)snprintf(digits, sizeof digits, "%ld", value), used = 0;

    for (size_t i = 0; i < count; i++) {
        size_t left = count - i;

        if (i > 0 && left % 3 == 0 && digits[i - 1] != '-')
            buf[used++] = ',';
        buf[used++] = digits[i];
    }
    buf[used] = '\0';
    return buf;
}
