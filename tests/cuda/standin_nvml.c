/*
 * standin_nvml.c - a library with NVML's functions (common/nvml.h), for one GPU, whose name begins with GPU-40: at 650 of
 * 700 W, held down by power for 62% of the time, at 1410 MHz and 71 degrees. MUSTER_STANDIN_NVML has letters:
 * "e" three more uncorrected errors of memory at each question, "x" XID 94 at the second question, "r" a row that needs a reset,
 * "n" the GPU tells neither energy nor clock, nor what holds that down, "b" the errors of memory were set back to 0.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/nvml.h"

enum { NOT_SUPPORTED = 3, NOT_FOUND = 6, TIMEOUT = 10 };

#pragma GCC visibility push(default)
int nvmlInit_v2(void);
int nvmlShutdown(void);
const char *nvmlErrorString(int code);
int nvmlDeviceGetCount_v2(unsigned *count);
int nvmlDeviceGetUUID(nvml_device device, char *text, unsigned size);
int nvmlDeviceGetHandleByIndex_v2(unsigned index, nvml_device *device);
int nvmlDeviceGetHandleByUUID(const char *uuid, nvml_device *device);
int nvmlDeviceGetTotalEccErrors(nvml_device device, int type, int counter, unsigned long long *errors);
int nvmlDeviceGetRemappedRows(nvml_device device, unsigned *corrected, unsigned *uncorrected, unsigned *pending,
                              unsigned *failed);
int nvmlDeviceGetTotalEnergyConsumption(nvml_device device, unsigned long long *millijoules);
int nvmlDeviceGetEnforcedPowerLimit(nvml_device device, unsigned *milliwatts);
int nvmlDeviceGetViolationStatus(nvml_device device, int policy, struct nvml_violation *time);
int nvmlDeviceGetClockInfo(nvml_device device, int type, unsigned *mhz);
int nvmlDeviceGetTemperature(nvml_device device, int sensor, unsigned *celsius);
int nvmlEventSetCreate(nvml_events *events);
int nvmlDeviceRegisterEvents(nvml_device device, unsigned long long types, nvml_events events);
int nvmlEventSetWait_v2(nvml_events events, struct nvml_event *event, unsigned milliseconds);
int nvmlEventSetFree(nvml_events events);
#pragma GCC visibility pop

static char gpu[] = "GPU-40404040-4040-4040-4040-404040404040";
static unsigned long long ecc_errors;
static int questions, registered;

static int has(char letter)
{
    const char *letters = getenv("MUSTER_STANDIN_NVML");

    return letters && strchr(letters, letter) != NULL;
}

int nvmlInit_v2(void)
{
    return NVML_SUCCESS;
}

int nvmlShutdown(void)
{
    return NVML_SUCCESS;
}

const char *nvmlErrorString(int code)
{
    return code == NOT_FOUND ? "Not Found" : "Not Supported";
}

int nvmlDeviceGetCount_v2(unsigned *count)
{
    *count = 1;
    return NVML_SUCCESS;
}

int nvmlDeviceGetUUID(nvml_device device, char *text, unsigned size)
{
    snprintf(text, size, "%s", (char *)device);
    return NVML_SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, nvml_device *device)
{
    *device = (nvml_device)(void *)gpu;
    return index == 0 ? NVML_SUCCESS : NOT_FOUND;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, nvml_device *device)
{
    *device = (nvml_device)(void *)gpu;
    return strcmp(uuid, gpu) == 0 ? NVML_SUCCESS : NOT_FOUND;
}

int nvmlDeviceGetTotalEccErrors(nvml_device device, int type, int counter, unsigned long long *errors)
{
    (void)device;
    ecc_errors = has('b') ? 0 : ecc_errors + (has('e') ? 3 : 0);
    *errors = ecc_errors;
    return type == NVML_MEMORY_ERROR_TYPE_UNCORRECTED && counter == NVML_VOLATILE_ECC ? NVML_SUCCESS : NOT_SUPPORTED;
}

int nvmlDeviceGetRemappedRows(nvml_device device, unsigned *corrected, unsigned *uncorrected, unsigned *pending,
                              unsigned *failed)
{
    (void)device;
    *corrected = *uncorrected = *failed = 0;
    *pending = has('r');
    return NVML_SUCCESS;
}

int nvmlDeviceGetTotalEnergyConsumption(nvml_device device, unsigned long long *millijoules)
{
    (void)device;
    if (has('n'))
        return NOT_SUPPORTED;
    *millijoules = (unsigned long long)(clock_monotonic() * 650e3);
    return NVML_SUCCESS;
}

int nvmlDeviceGetEnforcedPowerLimit(nvml_device device, unsigned *milliwatts)
{
    (void)device;
    *milliwatts = 700000;
    return NVML_SUCCESS;
}

int nvmlDeviceGetViolationStatus(nvml_device device, int policy, struct nvml_violation *time)
{
    (void)device;
    time->violation = (unsigned long long)(clock_monotonic() * 0.62e9);
    return policy == NVML_PERF_POLICY_POWER && !has('n') ? NVML_SUCCESS : NOT_SUPPORTED;
}

int nvmlDeviceGetClockInfo(nvml_device device, int type, unsigned *mhz)
{
    (void)device;
    *mhz = 1410;
    return type == NVML_CLOCK_SM && !has('n') ? NVML_SUCCESS : NOT_SUPPORTED;
}

int nvmlDeviceGetTemperature(nvml_device device, int sensor, unsigned *celsius)
{
    (void)device;
    *celsius = 71;
    return sensor == NVML_TEMPERATURE_GPU ? NVML_SUCCESS : NOT_SUPPORTED;
}

int nvmlEventSetCreate(nvml_events *events)
{
    *events = (nvml_events)(void *)&registered;
    return NVML_SUCCESS;
}

int nvmlDeviceRegisterEvents(nvml_device device, unsigned long long types, nvml_events events)
{
    (void)device, (void)events;
    registered = types == nvmlEventTypeXidCriticalError;
    return registered ? NVML_SUCCESS : NOT_SUPPORTED;
}

int nvmlEventSetWait_v2(nvml_events events, struct nvml_event *event, unsigned milliseconds)
{
    (void)events, (void)milliseconds;
    if (!registered || !has('x') || questions++ != 1)
        return TIMEOUT;
    event->data = 94;
    return NVML_SUCCESS;
}

int nvmlEventSetFree(nvml_events events)
{
    (void)events;
    registered = 0;
    return NVML_SUCCESS;
}
