#include "plan/footprint.h"

size_t footprint_device(const struct footprint *b)
{
    return b->parameters + b->gradients + b->optimizer + b->activations + b->workspace + b->communication;
}

size_t footprint_host(const struct footprint *b)
{
    return b->host_optimizer + b->host_staging;
}
