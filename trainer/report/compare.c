#include "trainer/report/compare.h"

#include <math.h>
#include <stdlib.h>

/* A run's steps in order, each once. */
struct series {
    const struct metrics_step **steps;
    size_t count;
};

/* Lines of one step stay in the order of the file, which is that of their addresses. */
static int by_step(const void *a, const void *b)
{
    const struct metrics_step *x = *(const struct metrics_step *const *)a, *y = *(const struct metrics_step *const *)b;

    if (x->step != y->step)
        return x->step < y->step ? -1 : 1;
    return (x > y) - (x < y);
}

static int series_make(struct series *series, struct compare_run *run, const struct metrics_step *steps, size_t count,
                       struct error *err)
{
    series->count = 0;
    series->steps = calloc(count + 1, sizeof *series->steps);
    if (!series->steps)
        return error_errno(err, CODE_IO, "no memory for %zu steps", count);
    for (size_t i = 0; i < count; i++)
        series->steps[i] = &steps[i];
    qsort(series->steps, count, sizeof *series->steps, by_step);
    for (size_t i = 0; i < count; i++) {
        if (i > 0 && series->steps[i]->step == series->steps[series->count - 1]->step) {
            if (!run->repeated++)
                run->repeated_at = series->steps[i]->step;
            series->count--; /* this line replaces the previous one */
        }
        series->steps[series->count++] = series->steps[i];
    }
    run->steps = series->count;
    run->first = count ? series->steps[0]->step : 0;
    run->last = count ? series->steps[series->count - 1]->step : 0;
    return 0;
}

double compare_relative(double a, double b)
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
    double difference = compare_relative(a->loss, b->loss);

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

static void merge_runs(struct comparison *result, const struct series *a, const struct series *b)
{
    size_t i = 0, j = 0;

    while (i < a->count || j < b->count) {
        const struct metrics_step *x = i < a->count ? a->steps[i] : NULL, *y = j < b->count ? b->steps[j] : NULL;

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
}

int compare_runs(struct comparison *result, const struct metrics_step *a, size_t na, const struct metrics_step *b,
                 size_t nb, struct error *err)
{
    struct series first = {0}, second = {0};
    int status = -1;

    *result = (struct comparison){0};
    if (series_make(&first, &result->a, a, na, err) == 0 && series_make(&second, &result->b, b, nb, err) == 0) {
        merge_runs(result, &first, &second);
        status = 0;
    }
    free(first.steps);
    free(second.steps);
    return status;
}

bool segments_same_mesh(const struct metrics_step *a, const struct metrics_step *b)
{
    return a->world == b->world && a->dp == b->dp && a->tp == b->tp && a->pp == b->pp;
}

static struct run_segment start_segment(const struct metrics_step *s)
{
    return (struct run_segment){
        .first_step = s->step, .world = s->world, .dp = s->dp, .tp = s->tp, .pp = s->pp, .mfu = NAN};
}

/* One segment from steps[0] on; returns its number of steps. */
static size_t cut_run(struct run_segment *segment, const struct metrics_step *steps, size_t count)
{
    double mfu = 0.0, mfu_seconds = 0.0;
    size_t i;

    *segment = start_segment(&steps[0]);
    for (i = 0; i < count && segments_same_mesh(&steps[0], &steps[i]); i++) {
        const struct metrics_step *s = &steps[i];

        segment->last_step = s->step;
        if (isfinite(s->step_seconds) && isfinite(s->tokens_per_second)) {
            segment->seconds += s->step_seconds;
            segment->tokens += s->step_seconds * s->tokens_per_second;
        }
        if (isfinite(s->mfu) && isfinite(s->step_seconds)) {
            mfu += s->mfu * s->step_seconds;
            mfu_seconds += s->step_seconds;
        }
    }
    segment->steps = i;
    if (mfu_seconds > 0.0)
        segment->mfu = mfu / mfu_seconds;
    return i;
}

int segments_make(const struct metrics_step *steps, size_t count, struct run_segment **segments, size_t *nsegments,
                  struct error *err)
{
    size_t changes = 0;

    *segments = NULL;
    *nsegments = 0;
    if (!count)
        return 0;
    for (size_t i = 1; i < count; i++)
        changes += !segments_same_mesh(&steps[i - 1], &steps[i]);
    *segments = calloc(changes + 1, sizeof **segments);
    if (!*segments)
        return error_errno(err, CODE_IO, "no memory for %zu segments of a run", changes + 1);
    for (size_t i = 0; i < count; (*nsegments)++)
        i += cut_run(&(*segments)[*nsegments], steps + i, count - i);
    return 0;
}
