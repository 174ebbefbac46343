#include "common/paper_memory.h"

double paper_state_bytes(double parameters, int zero, int dp, bool fp32_gradients)
{
    double weights = zero >= 3 ? 1.0 / dp : 1.0;
    double gradients = zero >= 2 ? 1.0 / dp : 1.0;
    double optimizer = zero >= 1 ? 1.0 / dp : 1.0;

    return parameters * (2.0 * weights + (fp32_gradients ? 4.0 : 2.0) * gradients + 12.0 * optimizer);
}

double paper_activation_bytes(const struct model_shape *m, int micro_batch, int tp, bool sequence_parallel,
                              enum recompute recompute)
{
    double s = m->seq_length, h = m->hidden, sbh = s * micro_batch * h;
    double scores = recompute == RECOMPUTE_SELECTIVE ? 0 : 5.0 * m->heads * s / h;

    if (recompute == RECOMPUTE_FULL)
        return 2.0 * sbh;
    return sbh * (sequence_parallel ? (34.0 + scores) / tp : 10.0 + (24.0 + scores) / tp);
}
