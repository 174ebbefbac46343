/*
 * env.h - which variables a rank gets, with which values, and who decided: a pure function of what Slurm says of the
 * task and of what is in its environment already.
 *
 * What the user set is left as it is. A variable that an outer `srun --muster` set is not the user's: an srun inside a
 * step would otherwise hand the outer step's RANK to every inner rank. So that the two can be told apart, MUSTER_SET
 * records what muster set and to what; a variable that has another value by now is the user's.
 */
#ifndef MUSTER_SRUN_PLUGIN_ENV_H
#define MUSTER_SRUN_PLUGIN_ENV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ENV_VALUE_SIZE 4096
#define ENV_MAX        18

/* What Slurm says of one task. Strings are borrowed. */
struct task {
    uint32_t job_id, step_id;
    uint32_t nodes, node;             /* of the step; the index of this node in it */
    uint32_t ranks, rank;             /* of the step */
    uint32_t local_ranks, local_rank; /* on this node */
    uint32_t cpus_per_task;           /* srun's, which is 1 when nobody gave it one; 0 if not known */
    bool cpus_inherited;  /* SLURM_CPUS_PER_TASK is from around srun: sbatch's or salloc's wish, not srun's */
    uint32_t node_cpus;   /* CPUs that the step has on this node */
    uint32_t bound_cpus;  /* CPUs that this task may run on; 0 if not known */
    uint32_t bound_cores; /* cores that muster bound it to; 0 where it did not */
    bool sees_nvidia;     /* the GPUs that it sees are NVIDIA's */
    bool mapped;          /* srun has set MUSTER_RANK_MAP */
    const char *head;     /* where the other nodes reach rank 0's node; NULL if not known */
    const char *job_file; /* absolute path of the job file; NULL for none */
    unsigned port;        /* MASTER_PORT that srun found free on rank 0's node (port_choose); 0 if it could not look */
};

#define ENV_MAP_WORD 64 /* MUSTER_RANK_MAP may be longer than all else: it is recorded by its beginning */

enum env_source { ENV_USER, ENV_MUSTER };

struct env_entry {
    const char *name;
    char value[ENV_VALUE_SIZE]; /* of ENV_USER perhaps cut */
    enum env_source source;
    const char *why; /* where muster's value comes from, for the report */
};

/*
 * Copies the value of a variable of the task's environment, cut where it does not fit; false only when it is not set.
 */
typedef bool env_lookup(const char *name, char *value, size_t size, void *arg);

/*
 * Fills entries[ENV_MAX] and returns how many there are. Those of ENV_MUSTER are to be set, overwriting; those of
 * ENV_USER are there for the report only. A variable whose value is not known (MASTER_ADDR without a head) is left out.
 */
size_t env_plan(const struct task *task, env_lookup *lookup, void *arg, struct env_entry *entries);

/* True when `record`, a value of MUSTER_SET, says that muster itself gave the variable this value. */
bool env_was_set(const char *record, const char *name, const char *value);

/* Adds a variable to a record of `size` bytes, which begins as "". One that does not fit is left out: it is the user's
 * then. */
void env_record(char *record, size_t size, const char *name, const char *value);

#endif
