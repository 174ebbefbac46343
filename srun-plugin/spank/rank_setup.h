/*
 * rank_setup.h - helper of slurmstepd: all decisions for one rank on its node: its CPUs, the GPU and NICs near them,
 * and its variables. Pure: the node, the environment and Slurm's facts are arguments, so that muster-topo can show the same
 * for a saved machine. srun uses env_forget_outer and port_choose too.
 */
#ifndef MUSTER_SRUN_PLUGIN_RANK_SETUP_H
#define MUSTER_SRUN_PLUGIN_RANK_SETUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "srun-plugin/fabric/fabric.h"
#include "srun-plugin/node/bind.h"
#include "srun-plugin/node/route.h"
#include "srun-plugin/node/visible.h"
#include "srun-plugin/spank/handoff.h"

/* ---- variables --------------------------------------------------------------------------------------------------- */

/*
 * The variables that muster computes for a rank, their values, and who chose them.
 *
 * What the user set is not changed. A variable that an outer `srun --muster` set is not the user's: an srun inside a
 * step would otherwise pass the outer step's RANK to every inner rank. MUSTER_SET tells the two apart: it records what
 * muster set and to which value. A variable that has another value by now is the user's.
 */
#define ENV_VALUE_SIZE FABRIC_VALUE_SIZE
#define ENV_SHOWN      1024 /* bytes of a user's value that are kept to be shown */
#define ENV_MAP_WORD   64   /* bytes of MUSTER_RANK_MAP that are recorded: it may be very long */

/* One task, as Slurm and srun's handoff describe it. Ranks are Slurm's; MUSTER_RANK_MAP gives a trainer others. */
struct task {
    const struct handoff *step; /* of srun; its addresses and job file are below */
    uint32_t job_id, step_id;
    uint32_t nodes, node;             /* of the step; the index of this node in it */
    uint32_t ranks, rank;             /* of the step */
    uint32_t local_ranks, local_rank; /* on this node */
    uint32_t cpus_per_task;           /* srun's, 1 by default; 0 if not known */
    uint32_t node_cpus;               /* CPUs that the step has on this node */
    uint32_t bound_cpus;              /* CPUs that this task may run on; 0 if not known */
    uint32_t bound_cores;             /* cores that muster bound it to; 0 if it did not */
    bool sees_nvidia;                 /* the GPUs that it sees are NVIDIA's */
    const char *master_address;       /* address of rank 0's node (node_view.master_address); NULL if not known */
    const char *job_file;             /* absolute path of the job file; NULL for none */
    const char *launcher;             /* the name of its socket (common/process/launcher.h); NULL: none */
    const char *stages;     /* the directories that slurmd's epilog searches (job_stage_describe); NULL: not known */
    const char *prometheus; /* the site's directory; NULL: none */
};

/* An environment, and what an srun --muster around this one has set in it. */
struct env_reader {
    env_lookup *lookup;
    void *arg;
    char outer[ENV_VALUE_SIZE]; /* MUSTER_SET of the outer srun; "" for none */
};

void env_reader_open(struct env_reader *reader, env_lookup *lookup, void *arg);

/* Unsets in this process what an outer srun --muster set in it, as far as it still has these values, and MUSTER_SET. */
void env_forget_outer(void);

/* An env_lookup of the variables that the user set, not an outer srun. */
bool env_of_user(const char *name, char *value, size_t size, void *reader);

/*
 * Appends muster's own variables to the list. Those of ENV_FROM_USER are for the report only. A variable whose value
 * is not known (MASTER_ADDR without a master_address) is left out. False without memory.
 */
bool env_add_own(const struct task *task, struct env_reader *reader, struct env_list *list);

/* Appends MUSTER_SET. It records the variables of the list that are to be set. If srun has set MUSTER_RANK_MAP, which
 * tasks inherit, it records that too. */
bool env_add_record(const struct task *task, struct env_reader *reader, struct env_list *list);

/* True when `record`, a value of MUSTER_SET, says that muster itself gave the variable this value. */
bool env_was_set(const char *record, const char *name, const char *value);

/* Adds a variable to a record of `size` bytes, which begins as "". One that does not fit is left out: an srun inside
 * the step then takes it for the user's. */
void env_record(char *record, size_t size, const char *name, const char *value);

/* ---- MASTER_PORT ------------------------------------------------------------------------------------------------- */

/*
 * Steps that run at the same time on a node must have different ports, and all ranks of a step the same one. So the
 * port is computed from the ids of the job and the step.
 */
#define PORT_FIRST    10000
#define PORT_COUNT    19391 /* a prime; below 29500 (torchrun's default) and the ephemeral ports */
#define PORT_ATTEMPTS 16

/*
 * A candidate for the port of a step, from PORT_FIRST to PORT_FIRST + PORT_COUNT - 1. `attempt`, from 0 to
 * PORT_ATTEMPTS - 1, is the candidate's number. Two steps of one job have different first candidates unless their ids
 * are PORT_COUNT apart; and steps of two jobs if the job ids are at most 256 apart and the step ids less than 35
 * (multiplicative hashing by the golden ratio: Knuth, The Art of Computer Programming, vol. 3, 6.4).
 */
unsigned port_of_step(uint32_t job_id, uint32_t step_id, unsigned attempt);

typedef bool port_probe(unsigned port, void *arg);

/*
 * The first candidate that `is_free`, else the first. Call it once a step, on rank 0's node: the ranks must not each
 * choose their own.
 */
unsigned port_choose(uint32_t job_id, uint32_t step_id, port_probe *is_free, void *arg);

/* A port_probe that tries to bind: true if nothing listens on the port now. */
bool port_is_free(unsigned port, void *arg);

/* ---- a rank ------------------------------------------------------------------------------------------ */

/*
 * What a node adds to the handoff: its hardware, the fabric profiles, and the routes to other nodes. Read once a node
 * in slurmstepd, before it forks the tasks, which share it.
 */
struct node_view {
    struct node *node;          /* NULL if it could not be read */
    struct fabric *fabric;      /* NULL only when out of memory */
    struct route_address route; /* the interface and address for the other nodes of the step; "" for none */
    /* The address of rank 0's node as seen from this node: handoff.master_address (Slurm's NodeAddr), or without one
     * the name of the step's first node; on rank 0's node itself, one that is not loopback. "" if not known. */
    char master_address[HANDOFF_ADDRESS_SIZE];
};

/* Everything is borrowed. */
struct rank_request {
    struct task task;             /* bound_* and sees_nvidia are filled in by rank_setup_create */
    const struct node_view *view; /* node->allowed and GPU states are this task's own (node_read_own) */
    struct affinity affinity;
    bool affinity_known; /* affinity was read */
    unsigned job_nodes;
    const struct file_variables *conf; /* variables that nccl.conf sets */
    fabric_has_file *files;
    void *files_arg;
    env_lookup *environment;
    void *environment_arg;
};

struct rank_setup {
    struct task task;            /* of the request, with what was found out */
    struct binding *binding;     /* of all ranks of the node; NULL where the node is not known */
    const struct bind_rank *own; /* this rank's, in binding->ranks */
    bool do_bind;                /* set its CPUs */
    const char *why_not_bound;   /* NULL if muster binds the ranks, or has nothing to bind */
    struct env_list env;         /* its variables, MUSTER_SET last; profile is NULL where the node is not known */
    char isolation[ISOLATION_LINE_SIZE]; /* the line of isolation_judge */
};

/* NULL and *err when out of memory. */
struct rank_setup *rank_setup_create(const struct rank_request *request, struct error *err);
void rank_setup_destroy(struct rank_setup *setup);

#endif
