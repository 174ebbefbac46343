#include "kernels/cuda/streams.h"

#include <cuda_runtime_api.h>
#include <string.h>

#include "kernels/cuda/cuda.h"

struct CUstream_st *device_stream(const struct device *dev)
{
    return dev->backend == &backend_cuda ? device_cuda(dev)->stream : NULL;
}

int device_gpu_name(const struct device *dev, unsigned char name[static GPU_NAME], struct error *err)
{
    struct cudaDeviceProp gpu;
    cudaError_t status = cudaGetDeviceProperties(&gpu, device_cuda(dev)->ordinal);

    _Static_assert(sizeof gpu.uuid == GPU_NAME, "a GPU's name is its UUID");
    if (status != cudaSuccess)
        return error_set(err, CODE_INTERNAL, "cuda: cudaGetDeviceProperties: %s", cudaGetErrorString(status));
    memcpy(name, &gpu.uuid, GPU_NAME);
    return 0;
}
