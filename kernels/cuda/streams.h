/*
 * streams.h - for those who work on a GPU beside a device's operations, on a stream of their own: NCCL
 * (trainer/comm/comm_nccl.c). Needs no header of CUDA.
 */
#ifndef MUSTER_KERNELS_CUDA_STREAMS_H
#define MUSTER_KERNELS_CUDA_STREAMS_H

#include "kernels/kernels.h"

struct CUstream_st; /* a cudaStream_t is a pointer to it */

enum { GPU_NAME = 16 }; /* bytes that name a GPU, or a part of one (MIG), among all in the world */

/* The stream of this device's operations, as long as it lives; NULL where the device is no GPU. */
struct CUstream_st *device_stream(const struct device *dev);

int device_gpu_name(const struct device *dev, unsigned char name[static GPU_NAME], struct error *err);

#endif
