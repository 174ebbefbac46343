#include "trainer/report/plot.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/report/progress.h"
#include "trainer/report/summary.h"

#define ARROW "\u2192"

enum { BRIEF_ABOVE = 3 }; /* more changes than this, and their labels are short */

/* Describes the change of mesh between two steps. */
static void describe_change(struct mark *mark, const struct metrics_step *before, const struct metrics_step *after,
                            bool brief)
{
    const char *why = after->world < before->world ? "shrunk: " : "grown: ";
    char where[32];

    mark->step = before->step;
    snprintf(where, sizeof where, " at step %ld", mark->step);
    if (after->world != before->world)
        snprintf(mark->label, sizeof mark->label, "%s%d " ARROW " %d ranks%s", brief ? "" : why, before->world,
                 after->world, brief ? "" : where);
    else
        snprintf(mark->label, sizeof mark->label, "dp %d tp %d pp %d " ARROW " dp %d tp %d pp %d%s", before->dp,
                 before->tp, before->pp, after->dp, after->tp, after->pp, brief ? "" : where);
}

static int by_step(const void *a, const void *b)
{
    const struct mark *x = a, *y = b;

    return (x->step > y->step) - (x->step < y->step);
}

int marks_make(const struct plot *plot, struct mark **marks, size_t *nmarks, struct error *err)
{
    struct run_segment *segments;
    size_t nsegments;

    if (segments_make(plot->steps, plot->nsteps, &segments, &nsegments, err) < 0)
        return -1;
    *nmarks = 0;
    *marks = error_calloc(nsegments + plot->nmarks + 1, sizeof **marks, err);
    for (size_t i = 1; *marks && i < nsegments; i++)
        describe_change(&(*marks)[(*nmarks)++], segments[i - 1].last, segments[i].first, nsegments - 1 > BRIEF_ABOVE);
    free(segments);
    if (!*marks)
        return -1;
    for (size_t i = 0; i < plot->nmarks; i++) {
        size_t k = 0;

        while (k < *nmarks && (*marks)[k].step != plot->marks[i].step)
            k++;
        (*marks)[k] = plot->marks[i];
        *nmarks += k == *nmarks;
    }
    qsort(*marks, *nmarks, sizeof **marks, by_step);
    return 0;
}

/* The label goes right of its line, else left of it; false if neither fits. */
static bool choose_side(struct mark *mark, double left, double right)
{
    const double space = 6.0, width = svg_text_width(mark->label, MARKS_FONT);

    mark->anchor = mark->x + space + width <= right ? SVG_START : SVG_END;
    mark->from = mark->anchor == SVG_START ? mark->x + space : mark->x - space - width;
    mark->to = mark->from + width;
    return mark->from >= left && mark->to <= right;
}

/* A mark's line goes from the plot up to its label's row, and would cross a label on the way. */
static bool strikes_label(const struct mark *line, const struct mark *label)
{
    return label->row <= line->row && line->x > label->from - 4.0 && line->x < label->to + 4.0;
}

static bool labels_overlap(const struct mark *a, const struct mark *b)
{
    return a->row == b->row && a->from < b->to + 10.0 && b->from < a->to + 10.0;
}

/* True if the mark's label fits in its row beside these. If not `strict`, lines may pass behind labels. */
static bool label_fits(const struct mark *mark, const struct mark *others, size_t count, bool strict)
{
    for (size_t i = 0; i < count; i++) {
        if (others[i].row < 0)
            continue;
        if (labels_overlap(mark, &others[i]) ||
            (strict && (strikes_label(mark, &others[i]) || strikes_label(&others[i], mark))))
            return false;
    }
    return true;
}

static void place_label(struct mark *mark, const struct mark *others, size_t count)
{
    for (int strict = 1; strict >= 0; strict--)
        for (mark->row = 0; mark->row < MARKS_ROWS; mark->row++)
            if (label_fits(mark, others, count, strict))
                return;
    mark->row = -1;
}

int marks_place(struct mark *marks, size_t nmarks, double left, double right)
{
    int used = 0;

    /* From the right, so that an earlier mark's label is above the lines of the later ones, like stairs. */
    for (size_t i = nmarks; i-- > 0;) {
        marks[i].row = -1;
        if (choose_side(&marks[i], left, right))
            place_label(&marks[i], &marks[i + 1], nmarks - 1 - i);
        used = marks[i].row + 1 > used ? marks[i].row + 1 : used;
    }
    for (size_t i = 0; i < nmarks; i++)
        for (size_t k = 0; k < nmarks; k++)
            marks[i].struck |= k != i && marks[i].row >= 0 && strikes_label(&marks[k], &marks[i]);
    return used;
}

/* Beyond this a double's arithmetic overflows in hi - lo. */
static double clamp_value(double value)
{
    return fmax(-1e300, fmin(1e300, value));
}

static void order_and_widen(double *lo, double *hi)
{
    double a = clamp_value(fmin(*lo, *hi)), b = clamp_value(fmax(*lo, *hi)), scale = fmax(fabs(a), fabs(b));

    if (b - a < 1e-9 * scale || b - a < 1e-280) { /* too close for different labels */
        double pad = scale > 1e-270 ? 0.05 * scale : 0.5;

        a -= pad;
        b += pad;
    }
    *lo = a;
    *hi = b;
}

/* The smallest of 1, 2, 5 times a power of ten that cuts `range` into at most `parts`. */
static double nice_step(double range, int parts)
{
    static const double nice[] = {1.0, 2.0, 5.0};
    double power = pow(10.0, floor(log10(range / parts)));

    for (int i = 0; i < 3; i++)
        if (range / (nice[i] * power) <= parts * (1.0 + 1e-9))
            return nice[i] * power;
    return 10.0 * power;
}

struct axis axis_make(double lo, double hi, int most, bool cover)
{
    order_and_widen(&lo, &hi);
    for (int parts = most - 1;; parts--) { /* rounding outwards can cost two parts more than the range has */
        double step = nice_step(hi - lo, parts > 1 ? parts : 1), exponent = floor(log10(step) + 1e-9);
        double first = step * (cover ? floor(lo / step + 1e-9) : ceil(lo / step - 1e-9));
        double last = step * (cover ? ceil(hi / step - 1e-9) : floor(hi / step + 1e-9));
        struct axis axis = {.lo = cover ? first : lo, .hi = cover ? last : hi, .first = first, .step = step};

        axis.count = last < first ? 0 : (int)lround((last - first) / step) + 1;
        axis.decimals = exponent < 0 ? (int)-exponent : 0;
        if (axis.count <= most || parts <= 1)
            return axis;
    }
}

double axis_tick(const struct axis *axis, int index)
{
    double value = axis->first + index * axis->step;

    return fabs(value) < 1e-9 * axis->step ? 0.0 : value; /* no "-0" */
}

const char *axis_label(const struct axis *axis, int index, char *buf, size_t size)
{
    double value = axis_tick(axis, index);
    char grouped[UNITS_SIZE];

    if (axis->decimals > 6 || fabs(value) >= 1e15)
        snprintf(buf, size, "%.9g", value);
    else if (axis->decimals == 0)
        snprintf(buf, size, "%s", units_grouped(grouped, lround(value)));
    else
        snprintf(buf, size, "%.*f", axis->decimals, value);
    return buf;
}
