/*
 * schedule.h - pipeline schedules as data: what one stage does in one step, as an array that the trainer executes.
 *
 * 1F1B (arXiv 2104.04473): stage r of p does p - r - 1 forwards, then alternates one forward and one backward, then
 * the backwards that are left; it holds at most min(p - r, m) micro-batches. With one stage that is F0 B0 F1 B1 ...
 */
#ifndef MUSTER_TRAINER_PARALLEL_SCHEDULE_H
#define MUSTER_TRAINER_PARALLEL_SCHEDULE_H

#include <stddef.h>

enum schedule_kind { SCHEDULE_FORWARD, SCHEDULE_BACKWARD };

struct schedule_entry {
    enum schedule_kind kind;
    int micro_batch; /* 0-based in this step */
    int chunk;       /* model chunk on this stage; 0 unless interleaved */
};

/* Writes 2 * micro_batches entries; returns their number. */
size_t schedule_1f1b(struct schedule_entry *entries, int stage, int stages, int micro_batches);

#endif
