#include "trainer/watch/straggler.h"

#include <stdio.h>
#include <stdlib.h>

#define LEAST_SECONDS 1e-3 /* a smaller median is noise */

static int compare_seconds(const void *left, const void *right)
{
    float a = *(const float *)left, b = *(const float *)right;

    return (a > b) - (a < b);
}

static int slowest_first(const void *left, const void *right)
{
    const struct straggler *a = left, *b = right;
    double x = a->seconds / a->median, y = b->seconds / b->median;

    return x != y ? (x < y) - (x > y) : (a->rank > b->rank) - (a->rank < b->rank);
}

/* The median of one rank's group; `sorted` has room for all ranks. */
static double find_median(float *sorted, const struct rank_time *times, int ranks, int rank)
{
    size_t n = 0;

    for (int other = 0; other < ranks; other++)
        if (times[other].group == times[rank].group)
            sorted[n++] = times[other].seconds;
    qsort(sorted, n, sizeof *sorted, compare_seconds);
    return sorted[(n - 1) / 2];
}

int stragglers_find(struct straggler *found, const struct rank_time *times, int ranks, double factor)
{
    float *sorted = malloc((size_t)ranks * sizeof *sorted);
    double middle = 0;
    int n = 0;

    if (!sorted)
        return -1;
    for (int rank = 0; rank < ranks && factor > 0; rank++) {
        if (rank == 0 || times[rank].group != times[rank - 1].group)
            middle = find_median(sorted, times, ranks, rank);
        if (middle >= LEAST_SECONDS && times[rank].seconds > factor * middle)
            found[n++] = (struct straggler){.rank = rank, .seconds = times[rank].seconds, .median = middle};
    }
    free(sorted);
    if (n > 1)
        qsort(found, (size_t)n, sizeof *found, slowest_first);
    return n;
}

void straggler_text(char *text, size_t size, const struct straggler *s, const char *host)
{
    snprintf(text, size, "rank %d on %s is %.1f x slower than the median (%.0f ms against %.0f ms a step)", s->rank,
             host, s->seconds / s->median, 1e3 * s->seconds, 1e3 * s->median);
}
