#include "trainer/report/summary.h"

#include <langinfo.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "trainer/report/progress.h"
#include "trainer/report/compare.h"

struct totals {
    const struct metrics_step *first, *last;
    const struct metrics_step *best, *best_valid, *last_valid; /* NULL if no loss is finite */
    long skipped, not_finite;
    double seconds, tokens;
    double tflops, mfu, hfu; /* means, weighted by the steps' time */
};

static double mean_over_time(const struct metrics_step *steps, size_t count, size_t offset)
{
    double sum = 0.0, seconds = 0.0;

    for (size_t i = 0; i < count; i++) {
        double value = *(const double *)(const void *)((const char *)&steps[i] + offset);

        if (!isfinite(value) || !isfinite(steps[i].step_seconds))
            continue;
        sum += value * steps[i].step_seconds;
        seconds += steps[i].step_seconds;
    }
    return seconds > 0.0 ? sum / seconds : NAN;
}

static struct totals gather_values(const struct metrics_step *steps, size_t count)
{
    struct totals totals = {.first = &steps[0], .last = &steps[count - 1]};

    for (size_t i = 0; i < count; i++) {
        const struct metrics_step *s = &steps[i];

        totals.skipped += s->skipped;
        if (!isfinite(s->loss))
            totals.not_finite++;
        else if (!totals.best || s->loss < totals.best->loss)
            totals.best = s;
        if (isfinite(s->valid_loss)) {
            totals.last_valid = s;
            if (!totals.best_valid || s->valid_loss < totals.best_valid->valid_loss)
                totals.best_valid = s;
        }
        if (isfinite(s->step_seconds) && isfinite(s->tokens_per_second)) {
            totals.seconds += s->step_seconds;
            totals.tokens += s->step_seconds * s->tokens_per_second;
        }
    }
    totals.tflops = mean_over_time(steps, count, offsetof(struct metrics_step, tflops));
    totals.mfu = mean_over_time(steps, count, offsetof(struct metrics_step, mfu));
    totals.hfu = mean_over_time(steps, count, offsetof(struct metrics_step, hfu));
    return totals;
}

static void print_results(FILE *out, const struct totals *t, size_t count)
{
    char grouped[UNITS_SIZE];

    fprintf(out, "  %-12s%ld to %ld", "steps", t->first->step, t->last->step);
    if ((long)count != t->last->step - t->first->step + 1)
        fprintf(out, ", in %zu lines: some are missing or repeated", count);
    fprintf(out, "\n  %-12s%.4f at step %ld, %.4f at step %ld", "loss", t->first->loss, t->first->step, t->last->loss,
            t->last->step);
    if (t->best)
        fprintf(out, "; lowest %.4f at step %ld", t->best->loss, t->best->step);
    if (t->not_finite)
        fprintf(out, "; %ld not finite", t->not_finite);
    if (t->best_valid)
        fprintf(out, "\n  %-12sbest %.4f at step %ld, last %.4f at step %ld", "valid loss", t->best_valid->valid_loss,
                t->best_valid->step, t->last_valid->valid_loss, t->last_valid->step);
    fprintf(out, "\n  %-12s%s", "samples", units_grouped(grouped, t->last->consumed_samples));
    if (t->skipped)
        fprintf(out, "\n  %-12s%ld steps: gradients that were not finite, or spikes of the loss", "skipped",
                t->skipped);
    fputc('\n', out);
}

static void print_speed(FILE *out, const struct totals *t, size_t count)
{
    char tokens[UNITS_SIZE], rate[UNITS_SIZE], time[UNITS_SIZE];

    fprintf(out, "  %-12s%s in %s of training\n", "tokens", units_count(tokens, t->tokens),
            units_duration(time, t->seconds));
    fprintf(out, "  %-12s%s tokens/s, %.3g s a step\n", "speed", units_count(rate, t->tokens / t->seconds),
            t->seconds / (double)count);
    fprintf(out, "  %-12sMFU %.1f%%, HFU %.1f%%, %.4g TFLOP/s a rank\n", "efficiency", 100.0 * t->mfu, 100.0 * t->hfu,
            t->tflops);
}

static void print_segments(FILE *out, const struct run_segment *segments, size_t count)
{
    char range[48], mesh[48], rate[UNITS_SIZE], time[UNITS_SIZE];

    fprintf(out, "\n  %-18s %6s  %-12s %9s %10s %7s\n", "steps", "ranks", "dp x tp x pp", "tokens/s", "time", "MFU");
    for (size_t i = 0; i < count; i++) {
        const struct run_segment *s = &segments[i];

        snprintf(range, sizeof range, "%ld-%ld", s->first_step, s->last_step);
        snprintf(mesh, sizeof mesh, "%d x %d x %d", s->dp, s->tp, s->pp);
        fprintf(out, "  %-18s %6d  %-12s %9s %10s %6.1f%%\n", range, s->world, mesh,
                units_count(rate, s->tokens / s->seconds), units_duration(time, s->seconds), 100.0 * s->mfu);
    }
}

static int print_chart(FILE *out, const struct summary *summary, struct error *err)
{
    double *points = calloc(2 * summary->count, sizeof *points);
    struct text_chart chart = {.x = points, .y = points + summary->count, .count = summary->count, .height = 10};

    if (!points)
        return error_errno(err, CODE_IO, "no memory to draw %zu steps", summary->count);
    for (size_t i = 0; i < summary->count; i++) {
        points[i] = (double)summary->steps[i].step;
        points[summary->count + i] = summary->steps[i].loss;
    }
    chart.utf8 = summary->utf8;
    chart.width = summary->columns - 16;
    chart.width = chart.width < 20 ? 20 : chart.width > 100 ? 100 : chart.width;
    fprintf(out, "\n  loss\n");
    text_chart_print(out, &chart);
    free(points);
    return 0;
}

int summary_print(FILE *out, const struct summary *summary, struct error *err)
{
    struct run_segment *segments;
    struct totals totals;
    size_t nsegments;

    if (!summary->count)
        return error_set(err, CODE_DATA, "%s: no step yet", summary->name);
    if (segments_make(summary->steps, summary->count, &segments, &nsegments, err) < 0)
        return -1;
    totals = gather_values(summary->steps, summary->count);
    fprintf(out, "%s\n", summary->name);
    print_results(out, &totals, summary->count);
    print_speed(out, &totals, summary->count);
    print_segments(out, segments, nsegments);
    free(segments);
    if (print_chart(out, summary, err) < 0)
        return -1;
    return ferror(out) ? error_errno(err, CODE_IO, "cannot print the summary") : 0;
}

/* A Braille character is 2 dots wide and 4 high. Without UTF-8 a character is one dot. */
enum { DOTS_X = 2, DOTS_Y = 4 };

struct canvas {
    int columns, rows; /* in dots */
    double x_lo, x_hi, y_lo, y_hi;
    double top[TEXT_CHART_MOST * DOTS_X],
        bottom[TEXT_CHART_MOST * DOTS_X]; /* the curve's extremes in each column of dots */
};

static double scale_part(double value, double lo, double hi)
{
    return hi > lo ? (value / 2 - lo / 2) / (hi / 2 - lo / 2) : 0.5; /* halves: hi - lo may overflow */
}

static bool measure_chart(struct canvas *canvas, const struct text_chart *chart)
{
    canvas->x_lo = canvas->y_lo = INFINITY;
    canvas->x_hi = canvas->y_hi = -INFINITY;
    for (size_t i = 0; i < chart->count; i++) {
        if (!isfinite(chart->x[i]) || !isfinite(chart->y[i]))
            continue;
        canvas->x_lo = fmin(canvas->x_lo, chart->x[i]);
        canvas->x_hi = fmax(canvas->x_hi, chart->x[i]);
        canvas->y_lo = fmin(canvas->y_lo, chart->y[i]);
        canvas->y_hi = fmax(canvas->y_hi, chart->y[i]);
    }
    return isfinite(canvas->x_lo);
}

static void collect_rows(struct canvas *canvas, const struct text_chart *chart)
{
    for (int i = 0; i < canvas->columns; i++)
        canvas->top[i] = canvas->bottom[i] = NAN;
    for (size_t i = 0; i < chart->count; i++) {
        int column;

        if (!isfinite(chart->x[i]) || !isfinite(chart->y[i]))
            continue;
        column = (int)lround(scale_part(chart->x[i], canvas->x_lo, canvas->x_hi) * (canvas->columns - 1));
        canvas->top[column] = fmax(canvas->top[column], chart->y[i]); /* fmax ignores a NaN */
        canvas->bottom[column] = fmin(canvas->bottom[column], chart->y[i]);
    }
}

/* Columns without a point get the straight line between their neighbours. */
static void bridge_gap(struct canvas *canvas)
{
    int last = -1;

    for (int i = 0; i < canvas->columns; i++) {
        if (isnan(canvas->top[i]))
            continue;
        for (int k = last + 1; last >= 0 && k < i; k++) {
            double t = (double)(k - last) / (i - last);

            canvas->top[k] = (1.0 - t) * canvas->top[last] + t * canvas->top[i];
            canvas->bottom[k] = (1.0 - t) * canvas->bottom[last] + t * canvas->bottom[i];
        }
        last = i;
    }
}

static bool set_dot(const struct canvas *canvas, int column, int row)
{
    int top, bottom;

    if (isnan(canvas->top[column]))
        return false;
    top = (int)lround((1.0 - scale_part(canvas->top[column], canvas->y_lo, canvas->y_hi)) * (canvas->rows - 1));
    bottom = (int)lround((1.0 - scale_part(canvas->bottom[column], canvas->y_lo, canvas->y_hi)) * (canvas->rows - 1));
    return row >= top && row <= bottom;
}

static void print_cell(FILE *out, const struct canvas *canvas, int x, int y)
{
    static const unsigned char bit[DOTS_Y][DOTS_X] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
    unsigned pattern = 0;

    for (int row = 0; row < DOTS_Y; row++)
        for (int column = 0; column < DOTS_X; column++)
            if (set_dot(canvas, x * DOTS_X + column, y * DOTS_Y + row))
                pattern |= bit[row][column];
    /* U+2800 + pattern in UTF-8 */
    fprintf(out, "%c%c%c", 0xe2, 0xa0 | (int)(pattern >> 6), 0x80 | (int)(pattern & 0x3f));
}

static void print_row(FILE *out, const struct text_chart *chart, const struct canvas *canvas, int y)
{
    if (y == 0 || y == chart->height - 1)
        fprintf(out, "  %9.4g %s", y ? canvas->y_lo : canvas->y_hi, chart->utf8 ? "\u2524" : "|");
    else
        fprintf(out, "  %9s %s", "", chart->utf8 ? "\u2502" : "|");
    for (int x = 0; x < chart->width; x++) {
        if (chart->utf8)
            print_cell(out, canvas, x, y);
        else
            fputc(set_dot(canvas, x, y) ? '*' : ' ', out);
    }
    fputc('\n', out);
}

void text_chart_print(FILE *out, const struct text_chart *chart)
{
    struct canvas canvas;
    char last[32];

    if (!measure_chart(&canvas, chart))
        return;
    canvas.columns = chart->width * (chart->utf8 ? DOTS_X : 1);
    canvas.rows = chart->height * (chart->utf8 ? DOTS_Y : 1);
    collect_rows(&canvas, chart);
    bridge_gap(&canvas);
    for (int y = 0; y < chart->height; y++)
        print_row(out, chart, &canvas, y);
    fprintf(out, "  %9s %s", "", chart->utf8 ? "\u2514" : "+");
    for (int x = 0; x < chart->width; x++)
        fputs(chart->utf8 ? "\u2500" : "-", out);
    snprintf(last, sizeof last, "%.15g", canvas.x_hi);
    fprintf(out, "\n  %9s  %-*.15g%s\n", "", chart->width - (int)strlen(last), canvas.x_lo, last);
}

struct terminal terminal_inspect(int fd)
{
    const char *term = getenv("TERM"), *no_colour = getenv("NO_COLOR");
    struct terminal terminal = {.columns = 80};
    struct winsize size;

    terminal.live = isatty(fd) && term && strcmp(term, "dumb") != 0;
    terminal.colour = terminal.live && (!no_colour || !*no_colour);
    terminal.utf8 = strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
    if (ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
        terminal.columns = size.ws_col;
    return terminal;
}
