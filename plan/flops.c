#include "plan/cost.h"

/* Attention's two products, forward, for one token. */
static double attention_forward(const struct model_shape *m)
{
    return 4.0 * m->layers * model_query_width(m) * m->seq_length;
}

/* Parameters that a token is multiplied by: those of an embedding that is not the head's too are looked up. Positions
 * count, as in the published formula. */
static double multiplied_parameters(const struct model_shape *m)
{
    return (double)(model_parameters(m) - (m->untied ? model_elements(m, PART_WTE, WEIGHT) : 0));
}

double flops_model(const struct model_shape *m, double tokens)
{
    return tokens * (6.0 * multiplied_parameters(m) + 3.0 * attention_forward(m));
}

double flops_causal(const struct model_shape *m, double tokens)
{
    return flops_model(m, tokens) - (m->bidirectional ? 0 : tokens * 1.5 * attention_forward(m));
}

double flops_hardware(const struct model_shape *m, double tokens, enum recompute recompute)
{
    double recomputed = 0;

    if (recompute == RECOMPUTE_SELECTIVE)
        recomputed = attention_forward(m) + 2.0 * m->layers * (double)model_elements(m, PART_QKV, WEIGHT);
    else if (recompute == RECOMPUTE_FULL)
        recomputed = 2.0 * multiplied_parameters(m) + attention_forward(m);
    return flops_model(m, tokens) + tokens * recomputed;
}

double flops_megatron(const struct model_shape *m, double tokens, bool recompute)
{
    double products = 2.0 * m->layers * (double)model_unit_products(m, UNIT_KIND_BLOCK);
    double logits = 1.5 * m->hidden * m->vocab; /* three passes of the four of full recompute */

    return (recompute ? 4.0 : 3.0) * tokens * (products + attention_forward(m) + logits);
}

double flops_megatron_before(const struct model_shape *m, double tokens, bool recompute)
{
    double layers = m->layers * (double)model_unit_elements(m, UNIT_KIND_BLOCK) +
                    (double)(model_elements(m, PART_LN_F, WEIGHT) + model_elements(m, PART_LN_F, BIAS));

    return 2 * (recompute ? 4.0 : 3.0) * tokens * layers;
}

double flops_mosaicml(const struct model_shape *m, double tokens, bool recompute, bool attention)
{
    double pass = 2.0 * (double)model_parameters(m);
    double per_pass = attention ? attention_forward(m) / 2 : 0;

    return tokens * (recompute ? 4.0 * pass + 3.0 * per_pass : 3.0 * pass + 2.0 * per_pass);
}
