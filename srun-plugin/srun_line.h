/*
 * srun_line.h - what the words of an srun say, as far as the order of ranks is concerned. Pure.
 *
 * slurm_spank_init comes before srun has read its options, and is the only moment at which a host file can still order
 * the ranks. So the plugin reads them there itself, with care: an option that it does not know may take a value, decide
 * about nodes, or both, and then `known` is false and the ranks stay where Slurm puts them; `places` and `binds` are
 * then true for any word behind it that may be, or abbreviate, an option that does so.
 */
#ifndef MUSTER_SRUN_PLUGIN_SRUN_LINE_H
#define MUSTER_SRUN_PLUGIN_SRUN_LINE_H

#include <stdbool.h>
#include <stddef.h>

/* Strings point into the words; NULL where an option is not there. The last of several counts, as for srun. */
struct srun_line {
    bool known;               /* every option up to the program was understood */
    bool muster;              /* --muster, --muster-report or --muster-preflight, with or without a value */
    const char *file;         /* --muster=FILE */
    const char *nodes;        /* -N */
    const char *tasks;        /* -n */
    const char *tasks_a_node; /* --ntasks-per-node */
    bool places;              /* something says which node gets which rank: -m, -w, -x, -r, --multi-prog, ... */
    bool binds;               /* something says which CPUs a rank gets: --cpu-bind, --hint, ... */
    size_t program;           /* index of the first word that is no option; `count` if there is none */
};

/* words[0] is srun itself. */
void srun_line_read(char *const *words, size_t count, struct srun_line *line);

#endif
