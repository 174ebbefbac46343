#include "trainer/report/axis.h"

#include <math.h>
#include <stdio.h>

#include "trainer/report/units.h"

/* Beyond this a double's arithmetic overflows in hi - lo. */
static double tame(double value)
{
    return fmax(-1e300, fmin(1e300, value));
}

static void order_and_widen(double *lo, double *hi)
{
    double a = tame(fmin(*lo, *hi)), b = tame(fmax(*lo, *hi)), scale = fmax(fabs(a), fabs(b));

    if (b - a < 1e-9 * scale || b - a < 1e-280) { /* so near that labels could not tell them apart */
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

static struct axis with_ticks(double lo, double hi, double first, double last, double step)
{
    struct axis axis = {.lo = lo, .hi = hi, .first = first, .step = step};
    double exponent = floor(log10(step) + 1e-9);

    axis.count = last < first ? 0 : (int)lround((last - first) / step) + 1;
    axis.decimals = exponent < 0 ? (int)-exponent : 0;
    return axis;
}

struct axis axis_cover(double lo, double hi, int most)
{
    order_and_widen(&lo, &hi);
    for (int parts = most - 1;; parts--) { /* rounding outwards can cost two parts more than the range has */
        double step = nice_step(hi - lo, parts > 1 ? parts : 1);
        double first = step * floor(lo / step + 1e-9), last = step * ceil(hi / step - 1e-9);
        struct axis axis = with_ticks(first, last, first, last, step);

        if (axis.count <= most || parts <= 1)
            return axis;
    }
}

struct axis axis_inside(double lo, double hi, int most)
{
    double step;

    order_and_widen(&lo, &hi);
    step = nice_step(hi - lo, most - 1); /* at most 2.5 times too coarse: of three steps or more one tick is inside */
    return with_ticks(lo, hi, step * ceil(lo / step - 1e-9), step * floor(hi / step + 1e-9), step);
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
