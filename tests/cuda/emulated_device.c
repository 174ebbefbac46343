#include "tests/cuda/emulated_names.h"
/* before what it renames */
#include "tests/cuda/emulated_device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/cuda_attention.h"

#define SHARED_LIMIT (227 << 10) /* of an H100, in bytes */
#define SMS          4           /* few, so that blocks have several pieces of work each */

/* Lies before what the caller gets, and keeps the alignment that CUDA's memory has. */
struct header {
    size_t bytes;
} __attribute__((aligned(256)));

static int emulated_open(struct device *dev, int threads, struct error *err)
{
    struct cuda *cuda = calloc(1, sizeof *cuda);

    dev->state = cuda;
    if (!cuda)
        return error_errno(err, CODE_IO, "cuda-emulated device");
    cuda->capability = 80;
    cuda->sms = SMS;
    cuda->shared_limit = SHARED_LIMIT;
    dev->threads = threads ? threads : 1;
    dev->kernels = (struct kernels){CUDA_OPERATIONS(CUDA_SET)};
    snprintf(dev->description, sizeof dev->description, "cuda-emulated, one fiber a thread");
    return 0;
}

static void emulated_trim(struct device *dev)
{
    struct cuda *cuda = device_cuda(dev);

    device_free(dev, MEMORY_DEVICE, cuda->workspace);
    cuda->workspace = NULL;
    dev->workspace = 0;
}

static void emulated_close(struct device *dev)
{
    if (device_cuda(dev))
        emulated_trim(dev);
    free(device_cuda(dev));
}

static void *emulated_alloc(struct device *dev, enum memory space, size_t bytes, struct error *err)
{
    size_t total = sizeof(struct header) + (bytes + 255) / 256 * 256;
    struct header *header = aligned_alloc(sizeof *header, total);

    (void)dev;
    (void)space;
    if (!header) {
        error_errno(err, CODE_IO, "%zu bytes", bytes);
        return NULL;
    }
    memset(header, 0xff, total);
    header->bytes = bytes;
    return header + 1;
}

static size_t emulated_free(struct device *dev, enum memory space, void *pointer)
{
    struct header *header = (struct header *)pointer - 1;
    size_t bytes = header->bytes;

    (void)dev;
    (void)space;
    free(header);
    return bytes;
}

const struct backend backend_cuda_emulated = {
    .kind = "cuda-emulated",
    .open = emulated_open,
    .close = emulated_close,
    .alloc = emulated_alloc,
    .free = emulated_free,
    .trim = emulated_trim,
    .gpu = true,
    .load_cudnn = attention_cudnn_load,
};

/* ---- what kernels/cuda asks of its device ------------------------------------------------------------------------ */

void *cuda_workspace(struct device *dev, size_t bytes)
{
    struct cuda *cuda = device_cuda(dev);
    struct error err = {0};

    if (dev->failed)
        return NULL;
    if (bytes > dev->workspace) {
        emulated_trim(dev);
        cuda->workspace = device_alloc(dev, MEMORY_DEVICE, bytes, &err);
        dev->workspace = cuda->workspace ? bytes : 0;
    }
    if (cuda->workspace)
        memset(cuda->workspace, 0xff, dev->workspace);
    else
        device_fail(dev, err.code, "cuda-emulated: workspace: %s", err.text);
    return cuda->workspace;
}

void cuda_fetch(struct device *dev, void *to, const void *from, size_t bytes)
{
    if (!dev->failed)
        memcpy(to, from, bytes);
}

bool cuda_ok(struct device *dev, int status, const char *doing)
{
    if (status != 0)
        device_fail(dev, CODE_INTERNAL, "cuda-emulated: %s: %d", doing, status);
    return status == 0;
}

void cuda_copy(struct device *dev, void *y, const void *x, size_t bytes)
{
    if (!dev->failed && bytes > 0)
        memcpy(y, x, bytes);
}

void cuda_zero(struct device *dev, void *y, size_t bytes)
{
    if (!dev->failed && bytes > 0)
        memset(y, 0, bytes);
}
