#include "trainer/report/report_commands.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/report/progress.h"

/* ---- a part of a run, or all of it ---- */

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

/* Of steps that are all on one mesh, except for the mesh. */
static struct run_segment measure_steps(const struct metrics_step *steps, size_t count)
{
    struct run_segment segment = {
        .first = &steps[0],
        .last = &steps[count - 1],
        .steps = count,
        .tflops = mean_over_time(steps, count, offsetof(struct metrics_step, tflops)),
        .mfu = mean_over_time(steps, count, offsetof(struct metrics_step, mfu)),
        .hfu = mean_over_time(steps, count, offsetof(struct metrics_step, hfu)),
        .before_2022 = mean_over_time(steps, count, offsetof(struct metrics_step, tflops_before_2022)),
        .mosaic = {mean_over_time(steps, count, offsetof(struct metrics_step, mosaicml_mfu)),
                   mean_over_time(steps, count, offsetof(struct metrics_step, mosaicml_hfu)),
                   mean_over_time(steps, count, offsetof(struct metrics_step, mosaicml_mfu_params)),
                   mean_over_time(steps, count, offsetof(struct metrics_step, mosaicml_hfu_params))},
    };

    for (const struct metrics_step *s = segment.first; s <= segment.last; s++)
        if (isfinite(s->step_seconds) && isfinite(s->tokens_per_second)) {
            segment.seconds += s->step_seconds;
            segment.tokens += s->step_seconds * s->tokens_per_second;
        }
    return segment;
}

bool segments_same_mesh(const struct metrics_step *a, const struct metrics_step *b)
{
    return a->world == b->world && a->dp == b->dp && a->tp == b->tp && a->pp == b->pp;
}

int segments_make(const struct metrics_step *steps, size_t count, struct run_segment **segments, size_t *nsegments,
                  struct error *err)
{
    size_t changes = 0, begin = 0;

    *segments = NULL;
    *nsegments = 0;
    if (!count)
        return 0;
    for (size_t i = 1; i < count; i++)
        changes += !segments_same_mesh(&steps[i - 1], &steps[i]);
    *segments = error_calloc(changes + 1, sizeof **segments, err);
    if (!*segments)
        return -1;
    for (size_t i = 1; i <= count; i++)
        if (i == count || !segments_same_mesh(&steps[i - 1], &steps[i])) {
            (*segments)[(*nsegments)++] = measure_steps(steps + begin, i - begin);
            begin = i;
        }
    return 0;
}

/* ---- the summary ---- */

struct totals {
    const struct metrics_step *best, *best_valid, *last_valid; /* NULL if no loss is finite */
    long skipped, not_finite;
};

static struct totals gather_values(const struct metrics_step *steps, size_t count)
{
    struct totals totals = {0};

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
    }
    return totals;
}

static void print_results(FILE *out, const struct run_segment *all, const struct totals *t)
{
    const struct metrics_step *first = all->first, *last = all->last;
    char grouped[UNITS_SIZE];

    fprintf(out, "  %-12s%ld to %ld", "steps", first->step, last->step);
    if ((long)all->steps != last->step - first->step + 1)
        fprintf(out, ", in %zu lines: some are missing or repeated", all->steps);
    fprintf(out, "\n  %-12s%.4f at step %ld, %.4f at step %ld", "loss", first->loss, first->step, last->loss,
            last->step);
    if (t->best)
        fprintf(out, "; lowest %.4f at step %ld", t->best->loss, t->best->step);
    if (t->not_finite)
        fprintf(out, "; %ld not finite, or of steps that predicted nothing", t->not_finite);
    if (t->best_valid)
        fprintf(out, "\n  %-12sbest %.4f at step %ld, last %.4f at step %ld", "valid loss", t->best_valid->valid_loss,
                t->best_valid->step, t->last_valid->valid_loss, t->last_valid->step);
    fprintf(out, "\n  %-12s%s", "samples", units_grouped(grouped, last->consumed_samples));
    if (t->skipped)
        fprintf(out, "\n  %-12s%ld steps: gradients that were not finite, or spikes of the loss", "skipped",
                t->skipped);
    fputc('\n', out);
}

static void print_speed(FILE *out, const struct run_segment *t)
{
    char tokens[UNITS_SIZE], rate[UNITS_SIZE], time[UNITS_SIZE];

    fprintf(out, "  %-12s%s in %s of training\n", "tokens", units_count(tokens, t->tokens),
            units_duration(time, t->seconds));
    fprintf(out, "  %-12s%s tokens/s, %.3g s a step\n", "speed", units_count(rate, t->tokens / t->seconds),
            t->seconds / (double)t->steps);
    fprintf(out, "  %-12sMFU %.1f%%, HFU %.1f%%, %.4g TFLOP/s a rank\n", "efficiency", 100.0 * t->mfu, 100.0 * t->hfu,
            t->tflops);
    if (t->before_2022 > 0) /* written since these were introduced */
        fprintf(out,
                "  %-12sMegatron before 2022 %.4g TFLOP/s; MosaicML MFU %.1f%%, HFU %.1f%%; without attention "
                "%.1f%%, %.1f%%\n",
                "also", t->before_2022, 100.0 * t->mosaic[0], 100.0 * t->mosaic[1], 100.0 * t->mosaic[2],
                100.0 * t->mosaic[3]);
}

static void print_segments(FILE *out, const struct run_segment *segments, size_t count)
{
    char range[48], mesh[48], rate[UNITS_SIZE], time[UNITS_SIZE];

    fprintf(out, "\n  %-18s %6s  %-12s %9s %10s %7s\n", "steps", "ranks", "dp x tp x pp", "tokens/s", "time", "MFU");
    for (size_t i = 0; i < count; i++) {
        const struct run_segment *s = &segments[i];

        snprintf(range, sizeof range, "%ld-%ld", s->first->step, s->last->step);
        snprintf(mesh, sizeof mesh, "%d x %d x %d", s->first->dp, s->first->tp, s->first->pp);
        fprintf(out, "  %-18s %6d  %-12s %9s %10s %6.1f%%\n", range, s->first->world, mesh,
                units_count(rate, s->tokens / s->seconds), units_duration(time, s->seconds), 100.0 * s->mfu);
    }
}

int summary_print(FILE *out, const struct summary *summary, struct error *err)
{
    int width = summary->columns < 36 ? 20 : summary->columns > 116 ? 100 : summary->columns - 16;
    struct run_segment *segments, all;
    struct totals totals;
    size_t nsegments;

    if (!summary->count)
        return error_set(err, CODE_DATA, "%s: no step yet", summary->name);
    if (segments_make(summary->steps, summary->count, &segments, &nsegments, err) < 0)
        return -1;
    totals = gather_values(summary->steps, summary->count);
    all = measure_steps(summary->steps, summary->count);
    fprintf(out, "%s\n", summary->name);
    print_results(out, &all, &totals);
    print_speed(out, &all);
    print_segments(out, segments, nsegments);
    free(segments);
    fprintf(out, "\n  loss\n");
    summary_chart(out, summary->steps, summary->count, width, 10, summary->utf8);
    return ferror(out) ? error_errno(err, CODE_IO, "cannot print the summary") : 0;
}

/* ---- the chart ---- */

/* A Braille character is 2 dots wide and 4 high. Without UTF-8 a character is one dot. */
enum { DOTS_X = 2, DOTS_Y = 4 };

struct canvas {
    int columns, rows; /* in dots */
    double x_lo, x_hi, y_lo, y_hi;
    double top[SUMMARY_CHART_MOST * DOTS_X],
        bottom[SUMMARY_CHART_MOST * DOTS_X]; /* the curve's extremes in each column */
};

static double scale_part(double value, double lo, double hi)
{
    return hi > lo ? (value / 2 - lo / 2) / (hi / 2 - lo / 2) : 0.5; /* halves: hi - lo may overflow */
}

static bool measure_chart(struct canvas *canvas, const struct metrics_step *steps, size_t count)
{
    canvas->x_lo = canvas->y_lo = INFINITY;
    canvas->x_hi = canvas->y_hi = -INFINITY;
    for (size_t i = 0; i < count; i++) {
        if (!isfinite(steps[i].loss))
            continue;
        canvas->x_lo = fmin(canvas->x_lo, (double)steps[i].step);
        canvas->x_hi = fmax(canvas->x_hi, (double)steps[i].step);
        canvas->y_lo = fmin(canvas->y_lo, steps[i].loss);
        canvas->y_hi = fmax(canvas->y_hi, steps[i].loss);
    }
    return isfinite(canvas->x_lo);
}

static void collect_rows(struct canvas *canvas, const struct metrics_step *steps, size_t count)
{
    for (int i = 0; i < canvas->columns; i++)
        canvas->top[i] = canvas->bottom[i] = NAN;
    for (size_t i = 0; i < count; i++) {
        int column;

        if (!isfinite(steps[i].loss))
            continue;
        column = (int)lround(scale_part((double)steps[i].step, canvas->x_lo, canvas->x_hi) * (canvas->columns - 1));
        canvas->top[column] = fmax(canvas->top[column], steps[i].loss); /* fmax ignores a NaN */
        canvas->bottom[column] = fmin(canvas->bottom[column], steps[i].loss);
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

void summary_chart(FILE *out, const struct metrics_step *steps, size_t count, int width, int height, bool utf8)
{
    struct canvas canvas = {.columns = width * (utf8 ? DOTS_X : 1), .rows = height * (utf8 ? DOTS_Y : 1)};
    char last[32];

    if (!measure_chart(&canvas, steps, count))
        return;
    collect_rows(&canvas, steps, count);
    bridge_gap(&canvas);
    for (int y = 0; y < height; y++) {
        if (y == 0 || y == height - 1)
            fprintf(out, "  %9.4g %s", y ? canvas.y_lo : canvas.y_hi, utf8 ? "\u2524" : "|");
        else
            fprintf(out, "  %9s %s", "", utf8 ? "\u2502" : "|");
        for (int x = 0; x < width; x++) {
            if (utf8)
                print_cell(out, &canvas, x, y);
            else
                fputc(set_dot(&canvas, x, y) ? '*' : ' ', out);
        }
        fputc('\n', out);
    }
    fprintf(out, "  %9s %s", "", utf8 ? "\u2514" : "+");
    for (int x = 0; x < width; x++)
        fputs(utf8 ? "\u2500" : "-", out);
    snprintf(last, sizeof last, "%.15g", canvas.x_hi);
    fprintf(out, "\n  %9s  %-*.15g%s\n", "", width - (int)strlen(last), canvas.x_lo, last);
}

/* ---- two runs ---- */

/* Lines of one step stay in the order of the file, which is that of their addresses. */
static int by_step(const void *a, const void *b)
{
    const struct metrics_step *x = *(const struct metrics_step *const *)a, *y = *(const struct metrics_step *const *)b;

    if (x->step != y->step)
        return x->step < y->step ? -1 : 1;
    return (x > y) - (x < y);
}

/* The run's steps in order, each once, in an array that the caller frees. NULL when out of memory. */
static const struct metrics_step **sort_steps(struct compare_run *run, const struct metrics_step *steps, size_t count,
                                              struct error *err)
{
    const struct metrics_step **sorted = error_calloc(count + 1, sizeof *sorted, err);

    if (!sorted)
        return NULL;
    for (size_t i = 0; i < count; i++)
        sorted[i] = &steps[i];
    qsort(sorted, count, sizeof *sorted, by_step);
    for (size_t i = 0; i < count; i++) {
        if (i > 0 && sorted[i]->step == sorted[run->steps - 1]->step) {
            if (!run->repeated++)
                run->repeated_at = sorted[i]->step;
            run->steps--; /* this line replaces the previous one */
        }
        sorted[run->steps++] = sorted[i];
    }
    run->first = count ? sorted[0]->step : 0;
    run->last = count ? sorted[run->steps - 1]->step : 0;
    return sorted;
}

static double relative_difference(double a, double b)
{
    double most;

    if (a == b || (isnan(a) && isnan(b)))
        return 0.0;
    if (!isfinite(a) || !isfinite(b))
        return INFINITY;
    most = fmax(fabs(a), fabs(b));    /* not 0, as they differ */
    return fabs(a / most - b / most); /* in this order: a - b may overflow */
}

static void compare_step(struct comparison *result, const struct metrics_step *a, const struct metrics_step *b)
{
    double difference = relative_difference(a->loss, b->loss);

    result->common++;
    result->equal += difference == 0.0;
    if (difference > result->worst) {
        result->worst = difference;
        result->worst_at = a->step;
        result->loss_a = a->loss;
        result->loss_b = b->loss;
    }
}

static void count_only(struct compare_run *run, long step)
{
    if (!run->only_here++)
        run->only_here_at = step;
}

int compare_runs(struct comparison *result, const struct metrics_step *a, size_t na, const struct metrics_step *b,
                 size_t nb, struct error *err)
{
    const struct metrics_step **first, **second = NULL;
    size_t i = 0, j = 0;
    int status;

    *result = (struct comparison){0};
    first = sort_steps(&result->a, a, na, err);
    if (first)
        second = sort_steps(&result->b, b, nb, err);
    while (second && (i < result->a.steps || j < result->b.steps)) {
        const struct metrics_step *x = i < result->a.steps ? first[i] : NULL;
        const struct metrics_step *y = j < result->b.steps ? second[j] : NULL;

        if (x && y && x->step == y->step) {
            compare_step(result, x, y);
            i++, j++;
        } else if (!y || (x && x->step < y->step)) {
            count_only(&result->a, x->step);
            i++;
        } else {
            count_only(&result->b, y->step);
            j++;
        }
    }
    status = second ? 0 : -1;
    free(first);
    free(second);
    return status;
}
