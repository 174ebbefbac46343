/*
 * profile.h - the time of each operation of a device, for bench/step. With MUSTER_PROFILE=1 in the environment,
 * profile_start replaces the device's table of operations by one that sets a mark before and after each. On a GPU a
 * mark is an event on its stream, and the host waits only once in PROFILE_PAIRS operations. Elsewhere it is the host's
 * clock, which is right because a CPU's operation is complete when it returns. One device per process.
 */
#ifndef MUSTER_BENCH_PROFILE_H
#define MUSTER_BENCH_PROFILE_H

#include "kernels/device.h"

enum {
    PROFILE_PAIRS = 1024, /* marked operations before the marks are read and reused */
    PROFILE_ROWS = 128,   /* kinds of operation; the last row, "others", counts the rest */
    PROFILE_NAME = 56,
};

/*
 * A kind of operation, or of product one shape: "matmul MxNxK", with t for a transposed operand, and its epilogue.
 * flops and bytes are what all calls had to compute and to move. The time between operations, transfers and
 * communication are in no row.
 */
struct profile_row {
    char name[PROFILE_NAME];
    uint64_t calls;
    double seconds, flops, bytes;
};

/* Fails without memory, and for a device that runs operations late and has no marks. */
int profile_start(struct device *dev, struct error *err);
void profile_stop(struct device *dev); /* before device_destroy */

/* Waits, and copies at most `most` rows, the longest first; 0 without MUSTER_PROFILE=1. */
size_t profile_read(struct device *dev, struct profile_row *rows, size_t most);
void profile_reset(struct device *dev);

/* Around one operation; flops or bytes may be 0. For tests. */
void profile_begin(struct device *dev, const char *name, double flops, double bytes);
void profile_end(struct device *dev);

/* All of struct kernels, with marks. */
struct kernels profile_operations(void);

#endif
