/*
 * emulated_device.h - the device "cuda-emulated": the operations of kernels/cuda run by the emulator, in host memory.
 *
 *     struct device *dev = device_open(&backend_cuda_emulated, 0, 1, &err);
 *
 * What device_alloc gives is NaN throughout, and so is the workspace whenever an operation asks for it. Operations that
 * are no kernels of ours (products, which are cuBLASLt's) fail the device by name.
 */
#ifndef MUSTER_TESTS_CUDA_EMULATED_DEVICE_H
#define MUSTER_TESTS_CUDA_EMULATED_DEVICE_H

#include "kernels/device.h"

extern const struct backend backend_cuda_emulated;

#endif
