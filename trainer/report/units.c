#include "trainer/report/units.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

const char *units_count(char buf[UNITS_SIZE], double value)
{
    static const char *const suffix[] = {"", "k", "M", "G", "T", "P"};
    const size_t last = sizeof suffix / sizeof suffix[0] - 1;
    size_t i = 0;

    if (!isfinite(value)) {
        snprintf(buf, UNITS_SIZE, "-");
        return buf;
    }
    while (fabs(value) >= 999.5 && i < last) { /* 999.5 would print as 1000 */
        value /= 1000.0;
        i++;
    }
    if (fabs(value) >= 1e6) /* beyond the last suffix */
        snprintf(buf, UNITS_SIZE, "%.2e%s", value, suffix[i]);
    else if (i == 0 && value == floor(value))
        snprintf(buf, UNITS_SIZE, "%.0f", value);
    else
        snprintf(buf, UNITS_SIZE, "%.*f%s", fabs(value) < 9.995 ? 2 : fabs(value) < 99.95 ? 1 : 0, value, suffix[i]);
    return buf;
}

const char *units_duration(char buf[UNITS_SIZE], double seconds)
{
    long s;

    if (!(seconds >= 0.0 && seconds < 1e12)) {
        snprintf(buf, UNITS_SIZE, "-");
        return buf;
    }
    s = lround(seconds);
    if (s < 3600)
        snprintf(buf, UNITS_SIZE, "%ld:%02ld", s / 60, s % 60);
    else if (s < 86400)
        snprintf(buf, UNITS_SIZE, "%ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
    else
        snprintf(buf, UNITS_SIZE, "%ldd%02ld:%02ld", s / 86400, s / 3600 % 24, s / 60 % 60);
    return buf;
}

const char *units_grouped(char buf[UNITS_SIZE], long value)
{
    char digits[UNITS_SIZE];
    size_t count = (size_t)snprintf(digits, sizeof digits, "%ld", value), used = 0;

    for (size_t i = 0; i < count; i++) {
        size_t left = count - i;

        if (i > 0 && left % 3 == 0 && digits[i - 1] != '-')
            buf[used++] = ',';
        buf[used++] = digits[i];
    }
    buf[used] = '\0';
    return buf;
}
