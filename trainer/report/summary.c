#include "trainer/report/report_commands.h"

#include <math.h>
#include <stdlib.h>

#include "common/text.h"
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

/* ---- starts ---- */

bool start_went_on(const struct metrics_start *start)
{
    return start->step > 0 || start->fault > 0;
}

double start_measure(const struct metrics_start *start, double phases[START_PHASES])
{
    double begun = start->checked, all = 0;

    for (int i = 0; i < START_PHASES; i++)
        phases[i] = NAN;
    if (start->fault > 0) {
        phases[START_END] = start->ended - start->fault;
        phases[START_CHECK] = start->checked - start->ended;
    } else {
        begun = fmax(start->job_began, start->last); /* a job may start the program several times */
        if (start->last > 0 && begun > start->last)
            phases[START_WAIT] = begun - start->last;
    }
    phases[START_LOAD] = start->ready - begun - start->drain_seconds;
    phases[START_DRAIN] = start->drain_seconds;
    if (start->first_step > 0)
        phases[START_STEP] = start->first_step - start->ready;
    for (int i = 0; i < START_PHASES; i++)
        all += isnan(phases[i]) ? 0 : phases[i];
    return start->first_step > 0 ? all : NAN;
}

double starts_allocated(const struct metrics *metrics, double *counted)
{
    const struct metrics_start *starts = metrics->starts;
    double allocated = 0, end = 0;

    *counted = 0;
    for (size_t i = 0; i < metrics->nstarts; i++) {
        bool same_job = i > 0 && starts[i].job_began == starts[i - 1].job_began;
        double begun = same_job ? end : starts[i].job_began;

        end = fmax(starts[i].ready, starts[i].first_step);
        end = fmax(end, i + 1 < metrics->nstarts ? starts[i + 1].last : metrics->steps[metrics->count - 1].time);
        allocated += end - begun;
    }
    for (size_t i = 0; metrics->nstarts && i < metrics->count; i++)
        if (metrics->steps[i].step > starts[0].step && isfinite(metrics->steps[i].step_seconds))
            *counted += metrics->steps[i].step_seconds;
    return allocated;
}

/* "-" where there is none */
static void print_seconds(FILE *out, int width, double seconds)
{
    if (isnan(seconds))
        fprintf(out, " %*s", width, "-");
    else
        fprintf(out, " %*.1f", width, seconds);
}

static void print_starts(FILE *out, const struct metrics *metrics)
{
    char time[2][UNITS_SIZE];
    double counted, allocated = starts_allocated(metrics, &counted), phases[START_PHASES];
    int titled = 0;

    if (allocated > 0)
        fprintf(out, "  %-12s%.1f%%: %s of steps that counted, %s of allocated time\n", "goodput",
                100.0 * counted / allocated, units_duration(time[0], counted), units_duration(time[1], allocated));
    for (size_t i = 0; i < metrics->nstarts; i++) {
        const struct metrics_start *s = &metrics->starts[i];
        const char *why;

        if (!start_went_on(s))
            continue;
        if (!titled++)
            fprintf(out, "\n  %-12s %8s %8s %6s %6s %6s %6s %6s %6s  cause\n", "went on", "repeated", "seconds", "wait",
                    "end", "check", "load", "drain", "step");
        fprintf(out, "  at %-9ld %8ld", s->step, s->repeated);
        print_seconds(out, 8, start_measure(s, phases));
        for (int p = 0; p < START_PHASES; p++)
            print_seconds(out, 6, phases[p]);
        why = s->fault > 0 ? s->cause : s->job;
        fprintf(out, "  %s%s\n", s->fault > 0 || !*why ? "" : "job ", *why ? why : "-");
    }
}

/* Of a segment: the members of an object, after its name. */
static void write_segment(FILE *out, const struct run_segment *s)
{
    const struct {
        const char *key;
        double value;
    } members[] = {
        {"first_step", (double)s->first->step},
        {"last_step", (double)s->last->step},
        {"steps", (double)s->steps},
        {"world", s->last->world},
        {"dp", s->last->dp},
        {"tp", s->last->tp},
        {"pp", s->last->pp},
        {"seconds", s->seconds},
        {"tokens", s->tokens},
        {"tokens_per_second", s->tokens / s->seconds},
        {"tflops", s->tflops},
        {"mfu", s->mfu},
        {"hfu", s->hfu},
        {"first_loss", s->first->loss},
        {"last_loss", s->last->loss},
        {"consumed_samples", (double)s->last->consumed_samples},
    };

    for (size_t i = 0; i < sizeof members / sizeof *members; i++)
        json_real_member(out, members[i].key, members[i].value);
}

static void write_step(FILE *out, const char *name, const struct metrics_step *step, double loss)
{
    if (!step)
        return;
    fprintf(out, ",\"%s\":{\"step\":%ld", name, step->step);
    json_real_member(out, "loss", loss);
    fputc('}', out);
}

static void write_starts(FILE *out, const struct metrics *metrics, size_t most)
{
    static const char *const NAMES[START_PHASES] = {"wait", "end", "check", "load", "drain", "first_step"};
    size_t left_out = metrics->nstarts > most ? metrics->nstarts - most : 0;
    double counted, phases[START_PHASES];

    json_real_member(out, "allocated_seconds", starts_allocated(metrics, &counted));
    json_real_member(out, "counted_seconds", counted);
    fputs(",\"starts\":[", out);
    for (size_t i = left_out; i < metrics->nstarts; i++) {
        const struct metrics_start *s = &metrics->starts[i];

        fprintf(out, "%s{\"step\":%ld", i > left_out ? "," : "", s->step);
        json_number_member(out, "repeated", s->repeated);
        json_real_member(out, "seconds", start_measure(s, phases));
        for (int p = 0; p < START_PHASES; p++)
            json_real_member(out, NAMES[p], phases[p]);
        json_string_member(out, "job", s->job);
        json_string_member(out, "nodes", s->nodes);
        json_string_member(out, "cause", s->cause);
        fputc('}', out);
    }
    fputc(']', out);
}

static void write_json(FILE *out, const char *name, const struct run_segment *all, const struct totals *t,
                       const struct run_segment *segments, size_t count, const struct metrics *metrics, size_t most)
{
    size_t left_out = count > most ? count - most : 0;

    fputs("{\"metrics\":", out);
    json_quote(out, name);
    write_segment(out, all);
    write_step(out, "lowest_loss", t->best, t->best ? t->best->loss : NAN);
    write_step(out, "lowest_valid_loss", t->best_valid, t->best_valid ? t->best_valid->valid_loss : NAN);
    write_step(out, "last_valid_loss", t->last_valid, t->last_valid ? t->last_valid->valid_loss : NAN);
    json_number_member(out, "skipped", t->skipped);
    json_number_member(out, "not_finite", t->not_finite);
    fputs(",\"meshes\":[", out);
    for (size_t i = left_out; i < count; i++) {
        fprintf(out, "%s{\"number\":%zu", i > left_out ? "," : "", i + 1);
        write_segment(out, &segments[i]);
        fputc('}', out);
    }
    fputc(']', out);
    write_starts(out, metrics, most);
    fputs("}\n", out);
}

int summary_print(FILE *out, const char *name, size_t json, const struct metrics *metrics, struct error *err)
{
    const struct metrics_step *steps = metrics->steps;
    struct run_segment *segments, all;
    size_t count = metrics->count;
    struct totals totals;
    size_t nsegments;

    if (!count)
        return error_set(err, CODE_DATA, "%s: no step yet", name);
    if (segments_make(steps, count, &segments, &nsegments, err) < 0)
        return -1;
    totals = gather_values(steps, count);
    all = measure_steps(steps, count);
    if (json) {
        write_json(out, name, &all, &totals, segments, nsegments, metrics, json);
    } else {
        fprintf(out, "%s\n", name);
        print_results(out, &all, &totals);
        print_speed(out, &all);
        print_starts(out, metrics);
        print_segments(out, segments, nsegments);
    }
    free(segments);
    return 0;
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
