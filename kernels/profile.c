#include "kernels/profile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct profile {
    struct kernels inner;
    struct device_time rows[PROFILE_ROWS];
    size_t nrows;
    size_t row_of[PROFILE_PAIRS]; /* of marks not yet read */
    int pending;
    double clock[2 * PROFILE_PAIRS]; /* where the backend has no marks */
};

static double seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

int profile_open(struct device *dev, struct error *err)
{
    const char *text = getenv("MUSTER_PROFILE");
    struct profile *p;

    if (!text || strcmp(text, "1") != 0)
        return 0;
    if (dev->backend->discrete && !dev->backend->mark)
        return error_set(err, CODE_CONFIG,
                         "MUSTER_PROFILE=1: device \"%s\" cannot be measured; \"cpu\" and \"cuda\" can",
                         dev->backend->kind);
    p = calloc(1, sizeof *p);
    if (!p)
        return error_errno(err, CODE_IO, "MUSTER_PROFILE=1");
    p->inner = dev->kernels;
    dev->profile = p;
    dev->kernels = profile_operations();
    return 0;
}

void profile_close(struct device *dev)
{
    free(dev->profile);
    dev->profile = NULL;
}

const struct kernels *profile_inner(const struct device *dev)
{
    return &dev->profile->inner;
}

static void mark(struct device *dev, int which)
{
    if (dev->backend->mark)
        dev->backend->mark(dev, which);
    else
        dev->profile->clock[which] = seconds();
}

static double between(struct device *dev, int first)
{
    if (dev->backend->between)
        return dev->backend->between(dev, first, first + 1);
    return dev->profile->clock[first + 1] - dev->profile->clock[first];
}

static size_t row_named(struct profile *p, const char *name)
{
    for (size_t i = 0; i < p->nrows; i++)
        if (strcmp(p->rows[i].name, name) == 0)
            return i;
    if (p->nrows < PROFILE_ROWS) {
        snprintf(p->rows[p->nrows].name, DEVICE_TIME_NAME, "%s", p->nrows + 1 < PROFILE_ROWS ? name : "others");
        p->nrows++;
    }
    return p->nrows - 1;
}

static void read_marks(struct device *dev)
{
    struct profile *p = dev->profile;

    for (int i = 0; i < p->pending; i++)
        p->rows[p->row_of[i]].seconds += between(dev, 2 * i);
    p->pending = 0;
}

void profile_begin(struct device *dev, const char *name, double flops, double bytes)
{
    struct profile *p = dev->profile;
    size_t row = row_named(p, name);

    if (p->pending == PROFILE_PAIRS)
        read_marks(dev);
    p->rows[row].calls++;
    p->rows[row].flops += flops;
    p->rows[row].bytes += bytes;
    p->row_of[p->pending] = row;
    mark(dev, 2 * p->pending);
}

void profile_end(struct device *dev)
{
    mark(dev, 2 * dev->profile->pending + 1);
    dev->profile->pending++;
}

static int longer_first(const void *a, const void *b)
{
    double x = ((const struct device_time *)a)->seconds, y = ((const struct device_time *)b)->seconds;

    return (x < y) - (x > y);
}

size_t device_profile(struct device *dev, struct device_time *rows, size_t most)
{
    struct profile *p = dev->profile;
    size_t count;

    if (!p)
        return 0;
    read_marks(dev);
    qsort(p->rows, p->nrows, sizeof *p->rows, longer_first);
    count = p->nrows < most ? p->nrows : most;
    memcpy(rows, p->rows, count * sizeof *rows);
    return count;
}

void device_profile_reset(struct device *dev)
{
    if (!dev->profile)
        return;
    read_marks(dev);
    dev->profile->nrows = 0;
    memset(dev->profile->rows, 0, sizeof dev->profile->rows);
}
