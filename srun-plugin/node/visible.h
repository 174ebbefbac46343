/*
 * visible.h - which GPUs of its node a rank can use, and whether it can reach those of its neighbours. Pure: the
 * environment is an argument.
 *
 * A rank sees the GPUs that its cgroup lets it open, reduced by CUDA_VISIBLE_DEVICES or the like. Slurm counts the GPUs
 * in that variable among those that the cgroup lets the task open (ConstrainDevices), else among all, in the order of
 * the PCI bus, as with CUDA_DEVICE_ORDER=PCI_BUS_ID. No file has the GPUs' UUIDs: a value with UUIDs of GPUs or MIG
 * slices keeps all GPUs.
 *
 * NCCL moves data between the GPUs of a node by CUDA's peer access and IPC, which need the neighbour's GPU to be
 * visible. --gpus-per-task (which implies --gpu-bind=per_task), --gpu-bind and --tres-bind hide it, and NCCL silently
 * falls back to shared memory or the network (NVIDIA/nccl#1066, nccl-tests#300, open-mpi/ompi#11949). Such a rank also
 * has no GPU numbered LOCAL_RANK.
 */
#ifndef MUSTER_SRUN_PLUGIN_NODE_VISIBLE_H
#define MUSTER_SRUN_PLUGIN_NODE_VISIBLE_H

#include "srun-plugin/node/env_list.h"
#include "srun-plugin/node/node.h"

#define VISIBLE_MOST 256

/*
 * Of the variables of `environment` the one of the GPUs' vendor counts: CUDA_VISIBLE_DEVICES (NVIDIA), which ends
 * before the first entry that is no GPU, as in CUDA; ROCR_VISIBLE_DEVICES (AMD); or ZE_AFFINITY_MASK (Intel), "0,1" or
 * with tiles "0.0,0.1", which is GPU 0 twice.
 *
 * Indices into node->gpus in the rank's own order: the GPU of local rank r is indices[r], or with more ranks than GPUs
 * indices[r % count]. Returns the count; 0 for none.
 */
size_t visible_gpus(const struct node *node, env_lookup *environment, void *environment_arg,
                    size_t indices[VISIBLE_MOST]);

#define ISOLATION_LINE_SIZE 512

/*
 * Writes one line with the cause and the option of srun that helps. "" if the rank sees all GPUs of the step on its
 * node (SLURM_GPUS_ON_NODE), has no neighbours among the local_ranks, or it is not known.
 */
void isolation_judge(const struct node *node, unsigned rank, unsigned local_ranks, env_lookup *environment, void *arg,
                     char line[ISOLATION_LINE_SIZE]);

#endif
