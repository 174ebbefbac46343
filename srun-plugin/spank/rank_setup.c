#include "srun-plugin/spank/rank_setup.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "config.h"
#include "common/process/launcher.h"

/* ---- who set a variable ------------------------------------------------------------------------------------------ */

/* "NAME=value" with the value's blanks as %20, since blanks separate entries; false if it does not fit. */
static bool write_word(char *word, size_t size, const char *name, const char *value)
{
    size_t used = (size_t)snprintf(word, size, "%s=", name);

    for (; *value && used + 4 < size; value++)
        if (*value == ' ' || *value == '%')
            used += (size_t)snprintf(word + used, size - used, "%%%02X", *value);
        else
            word[used++] = *value;
    if (used < size)
        word[used] = '\0';
    return !*value && used < size;
}

bool env_was_set(const char *record, const char *name, const char *value)
{
    char word[ENV_VALUE_SIZE];
    size_t length;

    if (!write_word(word, sizeof word, name, value))
        return false;
    length = strlen(word);
    for (const char *at = strstr(record, word); at; at = strstr(at + 1, word))
        if ((at == record || at[-1] == ' ') && (at[length] == ' ' || at[length] == '\0'))
            return true;
    return false;
}

void env_record(char *record, size_t size, const char *name, const char *value)
{
    char word[ENV_VALUE_SIZE];
    size_t used = strlen(record);

    if (write_word(word, sizeof word, name, value) && used + 1 + strlen(word) < size)
        snprintf(record + used, size - used, "%s%s", used ? " " : "", word);
}

void env_reader_open(struct env_reader *reader, env_lookup *lookup, void *arg)
{
    reader->lookup = lookup;
    reader->arg = arg;
    if (!lookup("MUSTER_SET", reader->outer, sizeof reader->outer, arg))
        reader->outer[0] = '\0';
}

void env_forget_outer(void)
{
    const char *record = getenv("MUSTER_SET"), *value;
    char *names = record ? strdup(record) : NULL, start[ENV_MAP_WORD];

    for (char *rest = names, *name; (name = strsep(&rest, " "));) {
        name[strcspn(name, "=")] = '\0';
        value = getenv(name);
        if (value && strcmp(name, "MUSTER_RANK_MAP") == 0) {
            snprintf(start, sizeof start, "%s", value);
            value = start;
        }
        if (value && env_was_set(record, name, value))
            unsetenv(name);
    }
    free(names);
    unsetenv("MUSTER_SET");
}

bool env_of_user(const char *name, char *value, size_t size, void *reader)
{
    const struct env_reader *from = reader;

    return from->lookup(name, value, size, from->arg) && !env_was_set(from->outer, name, value);
}

/* ---- the variables ----------------------------------------------------------------------------------------------- */

struct env_maker {
    struct env_list *list;
    struct env_reader *reader;
    bool no_memory;
};

static void __attribute__((format(printf, 4, 5)))
add_variable(struct env_maker *maker, const char *name, const char *why, const char *format, ...)
{
    char value[ENV_VALUE_SIZE];
    bool users = env_of_user(name, value, sizeof value, maker->reader);
    va_list args;

    value[ENV_SHOWN] = '\0';
    va_start(args, format);
    if (!users)
        vsnprintf(value, sizeof value, format, args);
    va_end(args);
    maker->no_memory |= !env_list_add(maker->list, users ? ENV_FROM_USER : ENV_FROM_MUSTER, name, value,
                                      users ? "user" : "muster", "%s", users ? "" : why);
}

/*
 * The step's own --cpus-per-task counts. Slurm 22.05 and 23.02 do not pass sbatch's to srun, though the batch script's
 * SLURM_CPUS_PER_TASK is still in the environment. 1 is also the default of a step: it counts only if srun itself set
 * SLURM_CPUS_PER_TASK. Without --cpus-per-task the ranks of a node share the step's CPUs there.
 */
static void add_threads(struct env_maker *maker, const struct task *task)
{
    uint32_t share = task->local_ranks ? task->node_cpus / task->local_ranks : 0;
    uint32_t threads = share ? share : 1;
    bool inherited = task->step->cpus_inherited;
    /* Not sbatch's number, but what the rank really has; the report explains it. */
    const char *why =
        inherited ? "the step's CPUs on the node / its ranks there: sbatch's --cpus-per-task does not reach srun"
                  : "the step's CPUs on the node / its ranks there";
    char given[32];
    bool gave_one = !inherited &&
                    maker->reader->lookup("SLURM_CPUS_PER_TASK", given, sizeof given, maker->reader->arg) &&
                    strcmp(given, "1") == 0;

    if (task->bound_cores) {
        threads = task->bound_cores;
        why = inherited ? "the cores that the rank is bound to: sbatch's --cpus-per-task does not reach srun"
                        : "the cores that the rank is bound to";
    }
    if (task->cpus_per_task > 1 || gave_one) {
        threads = task->cpus_per_task ? task->cpus_per_task : 1;
        why = "srun --cpus-per-task";
    }
    if (task->bound_cpus && task->bound_cpus < threads) {
        threads = task->bound_cpus;
        why = "the CPUs that the rank is bound to";
    }
    add_variable(maker, "OMP_NUM_THREADS", why, "%" PRIu32, threads);
}

bool env_add_own(const struct task *task, struct env_reader *reader, struct env_list *list)
{
    struct env_maker maker = {.list = list, .reader = reader};
    char restarts[32];

    if (!reader->lookup("SLURM_RESTART_COUNT", restarts, sizeof restarts, reader->arg))
        strcpy(restarts, "0"); /* Slurm leaves it unset on a job's first run */
    add_variable(&maker, "RANK", "Slurm's number of the task (SLURM_PROCID)", "%" PRIu32, task->rank);
    add_variable(&maker, "WORLD_SIZE", "ranks of the step", "%" PRIu32, task->ranks);
    add_variable(&maker, "LOCAL_RANK", "its place on the node", "%" PRIu32, task->local_rank);
    add_variable(&maker, "LOCAL_WORLD_SIZE", "ranks on the node", "%" PRIu32, task->local_ranks);
    add_variable(&maker, "NODE_RANK", "the node's number in the step", "%" PRIu32, task->node);
    if (task->master_address)
        add_variable(&maker, "MASTER_ADDR", "the node of rank 0", "%s", task->master_address);
    add_variable(&maker, "MASTER_PORT", task->step->port ? "free when srun looked" : "from the job and step id", "%u",
                 task->step->port ? task->step->port : port_of_step(task->job_id, task->step_id, 0));
    add_threads(&maker, task);
    add_variable(&maker, "MUSTER_NODES", "nodes of the step", "%" PRIu32, task->nodes);
    if (task->stages)
        add_variable(&maker, "MUSTER_STAGE", "directories that slurmd's epilog searches for saves", "%s", task->stages);
    if (task->prometheus)
        add_variable(&maker, "MUSTER_PROMETHEUS", "the site's directory of files for Prometheus", "%s",
                     task->prometheus);
    if (task->launcher)
        add_variable(&maker, LAUNCHER_VARIABLE, "the process that starts muster-ckptd outside the step", "%s",
                     task->launcher);
    if (task->step->mesh[0])
        add_variable(&maker, AUTO_VARIABLE, "the machine, and the mesh that srun chose for it", "%s", task->step->mesh);
    add_variable(&maker, "MUSTER_JOB_ID", "the job", "%" PRIu32, task->job_id);
    add_variable(&maker, "MUSTER_RESTART_COUNT", "times the job was requeued", "%s", restarts);
    add_variable(&maker, PLUGIN_VERSION_NAME, "the plugin's release, for --muster-preflight", "%s", PACKAGE_VERSION);
    /* By default CUDA counts the fastest GPU first; LOCAL_RANK would not be the GPU beside the rank's cores and NIC. */
    if (task->sees_nvidia)
        add_variable(&maker, "CUDA_DEVICE_ORDER", "LOCAL_RANK then counts GPUs as the report does", "PCI_BUS_ID");
    if (task->job_file)
        maker.no_memory |= !env_list_add(list, ENV_FROM_MUSTER, "MUSTER_JOB", task->job_file, "muster",
                                         "the job file that srun checked");
    return !maker.no_memory;
}

/* MUSTER_JOB is not recorded: every srun sets it anew. */
bool env_add_record(const struct task *task, struct env_reader *reader, struct env_list *list)
{
    char map[ENV_MAP_WORD], record[ENV_VALUE_SIZE] = "";

    for (size_t i = 0; i < list->count; i++) {
        const struct env_variable *variable = &list->variables[i];

        if (env_is_to_be_set(variable) && strcmp(variable->name, "MUSTER_JOB") != 0)
            env_record(record, sizeof record, variable->name, variable->value);
    }
    if (task->step->by_map && reader->lookup("MUSTER_RANK_MAP", map, sizeof map, reader->arg))
        env_record(record, sizeof record, "MUSTER_RANK_MAP", map);
    return env_list_add(list, ENV_FROM_MUSTER, "MUSTER_SET", record, "muster", "what muster set, for an inner srun");
}

/* ---- MASTER_PORT ------------------------------------------------------------------------------------------------- */

#define JOB_STRIDE     7499u /* near PORT_COUNT / golden ratio squared, and the best there for up to 256 jobs */
#define ATTEMPT_STRIDE 5003u

unsigned port_of_step(uint32_t job_id, uint32_t step_id, unsigned attempt)
{
    uint64_t hash = (uint64_t)job_id * JOB_STRIDE + step_id + (uint64_t)attempt * ATTEMPT_STRIDE;

    return PORT_FIRST + (unsigned)(hash % PORT_COUNT);
}

unsigned port_choose(uint32_t job_id, uint32_t step_id, port_probe *is_free, void *arg)
{
    for (unsigned attempt = 0; attempt < PORT_ATTEMPTS; attempt++) {
        unsigned port = port_of_step(job_id, step_id, attempt);

        if (is_free(port, arg))
            return port;
    }
    return port_of_step(job_id, step_id, 0);
}

bool port_is_free(unsigned port, void *arg)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int yes = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool free;

    (void)arg;
    if (fd < 0)
        return true; /* not known to be taken */
    /* As the program will do: a connection in TIME_WAIT does not count. */
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    free = bind(fd, (const struct sockaddr *)&address, sizeof address) == 0 && listen(fd, 1) == 0;
    close(fd);
    return free;
}

struct making {
    const struct rank_request *request;
    struct rank_setup *setup;
    size_t gpus[VISIBLE_MOST]; /* that the rank sees */
    size_t gpu_count;
    struct env_reader reader;
};

/* ---- CPUs -------------------------------------------------------------------------------------------------------- */

static int make_binding(struct making *making, const struct cpus *given, const size_t *gpus, size_t gpu_count,
                        struct error *err)
{
    const struct bind_request request = {
        .local_ranks = making->request->task.local_ranks, .given = given, .gpus = gpus, .gpu_count = gpu_count};
    struct binding *binding = binding_create(making->request->view->node, &request, err);

    making->setup->binding = binding;
    making->setup->own = binding ? &binding->ranks[making->request->task.local_rank] : NULL;
    return binding ? 0 : -1;
}

/*
 * Each rank sees one GPU, its own. If this process can open the GPUs of the other ranks, compute the binding of
 * all ranks, and take the one whose GPU this is. If a cgroup hides them, the ranks divide the cores near this GPU by
 * local rank: each gets fewer cores than it could, but no two get the same.
 */
static int bind_isolated(struct making *making, const struct cpus *given, struct error *err)
{
    struct rank_setup *setup = making->setup;

    if (node_usable_gpus(making->request->view->node, NULL) < making->request->task.local_ranks)
        return make_binding(making, given, making->gpus, making->gpu_count, err);
    if (make_binding(making, given, NULL, 0, err) < 0)
        return -1;
    for (size_t r = 0; r < setup->binding->count; r++)
        if (setup->binding->ranks[r].gpu == (int)making->gpus[0]) {
            setup->own = &setup->binding->ranks[r];
            return 0;
        }
    binding_destroy(setup->binding);
    return make_binding(making, given, making->gpus, making->gpu_count, err);
}

static const char *reason_not_to_bind(const struct rank_request *request)
{
    const struct node *node = request->view->node;

    if (request->task.step->user_binds)
        return "the user requested a binding from Slurm";
    if (!request->task.step->step_known)
        return "srun's handoff did not arrive: the user's options are unknown";
    if (!request->affinity_known)
        return "the kernel does not report this process's CPUs";
    if (!affinity_is_of_step(&request->affinity.all, node, request->task.node_cpus, request->task.step->cpus_are_cores))
        return "no cgroup confines the step to its CPUs: they cannot be told from those of other jobs";
    return NULL;
}

static int bind_rank(struct making *making, struct error *err)
{
    const struct rank_request *request = making->request;
    struct rank_setup *setup = making->setup;
    const struct cpus *given; /* this rank's: those of the others are not known, or needed */
    int rc;

    setup->why_not_bound = reason_not_to_bind(request);
    given = setup->why_not_bound && request->affinity_known ? &request->affinity.own : NULL;
    if (setup->isolation[0] && making->gpu_count == 1)
        rc = bind_isolated(making, given, err);
    else
        rc = make_binding(making, given, making->gpus, making->gpu_count, err);
    if (rc < 0)
        return -1;
    setup->do_bind = !setup->why_not_bound && cpus_count(&setup->own->cpus) > 0;
    if (setup->do_bind) {
        setup->task.bound_cpus = cpus_count(&setup->own->cpus);
        setup->task.bound_cores = setup->own->threads;
    }
    return 0;
}

/* ---- variables --------------------------------------------------------------------------------------------------- */

static int add_fabric(struct making *making, struct error *err)
{
    const struct rank_request *request = making->request;
    const struct node_view *view = request->view;
    char cluster[256];
    struct fabric_facts facts = {
        .nodes = request->task.nodes,
        .job_nodes = request->job_nodes,
        .local_rank = request->task.local_rank,
        .cores = making->setup->own->threads,
        .cluster = request->environment("SLURM_CLUSTER_NAME", cluster, sizeof cluster, request->environment_arg)
                       ? cluster
                       : NULL,
        .interface = view->route.interface[0] ? view->route.interface : NULL,
        .files = request->files,
        .files_arg = request->files_arg,
    };
    const struct fabric_inputs inputs = {.user = env_of_user,
                                         .user_arg = &making->reader,
                                         .job_file = request->task.job_file,
                                         .job = &request->task.step->variables,
                                         .conf = request->conf};
    int rc;

    if (fabric_facts_fill(&facts, view->node, request->task.local_ranks, making->gpus, making->gpu_count, err) < 0)
        return -1;
    rc = fabric_fill_env(&making->setup->env, view->fabric, &facts, &inputs, err);
    free(facts.live);
    return rc;
}

static int make_setup(struct making *making, struct error *err)
{
    const struct rank_request *request = making->request;
    struct rank_setup *setup = making->setup;

    env_reader_open(&making->reader, request->environment, request->environment_arg);
    if (request->view->node) {
        making->gpu_count =
            visible_gpus(request->view->node, request->environment, request->environment_arg, making->gpus);
        isolation_judge(request->view->node, request->task.rank, request->task.local_ranks, request->environment,
                        request->environment_arg, setup->isolation);
        setup->task.sees_nvidia = making->gpu_count && request->view->node->gpus[making->gpus[0]].vendor == GPU_NVIDIA;
        if (bind_rank(making, err) < 0)
            return -1;
    }
    if (!env_add_own(&setup->task, &making->reader, &setup->env))
        return error_errno(err, CODE_IO, "no memory for the variables of a rank");
    if (request->view->node && request->view->fabric && add_fabric(making, err) < 0)
        return -1;
    if (!env_add_record(&setup->task, &making->reader, &setup->env))
        return error_errno(err, CODE_IO, "no memory for the variables of a rank");
    return 0;
}

struct rank_setup *rank_setup_create(const struct rank_request *request, struct error *err)
{
    struct rank_setup *setup = error_calloc(1, sizeof *setup, err);
    struct making making = {.request = request, .setup = setup};

    if (!setup)
        return NULL;
    setup->task = request->task;
    if (request->affinity_known)
        setup->task.bound_cpus = cpus_count(&request->affinity.own);
    if (make_setup(&making, err) == 0)
        return setup;
    rank_setup_destroy(setup);
    return NULL;
}

void rank_setup_destroy(struct rank_setup *setup)
{
    if (!setup)
        return;
    binding_destroy(setup->binding);
    env_list_clear(&setup->env);
    free(setup);
}
