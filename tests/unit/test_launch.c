/* launch.h: what each launcher's environment offers, and what is right for each MPI library. */
#include "tests/cmocka_test.h"
#include "trainer/comm/launch.h"

#define MPICH    "MPICH Version: 4.0.2\nMPICH Device: ch4:ucx"
#define OPEN_MPI "Open MPI v4.1.4, package: Debian OpenMPI"

/* The variables as srun, mpirun and mpiexec set them for rank 1 of 4. Inside Slurm, mpirun and mpiexec start their
 * daemons as a step of one task a node. */
#define STEP    "SLURM_STEP_ID=0", "SLURM_PROCID=1", "SLURM_STEP_NUM_TASKS=4"
#define DAEMONS "SLURM_STEP_ID=0", "SLURM_PROCID=0", "SLURM_STEP_NUM_TASKS=2"
#define PMI     "PMI_FD=7", "PMI_RANK=1", "PMI_SIZE=4"
#define PMIX    "PMIX_NAMESPACE=slurm.pmix.7.0", "PMIX_RANK=1"

static const struct {
    const char *name, *env[8];
    struct launch launch;
    const char *mpich, *open_mpi; /* the right way to start, of the message; NULL: it fits */
} cases[] = {
    {"no launcher", {NULL}, {"the launcher", false, false, 1}, NULL, NULL},
    {"srun --mpi=pmi2", {STEP, PMI}, {"srun", true, false, 4}, NULL, "srun --mpi=pmix"},
    {"srun --mpi=pmix", {STEP, PMIX}, {"srun", false, true, 4}, "srun --mpi=pmi2", NULL},
    {"srun --mpi=none", {STEP}, {"srun", false, false, 4}, "srun --mpi=pmi2", "srun --mpi=pmix"},
    {"mpiexec", {PMI, "HYDI_CONTROL_FD=5"}, {"mpiexec", true, false, 4}, NULL, "Open MPI's mpirun, or srun --mpi=pmix"},
    {"mpirun",
     {PMIX, "OMPI_COMM_WORLD_SIZE=4", "OMPI_COMM_WORLD_RANK=1"},
     {"mpirun", false, true, 4},
     "its own mpiexec, or srun --mpi=pmi2",
     NULL},
    {"mpirun in an allocation",
     {DAEMONS, PMIX, "OMPI_COMM_WORLD_SIZE=4", "OMPI_COMM_WORLD_RANK=1"},
     {"mpirun", false, true, 4},
     "its own mpiexec, or srun --mpi=pmi2",
     NULL},
    {"mpiexec in an allocation",
     {DAEMONS, PMI, "HYDI_CONTROL_FD=5"},
     {"mpiexec", true, false, 4},
     NULL,
     "Open MPI's mpirun, or srun --mpi=pmix"},
    {"another launcher with PMIx", {PMIX}, {"the launcher", false, true, 0}, NULL, NULL},
    {"one task",
     {"SLURM_STEP_ID=0", "SLURM_PROCID=0", "SLURM_STEP_NUM_TASKS=1"},
     {"srun", false, false, 1},
     NULL,
     NULL},
    {"the shell of salloc", {"SLURM_STEP_NUM_TASKS=4"}, {"the launcher", false, false, 1}, NULL, NULL},
};

/* What else the environment has, and the variable that tells of the ranks that were not started. */
static const struct {
    const char *env[6], *variable;
} lone[] = {
    {{NULL}, NULL},
    {{"SLURM_NTASKS=8"}, "SLURM_NTASKS"},
    {{"SLURM_NTASKS=1", "SLURM_JOB_NUM_NODES=1", "WORLD_SIZE=1"}, NULL},
    {{"SLURM_JOB_NUM_NODES=2"}, "SLURM_JOB_NUM_NODES"},
    {{"WORLD_SIZE=2", "RANK=0"}, "WORLD_SIZE"},
    {{"SLURM_NTASKS=8", "SLURM_PROCID=0", "SLURM_STEP_ID=4294967290", "SLURM_STEP_NUM_TASKS=1"}, "SLURM_NTASKS"},
    {{"SLURM_NTASKS=8", "SLURM_PROCID=0", "SLURM_STEP_ID=0", "SLURM_STEP_NUM_TASKS=1"}, NULL},
    {{"WORLD_SIZE=4", "SLURM_PROCID=0", "SLURM_STEP_ID=0", "SLURM_STEP_NUM_TASKS=1"}, "WORLD_SIZE"},
    {{"SLURM_NTASKS=8", "PMI_FD=7", "PMI_RANK=0", "PMI_SIZE=1", "HYDI_CONTROL_FD=5"}, NULL},
    {{"SLURM_NTASKS=8", "OMPI_COMM_WORLD_SIZE=1"}, NULL},
    {{"SLURM_NTASKS=8", "WORLD_SIZE=8", STEP}, NULL},
};

/* Of the environment, only what launch_read reads: the rest is the test runner's. */
static void set_environment(const char *const *env)
{
    static const char *const read[] = {"SLURM_STEP_ID",
                                       "SLURM_PROCID",
                                       "SLURM_STEP_NUM_TASKS",
                                       "PMI_FD",
                                       "PMI_PORT",
                                       "PMI_RANK",
                                       "PMI_SIZE",
                                       "PMIX_NAMESPACE",
                                       "PMIX_RANK",
                                       "OMPI_COMM_WORLD_SIZE",
                                       "OMPI_COMM_WORLD_RANK",
                                       "HYDI_CONTROL_FD",
                                       "WORLD_SIZE",
                                       "SLURM_NTASKS",
                                       "SLURM_JOB_NUM_NODES"};

    for (size_t i = 0; i < sizeof read / sizeof *read; i++)
        unsetenv(read[i]);
    for (size_t i = 0; env[i]; i++)
        assert_int_equal(putenv((char *)(uintptr_t)env[i]), 0);
}

static void launchers(void **state)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct launch launch, want = cases[i].launch;

        set_environment(cases[i].env);
        launch = launch_read();
        print_message("# %s\n", cases[i].name);
        assert_string_equal(launch.launcher, want.launcher);
        assert_int_equal(launch.size, want.size);
        assert_true(launch.pmi == want.pmi && launch.pmix == want.pmix);
        assert_int_equal(launch_rank(), launch.pmi || launch.pmix || launch.size == 4);
    }
}

static void one_rank_where_several_were_meant(void **state)
{
    for (size_t i = 0; i < sizeof lone / sizeof *lone; i++) {
        struct launch launch;
        const char *variable;

        set_environment(lone[i].env);
        launch = launch_read();
        variable = launch_forgotten(&launch);
        print_message("# %zu: %s\n", i, variable ? variable : "none");
        assert_string_equal(variable ? variable : "", lone[i].variable ? lone[i].variable : "");
    }
}

/* A library that does not know the protocol finds one rank. */
static void check_library(const struct launch *launch, const char *library, bool speaks, const char *right)
{
    struct error err = {0};
    int rc = launch_check(launch, library, &err);

    if (rc == 0)
        rc = launch_check_size(launch, library, speaks ? launch->size : 1, &err);
    assert_int_equal(rc, right ? -1 : 0);
    if (!right)
        return;
    assert_int_equal(err.code, CODE_USAGE);
    assert_true(strlen(err.text) > strlen(right));
    assert_string_equal(err.text + strlen(err.text) - strlen(right), right);
    assert_non_null(
        strstr(err.text, strncmp(library, "Open", 4) == 0 ? "Open MPI v4.1.4 cannot" : "Version: 4.0.2 cannot"));
}

static void libraries(void **state)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct launch *launch = &cases[i].launch;

        if (launch->size == 1)
            continue; /* no MPI is asked */
        print_message("# %s\n", cases[i].name);
        check_library(launch, MPICH, launch->pmi, cases[i].mpich);
        check_library(launch, OPEN_MPI, launch->pmix, cases[i].open_mpi);
    }
    /* MPICH that was built for PMIx: fits PMIx, and is told so when started with PMI2. */
    check_library(&(struct launch){"srun", false, true, 4}, MPICH, true, NULL);
    check_library(&(struct launch){"srun", true, false, 4}, MPICH, false, "srun --mpi=pmix");
    assert_string_equal(launch_type(MPICH), "pmi2");
    assert_string_equal(launch_type(OPEN_MPI), "pmix");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(launchers),
        cmocka_unit_test(libraries),
        cmocka_unit_test(one_rank_where_several_were_meant),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
