#include "trainer/parallel/schedule.h"

size_t schedule_1f1b(struct schedule_entry *entries, int stage, int stages, int micro_batches)
{
    int warmup = stages - stage - 1 < micro_batches ? stages - stage - 1 : micro_batches;
    int forward = 0, backward = 0;
    size_t n = 0;

    while (forward < warmup)
        entries[n++] = (struct schedule_entry){.kind = SCHEDULE_FORWARD, .micro_batch = forward++};
    while (backward < micro_batches) {
        if (forward < micro_batches)
            entries[n++] = (struct schedule_entry){.kind = SCHEDULE_FORWARD, .micro_batch = forward++};
        entries[n++] = (struct schedule_entry){.kind = SCHEDULE_BACKWARD, .micro_batch = backward++};
    }
    return n;
}
