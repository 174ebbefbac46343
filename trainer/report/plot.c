#include "trainer/report/plot.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/svg.h"
#include "trainer/report/progress.h"

/* Pixels. */
enum { WIDTH = 960, HEIGHT = 540, LEFT = 76, RIGHT = WIDTH - 32, BOTTOM = HEIGHT - 60, HEAD = 82, ROW = 17 };

/* Okabe and Ito's colours, which colour-blind readers can distinguish. */
#define INK  "#1f2933"
#define SOFT "#5f6b76"
#define GRID "#e6e9ec"
#define SKY  "#5ab0ea"
#define BLUE "#0072b2"
#define RED  "#d55e00"

#define STYLE_TITLE     "font-size=\"18\" font-weight=\"600\" fill=\"" INK "\""
#define STYLE_SUBTITLE  "font-size=\"12.5\" fill=\"" SOFT "\""
#define STYLE_TICK      "font-size=\"12\" fill=\"" SOFT "\""
#define STYLE_NAME      "font-size=\"13\" fill=\"" INK "\""
#define STYLE_GRID      "stroke=\"" GRID "\" stroke-width=\"1\""
#define STYLE_AXIS      "stroke=\"#9aa5b1\" stroke-width=\"1\""
#define STYLE_TRAIN     "stroke=\"" BLUE "\" stroke-width=\"1.8\" stroke-linecap=\"round\""
#define STYLE_UNDER     "stroke=\"" SKY "\" stroke-width=\"3.2\" stroke-linecap=\"round\"" /* with a reference on top */
#define STYLE_REFERENCE "stroke=\"" INK "\" stroke-width=\"1.1\" stroke-dasharray=\"5 4\""
#define STYLE_VALID     "fill=\"" RED "\" stroke=\"#ffffff\" stroke-width=\"1.2\""
#define STYLE_MARK      "stroke=\"#7b8794\" stroke-width=\"1\" stroke-dasharray=\"2 3\""
#define STYLE_LABEL     "font-size=\"11\" fill=\"#3e4c59\""

struct frame {
    struct axis x, y;
    double top; /* of the plot; below the labels of the marks */
};

static double frame_x(const struct frame *frame, double step)
{
    return LEFT + (RIGHT - LEFT) * ((step - frame->x.lo) / (frame->x.hi - frame->x.lo));
}

static double frame_y(const struct frame *frame, double loss)
{
    return BOTTOM - (BOTTOM - frame->top) * ((loss - frame->y.lo) / (frame->y.hi - frame->y.lo));
}

/* ---- the data's range ---- */

struct extent {
    double step_lo, step_hi, loss_lo, loss_hi;
    bool any_valid;
};

static void widen_range(struct extent *extent, long step, double loss)
{
    if (!isfinite(loss))
        return;
    extent->step_lo = fmin(extent->step_lo, (double)step);
    extent->step_hi = fmax(extent->step_hi, (double)step);
    extent->loss_lo = fmin(extent->loss_lo, loss);
    extent->loss_hi = fmax(extent->loss_hi, loss);
}

static int measure_plot(struct extent *extent, const struct plot *plot, struct error *err)
{
    *extent = (struct extent){.step_lo = INFINITY, .step_hi = -INFINITY, .loss_lo = INFINITY, .loss_hi = -INFINITY};
    for (size_t i = 0; i < plot->nsteps; i++) {
        widen_range(extent, plot->steps[i].step, plot->steps[i].loss);
        widen_range(extent, plot->steps[i].step, plot->steps[i].valid_loss);
        extent->any_valid |= isfinite(plot->steps[i].valid_loss);
    }
    if (!isfinite(extent->step_lo))
        return error_set(err, CODE_DATA, "no step with a finite loss to draw");
    for (size_t i = 0; i < plot->nreference; i++)
        widen_range(extent, plot->reference[i].step, plot->reference[i].loss);
    if (extent->step_lo < 0.1 * extent->step_hi) /* most runs: begin the axis at 0 */
        extent->step_lo = 0.0;
    return 0;
}

/* Ticks at whole steps only, and no more than there is room for their labels. */
static struct axis step_axis(double lo, double hi)
{
    char widest[UNITS_SIZE];
    int most;

    if (hi - lo < 3.0) {
        lo = fmax(0.0, lo - 1.0);
        hi = lo + 3.0;
    }
    most = (int)((RIGHT - LEFT) / (svg_text_width(units_grouped(widest, (long)hi), 12.0) + 28.0));
    return axis_make(lo, hi, hi - lo + 1.0 < most ? (int)(hi - lo) + 1 : most, false);
}

/* ---- frame and text ---- */

static void draw_axes(FILE *out, const struct frame *frame)
{
    char label[UNITS_SIZE];

    for (int i = 0; i < frame->y.count; i++) {
        double y = frame_y(frame, axis_tick(&frame->y, i));

        svg_line(out, LEFT, y, RIGHT, y, STYLE_GRID);
        svg_text(out, LEFT - 10, y + 4, SVG_END, STYLE_TICK, axis_label(&frame->y, i, label, sizeof label));
    }
    for (int i = 0; i < frame->x.count; i++) {
        double x = frame_x(frame, axis_tick(&frame->x, i));

        svg_line(out, x, frame->top, x, BOTTOM, STYLE_GRID);
        svg_line(out, x, BOTTOM, x, BOTTOM + 5, STYLE_AXIS);
        svg_text(out, x, BOTTOM + 20, SVG_MIDDLE, STYLE_TICK, axis_label(&frame->x, i, label, sizeof label));
    }
    svg_line(out, LEFT, BOTTOM, RIGHT, BOTTOM, STYLE_AXIS);
    svg_text(out, (LEFT + RIGHT) / 2.0, BOTTOM + 44, SVG_MIDDLE, STYLE_NAME, "step");
    svg_text_up(out, 22, (frame->top + BOTTOM) / 2.0, STYLE_NAME, "loss");
}

static const char *train_style(const struct plot *plot)
{
    return plot->nreference ? STYLE_UNDER : STYLE_TRAIN;
}

static double legend_text(FILE *out, double x, const char *text)
{
    svg_text(out, x, 58, SVG_START, STYLE_SUBTITLE, text);
    return x + svg_text_width(text, 12.5) + 24.0;
}

static void draw_head(FILE *out, const struct plot *plot, const struct extent *extent)
{
    double x = LEFT;

    svg_text(out, LEFT, 34, SVG_START, STYLE_TITLE, plot->title);
    svg_line(out, x, 54, x + 24, 54, train_style(plot));
    x = legend_text(out, x + 32, "training");
    if (extent->any_valid) {
        svg_circle(out, x + 4, 54, 4, STYLE_VALID);
        x = legend_text(out, x + 14, "validation");
    }
    if (plot->nreference) {
        svg_line(out, x, 54, x + 24, 54, STYLE_REFERENCE);
        legend_text(out, x + 32, "reference run");
    }
}

static double label_y(const struct frame *frame, const struct mark *mark)
{
    return frame->top - 7.0 - ROW * mark->row;
}

/* First all lines, then the labels, on white where a line would cross them. */
static void draw_marks(FILE *out, const struct frame *frame, const struct mark *marks, size_t nmarks)
{
    for (size_t i = 0; i < nmarks; i++) {
        double top = marks[i].row < 0 ? frame->top : label_y(frame, &marks[i]) - 9.0;

        svg_line(out, marks[i].x, BOTTOM, marks[i].x, top, STYLE_MARK);
    }
    for (size_t i = 0; i < nmarks; i++) {
        const struct mark *m = &marks[i];
        bool right = m->anchor == SVG_START;

        if (m->row < 0)
            continue;
        if (m->struck)
            svg_rect(out, m->from - 3, label_y(frame, m) - 11, m->to - m->from + 6, 15, "fill=\"#ffffff\"");
        svg_text(out, right ? m->from : m->to, label_y(frame, m), m->anchor, STYLE_LABEL, m->label);
    }
}

/* ---- curves ---- */

static void path_to(struct svg_path *path, const struct frame *frame, const struct metrics_step *step)
{
    svg_path_to(path, frame_x(frame, (double)step->step), frame_y(frame, step->loss));
}

/*
 * One past the last of the steps from i on that lie in the same pixel column, with rising step numbers and finite
 * losses.
 */
static size_t column_end(const struct frame *frame, const struct metrics_step *steps, size_t i, size_t count)
{
    double column = floor(frame_x(frame, (double)steps[i].step));
    size_t end = i + 1;

    while (end < count && steps[end].step > steps[end - 1].step && isfinite(steps[end].loss) &&
           floor(frame_x(frame, (double)steps[end].step)) == column)
        end++;
    return end;
}

static void draw_column(struct svg_path *path, const struct frame *frame, const struct metrics_step *steps,
                        size_t count)
{
    size_t lowest = 0, highest = 0;

    for (size_t i = 1; i < count; i++) {
        lowest = steps[i].loss < steps[lowest].loss ? i : lowest;
        highest = steps[i].loss > steps[highest].loss ? i : highest;
    }
    path_to(path, frame, &steps[lowest < highest ? lowest : highest]);
    if (lowest != highest)
        path_to(path, frame, &steps[lowest < highest ? highest : lowest]);
}

static void draw_curve(FILE *out, const struct frame *frame, const struct metrics_step *steps, size_t count,
                       const char *style)
{
    struct svg_path path;
    size_t i = 0;

    svg_path_begin(&path, out, style);
    while (i < count) {
        size_t end = i + 1;

        if (i > 0 && steps[i].step <= steps[i - 1].step) /* a file of two runs: do not draw the line back */
            svg_path_break(&path);
        if (!isfinite(steps[i].loss))
            svg_path_break(&path);
        else
            end = column_end(frame, steps, i, count);
        if (isfinite(steps[i].loss))
            draw_column(&path, frame, steps + i, end - i);
        i = end;
    }
    svg_path_end(&path);
}

static void draw_valid(FILE *out, const struct frame *frame, const struct plot *plot)
{
    double last = -INFINITY;

    for (size_t i = 0; i < plot->nsteps; i++) {
        double x = frame_x(frame, (double)plot->steps[i].step);

        if (!isfinite(plot->steps[i].valid_loss) || fabs(x - last) < 2.0) /* leave out overlapping points */
            continue;
        svg_circle(out, x, frame_y(frame, plot->steps[i].valid_loss), 4, STYLE_VALID);
        last = x;
    }
}

int plot_write(FILE *out, const struct plot *plot, struct error *err)
{
    struct extent extent;
    struct frame frame = {.top = HEAD};
    struct mark *marks;
    size_t nmarks;
    int rows;

    if (measure_plot(&extent, plot, err) < 0 || marks_make(plot, &marks, &nmarks, err) < 0)
        return -1;
    for (size_t i = 0; i < nmarks; i++) {
        extent.step_lo = fmin(extent.step_lo, (double)marks[i].step);
        extent.step_hi = fmax(extent.step_hi, (double)marks[i].step);
    }
    frame.x = step_axis(extent.step_lo, extent.step_hi);
    frame.y = axis_make(extent.loss_lo, extent.loss_hi, 9, true);
    for (size_t i = 0; i < nmarks; i++)
        marks[i].x = frame_x(&frame, (double)marks[i].step);
    rows = marks_place(marks, nmarks, LEFT, RIGHT);
    frame.top += ROW * rows;

    svg_begin(out, WIDTH, HEIGHT, plot->title);
    svg_rect(out, 0, 0, WIDTH, HEIGHT, "fill=\"#ffffff\"");
    draw_head(out, plot, &extent);
    draw_axes(out, &frame);
    draw_marks(out, &frame, marks, nmarks);
    draw_curve(out, &frame, plot->steps, plot->nsteps, train_style(plot));
    draw_curve(out, &frame, plot->reference, plot->nreference, STYLE_REFERENCE);
    draw_valid(out, &frame, plot);
    svg_end(out);
    free(marks);
    return ferror(out) ? error_errno(err, CODE_IO, "cannot write the plot") : 0;
}
