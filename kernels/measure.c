#include "kernels/device.h"

#include "common/clock.h"

#define SIDE            2048 /* of the timed square product */
#define SIDE_GPU        4096 /* the same on a GPU, which needs a larger product to be busy */
#define LEAST_SECONDS   0.01 /* between two waits for the device: long enough to hide the wait */
#define MEASURE_SECONDS 0.3
#define MEASURE_REPEATS 2 /* at least, after one warm-up */

static double time_products(struct device *dev, const struct matmul *product, int count)
{
    double start = clock_monotonic();

    for (int i = 0; i < count; i++)
        dev->kernels.matmul(dev, product);
    device_wait(dev);
    return clock_monotonic() - start;
}

/* The best time of several: other processes on the machine only make a run slower. */
static double best_time(struct device *dev, const struct matmul *product)
{
    double end, best;
    int count = 1;

    time_products(dev, product, count);
    best = time_products(dev, product, count);
    while (best < LEAST_SECONDS && !dev->failed) {
        count *= 2;
        best = time_products(dev, product, count);
    }
    end = clock_monotonic() + MEASURE_SECONDS;
    for (int repeat = 1; repeat < MEASURE_REPEATS || clock_monotonic() + best < end; repeat++) {
        double seconds = time_products(dev, product, count);

        if (seconds < best)
            best = seconds;
    }
    return best / count;
}

/* Normal deviates, because a product of zeros takes less power and then runs at a higher clock. */
static int fill_operands(struct device *dev, enum dtype dtype, int side, void *a, void *b, float *wide,
                         struct error *err)
{
    size_t count = (size_t)side * (size_t)side, bytes = count * sizeof(float);
    float *x = device_alloc(dev, MEMORY_HOST, bytes, err);

    if (!x)
        return -1;
    philox_normal(x, count, (struct philox_stream){.site = philox_site("device_measure_peak")}, 0, 0.0, 1.0);
    dev->kernels.copy(dev, wide, x, bytes);
    dev->kernels.cast(dev, dtype, a, DTYPE_F32, wide, count);
    dev->kernels.copy(dev, b, a, count * dtype_size(dtype));
    device_wait(dev);
    device_free(dev, MEMORY_HOST, x);
    return 0;
}

double device_measure_peak(struct device *dev, enum dtype dtype)
{
    int side = dev->product_rows >= PRODUCT_ROWS_GPU ? SIDE_GPU : SIDE;
    size_t count = (size_t)side * (size_t)side, bytes = count * dtype_size(dtype);
    size_t peak[2] = {dev->bytes_peak[MEMORY_DEVICE], dev->bytes_peak[MEMORY_HOST]};
    struct error err = {0};
    double rate = 0;
    void *a = NULL, *b = NULL, *c = NULL;

    a = device_alloc(dev, MEMORY_DEVICE, bytes, &err);
    b = a ? device_alloc(dev, MEMORY_DEVICE, bytes, &err) : NULL;
    c = b ? device_alloc(dev, MEMORY_DEVICE, count * sizeof(float), &err) : NULL;
    if (c && fill_operands(dev, dtype, side, a, b, c, &err) == 0) {
        struct matmul product = {.m = side, .n = side, .k = side, .dtype = dtype, .a = a, .b = b, .c = c};

        rate = 2.0 * side * side * side / best_time(dev, &product);
    } else {
        device_fail(dev, err.code, "measuring the device's rate: %s", err.text);
    }
    device_free(dev, MEMORY_DEVICE, a);
    device_free(dev, MEMORY_DEVICE, b);
    device_free(dev, MEMORY_DEVICE, c);
    dev->backend->trim(dev);
    if (dev->reserved && device_reserve_workspace(dev, dev->reserved, &err) < 0)
        device_fail(dev, err.code, "after measuring the device's rate: %s", err.text);
    for (int space = 0; space < 2; space++) /* the peak of the caller's own work */
        dev->bytes_peak[space] = peak[space];
    return rate;
}
