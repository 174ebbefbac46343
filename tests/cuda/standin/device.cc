/* device.cc - which GPUs there seem to be, and what errors are called. */
#include <cuda_runtime_api.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/cuda/standin/standin.h"

static int current;
static thread_local int last;

size_t standin_number(const char *variable, size_t otherwise)
{
    const char *text = getenv(variable);

    return text && *text ? strtoul(text, NULL, 10) : otherwise;
}

static int gpus(void)
{
    return static_cast<int>(standin_number("MUSTER_STANDIN_GPUS", 1));
}

int standin_kept(int error)
{
    if (error != cudaSuccess && error != cudaErrorNotReady)
        last = error;
    return error;
}

int standin_last_error(void)
{
    int error = standin_error() != cudaSuccess ? standin_error() : last;

    last = cudaSuccess;
    return error;
}

extern "C" {

cudaError_t cudaGetDeviceCount(int *count)
{
    *count = gpus();
    return KEPT(*count > 0 ? cudaSuccess : cudaErrorNoDevice);
}

cudaError_t cudaSetDevice(int ordinal)
{
    if (ordinal < 0 || ordinal >= gpus())
        return KEPT(cudaErrorInvalidDevice);
    current = ordinal;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *ordinal)
{
    *ordinal = current;
    return cudaSuccess;
}

/* Few multiprocessors, so that a block has several pieces of work. */
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *gpu, int ordinal)
{
    if (ordinal < 0 || ordinal >= gpus())
        return KEPT(cudaErrorInvalidDevice);
    memset(gpu, 0, sizeof *gpu);
    snprintf(gpu->name, sizeof gpu->name, "stand-in for a GPU");
    memset(&gpu->uuid, 0x40 + ordinal, sizeof gpu->uuid);
    gpu->major = 9;
    gpu->multiProcessorCount = 4;
    gpu->sharedMemPerBlockOptin = (size_t)227 << 10;
    gpu->totalGlobalMem = standin_number("MUSTER_STANDIN_MIB", 4096) << 20;
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaGetLastError(void)
{
    return static_cast<cudaError_t>(standin_last_error());
}

const char *cudaGetErrorName(cudaError_t error)
{
    switch (error) {
    case cudaSuccess:
        return "cudaSuccess";
    case cudaErrorInvalidValue:
        return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation:
        return "cudaErrorMemoryAllocation";
    case cudaErrorIllegalAddress:
        return "cudaErrorIllegalAddress";
    case cudaErrorLaunchFailure:
        return "cudaErrorLaunchFailure";
    case cudaErrorNotReady:
        return "cudaErrorNotReady";
    case cudaErrorNoDevice:
        return "cudaErrorNoDevice";
    default:
        return "another of CUDA's errors";
    }
}

const char *cudaGetErrorString(cudaError_t error)
{
    return cudaGetErrorName(error);
}
}
