#include "trainer/data/blend.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

__extension__ typedef unsigned __int128 u128;

/* Numbers of samples are in units of 1 / total: a set has share / total of the samples. */
struct apportion {
    int count;
    uint64_t total;  /* sum of the shares, about 2^60 */
    uint64_t block;  /* H */
    uint64_t n, end; /* this position, and the end of its block; n < end */
    uint64_t *share;
    uint64_t *taken; /* c(n) */
    uint64_t *limit; /* c(end) */
    int64_t *behind; /* n share - taken total: more than -total and less than total */

    /* scratch of round_counts */
    uint64_t *rest; /* the fraction f, in units */
    int *order;
};

struct apportion *apportion_create(const double *parts, int count, struct error *err)
{
    struct apportion *a = error_calloc(1, sizeof *a, err);
    uint64_t *numbers = a ? error_calloc((size_t)count, 6 * sizeof *numbers, err) : NULL, least = UINT64_MAX;

    if (!numbers) {
        free(a);
        return NULL;
    }
    *a = (struct apportion){
        .count = count,
        .share = numbers,
        .taken = numbers + count,
        .limit = numbers + 2 * count,
        .behind = (int64_t *)(numbers + 3 * count),
        .rest = numbers + 4 * count,
        .order = (int *)(numbers + 5 * count),
    };
    for (int i = 0; i < count; i++) {
        a->share[i] = (uint64_t)llround(parts[i] * 0x1p60);
        a->total += a->share[i];
        least = a->share[i] < least ? a->share[i] : least;
    }
    a->block = (a->total + least - 1) / least;
    apportion_seek(a, 0);
    return a;
}

void apportion_destroy(struct apportion *a)
{
    if (a)
        free(a->share);
    free(a);
}

/* ---- the beginning of a block ------------------------------------------------------------------------------------ */

/* True if i's window around n ends before that of k. */
static bool ends_before(const struct apportion *a, int i, int k)
{
    u128 left = (u128)(a->total - a->rest[i]) * a->share[k], right = (u128)(a->total - a->rest[k]) * a->share[i];

    return left < right || (left == right && i < k);
}

static bool begins_before(const struct apportion *a, int i, int k)
{
    u128 left = (u128)a->rest[i] * a->share[k], right = (u128)a->rest[k] * a->share[i];

    return left > right || (left == right && i < k);
}

/* The sets that are within a window at n, by the ends of these windows, in a->order. Returns their number. */
static int sort_windows(struct apportion *a)
{
    int open = 0;

    for (int i = 0; i < a->count; i++) {
        int at = open;

        if (a->rest[i] == 0)
            continue;
        for (; at > 0 && ends_before(a, i, a->order[at - 1]); at--)
            a->order[at] = a->order[at - 1];
        a->order[at] = i;
        open++;
    }
    return open;
}

/* c(n) at the beginning n of a block. */
static void round_counts(struct apportion *a, uint64_t n, uint64_t *counts)
{
    u128 sum = 0;
    int open;

    for (int i = 0; i < a->count; i++) {
        u128 product = (u128)n * a->share[i];

        counts[i] = (uint64_t)(product / a->total);
        a->rest[i] = (uint64_t)(product % a->total);
    }
    open = sort_windows(a);
    for (int i = 0; i < open; i++) {
        int first = -1; /* position in the order */

        sum += a->rest[a->order[i]];
        if (sum < a->total)
            continue;
        sum -= a->total;
        for (int k = 0; k <= i; k++)
            if (a->order[k] >= 0 && (first < 0 || begins_before(a, a->order[k], a->order[first])))
                first = k;
        counts[a->order[first]]++;
        a->order[first] = -1; /* taken */
    }
}

/* ---- within a block ---------------------------------------------------------------------------------------------- */

static void enter_block(struct apportion *a, uint64_t begin)
{
    round_counts(a, begin, a->taken);
    a->n = begin;
    a->end = begin + a->block;
    for (int i = 0; i < a->count; i++) /* the difference of two large numbers is small */
        a->behind[i] = (int64_t)((u128)begin * a->share[i] - (u128)a->taken[i] * a->total);
    round_counts(a, a->end, a->limit);
}

int apportion_next(struct apportion *a)
{
    int best = -1;

    for (int i = 0; i < a->count; i++) {
        if (a->taken[i] == a->limit[i] || a->behind[i] + (int64_t)a->share[i] <= 0)
            continue;
        if (best < 0 || (u128)((int64_t)a->total - a->behind[i]) * a->share[best] <
                            (u128)((int64_t)a->total - a->behind[best]) * a->share[i])
            best = i;
    }
    for (int i = 0; i < a->count; i++)
        a->behind[i] += (int64_t)a->share[i];
    a->behind[best] -= (int64_t)a->total;
    a->taken[best]++;
    a->n++;
    if (a->n == a->end)
        enter_block(a, a->end);
    return best;
}

void apportion_seek(struct apportion *a, uint64_t n)
{
    if (n < a->n || n >= a->end)
        enter_block(a, n / a->block * a->block);
    while (a->n < n)
        apportion_next(a);
}

const uint64_t *apportion_counts(const struct apportion *a)
{
    return a->taken;
}
