/*
 * srun_line.h - helper of srun: the options on srun's command line, as far as muster needs them.
 *
 * The plugin must read them itself: it can set a host file only in slurm_spank_init, which runs before srun parses its
 * options. srun_line.c has a table of srun's options. An option that is not in it makes `known` false, since it may
 * take a value or place ranks, and no host file is written. After such an option, `places`, `binds`, `has_jobid` and
 * `interactive` are also set by any argument that may be one of their options, in full or abbreviated; and `muster` by
 * one that begins with "--muster".
 */
#ifndef MUSTER_SRUN_PLUGIN_SRUN_LINE_H
#define MUSTER_SRUN_PLUGIN_SRUN_LINE_H

#include <stdbool.h>
#include <stddef.h>

#include "common/error.h"

/* Strings point into the arguments; NULL if the option was not given. If it was given twice the last counts. */
struct srun_line {
    bool known;                 /* the table has every option before the program */
    bool muster;                /* --muster, --muster-report or --muster-preflight, with or without a value */
    const char *file;           /* --muster=FILE */
    const char *nodes;          /* -N */
    const char *tasks;          /* -n */
    const char *tasks_per_node; /* --ntasks-per-node */
    bool shares;                /* --cpus-per-task or --tres-per-task: without -n, Slurm starts as many tasks on a node
                                   as have room there */
    bool places;                /* an option chooses the nodes of ranks (-m, -w, -x, -r, --multi-prog, ...) or is one
                                   with which ranks are not ordered (--test-only, --interactive, --constraint, a ":",
                                   ...) */
    bool binds;                 /* an option chooses the CPUs of a rank: --cpu-bind, --hint, ... */
    bool has_jobid;             /* --jobid */
    bool interactive;           /* --interactive: the step in which salloc runs a shell */
    size_t program;             /* index of the first argument that is no option; `count` if there is none */
    char *text;                 /* of srun_line_own: the strings' memory, for the caller to free */
};

/* argv[0] is srun itself. Pure. */
void srun_line_read(char *const *argv, size_t count, struct srun_line *line);

/*
 * The command line of this process. -1 and *err if it cannot be read: then the line says that the user may have given
 * any option.
 */
int srun_line_own(struct srun_line *line, struct error *err);

#endif
