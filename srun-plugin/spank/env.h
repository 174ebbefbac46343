/*
 * env.h - the variables of a rank, their values, and who chose them: a pure function of what Slurm knows of the task
 * and of the task's environment.
 *
 * What the user set is not changed. A variable that an outer `srun --muster` set is not the user's: an srun inside a
 * step would otherwise pass the outer step's RANK to every inner rank. MUSTER_SET tells the two apart: it records what
 * muster set and to which value. A variable that has another value by now is the user's.
 */
#ifndef MUSTER_SRUN_PLUGIN_ENV_H
#define MUSTER_SRUN_PLUGIN_ENV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ENV_VALUE_SIZE 4096
#define ENV_MAX        18
#define ENV_SHOWN      1024 /* bytes of a user's value that are kept to be shown */

/* What Slurm and srun's plan tell of one task. Strings are borrowed. */
struct task {
    uint32_t job_id, step_id;
    uint32_t nodes, node;             /* of the step; the index of this node in it */
    uint32_t ranks, rank;             /* of the step */
    uint32_t local_ranks, local_rank; /* on this node */
    uint32_t cpus_per_task;           /* srun's, 1 by default; 0 if not known */
    bool cpus_inherited;              /* SLURM_CPUS_PER_TASK was set by sbatch or salloc, not by this srun */
    uint32_t node_cpus;               /* CPUs that the step has on this node */
    uint32_t bound_cpus;              /* CPUs that this task may run on; 0 if not known */
    uint32_t bound_cores;             /* cores that muster bound it to; 0 if it did not */
    bool sees_nvidia;                 /* the GPUs that it sees are NVIDIA's */
    bool mapped;                      /* srun has set MUSTER_RANK_MAP */
    const char *head;                 /* address of rank 0's node; NULL if not known */
    const char *job_file;             /* absolute path of the job file; NULL for none */
    unsigned port; /* MASTER_PORT that srun found free on rank 0's node (port_choose); 0 if it could not test it */
};

#define ENV_MAP_WORD 64 /* bytes of MUSTER_RANK_MAP that are recorded: it may be very long */

enum env_source { ENV_USER, ENV_MUSTER };

struct env_entry {
    const char *name;
    const char *value; /* in the set's text; of ENV_USER the first ENV_SHOWN bytes */
    enum env_source source;
    const char *why; /* where muster's value comes from, for the report */
};

/* A task's variables. Need not be cleared: each rank makes one, and unused pages are never touched. */
struct env_set {
    struct env_entry entries[ENV_MAX]; /* MUSTER_SET last, whose value is record */
    size_t count;
    size_t used; /* of text */
    char record[ENV_VALUE_SIZE];
    char text[ENV_MAX * (ENV_SHOWN + 1) + ENV_VALUE_SIZE];
};

/*
 * Copies a variable of the task's environment, cut if it does not fit. False only if it is not set.
 */
typedef bool env_lookup(const char *name, char *value, size_t size, void *arg);

/*
 * Fills the set. Entries of ENV_MUSTER are to be set, overwriting; those of ENV_USER are for the report only. A variable
 * whose value is not known (MASTER_ADDR without a head) is left out.
 */
void env_plan(const struct task *task, env_lookup *lookup, void *arg, struct env_set *set);

/* True when `record`, a value of MUSTER_SET, says that muster itself gave the variable this value. */
bool env_was_set(const char *record, const char *name, const char *value);

/* Adds a variable to a record of `size` bytes, which begins as "". One that does not fit is left out: it is the user's
 * then. */
void env_record(char *record, size_t size, const char *name, const char *value);

#endif
