/* streams.c - the device's two streams: transfers beside the operations, marks for profiles, and the door for NCCL. */
#include <cuda_runtime_api.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/cuda.h"

/* ---- transfers --------------------------------------------------------------------------------------------------- */

/*
 * Each transfer has an event, of which there are a few in a ring. The stream keeps its order, so where a ticket's event
 * has gone to a later transfer, waiting for that one is waiting for both.
 */
enum { EVENTS = 64 };

struct cuda_transfers {
    cudaEvent_t done[EVENTS];
    cudaEvent_t computed; /* what was enqueued before a transfer */
    uint64_t last;        /* ticket given out */
};

int cuda_transfers_open(struct device *dev, struct error *err)
{
    struct cuda_transfers *t = calloc(1, sizeof *t);
    cudaError_t status;

    device_cuda(dev)->transfers = t;
    if (!t)
        return error_errno(err, CODE_IO, "cuda device");
    status = cudaEventCreateWithFlags(&t->computed, cudaEventDisableTiming);
    for (int i = 0; i < EVENTS && status == cudaSuccess; i++)
        status = cudaEventCreateWithFlags(&t->done[i], cudaEventDisableTiming);
    if (status == cudaSuccess)
        return 0;
    return error_set(err, CODE_INTERNAL, "cuda: an event for transfers: %s", cudaGetErrorString(status));
}

void cuda_transfers_close(struct device *dev)
{
    struct cuda_transfers *t = device_cuda(dev)->transfers;

    if (!t)
        return;
    for (int i = 0; i < EVENTS; i++)
        if (t->done[i])
            CUDA_OK(dev, cudaEventDestroy(t->done[i]));
    if (t->computed)
        CUDA_OK(dev, cudaEventDestroy(t->computed));
    free(t);
    device_cuda(dev)->transfers = NULL;
}

uint64_t cuda_transfer(struct device *dev, void *y, const void *x, size_t bytes)
{
    struct cuda *cuda = device_cuda(dev);
    struct cuda_transfers *t = cuda->transfers;

    if (dev->failed)
        return 0;
    if (!CUDA_OK(dev, cudaEventRecord(t->computed, cuda->stream)) ||
        !CUDA_OK(dev, cudaStreamWaitEvent(cuda->copy_stream, t->computed, 0)) ||
        (bytes > 0 && !CUDA_OK(dev, cudaMemcpyAsync(y, x, bytes, cudaMemcpyDefault, cuda->copy_stream))) ||
        !CUDA_OK(dev, cudaEventRecord(t->done[(t->last + 1) % EVENTS], cuda->copy_stream)))
        return 0;
    return ++t->last;
}

void cuda_transfer_join(struct device *dev, uint64_t ticket)
{
    struct cuda *cuda = device_cuda(dev);

    if (!dev->failed)
        CUDA_OK(dev, cudaStreamWaitEvent(cuda->stream, cuda->transfers->done[ticket % EVENTS], 0));
}

void cuda_transfer_wait(struct device *dev, uint64_t ticket)
{
    if (!dev->failed)
        CUDA_OK(dev, cudaEventSynchronize(device_cuda(dev)->transfers->done[ticket % EVENTS]));
}

/* ---- marks: events on the stream of operations, created when the first is needed ---------------------------------- */

struct cuda_marks {
    cudaEvent_t event[DEVICE_MARKS];
};

void cuda_mark(struct device *dev, int which)
{
    struct cuda *cuda = device_cuda(dev);

    if (!cuda->marks)
        cuda->marks = calloc(1, sizeof *cuda->marks);
    if (!cuda->marks) {
        device_fail(dev, CODE_IO, "cuda: out of memory for %d events", DEVICE_MARKS);
        return;
    }
    if (!dev->failed && (cuda->marks->event[which] || CUDA_OK(dev, cudaEventCreate(&cuda->marks->event[which]))))
        CUDA_OK(dev, cudaEventRecord(cuda->marks->event[which], cuda->stream));
}

double cuda_between(struct device *dev, int first, int second)
{
    const struct cuda_marks *marks = device_cuda(dev)->marks;
    float milliseconds = 0;

    if (dev->failed || !CUDA_OK(dev, cudaEventSynchronize(marks->event[second])) ||
        !CUDA_OK(dev, cudaEventElapsedTime(&milliseconds, marks->event[first], marks->event[second])))
        return 0;
    return milliseconds * 1e-3;
}

void cuda_marks_close(struct device *dev)
{
    struct cuda_marks *marks = device_cuda(dev)->marks;

    for (int i = 0; marks && i < DEVICE_MARKS; i++)
        if (marks->event[i])
            CUDA_OK(dev, cudaEventDestroy(marks->event[i]));
    free(marks);
    device_cuda(dev)->marks = NULL;
}

/* ---- for NCCL ---------------------------------------------------------------------------------------------------- */

struct CUstream_st *cuda_stream(const struct device *dev)
{
    return device_cuda(dev)->stream;
}

int cuda_gpu_name(const struct device *dev, unsigned char name[], struct error *err)
{
    struct cudaDeviceProp gpu;
    cudaError_t status = cudaGetDeviceProperties(&gpu, device_cuda(dev)->ordinal);

    _Static_assert(sizeof gpu.uuid == GPU_NAME, "a GPU's name is its UUID");
    if (status != cudaSuccess)
        return error_set(err, CODE_INTERNAL, "cuda: cudaGetDeviceProperties: %s", cudaGetErrorString(status));
    memcpy(name, &gpu.uuid, GPU_NAME);
    return 0;
}
