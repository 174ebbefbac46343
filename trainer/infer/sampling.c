#include "trainer/infer/inference.h"

#include <math.h>

static bool is_before(const float *p, int32_t a, int32_t b)
{
    return p[a] > p[b] || (p[a] == p[b] && a < b);
}

/* The ids with a finite logit that are allowed. */
static int list_candidates(const float *logits, const bool *allowed, int count, int32_t *order)
{
    int n = 0;

    for (int32_t id = 0; id < count; id++)
        if (allowed[id] && isfinite(logits[id]))
            order[n++] = id;
    return n;
}

static int32_t find_likeliest(const float *logits, const int32_t *order, int n)
{
    int32_t best = n > 0 ? order[0] : -1;

    for (int i = 1; i < n; i++)
        if (logits[order[i]] > logits[best])
            best = order[i];
    return best;
}

/* ---- a heap of ids, the likeliest first ---- */

static void sift_down(const float *p, int32_t *heap, int n, int at)
{
    int32_t id = heap[at];

    for (int child = 2 * at + 1; child < n; child = 2 * at + 1) {
        if (child + 1 < n && is_before(p, heap[child + 1], heap[child]))
            child++;
        if (!is_before(p, heap[child], id))
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = id;
}

/*
 * Takes the likeliest out of the heap, to the place behind the n - 1 that stay: so those taken end up behind the heap,
 * the likeliest last.
 */
static int32_t pop_heap(const float *p, int32_t *heap, int n)
{
    int32_t top = heap[0];

    heap[0] = heap[n - 1];
    heap[n - 1] = top;
    if (n > 1)
        sift_down(p, heap, n - 1, 0);
    return top;
}

/* The last `kept` of order[n], from the last one on, are the likeliest: returns how many of them top_p keeps. */
static int nucleus_size(const float *p, const int32_t *order, int n, int kept, double top_p)
{
    double total = 0, sum = 0;
    int i = 0;

    for (int j = 0; j < kept; j++)
        total += p[order[n - 1 - j]];
    while (i < kept && sum < top_p * total)
        sum += p[order[n - 1 - i++]];
    return i > 0 ? i : 1;
}

/* Moves the likeliest to the end of order[n], as many as top_k and top_p keep; returns how many. */
static int keep_likeliest(const struct sampling *s, const float *p, int32_t *order, int n)
{
    int most = s->top_k > 0 && s->top_k < n ? s->top_k : n, kept = 0;
    double total = 0, sum = 0;

    for (int i = 0; i < n; i++)
        total += p[order[i]];
    for (int at = n / 2 - 1; at >= 0; at--)
        sift_down(p, order, n, at);
    /* With top_k the total is that of the k; without, one need not take out more than top_p keeps. */
    while (kept < most && (most < n || sum < s->top_p * total || kept == 0)) {
        sum += p[pop_heap(p, order, n - kept)];
        kept++;
    }
    return most < n && s->top_p < 1 ? nucleus_size(p, order, n, kept, s->top_p) : kept;
}

static int32_t draw_token(const float *p, const int32_t *order, int n, double uniform)
{
    double total = 0, at = 0;

    for (int i = 0; i < n; i++)
        total += p[order[i]];
    for (int i = 0; i < n; i++) {
        at += p[order[i]];
        if (uniform * total < at)
            return order[i];
    }
    return order[n - 1];
}

int32_t sample_next(const struct sampling *s, float *logits, const bool *allowed, int count, double uniform,
                    int32_t *order)
{
    int n = list_candidates(logits, allowed, count, order), kept = n;
    int32_t best = find_likeliest(logits, order, n);
    float highest = n > 0 ? logits[best] : 0;

    if (s->temperature <= 0 || n <= 1)
        return best;
    for (int i = 0; i < n; i++)
        logits[order[i]] = (float)exp(((double)logits[order[i]] - highest) / s->temperature);
    if (s->top_k > 0 || s->top_p < 1)
        kept = keep_likeliest(s, logits, order, n);
    return draw_token(logits, order + (n - kept), kept, uniform);
}
