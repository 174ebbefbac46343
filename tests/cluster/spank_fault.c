/*
 * spank_fault.c - a SPANK plugin for tests: does harm to the plugin that is stacked behind it, in one callback, and
 * undoes it where it is stacked behind that one. In plugstack.conf:
 *
 *     optional spank_fault.so harm user_init=no_files      before spank_muster.so
 *     optional spank_mend.so mend user_init=no_files       after it; a copy, since Slurm loads no path twice
 *
 * Callbacks: init, init_post_opt, local_user_init, user_init, task_init, job_epilog; in one context only with a word in
 * front: local_init, remote_init, allocator_init, slurmd_init. Harms:
 *
 *     no_files   no descriptor can be opened
 *     no_memory  no page can be had: what does not fit into the heap as it is fails
 *     no_heap    nor anything of the heap; in task_init only, since it cannot be undone
 *     no_write   no file can grow; SIGXFSZ, which would end the process, is ignored
 *     garbage    the variables that the plugin reads have absurd values
 */
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <slurm/slurm.h>
#include <slurm/spank.h>

SPANK_PLUGIN(spank_fault, 1)

static void limit(int resource, rlim_t soft)
{
    struct rlimit limits;

    getrlimit(resource, &limits);
    limits.rlim_cur = soft < limits.rlim_max ? soft : limits.rlim_max;
    setrlimit(resource, &limits);
}

/* Not 0: poll refuses more descriptors than the limit says, and Slurm would lose what it is to log. */
static rlim_t lowest_free_descriptor(void)
{
    int fd = dup(STDIN_FILENO);

    if (fd < 0)
        return 3;
    close(fd);
    return (rlim_t)fd;
}

/* Leaves nothing of the heap either. For task_init only: what comes next is exec, or the end. */
static void eat_heap(void)
{
    limit(RLIMIT_AS, 1);
    for (size_t size = 1 << 20; size >= 16; size /= 2)
        while (malloc(size))
            ;
}

/* Slurm may have given the process a limit of the user's; which it was is not worth remembering: these are all raised.
 */
static void set_limits(const char *harm, bool mend)
{
    if (strcmp(harm, "no_files") == 0)
        limit(RLIMIT_NOFILE, mend ? 1024 : lowest_free_descriptor());
    if (strcmp(harm, "no_memory") == 0)
        limit(RLIMIT_AS, mend ? RLIM_INFINITY : 1);
    if (strcmp(harm, "no_heap") == 0 && !mend)
        eat_heap();
    if (strcmp(harm, "no_write") == 0) {
        signal(SIGXFSZ, mend ? SIG_DFL : SIG_IGN);
        limit(RLIMIT_FSIZE, mend ? RLIM_INFINITY : 0);
    }
}

static void set_garbage(spank_t spank)
{
    static const char *const names[] = {"SLURM_MUSTER_STEP",     "MUSTER_SET",          "MUSTER_RANK_MAP",
                                        "MUSTER_CPUS_INHERITED", "SLURM_JOB_NODELIST",  "SLURM_JOB_NUM_NODES",
                                        "SLURM_TASKS_PER_NODE",  "SLURM_STEP_NODELIST", "SLURM_GTIDS",
                                        "SLURM_CLUSTER_NAME",    "SLURM_STEP_ID",       "CUDA_VISIBLE_DEVICES",
                                        "SLURM_GPUS_ON_NODE",    "LD_LIBRARY_PATH",     "HOME"};
    static char value[100000];
    static const char pattern[] = "[,%s%n=\n\t head=\377 port=-1 n[1-99999999] 0-99999999:0 (x9) ";

    uint32_t step = 0;

    if (spank_context() == S_CTX_REMOTE && spank_get_item(spank, S_JOB_STEPID, &step) == ESPANK_SUCCESS &&
        step >= SLURM_MAX_NORMAL_STEP_ID)
        return; /* a batch script's: the sruns in it would stumble over the garbage, and not the plugin */
    for (size_t i = 0; i + 1 < sizeof value; i++)
        value[i] = pattern[i % (sizeof pattern - 1)];
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (spank_context() == S_CTX_REMOTE)
            spank_setenv(spank, names[i], value, 1);
        else if (strncmp(names[i], "MUSTER_", 7) == 0) /* srun itself reads the others */
            setenv(names[i], value, 1);
}

static int act(spank_t spank, const char *callback, int argc, char *argv[])
{
    static const char *const contexts[] = {[S_CTX_LOCAL] = "local_",
                                           [S_CTX_REMOTE] = "remote_",
                                           [S_CTX_ALLOCATOR] = "allocator_",
                                           [S_CTX_SLURMD] = "slurmd_",
                                           [S_CTX_JOB_SCRIPT] = "script_"};
    const bool mend = argc > 0 && strcmp(argv[0], "mend") == 0;

    for (int i = 1; i < argc; i++) {
        const char *word = argv[i], *context = contexts[spank_context()];
        size_t length = strlen(callback);

        if (strncmp(word, callback, length) != 0 && context && strncmp(word, context, strlen(context)) == 0)
            word += strlen(context);
        if (strncmp(word, callback, length) != 0 || word[length] != '=')
            continue;
        word += length + 1;
        if (strcmp(word, "garbage") == 0 && !mend)
            set_garbage(spank);
        set_limits(word, mend);
    }
    return 0;
}

#define CALLBACK(name)                                                                                                 \
    int slurm_spank_##name(spank_t spank, int argc, char *argv[])                                                      \
    {                                                                                                                  \
        return act(spank, #name, argc, argv);                                                                          \
    }

CALLBACK(init)
CALLBACK(init_post_opt)
CALLBACK(local_user_init)
CALLBACK(user_init)
CALLBACK(task_init)
CALLBACK(job_epilog)
