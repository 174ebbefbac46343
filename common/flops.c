#include "common/flops.h"

double flops_model(const struct model_shape *m, double tokens)
{
    return tokens * (6.0 * (double)model_parameters(m) + 12.0 * m->layers * m->hidden * m->seq_length);
}

double flops_hardware(const struct model_shape *m, double tokens, bool recompute)
{
    return flops_model(m, tokens) * (recompute ? 4.0 / 3.0 : 1.0);
}

double flops_megatron(const struct model_shape *m, double tokens, bool recompute)
{
    double h = m->hidden, l = m->layers, s = m->seq_length, v = m->vocab;
    double passes = recompute ? 4.0 : 3.0;

    return 24.0 * passes * tokens * l * h * h * (1.0 + s / (6.0 * h) + v / (16.0 * l * h));
}
