/*
 * NVML by hand: the few functions that are asked, declared as in the documentation of NVML's API (nvml.h, "Error
 * reporting" and "Device queries"), so that nothing of NVIDIA's is needed to build. The library comes with the driver.
 */
#include "srun-plugin/preflight/checks.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <unistd.h>

enum { NVML_SUCCESS = 0, NVML_MEMORY_ERROR_TYPE_UNCORRECTED = 1, NVML_VOLATILE_ECC = 0 };

typedef struct nvml_device *nvml_device; /* opaque */

struct nvml {
    int (*init)(void);
    int (*shutdown)(void);
    int (*count)(unsigned *count);
    int (*handle)(unsigned index, nvml_device *device);
    int (*uuid)(nvml_device device, char *text, unsigned size);
    int (*ecc)(nvml_device device, int type, int counter, unsigned long long *errors);
    int (*rows)(nvml_device device, unsigned *corrected, unsigned *uncorrected, unsigned *pending, unsigned *failed);
    const char *(*explain)(int code);
};

/* A function that this driver does not have is not asked. POSIX wants dlsym's result to fit a function's pointer. */
static void find_symbol(void *library, const char *name, void *function)
{
    *(void **)function = dlsym(library, name);
}

static bool find_all(void *library, struct nvml *nvml)
{
    find_symbol(library, "nvmlInit_v2", &nvml->init);
    find_symbol(library, "nvmlShutdown", &nvml->shutdown);
    find_symbol(library, "nvmlDeviceGetCount_v2", &nvml->count);
    find_symbol(library, "nvmlDeviceGetHandleByIndex_v2", &nvml->handle);
    find_symbol(library, "nvmlDeviceGetUUID", &nvml->uuid);
    find_symbol(library, "nvmlDeviceGetTotalEccErrors", &nvml->ecc);
    find_symbol(library, "nvmlDeviceGetRemappedRows", &nvml->rows);
    find_symbol(library, "nvmlErrorString", &nvml->explain);
    return nvml->init && nvml->shutdown && nvml->count && nvml->handle && nvml->explain;
}

static void check_device(const struct nvml *nvml, unsigned index)
{
    unsigned corrected, uncorrected, pending, failed;
    unsigned long long errors;
    char name[96] = "";
    nvml_device device;
    int rc = nvml->handle(index, &device);

    if (rc != NVML_SUCCESS) {
        write_finding("problem", "GPU %u: the driver cannot reach it: %s", index, nvml->explain(rc));
        return;
    }
    if (nvml->uuid)
        nvml->uuid(device, name, sizeof name);
    if (nvml->ecc &&
        nvml->ecc(device, NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_VOLATILE_ECC, &errors) == NVML_SUCCESS && errors)
        write_finding("problem", "GPU %u (%s): %llu uncorrected memory errors since its driver was loaded", index, name,
                      errors);
    if (!nvml->rows || nvml->rows(device, &corrected, &uncorrected, &pending, &failed) != NVML_SUCCESS)
        return; /* before Ampere there are none */
    if (failed)
        write_finding("problem", "GPU %u (%s): a row of its memory could not be remapped: replace the GPU", index,
                      name);
    else if (pending)
        write_finding("problem", "GPU %u (%s): rows of its memory need a reset to be remapped", index, name);
}

void check_nvml(void)
{
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    struct nvml nvml = {0};
    unsigned count = 0;
    int rc;

    if (!library)
        return;
    if (find_all(library, &nvml)) {
        rc = nvml.init();
        /* The library also lies on nodes without a GPU, where no driver is loaded. */
        if (rc == NVML_SUCCESS) {
            if (nvml.count(&count) == NVML_SUCCESS)
                for (unsigned i = 0; i < count; i++)
                    check_device(&nvml, i);
            nvml.shutdown();
        } else if (access("/proc/driver/nvidia", F_OK) == 0) {
            write_finding("oddity", "NVIDIA's driver does not answer: %s", nvml.explain(rc));
        }
    }
    dlclose(library);
}
