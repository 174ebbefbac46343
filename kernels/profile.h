/*
 * profile.h - where a device's time goes: each operation between two marks in its queue. Internal to kernels/;
 * kernels.h's device_profile is the interface.
 *
 * With the environment's MUSTER_PROFILE=1, a device's table of operations is replaced by one of the same operations
 * with marks around them; without it nothing is different. On a GPU marks are events on its stream, so the host does
 * not wait, but once in PROFILE_PAIRS operations; elsewhere they are the host's clock, which is right where operations
 * are done when they return.
 */
#ifndef MUSTER_KERNELS_PROFILE_H
#define MUSTER_KERNELS_PROFILE_H

#include "kernels/device.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    PROFILE_PAIRS = 1024, /* of marks, before they are read and begin anew */
    PROFILE_ROWS = 128,   /* kinds of operation; what is met later is counted as the last one, "others" */
};

struct profile;

/* Looks at the environment. -1 without memory, or for a device that is late and has no marks. */
int profile_open(struct device *dev, struct error *err);
void profile_close(struct device *dev);

/*
 * The operation that the caller is about to enqueue, and, after it, its end. flops and bytes: what it must compute, and
 * move if it reads and writes every operand once; 0 for none worth a rate.
 */
void profile_begin(struct device *dev, const char *name, double flops, double bytes);
void profile_end(struct device *dev);

/* The operations themselves, without marks. */
const struct kernels *profile_inner(const struct device *dev);

/* profile_operations.c: all of struct kernels, with marks. */
struct kernels profile_operations(void);

#ifdef __cplusplus
}
#endif

#endif
