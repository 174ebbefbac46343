#include "plan/cost.h"

/* Attention's two products, forward, for one token. */
static double attention_forward(const struct model_shape *m)
{
    return 4.0 * m->layers * m->hidden * m->seq_length;
}

double flops_model(const struct model_shape *m, double tokens)
{
    return tokens * (6.0 * (double)model_parameters(m) + 3.0 * attention_forward(m));
}

double flops_hardware(const struct model_shape *m, double tokens, enum recompute recompute)
{
    double recomputed = 0;

    if (recompute == RECOMPUTE_SELECTIVE)
        recomputed = attention_forward(m) + 6.0 * m->layers * (double)m->hidden * m->hidden;
    else if (recompute == RECOMPUTE_FULL)
        recomputed = 2.0 * (double)model_parameters(m) + attention_forward(m);
    return flops_model(m, tokens) + tokens * recomputed;
}

double flops_megatron(const struct model_shape *m, double tokens, bool recompute)
{
    double h = m->hidden, l = m->layers, s = m->seq_length, v = m->vocab;
    double passes = recompute ? 4.0 : 3.0;

    return 24.0 * passes * tokens * l * h * h * (1.0 + s / (6.0 * h) + v / (16.0 * l * h));
}

double flops_megatron_before(const struct model_shape *m, double tokens, bool recompute)
{
    double h = m->hidden, layers = m->layers * (12 * h * h + 13 * h) + 2 * h;

    return 2 * (recompute ? 4.0 : 3.0) * tokens * layers;
}

double flops_mosaicml(const struct model_shape *m, double tokens, bool recompute, bool attention)
{
    double pass = 2.0 * (double)model_parameters(m);
    double per_pass = attention ? 2.0 * m->layers * m->hidden * m->seq_length : 0;

    return tokens * (recompute ? 4.0 * pass + 3.0 * per_pass : 3.0 * pass + 2.0 * per_pass);
}
