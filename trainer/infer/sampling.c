#include "trainer/infer/inference.h"

#include <math.h>
#include <stdlib.h>

/* The likeliest first; of equal ones the lower id. */
static int compare_ids(const void *left, const void *right, void *logits)
{
    int32_t a = *(const int32_t *)left, b = *(const int32_t *)right;
    const float *p = logits;

    return p[a] != p[b] ? (p[a] < p[b]) - (p[a] > p[b]) : (a > b) - (a < b);
}

int32_t sample_next(const struct sampling *s, float *logits, const bool *allowed, int count, double uniform,
                    int32_t *order)
{
    double highest, total = 0, sum = 0, at = 0;
    int n = 0, kept = 0;

    for (int32_t id = 0; id < count; id++)
        if (allowed[id] && isfinite(logits[id]))
            order[n++] = id;
    if (n == 0)
        return -1;
    qsort_r(order, (size_t)n, sizeof *order, compare_ids, logits);
    if (s->temperature <= 0)
        return order[0];
    if (s->top_k > 0 && s->top_k < n)
        n = s->top_k;
    highest = logits[order[0]];
    for (int i = 0; i < n; i++)
        total += logits[order[i]] = (float)exp((logits[order[i]] - highest) / s->temperature);
    while (kept < n && (kept == 0 || sum < s->top_p * total))
        sum += logits[order[kept++]];
    for (int i = 0; i < kept; i++) {
        at += logits[order[i]];
        if (uniform * sum < at)
            return order[i];
    }
    return order[kept - 1];
}
