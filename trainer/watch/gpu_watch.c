#include "trainer/watch/gpu_watch.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/clock.h"
#include "common/nvml.h"

const char *const gpu_value_names[GPU_VALUES] = {"watts", "limit_watts", "power_limited", "sm_mhz", "celsius"};

struct gpu_watch {
    struct nvml nvml;
    nvml_device device;
    nvml_events events; /* NULL: XIDs are not told */
    /* at the last reading */
    double at; /* clock_monotonic */
    unsigned long long millijoules, limited, ecc;
};

/* The growth of a counter, which becomes `now`; NaN if NVML did not tell. */
static double take_growth(unsigned long long *before, int rc, unsigned long long now)
{
    double growth = rc == NVML_SUCCESS ? (double)(now - *before) : NAN;

    *before = now;
    return growth;
}

static float number_if(int rc, double number)
{
    return rc == NVML_SUCCESS ? (float)number : NAN;
}

/* The last error of the driver since the reading before. */
static float read_xid(struct gpu_watch *w)
{
    struct nvml_event event = {0};
    float xid = 0;

    while (w->events && w->nvml.wait_event(w->events, &event, 0) == NVML_SUCCESS)
        xid = (float)event.data;
    return xid;
}

static void read_all(struct gpu_watch *w, double seconds, struct gpu_reading *r)
{
    unsigned long long millijoules = w->millijoules, ecc = w->ecc;
    struct nvml_violation limited = {.violation = w->limited};
    unsigned limit = 0, mhz = 0, celsius = 0;
    int rc = w->nvml.energy(w->device, &millijoules);

    r->values[GPU_WATTS] = (float)(take_growth(&w->millijoules, rc, millijoules) / 1e3 / seconds);
    rc = w->nvml.violation(w->device, NVML_PERF_POLICY_POWER, &limited);
    r->values[GPU_POWER_LIMITED] = (float)fmin(take_growth(&w->limited, rc, limited.violation) / 1e9 / seconds, 1.0);
    rc = w->nvml.ecc(w->device, NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_VOLATILE_ECC, &ecc);
    r->ecc = (float)fmax(take_growth(&w->ecc, rc, ecc), 0.0);
    rc = w->nvml.power_limit(w->device, &limit);
    r->values[GPU_LIMIT] = number_if(rc, limit / 1e3);
    rc = w->nvml.clock(w->device, NVML_CLOCK_SM, &mhz);
    r->values[GPU_CLOCK] = number_if(rc, mhz);
    rc = w->nvml.temperature(w->device, NVML_TEMPERATURE_GPU, &celsius);
    r->values[GPU_CELSIUS] = number_if(rc, celsius);
    r->xid = read_xid(w);
}

void gpu_watch_read(struct gpu_watch *w, struct gpu_reading *reading)
{
    double now = clock_monotonic();

    *reading = (struct gpu_reading){.values = {NAN, NAN, NAN, NAN, NAN}};
    if (!w || now - w->at < 1.0)
        return;
    read_all(w, now - w->at, reading);
    w->at = now;
}

struct gpu_watch *gpu_watch_create(const unsigned char uuid[16])
{
    struct gpu_watch *w = calloc(1, sizeof *w);
    struct gpu_reading start;
    char name[48] = "GPU";
    int used = 3;

    for (int i = 0; i < 16; i++)
        used += snprintf(name + used, sizeof name - (size_t)used,
                         i == 0 || i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x", uuid[i]);
    if (!w || nvml_load(&w->nvml, NULL) < 0 || w->nvml.init() != NVML_SUCCESS) {
        free(w);
        return NULL;
    }
    if (w->nvml.by_uuid(name, &w->device) != NVML_SUCCESS) {
        w->nvml.shutdown();
        free(w);
        return NULL;
    }
    if (w->nvml.create_events(&w->events) != NVML_SUCCESS ||
        w->nvml.register_events(w->device, nvmlEventTypeXidCriticalError, w->events) != NVML_SUCCESS)
        w->events = NULL;
    read_all(w, 1, &start);
    w->at = clock_monotonic();
    return w;
}

void gpu_watch_destroy(struct gpu_watch *w)
{
    if (!w)
        return;
    if (w->events)
        w->nvml.free_events(w->events);
    w->nvml.shutdown();
    free(w);
}
