#include "tests/kernels/harness.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/philox.h"

#define FENCE       16 /* NaNs on each side of a buffer */
#define MAX_BUFFERS 64
#define SEED        20240607

static struct {
    void *base;   /* of device_alloc */
    float *fence; /* the second of the two; NULL for a reference */
} buffers[MAX_BUFFERS];
static int buffer_count;

struct device *make_device(const char *isa, int threads)
{
    struct error err = {0};
    struct device *dev;

    setenv("MUSTER_ISA", isa, 1);
    dev = device_create("cpu", threads, &err);
    if (!dev && err.code == CODE_CONFIG && strcmp(isa, "baseline") != 0)
        printf("# left out: %s\n", err.text);
    else if (!dev)
        fail_msg("device_create: %s", err.text);
    return dev;
}

static bool all_nan(const float *x, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!isnan(x[i]))
            return false;
    return true;
}

static void free_buffers(struct device *dev)
{
    for (int i = 0; i < buffer_count; i++)
        if (buffers[i].fence)
            device_free(dev, MEMORY_DEVICE, buffers[i].base);
        else
            free(buffers[i].base);
    buffer_count = 0;
}

void finish_device(struct device *dev)
{
    struct error err = {0};

    device_wait(dev);
    if (device_status(dev, &err) < 0)
        fail_msg("device failed: %s", err.text);
    for (int i = 0; i < buffer_count; i++)
        if (buffers[i].fence && (!all_nan(buffers[i].base, FENCE) || !all_nan(buffers[i].fence, FENCE)))
            fail_msg("buffer %d was written beyond its ends", i);
    free_buffers(dev);
    assert_int_equal(device_bytes_used(dev, MEMORY_DEVICE), device_workspace_bytes(dev));
    device_destroy(dev);
}

void each_device(void (*check)(struct device *dev))
{
    static const char *const isas[] = {"baseline", "avx2", "avx512"};

    for (int i = 0; i < 3; i++)
        for (int threads = 1; threads <= 2; threads++) {
            struct device *dev = make_device(isas[i], threads);

            if (!dev)
                continue;
            assert_int_equal(device_threads(dev), threads);
            assert_non_null(strstr(device_describe(dev), isas[i]));
            check(dev);
            finish_device(dev);
        }
}

float *poisoned_floats(struct device *dev, size_t count)
{
    struct error err = {0};
    float *base = device_alloc(dev, MEMORY_DEVICE, (count + 2 * FENCE) * sizeof(float), &err);

    if (!base)
        fail_msg("device_alloc: %s", err.text);
    assert_int_equal((uintptr_t)base % 64, 0);
    assert_true(buffer_count < MAX_BUFFERS);
    for (size_t i = 0; i < count + 2 * FENCE; i++)
        base[i] = NAN;
    buffers[buffer_count].base = base;
    buffers[buffer_count++].fence = base + FENCE + count;
    return base + FENCE;
}

float *random_floats(struct device *dev, size_t count, const char *name)
{
    float *x = poisoned_floats(dev, count);

    philox_normal(x, count, (struct philox_stream){SEED, philox_site(name), 0}, 0, 0.0, 1.0);
    return x;
}

int32_t *int_buffer(struct device *dev, size_t count)
{
    return (int32_t *)poisoned_floats(dev, count);
}

double *reference(struct device *dev, size_t count)
{
    double *x = calloc(count ? count : 1, sizeof *x);

    (void)dev;
    assert_non_null(x);
    assert_true(buffer_count < MAX_BUFFERS);
    buffers[buffer_count].base = x;
    buffers[buffer_count++].fence = NULL;
    return x;
}

void expect_close(const char *name, const float *got, const double *want, size_t count, double tolerance)
{
    double square = 0, size;

    assert_true(count > 0);
    for (size_t i = 0; i < count; i++)
        square += want[i] * want[i];
    size = sqrt(square / (double)count);
    for (size_t i = 0; i < count; i++)
        if (!(fabs(got[i] - want[i]) <= tolerance * (fabs(want[i]) + size)))
            fail_msg("%s[%zu of %zu] is %.9g, should be %.9g (rms %.3g)", name, i, count, got[i], want[i], size);
}

void expect_same(const char *name, const void *got, const void *want, size_t bytes)
{
    const unsigned char *x = got, *y = want;

    assert_true(bytes > 0);
    for (size_t i = 0; i < bytes; i++)
        if (x[i] != y[i])
            fail_msg("%s: byte %zu of %zu differs", name, i, bytes);
}

void expect_untouched(const char *name, const float *got, size_t count)
{
    if (!all_nan(got, count))
        fail_msg("%s was written", name);
}

double slope(double (*f)(const void *arg), const void *arg, double *x)
{
    const double step = 1e-4;
    double at = *x, above, below;

    *x = at + step;
    above = f(arg);
    *x = at - step;
    below = f(arg);
    *x = at;
    return (above - below) / (2 * step);
}

double gelu64(double x)
{
    return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}
