/* choose_device.h - the device that a job asks for. */
#ifndef MUSTER_TRAINER_CHOOSE_DEVICE_H
#define MUSTER_TRAINER_CHOOSE_DEVICE_H

#include "common/job.h"
#include "kernels/kernels.h"

/*
 * "auto" is a GPU where device_create finds one, and else the CPU; a GPU that is there but cannot be used (any failure
 * but CODE_CONFIG) is an error even so, because a run that is a hundred times slower than meant is none. The
 * environment's MUSTER_TEST_DEVICE overrides the job, for tests.
 */
struct device *choose_device(enum device_choice choice, struct error *err);

/* Whether that is a device in host memory (device_is_host); one is created to find out, where it takes one. */
int choose_is_host(enum device_choice choice, bool *is_host, struct error *err);

#endif
