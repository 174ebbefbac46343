#include "kernels/far/far.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int far_open(struct device *dev, int threads, struct error *err)
{
    const char *transfers = getenv("MUSTER_TEST_TRANSFERS");
    struct far *far = calloc(1, sizeof *far);

    dev->state = far;
    if (!far)
        return error_errno(err, CODE_IO, "cpu-far device");
    far->first_ticket = 1;
    far->early = transfers && strcmp(transfers, "early") == 0;
    if (far_memory_open(far, err) < 0)
        return -1;
    far->near = device_create("cpu", threads, err);
    if (!far->near)
        return -1;
    dev->threads = far->near->threads;
    dev->kernels = far_kernels;
    snprintf(dev->description, sizeof dev->description, "cpu-far: %.110s", device_describe(far->near));
    return 0;
}

static void far_close(struct device *dev)
{
    struct far *far = device_far(dev);

    if (!far)
        return;
    if (far->near)
        far_transfer_wait(dev, UINT64_MAX); /* as a GPU does, with memory that was freed since, should there be such */
    device_destroy(far->near);
    far_memory_close(far);
    free(far->entries);
    free(far->transfers);
    free(far);
}

static size_t far_workspace(const struct device *dev)
{
    return ((const struct far *)dev->state)->workspace;
}

static void far_trim(struct device *dev)
{
    struct far *far = device_far(dev);

    far_wait(dev);
    far->near->backend->trim(far->near);
    dev->bytes_used[MEMORY_DEVICE] -= far->workspace;
    far->workspace = 0;
}

static bool far_widens(const struct device *dev, enum dtype dtype)
{
    return device_widens(((const struct far *)dev->state)->near, dtype);
}

const struct backend backend_far = {
    .kind = "cpu-far",
    .open = far_open,
    .close = far_close,
    .wait = far_wait,
    .alloc = far_alloc,
    .free = far_free,
    .workspace = far_workspace,
    .trim = far_trim,
    .widens = far_widens,
    .far = true,
    .transfer = far_transfer,
    .transfer_join = far_transfer_join,
    .transfer_wait = far_transfer_wait,
};
