/*
 * visible.h - which GPUs of its node a rank sees: what its cgroup lets it open, and of those what a variable leaves.
 * Pure: the variables' values come in as arguments.
 *
 * Slurm counts the GPUs of CUDA_VISIBLE_DEVICES and its like among those that the cgroup lets the task open
 * (ConstrainDevices), else among all; the order is that of the PCI bus, as with CUDA_DEVICE_ORDER=PCI_BUS_ID. Which
 * GPU has which UUID no file says: a value that names GPUs or MIG slices by UUID leaves all.
 */
#ifndef MUSTER_SRUN_PLUGIN_VISIBLE_H
#define MUSTER_SRUN_PLUGIN_VISIBLE_H

#include "srun-plugin/node.h"

/* Values of the variables, borrowed; NULL where one is not set. That of the GPUs' vendor counts. */
struct visible {
    const char *cuda; /* CUDA_VISIBLE_DEVICES: NVIDIA; it ends before the first that is no GPU, as CUDA reads it */
    const char *rocr; /* ROCR_VISIBLE_DEVICES: AMD */
    const char *ze;   /* ZE_AFFINITY_MASK: Intel, "0,1" or with tiles "0.0,0.1", which are GPU 0 twice */
};

#define VISIBLE_MOST 256

/*
 * Indices into node->gpus in the order in which the rank counts them: the GPU of local rank r is indices[r], or with
 * more ranks than that indices[r % count]. Returns how many; 0 for none.
 */
size_t visible_gpus(const struct node *node, const struct visible *visible, size_t indices[VISIBLE_MOST]);

#endif
