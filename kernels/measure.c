#include "kernels/device.h"

#include <time.h>

/* Of the square product that is timed: large enough to hide every overhead. */
#define SIDE     2048
#define SIDE_GPU 4096

#define MEASURE_SECONDS 0.3
#define MEASURE_REPEATS 2 /* at least, after one to warm up */

static double now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static double time_product(struct device *dev, const struct matmul *product)
{
    double start = now();

    dev->kernels.matmul(dev, product);
    device_wait(dev);
    return now() - start;
}

/* The best of several, since whatever else runs on the machine only ever makes a run slower. */
static double best_time(struct device *dev, const struct matmul *product)
{
    double end, best;

    time_product(dev, product);
    best = time_product(dev, product);
    end = now() + MEASURE_SECONDS;
    for (int repeat = 1; repeat < MEASURE_REPEATS || now() + best < end; repeat++) {
        double seconds = time_product(dev, product);

        if (seconds < best)
            best = seconds;
    }
    return best;
}

double device_measure_peak(struct device *dev, enum dtype dtype)
{
    int side = dev->product_rows >= PRODUCT_ROWS_GPU ? SIDE_GPU : SIDE;
    size_t bytes = (size_t)side * (size_t)side * dtype_size(dtype);
    size_t peak = dev->bytes_peak[MEMORY_DEVICE];
    struct error err = {0};
    double rate = 0;
    void *a = NULL, *b = NULL, *c = NULL;

    a = device_alloc(dev, MEMORY_DEVICE, bytes, &err);
    b = a ? device_alloc(dev, MEMORY_DEVICE, bytes, &err) : NULL;
    c = b ? device_alloc(dev, MEMORY_DEVICE, bytes, &err) : NULL;
    if (c) {
        struct matmul product = {.m = side, .n = side, .k = side, .dtype = dtype, .a = a, .b = b, .c = c};

        dev->kernels.zero(dev, a, bytes);
        dev->kernels.zero(dev, b, bytes);
        rate = 2.0 * side * side * side / best_time(dev, &product);
    } else {
        device_fail(dev, err.code, "measuring the device's rate: %s", err.text);
    }
    device_free(dev, MEMORY_DEVICE, a);
    device_free(dev, MEMORY_DEVICE, b);
    device_free(dev, MEMORY_DEVICE, c);
    dev->backend->trim(dev);
    dev->bytes_peak[MEMORY_DEVICE] = peak; /* the measure is not part of what the caller runs */
    return rate;
}
