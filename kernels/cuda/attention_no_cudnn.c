/* attention_no_cudnn.c - in place of attention_cudnn.c in a build without cuDNN, and in the tests' emulator. */
#include "kernels/cuda/cuda_attention.h"

int attention_cudnn_load(struct device *dev, struct error *err)
{
    (void)dev;
    return error_set(err, CODE_CONFIG, "muster was built without cuDNN");
}

bool attention_by_cudnn(struct device *dev, const struct attention_call *call, bool backward)
{
    (void)dev, (void)call, (void)backward;
    return false;
}

void attention_cudnn_close(struct device *dev)
{
    (void)dev;
}
