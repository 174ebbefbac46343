/*
 * checks.h - what muster-preflight looks at on its node. Each check says its findings (say.h); none fails.
 */
#ifndef MUSTER_SRUN_PLUGIN_PREFLIGHT_CHECKS_H
#define MUSTER_SRUN_PLUGIN_PREFLIGHT_CHECKS_H

#include <stdint.h>

/*
 * GPUs and links of the machine beneath `root`: node_read's problems as oddities; fewer usable GPUs than Slurm gave
 * (SLURM_GPUS_ON_NODE) is a problem.
 */
void check_machine(const char *root);

/*
 * That slurmd has loaded the plugin here, where the step's srun has (srun --muster): it takes SLURM_MUSTER_STEP out of
 * the environment. A problem where not: the ranks of that node would have no RANK, while the others wait for them.
 */
void check_plugin(void);

/*
 * Asks NVML, where its library is: uncorrected ECC errors since the driver was loaded, rows that wait for a reset to be
 * remapped or could not be, and the driver's version. Of this machine only.
 */
void check_nvml(void);

/*
 * Versions of the kernel, glibc, muster and the NVIDIA driver, and of the CUDA, NCCL, libfabric and MPI libraries: the
 * names of the files that LD_LIBRARY_PATH, and after it the usual places, have. Nothing is loaded or executed.
 */
void check_versions(const char *root);

/*
 * A file can be made, written to disk and removed in `directory`, or in the nearest one above that exists, and `bytes`
 * are free there. `what` it is for: "checkpoints". `path` NULL or "" is nothing to check.
 */
void check_directory(const char *what, const char *path, uint64_t bytes);

#endif
