/*
 * mirror.h - a device whose memory the host cannot touch, for tests that look into what a device works on as if it were
 * a CPU's.
 *
 * What device_alloc of a mirror gives is host memory. It has its like on the device behind, in memory of that device's
 * own making: before each operation all of it is copied there, the operation runs on the addresses there and is waited
 * for, and all of it is copied back. So what an operation writes beyond its outputs shows too, as far as it is written
 * into memory that was given out.
 */
#ifndef MUSTER_TESTS_KERNELS_MIRROR_H
#define MUSTER_TESTS_KERNELS_MIRROR_H

#include "kernels/kernels.h"

/* Takes `behind` over, also where it fails. */
struct device *mirror_create(struct device *behind, struct error *err);

#endif
