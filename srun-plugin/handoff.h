/*
 * handoff.h - what srun tells the nodes of a step in the variable SLURM_MUSTER_STEP, which no task sees: words
 * "key=value". Slurm lets variables of that beginning pass even with srun --export=NONE. Pure.
 */
#ifndef MUSTER_SRUN_PLUGIN_HANDOFF_H
#define MUSTER_SRUN_PLUGIN_HANDOFF_H

#include <stdbool.h>
#include <stddef.h>

#define HANDOFF_NAME         "SLURM_MUSTER_STEP"
#define HANDOFF_ADDRESS_SIZE 256
#define HANDOFF_SIZE         1024

struct handoff {
    bool here;                       /* it was there; in a heterogeneous step only one component has it */
    char head[HANDOFF_ADDRESS_SIZE]; /* where rank 0's node is reached; "" if not known, likewise below */
    char peer[HANDOFF_ADDRESS_SIZE]; /* and another node of the step; "" where there is none */
    unsigned head_node;              /* rank 0's, by its place in the step */
    unsigned port;       /* for MASTER_PORT: free when srun looked, on rank 0's node; 0 where it could not look */
    bool cpus_inherited; /* SLURM_CPUS_PER_TASK is from around srun: sbatch's or salloc's wish, not srun's */
    bool user_binds;     /* the user asked Slurm for a binding */
    bool ordered;        /* SLURM_DISTRIBUTION is muster's, not the user's */
    bool mapped;         /* and so is MUSTER_RANK_MAP */
    bool cpus_are_cores; /* Slurm counts cores as CPUs on rank 0's node, which have several hardware threads */
};

/* Returns text; addresses with blanks in them, which are none, are left out. */
char *handoff_text(const struct handoff *handoff, char text[HANDOFF_SIZE]);

/* NULL as text: nothing is known. Words that are not known are passed over: another muster's srun may have written it.
 */
void handoff_read(const char *text, struct handoff *handoff);

#endif
