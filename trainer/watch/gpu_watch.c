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
    double at;                        /* clock_monotonic */
    double millijoules, limited, ecc; /* the driver's counters; NaN: not told */
};

/* The growth of a counter, which becomes `now`; NaN if it is not told, or was set back. */
static double take_growth(double *before, int rc, unsigned long long now)
{
    double growth = rc == NVML_SUCCESS && (double)now >= *before ? (double)now - *before : NAN;

    *before = rc == NVML_SUCCESS ? (double)now : NAN;
    return growth;
}

static float number_if(int rc, double number)
{
    return rc == NVML_SUCCESS ? (float)number : NAN;
}

int gpu_watch_xid(struct gpu_watch *w, unsigned milliseconds)
{
    struct nvml_event event = {0};
    int xid = 0;

    while (w && w->events && w->nvml.wait_event(w->events, &event, xid ? 0 : milliseconds) == NVML_SUCCESS)
        xid = xid ? xid : (int)event.data;
    return xid;
}

static void read_all(struct gpu_watch *w, double seconds, struct gpu_reading *r)
{
    unsigned long long millijoules = 0, ecc = 0;
    struct nvml_violation limited = {0};
    unsigned limit = 0, mhz = 0, celsius = 0;
    int rc = w->nvml.energy(w->device, &millijoules);
    double growth;

    r->values[GPU_WATTS] = (float)(take_growth(&w->millijoules, rc, millijoules) / 1e3 / seconds);
    rc = w->nvml.violation(w->device, NVML_PERF_POLICY_POWER, &limited);
    growth = take_growth(&w->limited, rc, limited.violation) / 1e9 / seconds;
    r->values[GPU_POWER_LIMITED] = growth > 1 ? 1 : (float)growth;
    rc = w->nvml.ecc(w->device, NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_VOLATILE_ECC, &ecc);
    growth = take_growth(&w->ecc, rc, ecc);
    r->ecc = growth > 0 ? (float)growth : 0;
    rc = w->nvml.power_limit(w->device, &limit);
    r->values[GPU_LIMIT] = number_if(rc, limit / 1e3);
    rc = w->nvml.clock(w->device, NVML_CLOCK_SM, &mhz);
    r->values[GPU_CLOCK] = number_if(rc, mhz);
    rc = w->nvml.temperature(w->device, NVML_TEMPERATURE_GPU, &celsius);
    r->values[GPU_CELSIUS] = number_if(rc, celsius);
    r->xid = (float)gpu_watch_xid(w, 0);
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

/* XIDs are told only of events that are registered before. */
static void watch_events(struct gpu_watch *w)
{
    if (w->nvml.create_events(&w->events) != NVML_SUCCESS)
        w->events = NULL;
    else if (w->nvml.register_events(w->device, nvmlEventTypeXidCriticalError, w->events) != NVML_SUCCESS) {
        w->nvml.free_events(w->events);
        w->events = NULL;
    }
}

static int open_gpu(struct gpu_watch *w, const unsigned char uuid[16], struct error *err)
{
    char name[48] = "GPU";
    int rc, used = 3;

    for (int i = 0; i < 16; i++)
        used += snprintf(name + used, sizeof name - (size_t)used, "%s%02x",
                         i == 0 || i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", uuid[i]);
    if (nvml_load(&w->nvml, err) < 0)
        return -1;
    rc = w->nvml.init();
    if (rc != NVML_SUCCESS)
        return error_set(err, CODE_CONFIG, "NVML does not start: %s", w->nvml.explain(rc));
    rc = w->nvml.by_uuid(name, &w->device);
    if (rc == NVML_SUCCESS)
        return 0;
    w->nvml.shutdown();
    return error_set(err, CODE_CONFIG, "NVML does not know %s: %s", name, w->nvml.explain(rc));
}

struct gpu_watch *gpu_watch_create(const unsigned char uuid[16], struct error *err)
{
    struct gpu_watch *w = error_calloc(1, sizeof *w, err);
    struct gpu_reading start;

    if (!w || open_gpu(w, uuid, err) < 0) {
        free(w);
        return NULL;
    }
    watch_events(w);
    w->millijoules = w->limited = w->ecc = NAN;
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
