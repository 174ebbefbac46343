#include "trainer/report/progress.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "trainer/report/units.h"

/* The fields, in the order of the line. */
enum field { STEP, BAR, LOSS, RATE, RANKS, MFU, ETA, FIELDS };

/* What goes first when room is short; the step is not in it. */
static const enum field SPARED_LAST[] = {MFU, RANKS, RATE, BAR, ETA, LOSS};

enum { GAP = 2, BAR_LEAST = 8, BAR_MOST = 48 };

struct line {
    char text[FIELDS][64]; /* "" is not shown. The bar is drawn at the end, when its width is known */
    bool shown[FIELDS];
    int bar; /* columns */
};

static void fill(struct line *line, unsigned flags, const struct progress *p)
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

/* All texts are ASCII: a byte is a column. */
static int width(const struct line *line)
{
    int columns = -GAP;

    for (int i = 0; i < FIELDS; i++)
        if (line->shown[i])
            columns += GAP + (i == BAR ? line->bar : (int)strlen(line->text[i]));
    return columns;
}

static void fit(struct line *line, int columns)
{
    for (size_t i = 0; i < sizeof SPARED_LAST / sizeof SPARED_LAST[0] && width(line) > columns; i++)
        line->shown[SPARED_LAST[i]] = false;
    if (line->shown[BAR]) {
        line->bar += columns - width(line);
        if (line->bar > BAR_MOST)
            line->bar = BAR_MOST;
    }
    if (columns < (int)strlen(line->text[STEP])) /* the narrowest of all */
        line->text[STEP][columns > 0 ? columns : 0] = '\0';
}

struct out {
    char *buf;
    size_t size, used;
};

/* Whole or not at all, so that neither a character nor an escape sequence is ever cut. */
static void put(struct out *out, const char *text)
{
    size_t length = strlen(text);

    if (out->used + length + 1 > out->size) {
        out->size = 0; /* nothing after a gap either */
        return;
    }
    memcpy(out->buf + out->used, text, length + 1);
    out->used += length;
}

static void put_bar(struct out *out, int columns, unsigned flags, const struct progress *p)
{
    const char *full = flags & PROGRESS_UTF8 ? "\u2501" : "=", *rest = flags & PROGRESS_UTF8 ? "\u2500" : ".";
    double part = p->step >= p->steps ? 1.0 : p->step > 0 ? (double)p->step / (double)p->steps : 0.0;
    int filled = (int)(part * columns);

    if (flags & PROGRESS_COLOUR)
        put(out, "\033[32m");
    for (int i = 0; i < columns; i++) {
        if (i == filled && (flags & PROGRESS_COLOUR))
            put(out, "\033[0;2m");
        put(out, i < filled ? full : rest);
    }
    if (flags & PROGRESS_COLOUR)
        put(out, "\033[0m");
}

size_t progress_line(char *buf, size_t size, int columns, unsigned flags, const struct progress *progress)
{
    struct out out = {.buf = buf, .size = size};
    struct line line;
    bool first = true;

    if (!size)
        return 0;
    buf[0] = '\0';
    fill(&line, flags, progress);
    fit(&line, columns);
    for (int i = 0; i < FIELDS; i++) {
        if (!line.shown[i])
            continue;
        if (!first)
            put(&out, "  ");
        first = false;
        if (i == BAR)
            put_bar(&out, line.bar, flags, progress);
        else
            put(&out, line.text[i]);
    }
    return out.used;
}
