#include "trainer/comm/launch.h"

#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

static int env_number(const char *name)
{
    const char *value = getenv(name);

    return value ? atoi(value) : 0;
}

/* The innermost launcher first: mpirun and mpiexec also start ranks inside a step of Slurm, whose variables stay. */
struct launch launch_read(void)
{
    struct launch launch = {.launcher = "the launcher", .pmi = getenv("PMI_FD") || getenv("PMI_PORT"), .size = 1};
    int tasks = env_number("SLURM_STEP_NUM_TASKS");

    launch.pmix = getenv("PMIX_NAMESPACE") != NULL;
    if (env_number("OMPI_COMM_WORLD_SIZE") > 0) {
        launch.launcher = "mpirun";
        launch.size = env_number("OMPI_COMM_WORLD_SIZE");
    } else if (env_number("PMI_SIZE") > 0) {
        launch.launcher = getenv("HYDI_CONTROL_FD") ? "mpiexec" : getenv("SLURM_STEP_ID") ? "srun" : "the launcher";
        launch.pmi = true;
        launch.size = env_number("PMI_SIZE");
    } else if (tasks > 0 && getenv("SLURM_STEP_ID") && getenv("SLURM_PROCID")) {
        launch.launcher = "srun";
        launch.size = tasks;
    } else if (launch.pmix) {
        launch.size = 0;
    }
    return launch;
}

const char *launch_forgotten(const struct launch *launch)
{
    /* torchrun also starts processes in a step of one task; the job's own numbers count outside of steps only */
    static const char *const names[] = {"WORLD_SIZE", "SLURM_NTASKS", "SLURM_JOB_NUM_NODES"};
    const char *step = getenv("SLURM_STEP_ID");
    bool shell = !step || strlen(step) > 9; /* a number that Slurm reserves is that of salloc's shell */
    bool srun = strcmp(launch->launcher, "srun") == 0;
    bool launched = launch->pmi || launch->pmix || (srun ? !shell : strcmp(launch->launcher, "mpirun") == 0);
    size_t count = launched ? 1 : sizeof names / sizeof *names;

    for (size_t i = 0; i < count && launch->size == 1; i++)
        if (env_number(names[i]) > 1)
            return names[i];
    return NULL;
}

#define UCX_BYTES 5e6 /* 4,292,720 and a queue with UCX 1.13 */

const char *launch_avoid_shm(const struct launch *launch)
{
    struct statvfs room;
    bool writable = access("/dev/shm", W_OK) == 0 && statvfs("/dev/shm", &room) == 0;

    if (launch->size == 1 || getenv("UCX_TLS"))
        return NULL;
    if (writable && (double)room.f_bavail * (double)room.f_frsize >= UCX_BYTES * (launch->size > 0 ? launch->size : 1))
        return NULL;
    setenv("UCX_TLS", "^posix", 1);
    return writable ? "is too small" : "cannot be written";
}

int launch_rank(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (getenv(names[i]))
            return env_number(names[i]);
    return 0;
}

static bool is_open_mpi(const char *library)
{
    return strncmp(library, "Open MPI", strlen("Open MPI")) == 0;
}

const char *launch_type(const char *library)
{
    return is_open_mpi(library) ? "pmix" : "pmi2";
}

/* What would be right, given that the protocols offered are not. MPICH that does not speak PMI2 was built for PMIx. */
static const char *right_launcher(const struct launch *launch, const char *library)
{
    bool slurm = strcmp(launch->launcher, "srun") == 0;

    if (is_open_mpi(library))
        return slurm ? "srun --mpi=pmix" : "Open MPI's mpirun, or srun --mpi=pmix";
    if (slurm)
        return launch->pmi ? "srun --mpi=pmix" : "srun --mpi=pmi2";
    return "its own mpiexec, or srun --mpi=pmi2";
}

/* `library` up to the first comma or line end: "Open MPI v4.1.4", "MPICH Version:  4.0.2". */
static int fail_launch(const struct launch *launch, const char *library, struct error *err)
{
    return error_set(err, CODE_USAGE, "%s started %d ranks with %s, which %.*s cannot use: start them with %s",
                     launch->launcher, launch->size,
                     launch->pmix  ? "PMIx"
                     : launch->pmi ? "PMI2"
                                   : "neither PMI2 nor PMIx",
                     (int)strcspn(library, ",\n"), library, right_launcher(launch, library));
}

int launch_check(const struct launch *launch, const char *library, struct error *err)
{
    bool offered = launch->pmix || (launch->pmi && !is_open_mpi(library));

    return offered ? 0 : fail_launch(launch, library, err);
}

int launch_check_size(const struct launch *launch, const char *library, int size, struct error *err)
{
    return launch->size == 0 || launch->size == size ? 0 : fail_launch(launch, library, err);
}
