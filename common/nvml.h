/*
 * nvml.h - NVML, NVIDIA's library that comes with the driver: it tells of a GPU what CUDA does not. Its functions that
 * muster asks, declared by hand as in the documentation of its API (nvml.h: "Device Queries", "Event Handling Methods"),
 * so that nothing of NVIDIA's is needed to build.
 */
#ifndef MUSTER_COMMON_NVML_H
#define MUSTER_COMMON_NVML_H

#include "common/error.h"

enum { NVML_SUCCESS = 0 };                       /* nvmlReturn_t */
enum { NVML_MEMORY_ERROR_TYPE_UNCORRECTED = 1 }; /* nvmlMemoryErrorType_t */
enum { NVML_VOLATILE_ECC = 0 };                  /* nvmlEccCounterType_t: since the driver was loaded */
enum { NVML_CLOCK_SM = 1 };                      /* nvmlClockType_t */
enum { NVML_TEMPERATURE_GPU = 0 };               /* nvmlTemperatureSensors_t */
enum { NVML_PERF_POLICY_POWER = 0 };             /* nvmlPerfPolicyType_t */
enum { nvmlEventTypeXidCriticalError = 0x8 };

typedef struct nvml_device *nvml_device; /* opaque */
typedef struct nvml_events *nvml_events; /* opaque */

struct nvml_violation {           /* nvmlViolationTime_t */
    unsigned long long reference; /* microseconds */
    unsigned long long violation; /* nanoseconds in which the GPU was held below its clock */
};

struct nvml_event { /* nvmlEventData_t */
    nvml_device device;
    unsigned long long type, data; /* data: an XID */
    unsigned gpu_instance, compute_instance;
};

/* Each returns NVML_SUCCESS or why not, such as that this GPU does not tell. nvml.c has their names. */
struct nvml {
    int (*init)(void);
    int (*shutdown)(void);
    const char *(*explain)(int code);
    int (*count)(unsigned *count);
    int (*uuid)(nvml_device device, char *text, unsigned size);
    int (*by_index)(unsigned index, nvml_device *device);
    int (*by_uuid)(const char *uuid, nvml_device *device);
    int (*ecc)(nvml_device device, int type, int counter, unsigned long long *errors);
    int (*rows)(nvml_device device, unsigned *corrected, unsigned *uncorrected, unsigned *pending, unsigned *failed);
    int (*energy)(nvml_device device, unsigned long long *millijoules); /* since the driver was loaded */
    int (*power_limit)(nvml_device device, unsigned *milliwatts);
    int (*violation)(nvml_device device, int policy, struct nvml_violation *time);
    int (*clock)(nvml_device device, int type, unsigned *mhz);
    int (*temperature)(nvml_device device, int sensor, unsigned *celsius);
    int (*create_events)(nvml_events *events);
    int (*register_events)(nvml_device device, unsigned long long types, nvml_events events);
    int (*wait_event)(nvml_events events, struct nvml_event *event, unsigned milliseconds);
    int (*free_events)(nvml_events events);
};

/* Opens the library, of driver 450 or newer; MUSTER_NVML names another file. `init` comes next. It also lies on nodes
 * without a GPU, where no driver is loaded. */
int nvml_load(struct nvml *nvml, struct error *err);

#endif
