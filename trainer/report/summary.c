#include "trainer/report/summary.h"

#include <math.h>
#include <stdlib.h>

#include "trainer/report/segments.h"
#include "trainer/report/text_chart.h"
#include "trainer/report/units.h"

/* What one walk over the steps gathers. */
struct totals {
    const struct metrics_step *first, *last;
    const struct metrics_step *best, *best_valid, *last_valid; /* NULL where no loss is finite */
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

static struct totals gather(const struct metrics_step *steps, size_t count)
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

static void print_segments(FILE *out, const struct segment *segments, size_t count)
{
    char range[48], mesh[48], rate[UNITS_SIZE], time[UNITS_SIZE];

    fprintf(out, "\n  %-18s %6s  %-12s %9s %10s %7s\n", "steps", "ranks", "dp x tp x pp", "tokens/s", "time", "MFU");
    for (size_t i = 0; i < count; i++) {
        const struct segment *s = &segments[i];

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
    struct segment *segments;
    struct totals totals;
    size_t nsegments;

    if (!summary->count)
        return error_set(err, CODE_DATA, "%s: no step yet", summary->name);
    if (segments_make(summary->steps, summary->count, &segments, &nsegments, err) < 0)
        return -1;
    totals = gather(summary->steps, summary->count);
    fprintf(out, "%s\n", summary->name);
    print_results(out, &totals, summary->count);
    print_speed(out, &totals, summary->count);
    print_segments(out, segments, nsegments);
    free(segments);
    if (print_chart(out, summary, err) < 0)
        return -1;
    return ferror(out) ? error_errno(err, CODE_IO, "cannot print the summary") : 0;
}
