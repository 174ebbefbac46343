/*
 * gpu_watch.h - what NVIDIA's driver tells of this rank's GPU while it trains: power, clock, temperature and errors
 * (common/nvml.h). A GPU that is limited by its power or its temperature is slower, and no time of a step says why.
 */
#ifndef MUSTER_TRAINER_WATCH_GPU_WATCH_H
#define MUSTER_TRAINER_WATCH_GPU_WATCH_H

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
    float xid;                /* NVIDIA's number of the last error since then; 0: none */
};

/* Of the GPU with this UUID, 16 bytes. NULL without NVML, or if that does not know it. */
struct gpu_watch *gpu_watch_create(const unsigned char uuid[16]);
void gpu_watch_destroy(struct gpu_watch *watch);

/* At most one reading a second: a call in between, or without a watch, finds no value and no error. It takes some
 * microseconds. */
void gpu_watch_read(struct gpu_watch *watch, struct gpu_reading *reading);

#endif
