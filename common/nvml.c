#include "common/nvml.h"

#include "common/library.h"

int nvml_load(struct nvml *nvml, struct error *err)
{
    static const struct library library = {"NVML", "MUSTER_NVML", "libnvidia-ml.so.1", "450"};
    static const char *const names[] = {
        "nvmlInit_v2",
        "nvmlShutdown",
        "nvmlErrorString",
        "nvmlDeviceGetCount_v2",
        "nvmlDeviceGetUUID",
        "nvmlDeviceGetHandleByIndex_v2",
        "nvmlDeviceGetHandleByUUID",
        "nvmlDeviceGetTotalEccErrors",
        "nvmlDeviceGetRemappedRows",
        "nvmlDeviceGetTotalEnergyConsumption",
        "nvmlDeviceGetEnforcedPowerLimit",
        "nvmlDeviceGetViolationStatus",
        "nvmlDeviceGetClockInfo",
        "nvmlDeviceGetTemperature",
        "nvmlEventSetCreate",
        "nvmlDeviceRegisterEvents",
        "nvmlEventSetWait_v2",
        "nvmlEventSetFree",
    };

    _Static_assert(sizeof *nvml == sizeof names, "a name for each member");
    return library_load(&library, names, sizeof names / sizeof *names, nvml, err);
}
