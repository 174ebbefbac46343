/*
 * peak.h - what devices can do at most, by their data sheets: what MFU relates to. Pure.
 *
 * Dense products, accumulated in fp32, at boost clock; fp32 is real fp32, not TF32. A device is what a rank gets: of an
 * MI250X or MI250, one of its two dies.
 */
#ifndef MUSTER_COMMON_PEAK_H
#define MUSTER_COMMON_PEAK_H

#include "common/dtype.h"

/*
 * FLOP/s. `name` is what the driver calls the device ("NVIDIA H100 80GB HBM3", "NVIDIA A100-PCIE-40GB"), in any case. 0
 * where it is not in the table, or a part of a device (MIG), or the device has no such type: then measure, or let the
 * user say.
 */
double device_peak_flops(const char *name, enum dtype dtype);

#endif
