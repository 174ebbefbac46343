/* samples_impl.h - what an implementation of samples.h provides; only files in this folder include it. */
#ifndef MUSTER_TRAINER_DATA_SAMPLES_IMPL_H
#define MUSTER_TRAINER_DATA_SAMPLES_IMPL_H

#include "trainer/data/samples.h"

struct samples_ops {
    int (*read)(const struct samples *samples, uint64_t n, const struct sample *into, struct error *err);
    void (*destroy)(struct samples *samples);
};

/* The first member of what an implementation allocates. */
struct samples {
    const struct samples_ops *ops;
    uint64_t per_epoch;
};

#endif
