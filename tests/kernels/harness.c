#include "config.h"
#include "tests/kernels/harness.h"

#include <math.h>

#include "common/philox.h"
#include "tests/discrete/discrete.h"
#include "tests/kernels/mirror.h"
#ifdef HAVE_EMULATED_CUDA
#include "tests/cuda/emulated_device.h"
#endif

#define FENCE       64   /* bytes on each side of a buffer */
#define POISON      0xff /* each byte: NaN in every type */
#define MAX_BUFFERS 128

static struct {
    void *base;           /* of device_alloc */
    unsigned char *fence; /* the second of the two; NULL for a reference */
} buffers[MAX_BUFFERS];
static int buffer_count;
static struct device *made; /* by make_device, until it is finished */

const char *other_device(void)
{
    return getenv("MUSTER_TEST_DEVICE");
}

/* Under compute-sanitizer every buffer is to be an allocation of its own; of those the host can look into this kind. */
static bool is_pinned(void)
{
    const char *memory = getenv("MUSTER_CUDA_MEMORY");

    return memory && strcmp(memory, "pinned") == 0;
}

struct device *create_device(const char *kind, int threads, struct error *err)
{
    if (strcmp(kind, "cpu-discrete") == 0)
        return device_open(&backend_discrete, 0, threads, err);
#ifdef HAVE_EMULATED_CUDA
    if (strcmp(kind, "cuda-emulated") == 0)
        return device_open(&backend_cuda_emulated, 0, threads, err);
#endif
    return device_create(kind, threads, err);
}

/* One device only, whatever the instruction set and the number of threads. */
static struct device *make_other_device(const char *isa, int threads)
{
    struct error err = {0};
    struct device *dev = NULL;

    if (strcmp(isa, "baseline") != 0)
        return NULL;
    dev = create_device(other_device(), threads, &err);
    if (dev && !device_is_host(dev) && !is_pinned())
        dev = mirror_create(dev, &err);
    if (!dev)
        fail_msg("MUSTER_TEST_DEVICE: %s", err.text);
    return dev;
}

static struct device *make_cpu(const char *isa, int threads)
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

struct device *make_device(const char *isa, int threads)
{
    if (made)
        abandon_device(made);
    made = other_device() ? make_other_device(isa, threads) : make_cpu(isa, threads);
    return made;
}

uint64_t test_seed(void)
{
    const char *text = getenv("MUSTER_TEST_SEED");

    return text && *text ? strtoull(text, NULL, 10) : 20240607;
}

static bool poisoned(const unsigned char *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (bytes[i] != POISON)
            return false;
    return true;
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

void finish_buffers(struct device *dev)
{
    struct error err = {0};

    device_wait(dev);
    if (device_status(dev, &err) < 0)
        fail_msg("device failed: %s", err.text);
    for (int i = 0; i < buffer_count; i++)
        if (buffers[i].fence && (!poisoned(buffers[i].base, FENCE) || !poisoned(buffers[i].fence, FENCE)))
            fail_msg("buffer %d was written beyond its ends", i);
    free_buffers(dev);
    assert_int_equal(dev->bytes_used[MEMORY_DEVICE], dev->workspace);
}

static void destroy(struct device *dev)
{
    if (dev == made)
        made = NULL;
    device_destroy(dev);
}

void finish_device(struct device *dev)
{
    finish_buffers(dev);
    destroy(dev);
}

void abandon_device(struct device *dev)
{
    free_buffers(dev);
    destroy(dev);
}

struct device *make_nth_device(int n)
{
    static const struct {
        const char *isa;
        int threads;
    } devices[DEVICES] = {{"baseline", 1}, {"avx2", 2}, {"avx512", 1}, {"avx512", 2}};
    struct device *dev = make_device(devices[n].isa, devices[n].threads);

    if (dev && !other_device()) {
        assert_int_equal(dev->threads, devices[n].threads);
        assert_non_null(strstr(device_describe(dev), devices[n].isa));
    }
    return dev;
}

void each_device(void (*check)(struct device *dev))
{
    for (int n = 0; n < DEVICES; n++) {
        struct device *dev = make_nth_device(n);

        if (!dev)
            continue;
        check(dev);
        finish_device(dev);
    }
}

static void (*typed_check)(struct device *dev, enum dtype dtype);

static void check_types(struct device *dev)
{
    for (int dtype = DTYPE_F32; dtype <= DTYPE_F16; dtype++) {
        typed_check(dev, (enum dtype)dtype);
        finish_buffers(dev);
    }
}

void each_device_and_type(void (*check)(struct device *dev, enum dtype dtype))
{
    typed_check = check;
    each_device(check_types);
}

static void *poisoned_bytes(struct device *dev, size_t bytes)
{
    struct error err = {0};
    unsigned char *base = device_alloc(dev, MEMORY_DEVICE, bytes + 2 * FENCE, &err);

    if (!base)
        fail_msg("device_alloc: %s", err.text);
    assert_int_equal((uintptr_t)base % 64, 0);
    assert_true(buffer_count < MAX_BUFFERS);
    memset(base, POISON, bytes + 2 * FENCE);
    buffers[buffer_count].base = base;
    buffers[buffer_count++].fence = base + FENCE + bytes;
    return base + FENCE;
}

float *poisoned_floats(struct device *dev, size_t count)
{
    return poisoned_bytes(dev, count * sizeof(float));
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

struct tensor poisoned_tensor(struct device *dev, enum dtype dtype, size_t count)
{
    return (struct tensor){dtype, count, poisoned_bytes(dev, count * dtype_size(dtype))};
}

double root_mean_square(const double *x, size_t count)
{
    double square = 0;

    for (size_t i = 0; i < count; i++)
        square += x[i] * x[i];
    return sqrt(square / (double)count);
}

void expect_close(const char *name, const float *got, const double *want, size_t count, double tolerance)
{
    double size = root_mean_square(want, count);

    assert_true(count > 0);
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

void expect_tensor_untouched(const char *name, struct tensor got, size_t count)
{
    if (!poisoned(got.at, count * dtype_size(got.dtype)))
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
