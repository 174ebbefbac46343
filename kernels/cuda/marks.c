/* marks.c - for kernels/profile.h: events on the stream of operations, made when the first is needed. */
#include <cuda_runtime_api.h>
#include <stdlib.h>

#include "kernels/cuda/cuda.h"
#include "kernels/profile.h"

enum { MARKS = 2 * PROFILE_PAIRS };

struct cuda_marks {
    cudaEvent_t event[MARKS];
};

void cuda_mark(struct device *dev, int which)
{
    struct cuda *cuda = device_cuda(dev);

    if (!cuda->marks)
        cuda->marks = calloc(1, sizeof *cuda->marks);
    if (!cuda->marks) {
        device_fail(dev, CODE_IO, "cuda: out of memory for %d events", MARKS);
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

    for (int i = 0; marks && i < MARKS; i++)
        if (marks->event[i])
            CUDA_OK(dev, cudaEventDestroy(marks->event[i]));
    free(marks);
    device_cuda(dev)->marks = NULL;
}
