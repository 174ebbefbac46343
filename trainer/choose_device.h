/* choose_device.h - creates the device that a job requests. */
#ifndef MUSTER_TRAINER_CHOOSE_DEVICE_H
#define MUSTER_TRAINER_CHOOSE_DEVICE_H

#include "common/job.h"
#include "kernels/kernels.h"

/*
 * "auto" is a GPU if device_create finds one, else the CPU. A GPU that is present but unusable (any failure but
 * CODE_CONFIG) is an error even then: a run on the CPU would be a hundred times slower than the user expects.
 */
struct device *choose_device(enum device_choice choice, struct error *err);

/* *is_host: device_is_host of that device, which is created to find out. */
int choose_is_host(enum device_choice choice, bool *is_host, struct error *err);

#endif
