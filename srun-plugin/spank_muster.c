/*
 * spank_muster.c - the SPANK plugin: its two options and Slurm's callbacks. What it decides is in env.c.
 *
 *   srun      init_post_opt    checks the job file; a broken one ends srun with 78 before anything was launched, but
 *                              not the srun that salloc starts for an interactive step: its end would be the job's
 *             local_user_init  asks slurmctld for the layout; MUSTER_HEAD takes rank 0's address to slurmstepd;
 *                              --muster-preflight checks the nodes
 *             exit             ends with 76 where it found a bad one
 *   slurmstepd  task_init      sets the variables of one rank, as the user, after Slurm bound it to its CPUs
 *   sbatch, salloc             pass the options on; warn of a broken job file
 *   slurmd    job_epilog       drains checkpoints that a killed job left in the node's memory, as the job's user
 *
 * Manners: without --muster nothing happens. Every callback returns 0, whatever went wrong, since Slurm drains a node
 * whose plugin fails in init or user_init; and nothing of a
 * user's is opened as root. See spank(8) and
 * doc/spank_muster.8.scd.
 */
#include <inttypes.h>
#include <limits.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <slurm/slurm.h>
#include <slurm/spank.h>

#include "common/error.h"
#include "common/job.h"
#include "srun-plugin/env.h"
#include "srun-plugin/epilog.h"
#include "srun-plugin/layout.h"
#include "srun-plugin/preflight/option.h"
#include "srun-plugin/report.h"

SPANK_PLUGIN(spank_muster, 1)

#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(25, 5, 0)
extern int slurm_spank_init_failure_mode;
int slurm_spank_init_failure_mode = ESPANK_JOB_FAILURE; /* a plugin that cannot start costs the job, not the node */
#endif

enum option_value { OPTION_JOB, OPTION_REPORT, OPTION_PREFLIGHT };

/* What the user asked for. Slurm forks the tasks from the process that filled this in, so they see it too. */
static struct {
    bool on, report;
    char file[PATH_MAX]; /* --muster=FILE, as given; "" for none */
    struct preflight_wish preflight;
} wish;

/* What is wrong with the job file of an srun that may be an interactive step's; "" where nothing is. */
static struct error held_back;

/* May come several times: from the environment of the batch job, from the command line, twice in slurmstepd. */
static int on_option(int value, const char *argument, int remote)
{
    (void)remote;
    if (value == OPTION_PREFLIGHT && preflight_option(&wish.preflight, argument) < 0) {
        slurm_spank_log("muster: --muster-preflight=%s: there is --muster-preflight and --muster-preflight=exclude",
                        argument);
        return -1;
    }
    wish.on = true;
    if (value == OPTION_PREFLIGHT)
        return 0;
    if (value == OPTION_REPORT)
        wish.report = true;
    /* `srun --muster` inside a job of `sbatch --muster=FILE` says nothing against FILE. */
    else if (argument && argument[0])
        snprintf(wish.file, sizeof wish.file, "%s", argument);
    return 0;
}

static struct spank_option options[] = {
    {(char *)"muster", (char *)"[JOB.cfg]",
     (char *)"set RANK, WORLD_SIZE, MASTER_ADDR, ... for every task, where the user did not; check the job file", 2,
     OPTION_JOB, on_option},
    {(char *)"muster-report", NULL,
     (char *)"the same, and print the ranks, every variable, and where its value comes from", 0, OPTION_REPORT,
     on_option},
    {(char *)"muster-preflight", (char *)"[exclude]",
     (char *)"the same, and check all nodes before any task starts; end with 76 where one is bad, and with =exclude "
             "requeue the job without it",
     2, OPTION_PREFLIGHT, on_option},
};

static void print_line(const char *line)
{
    slurm_spank_log("%s", line);
}

/* ---- sbatch, salloc, srun ---------------------------------------------------------------------------------------- */

int slurm_spank_init(spank_t spank, int argc, char *argv[])
{
    spank_context_t context = spank_context();

    (void)argc;
    (void)argv;
    if (context != S_CTX_LOCAL && context != S_CTX_REMOTE && context != S_CTX_ALLOCATOR)
        return 0;
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++)
        if (spank_option_register(spank, &options[i]) != ESPANK_SUCCESS)
            slurm_error("muster: Slurm did not take the option --%s", options[i].name);
    return 0;
}

/* The SLURM_CPUS_PER_TASK around srun; "" for none. */
static char outer_cpus[32];

/*
 * srun sets SLURM_CPUS_PER_TASK only where it was given --cpus-per-task, and else leaves that of sbatch there. It has
 * read its inputs by now: with the variable gone, local_user_init sees whether srun set it.
 */
static void hide_outer_cpus(void)
{
    const char *value = getenv("SLURM_CPUS_PER_TASK");

    if (!value || strlen(value) >= sizeof outer_cpus)
        return;
    snprintf(outer_cpus, sizeof outer_cpus, "%s", value);
    unsetenv("SLURM_CPUS_PER_TASK");
}

static void show_outer_cpus(void)
{
    unsetenv("MUSTER_CPUS_INHERITED");
    if (!outer_cpus[0] || getenv("SLURM_CPUS_PER_TASK"))
        return;
    setenv("SLURM_CPUS_PER_TASK", outer_cpus, 1);
    setenv("MUSTER_CPUS_INHERITED", "1", 1);
}

static int check_job_file(struct error *err)
{
    struct job job;

    if (job_load(&job, wish.file, NULL, 0, err) < 0)
        return -1;
    job_destroy(&job);
    return 0;
}

/* The tasks' working directory may be another: they get the absolute path. */
static int pass_job_file_on(struct error *err)
{
    char path[PATH_MAX];

    if (!realpath(wish.file, path) || setenv("MUSTER_JOB", path, 1) < 0)
        return error_errno(err, CODE_IO, "%s", wish.file);
    return 0;
}

/* True for "-n" and "--ntasks", whose value may be the next word; false for "-n1" and "--ntasks=1". */
static bool may_take_a_value(const char *option)
{
    return option[1] == '-' ? !strchr(option, '=') : strlen(option) == 2;
}

/*
 * With LaunchParameters=use_interactive_step, salloc's shell is that of a hidden `srun --interactive` in the job. No
 * item tells it from others before the step exists, but its options do. `srun --muster PROGRAM --interactive` looks
 * like it: local_user_init, which knows the step's id, decides. To leave every decision to it would not do: a step
 * whose srun ends there holds its CPUs until the job ends.
 */
static bool may_be_interactive(void)
{
    FILE *file = getenv("SLURM_JOB_ID") ? fopen("/proc/self/cmdline", "r") : NULL;
    char *word = NULL;
    size_t size = 0;
    bool found = false, value = true; /* the first word is srun's own name */

    if (!file)
        return false;
    while (!found && getdelim(&word, &size, '\0', file) > 0 && (word[0] == '-' || value)) {
        found = strcmp(word, "--interactive") == 0;
        if (strcmp(word, "--") == 0)
            break;
        value = word[0] == '-' && may_take_a_value(word);
    }
    free(word);
    fclose(file);
    return found;
}

static void warn_of_job_file(const struct error *err)
{
    slurm_spank_log("muster: warning: %s; srun will refuse it like this", err->text);
}

/* SPANK has no way to choose srun's exit code. No task was launched as yet. */
static void refuse_job_file(const struct error *err)
{
    slurm_spank_log("muster: %s", err->text);
    exit((int)err->code);
}

int slurm_spank_init_post_opt(spank_t spank, int argc, char *argv[])
{
    spank_context_t context = spank_context();
    const char *outer = getenv("MUSTER_JOB");
    struct error err;

    (void)spank;
    (void)argc;
    (void)argv;
    if (!wish.on || (context != S_CTX_LOCAL && context != S_CTX_ALLOCATOR))
        return 0;
    if (context == S_CTX_LOCAL) {
        hide_outer_cpus();
        if (wish.preflight.on)
            preflight_look_around(&wish.preflight);
    }
    if (!wish.file[0] && outer)
        snprintf(wish.file, sizeof wish.file, "%s", outer);
    if (!wish.file[0])
        return 0;
    if (context == S_CTX_ALLOCATOR) {
        /* The job may sit in the queue for days, and its file be mended meanwhile, or be in another directory. */
        if (check_job_file(&err) < 0)
            warn_of_job_file(&err);
        return 0;
    }
    if (check_job_file(&err) == 0 && pass_job_file_on(&err) == 0)
        return 0;
    if (!may_be_interactive())
        refuse_job_file(&err);
    held_back = err;
    return 0;
}

/* What srun shall end with, since preflight found a bad node; 0 where it did not. */
static int refused;

/* Of plugstack.conf; the other words are read in job_epilog. */
static const char *preflight_program(int argc, char *argv[])
{
    for (int i = 0; i < argc; i++)
        if (strncmp(argv[i], "preflight=", 10) == 0)
            return argv[i] + 10;
    return PREFLIGHT_PATH;
}

int slurm_spank_local_user_init(spank_t spank, int argc, char *argv[])
{
    uint32_t job_id, step_id;
    struct layout *layout;
    struct error err;

    if (!wish.on)
        return 0;
    show_outer_cpus();
    if (spank_get_item(spank, S_JOB_ID, &job_id) != ESPANK_SUCCESS ||
        spank_get_item(spank, S_JOB_STEPID, &step_id) != ESPANK_SUCCESS) {
        if (held_back.text[0])
            refuse_job_file(&held_back);
        slurm_spank_log("muster: warning: Slurm does not tell the step's id; MASTER_ADDR is the first node's name");
        return 0;
    }
    if (held_back.text[0] && step_id < SLURM_MAX_NORMAL_STEP_ID)
        refuse_job_file(&held_back);
    if (held_back.text[0])
        warn_of_job_file(&held_back);
    if (step_id >= SLURM_MAX_NORMAL_STEP_ID)
        return 0; /* it has no ranks */
    layout = layout_create(job_id, step_id, &err);
    if (!layout) {
        slurm_spank_log("muster: warning: %s; MASTER_ADDR is the first node's name", err.text);
        return 0;
    }
    if (layout_find_head(layout, &err) < 0)
        slurm_spank_log("muster: warning: %s; MASTER_ADDR is its name", err.text);
    setenv("MUSTER_HEAD", layout->head, 1);
    if (wish.report)
        report_layout(layout, print_line);
    wish.preflight.program = preflight_program(argc, argv);
    wish.preflight.job_file = wish.file;
    refused = preflight_option_run(&wish.preflight, layout, print_line);
    layout_destroy(layout);
    return 0;
}

/* The last of srun. On a dead node not even a task that ends at once can be started, and srun has a code of its own. */
int slurm_spank_exit(spank_t spank, int argc, char *argv[])
{
    (void)spank;
    (void)argc;
    (void)argv;
    if (!refused || spank_context() != S_CTX_LOCAL)
        return 0;
    fflush(NULL);
    _exit(refused);
}

/* ---- slurmstepd -------------------------------------------------------------------------------------------------- */

/* A value that does not fit is cut, and is set all the same. */
static bool look_up(const char *name, char *value, size_t size, void *arg)
{
    spank_err_t rc = spank_getenv((spank_t)arg, name, value, (int)size);

    return rc == ESPANK_SUCCESS || rc == ESPANK_NOSPACE;
}

/* The whole of a value, however long, to be freed; NULL when it is not set. */
static char *look_up_whole(spank_t spank, const char *name)
{
    spank_err_t rc = ESPANK_NOSPACE;
    char *value = NULL;

    for (int size = ENV_VALUE_SIZE; rc == ESPANK_NOSPACE && size < INT_MAX / 2; size *= 2) {
        free(value);
        value = malloc((size_t)size);
        if (!value)
            return NULL;
        rc = spank_getenv(spank, name, value, size);
    }
    if (rc == ESPANK_SUCCESS)
        return value;
    free(value);
    return NULL;
}

/* Items that this Slurm does not have stay 0. */
static uint32_t item(spank_t spank, spank_item_t which)
{
    uint32_t value = 0;

    return spank_get_item(spank, which, &value) == ESPANK_SUCCESS ? value : 0;
}

static uint32_t count_bound_cpus(void)
{
    cpu_set_t cpus;

    return sched_getaffinity(0, sizeof cpus, &cpus) == 0 ? (uint32_t)CPU_COUNT(&cpus) : 0;
}

/* What srun --export=NONE kept from coming here is worked out again, as well as this side can. size is PATH_MAX. */
static void find_strings(spank_t spank, struct task *task, char *head, char *job_file, size_t size)
{
    char *outer_head = look_up_whole(spank, "MUSTER_HEAD");
    char *nodes = look_up_whole(spank, "SLURM_STEP_NODELIST"); /* of a large step, longer than any fixed size */
    char *outer_file = look_up_whole(spank, "MUSTER_JOB");

    if (outer_head && strlen(outer_head) < size)
        task->head = strcpy(head, outer_head);
    else if (nodes && layout_first_name(nodes, head, size) == 0)
        task->head = head;
    if (outer_file && strlen(outer_file) < size)
        task->job_file = strcpy(job_file, outer_file);
    else if (!outer_file && wish.file[0] && realpath(wish.file, job_file))
        task->job_file = job_file;
    free(outer_head);
    free(nodes);
    free(outer_file);
}

/* The srun of this step found a bad node (preflight/option.h): no program is to start. */
static void heed_preflight(spank_t spank)
{
    char text[64] = "";
    int code;

    if (!look_up(PREFLIGHT_REFUSED, text, sizeof text, spank))
        return;
    code = preflight_refusal(text, item(spank, S_JOB_ID), item(spank, S_JOB_STEPID));
    if (code)
        _exit(code);
    spank_unsetenv(spank, PREFLIGHT_REFUSED);
}

static void set_variables(spank_t spank, const struct task *task)
{
    static struct env_entry entries[ENV_MAX]; /* 64 KiB, in a process that is about to exec */
    size_t count = env_plan(task, look_up, spank, entries);

    for (size_t i = 0; i < count; i++)
        if (entries[i].source == ENV_MUSTER &&
            spank_setenv(spank, entries[i].name, entries[i].value, 1) != ESPANK_SUCCESS)
            slurm_spank_log("muster: warning: rank %" PRIu32 ": Slurm did not set %s", task->rank, entries[i].name);
    if (wish.report && task->rank == 0)
        report_env(task, entries, count, print_line);
}

int slurm_spank_task_init(spank_t spank, int argc, char *argv[])
{
    char head[PATH_MAX], job_file[PATH_MAX], inherited[8];
    uint16_t node_cpus = 0;
    struct task task;

    (void)argc;
    (void)argv;
    /* Batch scripts, salloc's interactive steps and the external step have no ranks. */
    if (!wish.on || item(spank, S_JOB_STEPID) >= SLURM_MAX_NORMAL_STEP_ID)
        return 0;
    heed_preflight(spank);
    spank_get_item(spank, S_JOB_NCPUS, &node_cpus);
    task = (struct task){
        .job_id = item(spank, S_JOB_ID),
        .step_id = item(spank, S_JOB_STEPID),
        .nodes = item(spank, S_JOB_NNODES),
        .node = item(spank, S_JOB_NODEID),
        .ranks = item(spank, S_JOB_TOTAL_TASK_COUNT),
        .rank = item(spank, S_TASK_GLOBAL_ID),
        .local_ranks = item(spank, S_JOB_LOCAL_TASK_COUNT),
        .local_rank = item(spank, S_TASK_ID),
        .cpus_per_task = item(spank, S_STEP_CPUS_PER_TASK),
        .node_cpus = node_cpus,
        .bound_cpus = count_bound_cpus(),
    };
    task.cpus_inherited = look_up("MUSTER_CPUS_INHERITED", inherited, sizeof inherited, spank);
    spank_unsetenv(spank, "MUSTER_CPUS_INHERITED");
    find_strings(spank, &task, head, job_file, sizeof head);
    spank_unsetenv(spank, "MUSTER_HEAD"); /* has arrived; an srun inside this step finds its own */
    set_variables(spank, &task);
    return 0;
}

/* ---- slurmd ------------------------------------------------------------------------------------------------------ */

/* The words after the plugin's name in plugstack.conf. */
static void read_site(struct epilog *epilog, int argc, char *argv[])
{
    for (int i = 0; i < argc; i++) {
        if (strncmp(argv[i], "stage=", 6) == 0)
            epilog->roots = argv[i] + 6;
        else if (strncmp(argv[i], "ckptd=", 6) == 0)
            epilog->ckptd = argv[i] + 6;
        else if (strncmp(argv[i], "epilog_seconds=", 15) == 0)
            epilog->seconds = atoi(argv[i] + 15);
        else if (strncmp(argv[i], "preflight=", 10) != 0)
            slurm_error("muster: plugstack.conf: what is %s? there are stage=, ckptd=, epilog_seconds= and preflight=",
                        argv[i]);
    }
}

/* Also of jobs that never heard of --muster: whether there is something to drain is what lies there. */
int slurm_spank_job_epilog(spank_t spank, int argc, char *argv[])
{
    struct epilog epilog = {.roots = "/dev/shm", .ckptd = CKPTD_PATH, .seconds = 300};

    if (spank_get_item(spank, S_JOB_ID, &epilog.job_id) != ESPANK_SUCCESS ||
        spank_get_item(spank, S_JOB_UID, &epilog.uid) != ESPANK_SUCCESS)
        return 0;
    read_site(&epilog, argc, argv);
    epilog_drain(&epilog, print_line);
    return 0;
}
