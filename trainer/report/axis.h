/*
 * axis.h - ticks at round numbers: 1, 2 or 5 times a power of ten apart (Heckbert, "Nice Numbers for Graph Labels",
 * Graphics Gems, 1990). Pure functions.
 */
#ifndef MUSTER_TRAINER_REPORT_AXIS_H
#define MUSTER_TRAINER_REPORT_AXIS_H

#include <stddef.h>

struct axis {
    double lo, hi;      /* what the axis spans */
    double first, step; /* ticks at first + i * step, 0 <= i < count */
    int count;          /* at least 1 */
    int decimals;       /* that a label needs */
};

/*
 * An axis for data from lo to hi (finite, in either order, may be equal) with at most `most` (>= 4) ticks. _cover
 * widens the axis to a tick at both ends; _inside keeps the data's ends and has only the ticks between them.
 */
struct axis axis_cover(double lo, double hi, int most);
struct axis axis_inside(double lo, double hi, int most);

double axis_tick(const struct axis *axis, int index);

/* Tick's text: as many decimals as the step needs, thousands grouped: 0.25, 3, 12,000. Returns buf. */
const char *axis_label(const struct axis *axis, int index, char *buf, size_t size);

#endif
