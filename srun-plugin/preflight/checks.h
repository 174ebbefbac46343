/*
 * checks.h - what muster-preflight checks on its node. Each check writes its findings; none fails.
 */
#ifndef MUSTER_SRUN_PLUGIN_PREFLIGHT_CHECKS_H
#define MUSTER_SRUN_PLUGIN_PREFLIGHT_CHECKS_H

#include <stdint.h>

/*
 * GPUs and links of the machine under `root`: node_read's problems are oddities; fewer usable GPUs than Slurm gave
 * (SLURM_GPUS_ON_NODE) are a problem.
 */
void check_machine(const char *root);

/*
 * Whether slurmd has loaded the plugin, in a step of srun --muster: the plugin removes SLURM_MUSTER_STEP from the
 * environment. If not it is a problem: the ranks of that node would have no RANK, while the others wait for them.
 */
void check_plugin(void);

/*
 * NVML, if its library is installed: uncorrected ECC errors since the driver was loaded, and memory rows that need a
 * reset to be remapped or could not be remapped. Of this machine only.
 */
void check_nvml(void);

/*
 * Versions of the kernel, glibc, muster and the NVIDIA driver, and of the CUDA, NCCL, libfabric and MPI libraries: the
 * names of the files that LD_LIBRARY_PATH, and after it the usual places, have. Nothing is loaded or executed.
 */
void check_versions(const char *root);

/*
 * Whether a file can be created, synced and removed in `path`, or in the nearest directory above that exists, and
 * `bytes` are free there. `what` is its use, for the text: "checkpoints". Nothing if `path` is NULL or "".
 */
void check_directory(const char *what, const char *path, uint64_t bytes);

/*
 * Each node of the step sends 1 MiB to the next of a ring, which checks every byte and sends its own back. Nodes find
 * each other by PMI2 and talk over TCP, on the interface that the kernel routes to the other nodes through: if TCP
 * fails there, so does the bootstrap of NCCL, Gloo and MPI. Not tested: RDMA, and other interfaces. `name` is this
 * node's. Writes "to" and "from" by the deadline (CLOCK_MONOTONIC).
 */
void check_neighbours(const char *name, double deadline);

/* ---- muster_preflight.c ------------------------------------------------------------------------------------------- */

/*
 * Prints a line of answer.h, "preflight NODE KEY TEXT", as one write: all nodes share one pipe in the end. Newlines
 * become blanks. May be called by several threads.
 */
void write_finding(const char *key, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
