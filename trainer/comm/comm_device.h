/*
 * comm_device.h - what communicators for a device's memory share: comm_staged.c, by way of the host, and comm_nccl.c.
 * Each stands on a communicator of the same ranks for host memory, which does all that has no buffer on the device.
 * Only files in this folder include it.
 */
#ifndef MUSTER_TRAINER_COMM_COMM_DEVICE_H
#define MUSTER_TRAINER_COMM_COMM_DEVICE_H

#include "kernels/kernels.h"
#include "trainer/comm/comm_impl.h"

/* Rank, size, members and label are those of `host`, which is taken over when this succeeds. */
int comm_device_init(struct comm *comm, const struct comm_ops *ops, struct comm *host, struct error *err);

/* For comm_ops: the host communicator's. */
struct comm *comm_device_split(struct comm *comm, int color, int key, struct error *err);
struct comm_request *comm_device_broadcast(struct comm *comm, void *buffer, size_t bytes, int root, struct error *err);

/* Whether no two of `count` names, of so many bytes each, are the same. Pure. */
bool comm_names_differ(const unsigned char *names, size_t bytes, int count);

struct comm *comm_staged_create(struct comm *host, struct device *dev, struct error *err);

#endif
