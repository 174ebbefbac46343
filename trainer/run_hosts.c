/*
 * run_hosts.c - the hosts of a run: checks that each one's ranks fit into its memory, before it is allocated, and that
 * their threads have a processor each.
 */
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/memory_limit.h"
#include "trainer/rank_config.h"
#include "trainer/run.h"

void *run_gather(const struct run *run, const void *own, size_t count, const char *purpose, struct error *err)
{
    float *all = error_calloc((size_t)comm_size(run->world), count * sizeof *all, err);

    if (!all)
        return NULL;
    memcpy(all + (size_t)comm_rank(run->world) * count, own, count * sizeof *all);
    comm_purpose(run->world, purpose, NULL);
    return comm_all_gather(run->world, DTYPE_F32, all, count, err) == 0 ? all : NULL; /* may still be written to */
}

/* ---- memory ---- */

#define MIB 0x1p20

/* The least memory of its host that this rank will hold, in MiB. */
static int predict_bytes(const struct run *run, float *mib, struct error *err)
{
    struct device *dev = choose_device(run->job->device, err);
    struct device_traits device = {.threads = 1};
    struct footprint bytes;
    struct mesh mesh;

    if (!dev)
        return -1;
    device.is_host = device_is_host(dev);
    device_destroy(dev);
    if (mesh_fit(&mesh, comm_size(run->world), run->job->parallel.tp, run->job->parallel.pp, err) < 0 ||
        rank_config_footprint(run->job, &mesh, comm_rank(run->world), &device, &bytes, err) < 0)
        return -1;
    *mib = (float)((double)((device.is_host ? footprint_device(&bytes) : 0) + footprint_host(&bytes)) / MIB);
    return 0;
}

/* On a CPU both memories are the host's; its ranks share it, up to the job's limit. */
static int compare_limit(const struct run *run, const float *mib, struct error *err)
{
    double machine = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE) / MIB, wanted = 0;
    double limit = (double)memory_limit() / MIB;
    const char *host = run->locations[comm_rank(run->world)].host;
    int ranks = 0;

    for (int rank = 0; rank < comm_size(run->world); rank++)
        if (strcmp(run->locations[rank].host, host) == 0) {
            wanted += mib[rank];
            ranks++;
        }
    if (wanted <= fmin(machine, limit))
        return 0;
    return error_set(err, CODE_CONFIG,
                     "%d rank%s on %s would hold %.1f GiB, and %s %.1f GiB: %sstart more nodes; muster-train --plan "
                     "shows what takes the memory",
                     ranks, ranks == 1 ? "" : "s", host, wanted / 1024,
                     limit < machine ? "the job's memory limit there is" : "it has", fmin(machine, limit) / 1024,
                     limit < machine ? "ask for more (sbatch --mem) or " : "");
}

int run_check_memory(const struct run *run, struct error *err)
{
    float own = 0, *mib;
    int result = predict_bytes(run, &own, err);

    if (comm_agree(run->world, result, err) < 0)
        return -1;
    mib = run_gather(run, &own, 1, "memory", err);
    if (!mib)
        return -1;
    result = comm_agree(run->world, compare_limit(run, mib, err), err);
    free(mib);
    return result;
}

/* ---- threads ---- */

struct part_of_host {
    float threads, processors; /* the rank's threads, and the processors that it may run on */
    float first;               /* the number of the first of these; -1 if unknown */
};

static struct part_of_host own_share(const struct run *run)
{
    const struct device_traits *device = &run->engine->traits;
    struct part_of_host part = {
        .threads = device->is_host ? (float)device->threads : 0, .processors = INFINITY, .first = -1};
    cpu_set_t set;

    if (sched_getaffinity(0, sizeof set, &set) < 0)
        return part;
    part.processors = (float)CPU_COUNT(&set);
    part.first = 0;
    while (part.first < CPU_SETSIZE && !CPU_ISSET((int)part.first, &set))
        part.first++;
    return part;
}

/* Processors that several ranks share, as in a job without binding, are counted once. */
static bool is_counted(const struct run *run, const struct part_of_host *shares, int rank)
{
    for (int r = 0; r < rank; r++)
        if (strcmp(run->locations[r].host, run->locations[rank].host) == 0 && shares[r].first == shares[rank].first &&
            shares[r].processors == shares[rank].processors)
            return true;
    return false;
}

/*
 * Threads that share a processor wait for each other at the end of every operation: training is not half but a
 * hundredth as fast, without any other sign of the reason. Ranks of one thread each are assumed to be intended.
 */
static void check_threads(const struct run *run, const struct part_of_host *shares)
{
    float online = (float)sysconf(_SC_NPROCESSORS_ONLN), threads = 0, processors = 0, most = 0;
    const char *host = run->locations[0].host;
    int ranks = 0;

    for (int rank = 0; rank < comm_size(run->world); rank++)
        if (strcmp(run->locations[rank].host, host) == 0) {
            threads += shares[rank].threads;
            if (!is_counted(run, shares, rank))
                processors += shares[rank].processors;
            most = fmaxf(most, shares[rank].threads);
            ranks++;
        }
    processors = fminf(processors, online);
    if (threads <= processors || most <= 1)
        return;
    run_log(run,
            "%d rank%s on %s compute%s with %.0f threads on %.0f processor%s, which is very slow: "
            "set OMP_NUM_THREADS=%.0f, or give the ranks more processors",
            ranks, ranks == 1 ? "" : "s", host, ranks == 1 ? "s" : "", threads, processors, processors > 1 ? "s" : "",
            fmaxf(1, floorf(processors / (float)ranks)));
}

int run_check_threads(const struct run *run, struct error *err)
{
    struct part_of_host own = own_share(run), *shares;

    shares = run_gather(run, &own, sizeof own / sizeof(float), "threads", err);
    if (!shares)
        return -1;
    if (run->leader)
        check_threads(run, shares);
    free(shares);
    return 0;
}
