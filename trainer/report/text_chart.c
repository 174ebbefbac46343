#include "trainer/report/text_chart.h"

#include <math.h>
#include <string.h>

/* A Braille character is 2 dots wide and 4 high. Without UTF-8 a character is one dot. */
enum { DOTS_X = 2, DOTS_Y = 4 };

struct canvas {
    int columns, rows; /* in dots */
    double x_lo, x_hi, y_lo, y_hi;
    double top[TEXT_CHART_MOST * DOTS_X],
        bottom[TEXT_CHART_MOST * DOTS_X]; /* the curve's extremes in each column of dots */
};

static double part(double value, double lo, double hi)
{
    return hi > lo ? (value / 2 - lo / 2) / (hi / 2 - lo / 2) : 0.5; /* halves: hi - lo may overflow */
}

static bool measure(struct canvas *canvas, const struct text_chart *chart)
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

static void collect(struct canvas *canvas, const struct text_chart *chart)
{
    for (int i = 0; i < canvas->columns; i++)
        canvas->top[i] = canvas->bottom[i] = NAN;
    for (size_t i = 0; i < chart->count; i++) {
        int column;

        if (!isfinite(chart->x[i]) || !isfinite(chart->y[i]))
            continue;
        column = (int)lround(part(chart->x[i], canvas->x_lo, canvas->x_hi) * (canvas->columns - 1));
        canvas->top[column] = fmax(canvas->top[column], chart->y[i]); /* fmax passes over a NaN */
        canvas->bottom[column] = fmin(canvas->bottom[column], chart->y[i]);
    }
}

/* Columns without a point of their own take the straight line between their neighbours. */
static void bridge(struct canvas *canvas)
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

static bool dot(const struct canvas *canvas, int column, int row)
{
    int top, bottom;

    if (isnan(canvas->top[column]))
        return false;
    top = (int)lround((1.0 - part(canvas->top[column], canvas->y_lo, canvas->y_hi)) * (canvas->rows - 1));
    bottom = (int)lround((1.0 - part(canvas->bottom[column], canvas->y_lo, canvas->y_hi)) * (canvas->rows - 1));
    return row >= top && row <= bottom;
}

static void print_cell(FILE *out, const struct canvas *canvas, int x, int y)
{
    static const unsigned char bit[DOTS_Y][DOTS_X] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
    unsigned pattern = 0;

    for (int row = 0; row < DOTS_Y; row++)
        for (int column = 0; column < DOTS_X; column++)
            if (dot(canvas, x * DOTS_X + column, y * DOTS_Y + row))
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
            fputc(dot(canvas, x, y) ? '*' : ' ', out);
    }
    fputc('\n', out);
}

void text_chart_print(FILE *out, const struct text_chart *chart)
{
    struct canvas canvas;
    char last[32];

    if (!measure(&canvas, chart))
        return;
    canvas.columns = chart->width * (chart->utf8 ? DOTS_X : 1);
    canvas.rows = chart->height * (chart->utf8 ? DOTS_Y : 1);
    collect(&canvas, chart);
    bridge(&canvas);
    for (int y = 0; y < chart->height; y++)
        print_row(out, chart, &canvas, y);
    fprintf(out, "  %9s %s", "", chart->utf8 ? "\u2514" : "+");
    for (int x = 0; x < chart->width; x++)
        fputs(chart->utf8 ? "\u2500" : "-", out);
    snprintf(last, sizeof last, "%.15g", canvas.x_hi);
    fprintf(out, "\n  %9s  %-*.15g%s\n", "", chart->width - (int)strlen(last), canvas.x_lo, last);
}
