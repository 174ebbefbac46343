/* run_where.c - where the time of a run goes, and what its ranks take: of memory, and of their GPUs. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/clock.h"
#include "common/memory_limit.h"
#include "trainer/run.h"
#include "trainer/watch/straggler.h"

enum { WHERE_SECONDS = 60 };     /* between two events */
enum { MOST_RANKS = 4 };         /* with a line of their own */
enum { XID_MILLISECONDS = 100 }; /* after an error: the driver may be later */
_Static_assert(RECORDER_SHARES <= METRICS_SHARES_MOST, "raise METRICS_SHARES_MOST");
_Static_assert(GPU_VALUES == METRICS_GPU_MOST, "as many values of a GPU");

static void begin_where(struct run *run)
{
    const struct mesh *mesh = &run->engine->config.mesh;

    run->where = (struct metrics_where){.dp = mesh->dp,
                                        .tp = mesh->tp,
                                        .pp = mesh->pp,
                                        .names = recorder_share_names,
                                        .shares = RECORDER_SHARES,
                                        .gpu_names = gpu_value_names};
    run->where_since = clock_monotonic();
    memset(run->computed, 0, (size_t)comm_size(run->world) * sizeof *run->computed);
}

/* Ranks of one stage have the same work. */
static void find_slowest(struct metrics_where *w, const struct run *run, const struct rank_time *times)
{
    int world = comm_size(run->world);

    w->slowest = run->locations[0].host;
    w->slower = 1;
    for (int stage = 0; stage < w->pp; stage++) {
        double mean = 0;

        for (int rank = 0; rank < world; rank++)
            mean += times[rank].group == (float)stage ? run->computed[rank] * w->pp / world : 0;
        for (int rank = 0; rank < world; rank++)
            if (times[rank].group == (float)stage && run->computed[rank] > w->slower * mean) {
                w->slower = run->computed[rank] / mean;
                w->slowest = run->locations[rank].host;
            }
    }
}

/* Of a rank on `host`. */
static void add_gpu(struct metrics_where *w, const struct gpu_reading *gpu, const char *host)
{
    for (int i = 0; i < GPU_VALUES; i++)
        if (!isnan(gpu->values[i])) {
            w->gpu_sums[i] += gpu->values[i];
            w->gpu_readings[i]++;
        }
    if (!isnan(gpu->values[GPU_CLOCK]) && (!w->lowest || gpu->values[GPU_CLOCK] < w->lowest_mhz)) {
        w->lowest = host;
        w->lowest_mhz = gpu->values[GPU_CLOCK];
        w->lowest_celsius = gpu->values[GPU_CELSIUS];
    }
    w->ecc += gpu->ecc;
    w->xid = w->xid > 0 ? w->xid : gpu->xid;
}

/* Of the first few ranks with errors: a fault of a link may be told by all GPUs. */
static void log_gpu_errors(const struct run *run, const struct rank_time *times)
{
    int world = comm_size(run->world), told = 0;

    for (int rank = 0; rank < world; rank++) {
        const struct gpu_reading *gpu = &times[rank].gpu;
        char what[96] = "";

        if (gpu->xid == 0 && gpu->ecc == 0)
            continue;
        if (gpu->xid > 0)
            snprintf(what, sizeof what, "the driver reports error XID %.0f%s", gpu->xid, gpu->ecc > 0 ? ", and " : "");
        if (gpu->ecc > 0)
            snprintf(what + strlen(what), sizeof what - strlen(what), "%.0f uncorrected errors of its memory",
                     gpu->ecc);
        if (told++ < MOST_RANKS)
            run_log(run, "warning: the GPU of rank %d on %s: %s", rank, run->locations[rank].host, what);
    }
    if (told > MOST_RANKS)
        run_log(run, "warning: the GPUs of %d more ranks have errors", told - MOST_RANKS);
}

void run_where_add(struct run *run, const struct rank_time *times)
{
    struct metrics_where *w = &run->where;
    bool last = run->engine->step == (uint64_t)run->job->batch.steps;
    int world = comm_size(run->world);

    for (int rank = 0; rank < world; rank++) {
        run->computed[rank] += times[rank].spent[SHARE_COMPUTING];
        for (int i = 0; i < RECORDER_SHARES; i++)
            w->mean[i] += times[rank].spent[i] / world;
        w->device_mib = fmax(w->device_mib, times[rank].device_mib);
        w->host_mib = fmax(w->host_mib, times[rank].host_mib);
        add_gpu(w, &times[rank].gpu, run->locations[rank].host);
    }
    log_gpu_errors(run, times);
    for (int i = 0; i < RECORDER_SHARES; i++)
        w->rank0[i] += times[0].spent[i];
    if (!last && clock_monotonic() - run->where_since < WHERE_SECONDS)
        return;
    find_slowest(w, run, times);
    run_metrics_where(run, w);
    begin_where(run);
}

/* Without NVML, or on a part of a GPU, there is nothing to tell; rank 0 says so. */
static void watch_gpu(struct run *run)
{
    unsigned char name[GPU_NAME];
    struct error why;

    if (!device_stream(run->engine->dev))
        return;
    if (device_gpu_name(run->engine->dev, name, &why) == 0)
        run->gpu = gpu_watch_create(name, &why);
    if (!run->gpu)
        run_log(run, "power, clock and errors of the GPUs are not measured: %s", why.text);
}

void run_where_start(struct run *run)
{
    watch_gpu(run);
    recorder_shares(run->shares);
    begin_where(run);
}

void run_where_take(struct run *run, struct rank_time *own)
{
    double now[RECORDER_SHARES];

    recorder_shares(now);
    for (int i = 0; i < RECORDER_SHARES; i++)
        own->spent[i] = (float)(now[i] - run->shares[i]);
    memcpy(run->shares, now, sizeof now);
    own->device_mib = (float)device_bytes_peak(run->engine->dev, MEMORY_DEVICE) / (1 << 20);
    own->host_mib = (float)memory_own() / (1 << 20);
    gpu_watch_read(run->gpu, &own->gpu);
}

void run_where_stop(struct run *run, struct error *err)
{
    int xid = err ? gpu_watch_xid(run->gpu, XID_MILLISECONDS) : 0;

    if (xid)
        error_prefix(err, "the driver reports error XID %d of this GPU", xid);
    gpu_watch_destroy(run->gpu);
    run->gpu = NULL;
}
