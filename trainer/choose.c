#include "trainer/choose.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/crc32c.h"
#include "common/memory_limit.h"
#include "plan/auto.h"
#include "plan/plan_machine.h"
#include "plan/state.h"

/* ---- the device ---- */

/* This process's number on its node, as its launcher gives it; 0 without one. */
static int local_number(void)
{
    static const char *const names[] = {"LOCAL_RANK", "SLURM_LOCALID", "MPI_LOCALRANKID"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *value = getenv(names[i]);

        if (value && value[0])
            return atoi(value) > 0 ? atoi(value) : 0;
    }
    return 0;
}

struct device *choose_device(enum device_choice choice, struct error *err)
{
    struct device *dev;
    char gpu[32];

    if (choice != DEVICE_CPU) {
        snprintf(gpu, sizeof gpu, "cuda:%d", local_number());
        dev = device_create(gpu, 0, err);
        if (dev || choice == DEVICE_CUDA || err->code != CODE_CONFIG)
            return dev;
    }
    return device_create("cpu", 0, err);
}

/* ---- the mesh ---- */

/* The machine with this rank's GPU. */
static int find_machine(const struct job *job, char *name, size_t size, struct error *err)
{
    struct device *dev = choose_device(job->device, err);
    int result = 0;

    if (!dev)
        return -1;
    if (!plan_machine_of_device(device_describe(dev), name, size))
        result = error_set(err, CODE_CONFIG,
                           "parallel.mesh = \"auto\": muster-plan(1) knows no machine with \"%s\": set "
                           "parallel.machine",
                           device_describe(dev));
    device_destroy(dev);
    return result;
}

/* The processes of other ranks may be larger than that of rank 0 by so many bytes (MPICH: 0.2 MiB). */
enum { RANKS_DIFFER = 4 << 20 };

/* On rank 0, or without ranks. */
static int choose_keys(struct auto_choice *choice, const struct job *job, int ranks, int per_node, struct error *err)
{
    const char *given = getenv(AUTO_VARIABLE), *machine = job->parallel.machine, *handed, *ordered;
    char text[AUTO_SIZE], found[JOB_PATH_SIZE];
    struct auto_start start = {.ranks = ranks, .per_node = per_node};

    if (per_node > 0) {
        start.node_bytes =
            fmin((double)memory_limit(), (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE));
        start.process = (double)(memory_own() + memory_shared() + PROCESS_GROWTH + RANKS_DIFFER);
    }
    snprintf(text, sizeof text, "%s", given ? given : "");
    auto_read(text, &handed, &ordered);
    if (!machine[0])
        machine = handed;
    if (!machine[0]) {
        if (find_machine(job, found, sizeof found, err) < 0)
            return -1;
        machine = found;
    }
    start.machine = machine;
    if (auto_choose(choice, job, &start, err) < 0)
        return -1;
    puts(choice->why);
    if (ordered[0] && strcmp(ordered, choice->text) != 0)
        printf("srun ordered the ranks for another mesh (%s): options --set, or the memory here, changed the choice\n",
               ordered);
    return 0;
}

/* The most ranks of a host. 0: ranks cannot communicate. */
static int count_per_node(struct comm *world, struct error *err)
{
    const char *node = getenv("SLURMD_NODENAME");
    char host[256] = "";
    struct comm *ranks;
    double most = 0;

    gethostname(host, sizeof host - 1);
    node = node ? node : host;
    ranks = comm_split(world, (int)(crc32c(0, node, strlen(node)) & INT_MAX), comm_rank(world), err);
    if (!ranks)
        return 0;
    most = comm_size(ranks);
    comm_destroy(ranks);
    return comm_max_f64(world, &most, 1, err) < 0 ? 0 : (int)most;
}

int choose_mesh(struct job *job, const char *name, struct comm *world, struct error *err)
{
    struct auto_choice choice = {.text = ""};
    int per_node, result = 0;

    if (job->parallel.mesh != MESH_AUTO)
        return 0;
    per_node = count_per_node(world, err);
    if (per_node == 0)
        return -1;
    if (comm_rank(world) == 0)
        result = choose_keys(&choice, job, comm_size(world), per_node, err);
    if (comm_agree(world, result, err) < 0 || comm_broadcast(world, choice.text, sizeof choice.text, 0, err) < 0)
        return -1;
    return job_override(job, name, choice.text, err);
}

int choose_mesh_of(struct job *job, const char *name, int ranks, struct error *err)
{
    struct auto_choice choice;

    if (job->parallel.mesh != MESH_AUTO)
        return 0;
    return choose_keys(&choice, job, ranks, 0, err) < 0 ? -1 : job_override(job, name, choice.text, err);
}
