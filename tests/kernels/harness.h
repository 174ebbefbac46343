/*
 * harness.h - what the kernel tests share: every device that this machine can make, buffers with fenced ends, numbers
 * from fixed seeds, and the comparison with a float64 reference.
 */
#ifndef MUSTER_TESTS_KERNELS_HARNESS_H
#define MUSTER_TESTS_KERNELS_HARNESS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernels/kernels.h"

/*
 * Calls check once for each instruction set of this processor, with 1 and with 2 threads. The device must have no
 * failure afterwards, and no buffer may have been written beyond its ends; then the buffers are freed.
 */
void each_device(void (*check)(struct device *dev));

/* One of these devices; NULL for an instruction set that the processor lacks (a line in the log says so). */
struct device *make_device(const char *isa, int threads);

/* Checks what each_device promises, and frees the buffers and the device. */
void finish_device(struct device *dev);

/* In the device's memory. Normal deviates; NaN (outputs start so, to show that they are written); or NaN beside zeros.
 */
float *random_floats(struct device *dev, size_t count, const char *name);
float *poisoned_floats(struct device *dev, size_t count);
int32_t *int_buffer(struct device *dev, size_t count);

/* `count` zeros, freed with the buffers. */
double *reference(struct device *dev, size_t count);

/* |got - want| <= tolerance * (|want| + root mean square of want) for each; NaN is never close. */
void expect_close(const char *name, const float *got, const double *want, size_t count, double tolerance);

/* All bits the same. */
void expect_same(const char *name, const void *got, const void *want, size_t bytes);

/* All NaN, as poisoned_floats left them. */
void expect_untouched(const char *name, const float *got, size_t count);

/* The derivative of f at *x, by central differences; *x is as before afterwards. */
double slope(double (*f)(const void *arg), const void *arg, double *x);

double gelu64(double x);

#endif
