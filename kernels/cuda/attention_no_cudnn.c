/* attention_no_cudnn.c - in place of attention_cudnn.c in a build without cuDNN, and in the tests' emulator. */
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/cuda_attention.h"
#include "kernels/device.h"

bool attention_by_cudnn(struct device *dev, const struct attention_call *call, bool backward)
{
    const char *how = getenv("MUSTER_ATTENTION");

    (void)call, (void)backward;
    if (!how || strcmp(how, "own") == 0)
        return false;
    device_fail(dev, CODE_CONFIG, "MUSTER_ATTENTION=%s: built without cuDNN; only \"own\" is possible", how);
    return true;
}
