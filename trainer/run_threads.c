/* run_threads.c - whether the threads of a host's ranks have a processor each. */
#include <math.h>
#include <sched.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "trainer/run.h"

enum { PART_NUMBERS = 3 };

struct part_of_host {
    float threads, processors, first; /* the processors that the rank may run on, and the number of the first; -1 */
};

static struct part_of_host own_share(const struct run *run)
{
    struct device_traits device = device_traits(run->engine->dev, run->job->precision.compute);
    struct part_of_host part = {
        .threads = device.is_host ? (float)device.threads : 0, .processors = INFINITY, .first = -1};
    cpu_set_t set;

    if (sched_getaffinity(0, sizeof set, &set) < 0)
        return part;
    part.processors = (float)CPU_COUNT(&set);
    part.first = 0;
    while (part.first < CPU_SETSIZE && !CPU_ISSET((int)part.first, &set))
        part.first++;
    return part;
}

/* Ranks that may all run on the same processors, as of a job without binding, have them once. */
static bool is_counted(const struct run *run, const struct part_of_host *shares, int rank)
{
    for (int r = 0; r < rank; r++)
        if (strcmp(run->hosts[r].host, run->hosts[rank].host) == 0 && shares[r].first == shares[rank].first &&
            shares[r].processors == shares[rank].processors)
            return true;
    return false;
}

/*
 * Threads that share a processor wait for each other at the end of every operation, and training is not half but a
 * hundredth as fast, with nothing that shows why. Ranks of one thread each are what was asked for.
 */
static void check_threads(const struct run *run, const struct part_of_host *shares)
{
    float online = (float)sysconf(_SC_NPROCESSORS_ONLN), threads = 0, processors = 0, most = 0;
    const char *host = run->hosts[0].host;
    int ranks = 0;

    for (int rank = 0; rank < comm_size(run->world); rank++)
        if (strcmp(run->hosts[rank].host, host) == 0) {
            threads += shares[rank].threads;
            if (!is_counted(run, shares, rank))
                processors += shares[rank].processors;
            most = fmaxf(most, shares[rank].threads);
            ranks++;
        }
    processors = fminf(processors, online);
    if (threads <= processors || most <= 1)
        return;
    run_say(run,
            "%d rank%s on %s compute%s with %.0f threads on %.0f processor%s, which is very slow: "
            "set OMP_NUM_THREADS=%.0f, or give the ranks more processors",
            ranks, ranks == 1 ? "" : "s", host, ranks == 1 ? "s" : "", threads, processors, processors > 1 ? "s" : "",
            fmaxf(1, floorf(processors / (float)ranks)));
}

int run_check_threads(const struct run *run, struct error *err)
{
    int rank = comm_rank(run->world), result = 0;
    struct part_of_host *shares = calloc((size_t)comm_size(run->world), sizeof *shares);

    if (!shares)
        result = error_set(err, CODE_IO, "out of memory");
    if (comm_agree(run->world, result, err) < 0) {
        free(shares);
        return -1;
    }
    shares[rank] = own_share(run);
    if (comm_all_gather(run->world, DTYPE_F32, shares, PART_NUMBERS, err) < 0)
        return -1; /* shares may still be written to */
    if (run->leader)
        check_threads(run, shares);
    free(shares);
    return 0;
}
