#include "trainer/report/report_commands.h"

#include <math.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>

#include "common/svg.h"
#include "trainer/report/progress.h"

enum {
    WIDTH = 960,
    HEIGHT = 540,
    LEFT = 76,
    RIGHT = WIDTH - 32,
    BOTTOM = HEIGHT - 60,
    TOP = 82, /* of the labels of the marks, which move the plot down */
    ROW = 17,
    ROWS = 5,
    TICKS = 11,     /* at most, on an axis */
    BRIEF_ABOVE = 3 /* more changes of mesh than this, and their labels are short */
};

/* ---- axes -------------------------------------------------------------------------------------------------------- */

/*
 * From lo to hi, with ticks at multiples of `step`: 1, 2 or 5 times a power of ten (Heckbert, "Nice Numbers for Graph
 * Labels", Graphics Gems, 1990).
 */
struct axis {
    double lo, hi, step;
    double from, to; /* pixels */
    int decimals;    /* of the labels */
};

struct frame {
    struct axis x, y;
};

static const char *const OTHERS[PLOT_OTHERS_MOST] = {"other1", "other2", "other3", "other4",
                                                     "other5", "other6", "other7"};

/* An axis for finite data from lo to hi, widened to a tick at both ends, with ticks at least `least` apart. */
static struct axis make_axis(double lo, double hi, double least, double from, double to)
{
    struct axis axis = {.from = from, .to = to};
    double scale, exponent;

    lo = fmax(lo, -1e300); /* beyond this, hi - lo overflows */
    hi = fmin(hi, 1e300);
    scale = fmax(fabs(lo), fabs(hi));
    if (hi - lo < 1e-9 * scale || hi - lo < 1e-280) { /* too close for different labels */
        double pad = scale > 1e-270 ? 0.05 * scale : 0.5;

        lo -= pad;
        hi += pad;
    }
    axis.step = fmax(least, pow(10.0, floor(log10((hi - lo) / TICKS))));
    for (int i = 0;; i++) {
        axis.lo = floor(lo / axis.step + 1e-9) * axis.step;
        axis.hi = ceil(hi / axis.step - 1e-9) * axis.step;
        if (axis.hi - axis.lo < (TICKS - 0.5) * axis.step)
            break;
        axis.step *= i % 3 == 1 ? 2.5 : 2.0;
    }
    exponent = floor(log10(axis.step) + 1e-9);
    axis.decimals = exponent < 0 ? (int)-exponent : 0;
    return axis;
}

static double axis_at(const struct axis *axis, double value)
{
    return axis->from + (axis->to - axis->from) * ((value - axis->lo) / (axis->hi - axis->lo));
}

/* The value of the index-th tick, and its label: as many decimals as the step needs, thousands grouped. */
static double make_tick(const struct axis *axis, int index, char *label, size_t size)
{
    double value = axis->lo + index * axis->step;
    char grouped[UNITS_SIZE];

    if (fabs(value) < 1e-9 * axis->step)
        value = 0.0; /* no "-0" */
    if (axis->decimals > 6 || fabs(value) >= 1e15)
        snprintf(label, size, "%.9g", value);
    else if (axis->decimals == 0)
        snprintf(label, size, "%s", units_grouped(grouped, lround(value)));
    else
        snprintf(label, size, "%.*f", axis->decimals, value);
    return value;
}

static void draw_axes(FILE *out, const struct frame *frame)
{
    double top = frame->y.to, slack = 0.5 * frame->y.step, at;
    char label[64];

    for (int i = 0; frame->y.lo + i * frame->y.step < frame->y.hi + slack; i++) {
        at = axis_at(&frame->y, make_tick(&frame->y, i, label, sizeof label));
        svg_line(out, LEFT, at, RIGHT, at, "grid");
        svg_text(out, LEFT - 10, at + 4, "left", "%s", label);
    }
    slack = 0.5 * frame->x.step;
    for (int i = 0; frame->x.lo + i * frame->x.step < frame->x.hi + slack; i++) {
        at = axis_at(&frame->x, make_tick(&frame->x, i, label, sizeof label));
        svg_line(out, at, top, at, BOTTOM + 5, "grid");
        svg_text(out, at, BOTTOM + 20, "tick", "%s", label);
    }
    svg_line(out, LEFT, BOTTOM, RIGHT, BOTTOM, "axis");
    svg_text(out, (LEFT + RIGHT) / 2.0, BOTTOM + 44, "tick", "step");
    svg_text(out, LEFT - 10, top - 18, "left", "loss");
}

static void widen_range(struct axis *x, struct axis *y, long step, double loss)
{
    if (isfinite(loss)) {
        x->lo = fmin(x->lo, (double)step);
        x->hi = fmax(x->hi, (double)step);
        y->lo = fmin(y->lo, loss);
        y->hi = fmax(y->hi, loss);
    }
}

static void widen_to_losses(struct axis *x, struct axis *y, const struct metrics *run)
{
    for (size_t i = 0; i < run->count; i++)
        widen_range(x, y, run->steps[i].step, run->steps[i].loss);
}

/* ---- marks ------------------------------------------------------------------------------------------------------- */

/* A change of mesh or a restart: a vertical line with a label. */
struct mark {
    long step;
    char label[96];
    double x, from, to; /* the line and the label's extent */
    int row;            /* of the label, 0 is nearest to the plot; -1: no room */
};

/* Describes the change of mesh between two steps. */
static void describe_change(struct mark *mark, const struct metrics_step *before, const struct metrics_step *after,
                            bool brief)
{
    const char *why = brief ? "" : after->world < before->world ? "shrunk: " : "grown: ";
    char where[32] = "";

    mark->step = before->step;
    if (!brief)
        snprintf(where, sizeof where, " at step %ld", mark->step);
    if (after->world != before->world)
        snprintf(mark->label, sizeof mark->label, "%s%d \u2192 %d ranks%s", why, before->world, after->world, where);
    else
        snprintf(mark->label, sizeof mark->label, "dp %d tp %d pp %d \u2192 dp %d tp %d pp %d%s", before->dp,
                 before->tp, before->pp, after->dp, after->tp, after->pp, where);
}

static void describe_start(struct mark *mark, const struct metrics_start *start, bool brief)
{
    char where[32] = "";

    mark->step = start->step;
    if (!brief)
        snprintf(where, sizeof where, " at step %ld", mark->step);
    snprintf(mark->label, sizeof mark->label, "%s%s%s%.30s", start->fault > 0 ? "restart" : "resumed", where,
             start->nodes[0] ? ": " : "", start->nodes);
}

static int by_mark_step(const void *a, const void *b)
{
    const struct mark *x = a, *y = b;

    return (x->step > y->step) - (x->step < y->step);
}

/* Of all changes of mesh, and of the other starts, in an array that the caller frees. NULL without memory. */
static struct mark *make_marks(const struct plot *plot, size_t *count, struct error *err)
{
    const struct metrics *run = &plot->run;
    struct run_segment *segments;
    struct mark *marks;
    size_t nsegments, nmarks = 0, most;

    if (segments_make(run->steps, run->count, &segments, &nsegments, err) < 0)
        return NULL;
    most = nsegments - 1 + run->nstarts;
    marks = error_calloc(most + 1, sizeof *marks, err);
    for (size_t i = 1; marks && i < nsegments; i++)
        describe_change(&marks[nmarks++], segments[i - 1].last, segments[i].first, most > BRIEF_ABOVE);
    for (size_t i = 0; marks && i < run->nstarts; i++) {
        struct mark mark = {0};

        describe_start(&mark, &run->starts[i], most > BRIEF_ABOVE);
        if (start_went_on(&run->starts[i]) && !lfind(&mark, marks, &nmarks, sizeof mark, by_mark_step))
            marks[nmarks++] = mark;
    }
    if (marks)
        qsort(marks, nmarks, sizeof *marks, by_mark_step);
    *count = nmarks;
    free(segments);
    return marks;
}

/* Whether the mark's label fits in its row beside those of these marks. */
static bool label_fits(const struct mark *mark, const struct mark *others, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (others[i].row == mark->row && mark->from < others[i].to + 10.0 && others[i].from < mark->to + 10.0)
            return false;
    return mark->from >= LEFT;
}

/*
 * Sets each mark's row, and its label's extent right of its line, or left of it if that does not fit. Labels never
 * overlap. From the right, so that an earlier mark's label is above the lines of the later ones, like stairs. Returns
 * the number of rows.
 */
static int place_marks(struct mark *marks, size_t count)
{
    int used = 0;

    for (size_t i = count; i-- > 0;) {
        struct mark *mark = &marks[i];
        /* An upper estimate, as SVG has no way to measure it: DejaVu Sans, the widest of the fonts, averages 0.58 em.
         * The arrow has three bytes, and the width of two letters. */
        double width = 6.6 * (double)(strlen(mark->label) - 1);

        mark->from = mark->x + 6.0 + width <= RIGHT ? mark->x + 6.0 : mark->x - 6.0 - width;
        mark->to = mark->from + width;
        while (mark->row < ROWS && !label_fits(mark, mark + 1, count - 1 - i))
            mark->row++;
        mark->row = mark->row < ROWS ? mark->row : -1;
        used = mark->row + 1 > used ? mark->row + 1 : used;
    }
    return used;
}

/* First all lines, then the labels, on white since a line may cross them. */
static void draw_marks(FILE *out, double top, const struct mark *marks, size_t count)
{
    for (size_t i = 0; i < count; i++)
        svg_line(out, marks[i].x, BOTTOM, marks[i].x, marks[i].row < 0 ? top : top - 16 - ROW * marks[i].row, "mark");
    for (size_t i = 0; i < count; i++) {
        double y = top - 7 - ROW * marks[i].row;
        bool right = marks[i].from > marks[i].x;

        if (marks[i].row < 0)
            continue;
        svg_rect(out, marks[i].from - 3, y - 11, marks[i].to - marks[i].from + 6, 15, "fill=\"#ffffff\"");
        svg_text(out, right ? marks[i].from : marks[i].to, y, right ? "mark" : "mark-left", "%s", marks[i].label);
    }
}

/* ---- curves ------------------------------------------------------------------------------------------------------ */

/* A single point is a line of length 0, which round ends make a dot. */
static void put_point(FILE *out, const struct frame *frame, const struct metrics_step *step, bool down)
{
    double x = axis_at(&frame->x, (double)step->step), y = axis_at(&frame->y, step->loss);

    if (!down)
        fprintf(out, "M%.2f %.2f", x, y);
    fprintf(out, "L%.2f %.2f", x, y);
}

/* Of steps that lie in the same pixel column only the lowest and the highest loss. */
static void draw_curve(FILE *out, const struct frame *frame, const struct metrics_step *steps, size_t count,
                       const char *class)
{
    bool down = false;

    fprintf(out, "<path class=\"%s\" d=\"", class);
    for (size_t i = 0, end; i < count; i = end) {
        double column = floor(axis_at(&frame->x, (double)steps[i].step));
        size_t low = i, high = i;

        for (end = i + 1; end < count && steps[end].step > steps[end - 1].step && isfinite(steps[end].loss) &&
                          floor(axis_at(&frame->x, (double)steps[end].step)) == column;
             end++) {
            low = steps[end].loss < steps[low].loss ? end : low;
            high = steps[end].loss > steps[high].loss ? end : high;
        }
        if (i > 0 && steps[i].step <= steps[i - 1].step) /* a file of two runs: do not draw the line back */
            down = false;
        if (isfinite(steps[i].loss)) {
            put_point(out, frame, &steps[low < high ? low : high], down);
            if (low != high)
                put_point(out, frame, &steps[low < high ? high : low], true);
        }
        down = isfinite(steps[i].loss);
    }
    fprintf(out, "\"/>\n");
}

static void draw_valid(FILE *out, const struct frame *frame, const struct plot *plot)
{
    double last = -INFINITY;

    for (size_t i = 0; i < plot->run.count; i++) {
        double x = axis_at(&frame->x, (double)plot->run.steps[i].step),
               y = axis_at(&frame->y, plot->run.steps[i].valid_loss);

        if (!isfinite(y) || fabs(x - last) < 2.0) /* leave out overlapping points */
            continue;
        fprintf(out, "<circle class=\"valid\" cx=\"%.2f\" cy=\"%.2f\" r=\"4\"/>\n", x, y);
        last = x;
    }
}

/* Each further run has a row. */
static void draw_keys(FILE *out, const struct plot *plot)
{
    double x = LEFT;
    bool valid = false;

    for (size_t i = 0; i < plot->run.count; i++)
        valid |= isfinite(plot->run.steps[i].valid_loss);
    svg_line(out, x, 54, x + 24, 54, plot->reference.count ? "under" : "train");
    svg_text(out, x + 32, 58, "key", "training");
    x += 110;
    if (valid) {
        fprintf(out, "<circle class=\"valid\" cx=\"%.2f\" cy=\"54\" r=\"4\"/>\n", x + 4);
        svg_text(out, x + 14, 58, "key", "validation");
        x += 110;
    }
    if (plot->reference.count) {
        svg_line(out, x, 54, x + 24, 54, "reference");
        svg_text(out, x + 32, 58, "key", "reference run");
        x += 150;
    }
    if (plot->nothers)
        svg_text(out, x, 58, "key", "of %s", plot->name);
    for (size_t i = 0; i < plot->nothers; i++) {
        double y = 54.0 + ROW * (double)(i + 1);

        svg_line(out, LEFT, y, LEFT + 24, y, OTHERS[i]);
        svg_text(out, LEFT + 32, y + 4, "key", "%s", plot->others[i].name);
    }
}

int plot_write(FILE *out, const struct plot *plot, struct error *err)
{
    struct axis x = {.lo = INFINITY, .hi = -INFINITY}, y = x;
    struct frame frame;
    struct mark *marks;
    size_t count;

    if (plot->nothers > PLOT_OTHERS_MOST)
        return error_set(err, CODE_USAGE, "a plot shows at most %d runs", PLOT_OTHERS_MOST + 1);
    widen_to_losses(&x, &y, &plot->run);
    for (size_t i = 0; i < plot->run.count; i++)
        widen_range(&x, &y, plot->run.steps[i].step, plot->run.steps[i].valid_loss);
    if (!isfinite(x.lo))
        return error_set(err, CODE_DATA, "no step with a finite loss to draw");
    widen_to_losses(&x, &y, &plot->reference);
    for (size_t i = 0; i < plot->nothers; i++)
        widen_to_losses(&x, &y, &plot->others[i].metrics);
    marks = make_marks(plot, &count, err);
    if (!marks)
        return -1;
    for (size_t i = 0; i < count; i++)
        widen_range(&x, &y, marks[i].step, y.lo);
    /* Most axes of steps begin at 0. */
    frame.x = make_axis(x.lo < 0.1 * x.hi ? 0.0 : x.lo, x.hi, 1.0, LEFT, RIGHT);
    for (size_t i = 0; i < count; i++)
        marks[i].x = axis_at(&frame.x, (double)marks[i].step);
    frame.y = make_axis(y.lo, y.hi, 0.0, BOTTOM, TOP + ROW * ((int)plot->nothers + place_marks(marks, count)));

    svg_begin(out, WIDTH, HEIGHT, LEFT, plot->title);
    draw_keys(out, plot);
    draw_axes(out, &frame);
    draw_marks(out, frame.y.to, marks, count);
    for (size_t i = 0; i < plot->nothers; i++)
        draw_curve(out, &frame, plot->others[i].metrics.steps, plot->others[i].metrics.count, OTHERS[i]);
    draw_curve(out, &frame, plot->run.steps, plot->run.count, plot->reference.count ? "under" : "train");
    draw_curve(out, &frame, plot->reference.steps, plot->reference.count, "reference");
    draw_valid(out, &frame, plot);
    svg_end(out);
    free(marks);
    return 0;
}
