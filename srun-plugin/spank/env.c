#include "srun-plugin/spank/env.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "srun-plugin/spank/port.h"

struct env_maker {
    struct env_set *set;
    env_lookup *lookup;
    void *arg;
    char before[ENV_VALUE_SIZE]; /* MUSTER_SET of an outer srun --muster */
};

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

static void add_variable(struct env_maker *plan, const char *name, const char *why, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Copies a value into the set's text, cut if that is full. */
static const char *keep_text(struct env_set *set, const char *value)
{
    size_t room = sizeof set->text - set->used, length = strnlen(value, room - 1);
    char *copy = &set->text[set->used];

    memcpy(copy, value, length);
    copy[length] = '\0';
    set->used += length + 1 < room ? length + 1 : length;
    return copy;
}

static void put_entry(struct env_set *set, const char *name, enum env_source source, const char *value, const char *why)
{
    set->entries[set->count++] = (struct env_entry){name, keep_text(set, value), source, why};
}

static void add_variable(struct env_maker *plan, const char *name, const char *why, const char *format, ...)
{
    char value[ENV_VALUE_SIZE];
    va_list args;

    if (plan->lookup(name, value, sizeof value, plan->arg) && !env_was_set(plan->before, name, value)) {
        value[ENV_SHOWN] = '\0';
        put_entry(plan->set, name, ENV_USER, value, why);
        return;
    }
    va_start(args, format);
    vsnprintf(value, sizeof value, format, args);
    va_end(args);
    put_entry(plan->set, name, ENV_MUSTER, value, why);
}

/*
 * The step's own --cpus-per-task counts. Slurm 22.05 and later do not pass sbatch's to srun, though the batch script's
 * SLURM_CPUS_PER_TASK is still in the environment. 1 is also the default of a step: it counts only if srun itself set
 * SLURM_CPUS_PER_TASK. Without --cpus-per-task the ranks of a node share the step's CPUs there.
 */
static void add_threads(struct env_maker *plan, const struct task *task)
{
    uint32_t share = task->local_ranks ? task->node_cpus / task->local_ranks : 0;
    uint32_t threads = share ? share : 1;
    /* Not sbatch's number, but what the rank really has; the report explains it. */
    const char *why =
        task->cpus_inherited
            ? "the step's CPUs on the node / its ranks there: sbatch's --cpus-per-task does not reach srun"
            : "the step's CPUs on the node / its ranks there";
    char given[32];
    bool gave_one = !task->cpus_inherited && plan->lookup("SLURM_CPUS_PER_TASK", given, sizeof given, plan->arg) &&
                    strcmp(given, "1") == 0;

    if (task->bound_cores) {
        threads = task->bound_cores;
        why = task->cpus_inherited ? "the cores that the rank is bound to: sbatch's --cpus-per-task does not reach srun"
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
    add_variable(plan, "OMP_NUM_THREADS", why, "%" PRIu32, threads);
}

/* Slurm leaves SLURM_RESTART_COUNT unset on a job's first run. */
static void add_restart_count(struct env_maker *plan)
{
    char count[32];

    if (!plan->lookup("SLURM_RESTART_COUNT", count, sizeof count, plan->arg))
        snprintf(count, sizeof count, "0");
    add_variable(plan, "MUSTER_RESTART_COUNT", "times the job was requeued", "%s", count);
}

/* By default CUDA counts the fastest GPU first; LOCAL_RANK would not be the GPU beside the rank's cores and NIC. */
static void add_gpu_order(struct env_maker *plan, const struct task *task)
{
    if (task->sees_nvidia)
        add_variable(plan, "CUDA_DEVICE_ORDER", "LOCAL_RANK then counts GPUs as the report does", "PCI_BUS_ID");
}

/* What this plan sets, for an inner srun. Without MUSTER_JOB, which srun always sets itself. */
static void add_record(struct env_maker *plan, bool mapped)
{
    char map[ENV_MAP_WORD];
    struct env_set *set = plan->set;

    set->record[0] = '\0';
    for (size_t i = 0; i < set->count; i++) {
        const struct env_entry *entry = &set->entries[i];

        if (entry->source == ENV_MUSTER && strcmp(entry->name, "MUSTER_JOB") != 0)
            env_record(set->record, sizeof set->record, entry->name, entry->value);
    }
    if (mapped && plan->lookup("MUSTER_RANK_MAP", map, sizeof map, plan->arg))
        env_record(set->record, sizeof set->record, "MUSTER_RANK_MAP", map);
    set->entries[set->count++] =
        (struct env_entry){"MUSTER_SET", set->record, ENV_MUSTER, "what muster set, for an inner srun"};
}

void env_plan(const struct task *task, env_lookup *lookup, void *arg, struct env_set *set)
{
    struct env_maker plan = {.set = set, .lookup = lookup, .arg = arg};

    set->count = set->used = 0;
    if (!lookup("MUSTER_SET", plan.before, sizeof plan.before, arg))
        plan.before[0] = '\0';
    add_variable(&plan, "RANK", "its place in the step", "%" PRIu32, task->rank);
    add_variable(&plan, "WORLD_SIZE", "ranks of the step", "%" PRIu32, task->ranks);
    add_variable(&plan, "LOCAL_RANK", "its place on the node", "%" PRIu32, task->local_rank);
    add_variable(&plan, "LOCAL_WORLD_SIZE", "ranks on the node", "%" PRIu32, task->local_ranks);
    add_variable(&plan, "NODE_RANK", "the node's place in the step", "%" PRIu32, task->node);
    if (task->head)
        add_variable(&plan, "MASTER_ADDR", "the node of rank 0", "%s", task->head);
    add_variable(&plan, "MASTER_PORT", task->port ? "free when srun looked" : "from the job and step id", "%u",
                 task->port ? task->port : port_of_step(task->job_id, task->step_id, 0));
    add_threads(&plan, task);
    add_variable(&plan, "MUSTER_NODES", "nodes of the step", "%" PRIu32, task->nodes);
    add_variable(&plan, "MUSTER_JOB_ID", "the job", "%" PRIu32, task->job_id);
    add_restart_count(&plan);
    add_gpu_order(&plan, task);
    if (task->job_file)
        put_entry(set, "MUSTER_JOB", ENV_MUSTER, task->job_file, "the job file that srun checked");
    add_record(&plan, task->mapped);
}
