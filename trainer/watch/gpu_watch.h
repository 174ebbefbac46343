/*
 * gpu_watch.h - what NVIDIA's driver tells of this rank's GPU while it trains: power, clock, temperature and errors
 * (common/nvml.h). A GPU that is limited by its power or its temperature is slower, and no time of a step says why.
 */
#ifndef MUSTER_TRAINER_WATCH_GPU_WATCH_H
#define MUSTER_TRAINER_WATCH_GPU_WATCH_H

#include "common/error.h"

enum gpu_value {
    GPU_WATTS,         /* mean since the reading before */
    GPU_LIMIT,         /* of its power, in watts */
    GPU_POWER_LIMITED, /* the share of the time since the reading before in which power held its clock down */
    GPU_CLOCK,         /* of its multiprocessors, in MHz, now */
    GPU_CELSIUS,       /* now */
    GPU_VALUES
};

extern const char *const gpu_value_names[GPU_VALUES];

/* In floats, so that ranks can exchange it as such. */
struct gpu_reading {
    float values[GPU_VALUES]; /* NaN: not known */
    float ecc;                /* uncorrected errors of its memory since the reading before */
    float xid;                /* NVIDIA's number of the first error since then; 0: none */
};

/* Of the GPU with this UUID. NULL with CODE_CONFIG without NVML, or if that does not know it, such as a MIG slice. */
struct gpu_watch *gpu_watch_create(const unsigned char uuid[16], struct error *err);
void gpu_watch_destroy(struct gpu_watch *watch);

/* At most one reading a second: a call in between, or without a watch, finds no value and no error. It takes some
 * microseconds. */
void gpu_watch_read(struct gpu_watch *watch, struct gpu_reading *reading);

/* The first error since the last reading, NVIDIA's number; waits at most so long for one. 0: none, or without a watch. */
int gpu_watch_xid(struct gpu_watch *watch, unsigned milliseconds);

#endif
