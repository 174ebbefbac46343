/*
 * comm_nccl.h - collectives between GPUs by NCCL. Only files in this folder include it.
 *
 * NCCL is opened when a run begins (common/library.h). Its unique id goes to all ranks by a broadcast of the world for
 * host memory, and not by PMI2's key-value space: MPI, which is there wherever there are several ranks, has the one
 * connection to PMI2 that a process is given. All groups are split off one communicator; they do not share its
 * resources (splitShare), for then NCCL runs the operations of all of them in one order, in which ranks would have to
 * agree.
 *
 * Every communicator is non-blocking and has a stream of its own. A wait looks at the operation's event, and now and
 * then for NCCL's asynchronous errors, for a failure that another rank has told, and for the watchdog's verdict; on any
 * of these all communicators are aborted, so that nothing on the GPU waits for ever. That the host waits, and not the
 * GPU, keeps the flight recorder true: what a rank waits in is what it has not got. A collective is started well before
 * it is waited for where time matters, so that what is enqueued meanwhile keeps the GPU busy.
 *
 * Sums are in NCCL's order and, of 16-bit types, in its precision: the same bits from run to run on the same GPUs, but
 * not those of comm.h's tree.
 *
 * There are no sends here. What is received ahead of what is sent would have to go on another communicator for each
 * pair of neighbours, lest two stages wait for each other's sends behind their own receives; stages exchange by
 * comm_staged.c.
 */
#ifndef MUSTER_TRAINER_COMM_COMM_NCCL_H
#define MUSTER_TRAINER_COMM_COMM_NCCL_H

#include "trainer/comm/comm_impl.h"

struct nccl_root;

/* 0; CODE_CONFIG where it cannot be opened here. Then the others may be called. */
int comm_nccl_load(struct error *err);

/* Of all ranks of the world, each with a GPU of its own. Collective. */
struct nccl_root *comm_nccl_root_create(struct comm *world, struct device *dev, struct error *err);
void comm_nccl_root_destroy(struct nccl_root *root);

/* comm_fabric_abandon's part */
void comm_nccl_root_abandon(struct nccl_root *root, const struct error *err);

/* "NCCL 2.27.7" */
void comm_nccl_version(char *text, size_t size);

/*
 * The group of host, which is taken over; color and key are those it was split by. Collective over the world: who is in
 * a group of fewer ranks than `least` calls it too, and gets host back. That is 2, or 1 for tests with one GPU.
 */
struct comm *comm_nccl_create(struct nccl_root *root, struct comm *host, int least, int color, int key,
                              struct error *err);

#endif
