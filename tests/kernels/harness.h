/*
 * harness.h - what the kernel tests share: every device that this machine can make, buffers with fenced ends, numbers
 * from fixed seeds, and the comparison with a float64 reference.
 */
#ifndef MUSTER_TESTS_KERNELS_HARNESS_H
#define MUSTER_TESTS_KERNELS_HARNESS_H

#include "kernels/device.h"
#include "tests/cmocka_test.h"

/* The environment's MUSTER_TEST_DEVICE, which all tests then run on instead of CPU devices; NULL if there is none.
 * Where the host cannot touch its memory ("cuda", "cpu-discrete"), the tests are given a mirror of it (mirror.h). */
const char *other_device(void);

/*
 * Calls check once for each device below. The device must have no failure afterwards, and no buffer may have been
 * written beyond its ends; then the buffers are freed.
 */
void each_device(void (*check)(struct device *dev));

/* The same, and for each device three times: in fp32, bf16 and fp16. */
void each_device_and_type(void (*check)(struct device *dev, enum dtype dtype));

/* device_create, and also "cpu-discrete" and "cuda-emulated", which only tests have. */
struct device *create_device(const char *kind, int threads, struct error *err);

/* One of these devices; NULL for an instruction set that the processor lacks (a line in the log says so). One at a
 * time: what a failed test left of the last one is freed. */
struct device *make_device(const char *isa, int threads);

/* The n-th device of each_device: baseline with 1 thread, avx2 with 2, avx512 with 1, avx512 with 2. MUSTER_TEST_DEVICE
 * takes the place of the first, and the others are NULL. Else NULL as make_device has it. */
enum { DEVICES = 4 };
struct device *make_nth_device(int n);

/* Checks what each_device promises, and frees the buffers; and the device. */
void finish_buffers(struct device *dev);
void finish_device(struct device *dev);

/* Of a device that has failed, as it should: frees the buffers and the device, and looks at nothing. */
void abandon_device(struct device *dev);

/*
 * In the device's memory. Normal deviates; NaN (outputs start so, to show that they are written); or NaN beside zeros.
 */
float *random_floats(struct device *dev, size_t count, const char *name);
float *poisoned_floats(struct device *dev, size_t count);
int32_t *int_buffer(struct device *dev, size_t count);

/* `count` zeros, freed with the buffers. */
double *reference(struct device *dev, size_t count);

/* Elements of any type in the device's memory. */
struct tensor {
    enum dtype dtype;
    size_t count;
    void *at;
};

/* Normal deviates, each rounded to the type; or NaN. */
struct tensor random_tensor(struct device *dev, enum dtype dtype, size_t count, const char *name);
struct tensor poisoned_tensor(struct device *dev, enum dtype dtype, size_t count);

/* The number nearest to x that the type has, ties to even; made by arithmetic and not by moving bits. */
double rounded(enum dtype dtype, double x);

double tensor_get(struct tensor t, size_t i);
void tensor_set(struct tensor t, size_t i, double x); /* rounded */
double *tensor_values(struct device *dev, struct tensor t);
struct tensor tensor_from(struct tensor t, size_t first); /* without its first elements */

/* Whether element i is kept, from the words of common/philox.h one at a time; and by what it is then multiplied. */
bool dropout_keeps(const struct dropout *dropout, uint64_t i);
double dropout_factor(const struct dropout *dropout);

/* Of random numbers: the environment's MUSTER_TEST_SEED, for inputs that no run has had before, or always the same. */
uint64_t test_seed(void);
#define SEED test_seed()

double root_mean_square(const double *x, size_t count);

/* |got - want| <= tolerance * (|want| + root mean square of want) for each; NaN is never close. */
void expect_close(const char *name, const float *got, const double *want, size_t count, double tolerance);

/* The same, but for one rounding of want to the type besides. */
void expect_rounded(const char *name, struct tensor got, const double *want, size_t count, double tolerance);

/* All bits the same. */
void expect_same(const char *name, const void *got, const void *want, size_t bytes);

/* All NaN, as poisoned_floats left them. */
void expect_untouched(const char *name, const float *got, size_t count);
void expect_tensor_untouched(const char *name, struct tensor got, size_t count);

/* The derivative of f at *x, by central differences; *x is as before afterwards. */
double slope(double (*f)(const void *arg), const void *arg, double *x);

double gelu64(double x);

#endif
