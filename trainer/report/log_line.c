#include "trainer/report/log_line.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

size_t log_line_format(char *buf, size_t size, const struct log_line *line)
{
    char order[40] = "";
    size_t used;

    if (!size)
        return 0;
    if (line->bert)
        snprintf(order, sizeof order, " sop loss: %.6E |", line->order_loss);
    snprintf(buf, size,
             " iteration %8ld/%8ld | consumed samples: %12ld | consumed tokens: %12ld |"
             " elapsed time per iteration (s): %.2f | learning rate: %.3E | global batch size: %5d |"
             " lm loss: %.6E |%s loss scale: %.1f | grad norm: %.3f | num zeros: %.1f |"
             " number of skipped iterations: %3d | number of nan iterations: %3d |"
             " samples per second: %.3f | TFLOPs: %.2f |",
             line->step, line->steps, line->consumed_samples, line->consumed_tokens, line->step_seconds, line->lr,
             line->global_batch, line->loss, order, line->loss_scale, line->grad_norm, line->zeros, line->skipped,
             line->nans, line->samples_per_second, line->tflops);
    used = strlen(buf);
    if (!isnan(line->mfu))
        snprintf(buf + used, size - used, " MFU: %.2f%% |", 100.0 * line->mfu);
    used = strlen(buf);
    if (!isnan(line->hfu))
        snprintf(buf + used, size - used, " HFU: %.2f%% |", 100.0 * line->hfu);
    return strlen(buf);
}
