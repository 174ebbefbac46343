/*
 * auto.h - parallel.mesh = "auto": the keys of the mesh that a start of a job gets.
 *
 * A key of these (auto.c) that the job file or --set gives is kept. The others are chosen: the fastest mesh that fits the
 * memory, by plan/search.h with the stack "muster". Equal arguments give an equal choice. srun sees neither --set nor a
 * node's memory, so its choice may be another than the trainer's.
 *
 * srun --muster orders the ranks by the mesh, so it chooses first, where it knows the machine: parallel.machine, or
 * machine= of plugstack.conf. It hands machine and choice to the ranks in MUSTER_MESH:
 *
 *     MACHINE parallel.tp=2 parallel.pp=1 ...
 *
 * The trainer chooses again, on that machine, with the options --set that the plugin does not see. If it then chooses
 * another mesh, it says so: the order of the ranks is for srun's, which costs speed only.
 */
#ifndef MUSTER_PLAN_AUTO_H
#define MUSTER_PLAN_AUTO_H

#include "common/job.h"

#define AUTO_VARIABLE "MUSTER_MESH"
#define AUTO_SIZE     (JOB_PATH_SIZE + 512) /* of its value */

struct auto_start {
    const char *machine; /* plan/plan_machine.h: a name or a file */
    int ranks, per_node; /* per_node 0: as the machine's GPUs */
    double node_bytes;   /* of memory that the ranks of a node may use on the host; 0: no limit but the machine's */
    double process;      /* bytes of a rank's process beside its buffers; 0: unknown, process_bytes is assumed */
};

struct auto_choice {
    char text[512]; /* overrides for the job (job_override): "parallel.tp=2 parallel.pp=1 ..." */
    char why[1024]; /* a line for the log, with `text` */
};

/* CODE_CONFIG if the machine is not known, or nothing fits; then the text names the change that would help. */
int auto_choose(struct auto_choice *choice, const struct job *job, const struct auto_start *start, struct error *err);

/* The text of MUSTER_MESH. auto_read cuts it into the machine and the choice's text, which is "" if srun has made no
 * choice. */
void auto_write(char text[AUTO_SIZE], const char *machine, const struct auto_choice *choice);
void auto_read(char text[AUTO_SIZE], const char **machine, const char **choice);

#endif
