/* run_memory.c - whether a run's ranks fit into the memory of their hosts, before any of it is taken. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/memory_limit.h"
#include "trainer/choose_device.h"
#include "trainer/prediction.h"
#include "trainer/run.h"

#define MIB 0x1p20

/* What this rank will hold at least of its host's memory, in MiB. */
static int predict_bytes(const struct run *run, float *mib, struct error *err)
{
    struct device_traits device = {.threads = 1};
    struct footprint bytes;
    struct mesh mesh;

    if (choose_is_host(run->job->device, &device.is_host, err) < 0 ||
        mesh_fit(&mesh, comm_size(run->world), run->job->parallel.tp, run->job->parallel.pp, err) < 0 ||
        predict_footprint(run->job, &mesh, comm_rank(run->world), &device, &bytes, err) < 0)
        return -1;
    *mib = (float)((double)((device.is_host ? footprint_device(&bytes) : 0) + footprint_host(&bytes)) / MIB);
    return 0;
}

/* On a CPU both memories are the host's, and all its ranks share it, or what their job was given of it. */
static int compare_limit(const struct run *run, const float *mib, struct error *err)
{
    double machine = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE) / MIB, wanted = 0;
    double limit = (double)memory_limit() / MIB;
    const char *host = run->hosts[comm_rank(run->world)].host;
    int ranks = 0;

    for (int rank = 0; rank < comm_size(run->world); rank++)
        if (strcmp(run->hosts[rank].host, host) == 0) {
            wanted += mib[rank];
            ranks++;
        }
    if (wanted <= fmin(machine, limit))
        return 0;
    if (limit < machine)
        return error_set(err, CODE_CONFIG,
                         "%d rank%s on %s would hold %.1f GiB, and the job's memory limit there is %.1f GiB: ask for "
                         "more (sbatch --mem), start more nodes, or look at muster-train --plan for what takes so much",
                         ranks, ranks == 1 ? "" : "s", host, wanted / 1024, limit / 1024);
    return error_set(err, CODE_CONFIG,
                     "%d rank%s on %s would hold %.1f GiB, and it has %.1f GiB: start more nodes, or look at "
                     "muster-train --plan for what takes so much",
                     ranks, ranks == 1 ? "" : "s", host, wanted / 1024, machine / 1024);
}

int run_check_memory(const struct run *run, struct error *err)
{
    int rank = comm_rank(run->world), result;
    float *mib = calloc((size_t)comm_size(run->world), sizeof *mib);

    if (!mib)
        return error_set(err, CODE_IO, "out of memory");
    result = predict_bytes(run, &mib[rank], err);
    if (comm_agree(run->world, result, err) < 0 || comm_all_gather(run->world, DTYPE_F32, mib, 1, err) < 0)
        return -1; /* mib may still be written to */
    result = comm_agree(run->world, compare_limit(run, mib, err), err);
    free(mib);
    return result;
}
