#ifndef MUSTER_TRAINER_CHOOSE_DEVICE_H
#define MUSTER_TRAINER_CHOOSE_DEVICE_H

#include "common/job.h"
#include "kernels/kernels.h"

/*
 * Creates the device that a job requests. "auto" is a GPU if device_create finds one, else the CPU. A GPU that is
 * present but unusable (any failure but CODE_CONFIG) is an error even then: a run on the CPU would be a hundred times
 * slower than the user expects.
 */
struct device *choose_device(enum device_choice choice, struct error *err);

#endif
