/*
 * epilog_timeout.h - slurmd kills an epilog that runs past the timeout in slurm.conf, and drains the node: the epilog
 * has to end before.
 *
 * The timeout comes from the file. slurmstepd, in which the epilog runs, has in memory only the settings that slurmd
 * sends it; the timeout is not among them in Slurm 24.05 to 26.05. slurm_load_ctl_conf would ask slurmctld, from all
 * nodes of a job at the same moment.
 */
#ifndef MUSTER_SRUN_PLUGIN_EPILOG_TIMEOUT_H
#define MUSTER_SRUN_PLUGIN_EPILOG_TIMEOUT_H

#include <stddef.h>

enum { EPILOG_NO_TIMEOUT = -1 };

/*
 * The smaller of PrologEpilogTimeout and EpilogTimeout (Slurm 25.05 and later) in the file `slurm_conf` and the files
 * that it includes. EPILOG_NO_TIMEOUT where neither is set, as by default, or the file cannot be read. NULL is no file.
 */
int epilog_timeout_read(const char *slurm_conf);

/*
 * How many of `seconds` an epilog may take under that timeout. Where that is fewer, `warning` says so and what to
 * change; else `warning` is "".
 */
int epilog_timeout_fit(int seconds, int timeout, char *warning, size_t size);

#endif
