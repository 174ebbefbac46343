/*
 * comm.h - groups of ranks and what they do together. Every axis of the mesh (dp, tp, pp) is one struct comm, and so is
 * the world. Implementations: self (one rank, no library), mpi (MPICH over PMI2); and, for buffers on a GPU, staged (by
 * way of the host) and nccl.
 *
 * Every rank of a group must call the same operations in the same order. Operations begin with a start function and end
 * with comm_wait; between the two the buffers belong to the operation. Several may be under way at once. The blocking
 * forms are start and wait in one.
 *
 * Sums are taken in a fixed binary tree over the ranks, ((0+1)+(2+3))+..., whatever the network, the placement or the
 * library's mood: the same inputs give the same bits, and the sum of 2^k ranks equals the sum of 2^(k-1) ranks that had
 * added neighbours' inputs first. A reduce-scatter and an all-reduce of the same buffers agree bit by bit.
 *
 * Waiting gives the core away (sched_yield) rather than spinning, so that ranks may outnumber cores.
 */
#ifndef MUSTER_TRAINER_COMM_COMM_H
#define MUSTER_TRAINER_COMM_COMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/dtype.h"
#include "common/error.h"
#include "kernels/kernels.h"

struct comm;
struct comm_request;

/*
 * All ranks that the launcher started: MPI when a PMI environment says that there are several, otherwise one rank
 * alone. Fails with CODE_USAGE when Slurm started several tasks without PMI2 (each would believe itself alone). Call
 * once, before threads; comm_world_finish after everything else, on every way out but a crash. After comm_world_fail it
 * ends the library only if that returned true and no operation is under way on any rank: else it might wait for ever.
 */
struct comm *comm_world_create(struct error *err);
void comm_world_finish(struct comm *world);

/*
 * A rank that fails tells the others, which may be waiting for it in any operation: there comm_wait fails with the
 * culprit's error, its exit code included, so that all ranks end alike and for the true reason. A rank that fails
 * because it was told tells nobody. Waits a few seconds for the others to have failed too; true when all have, and then
 * err->code is rank 0's on all of them: ranks may have failed at once for different reasons, and a launcher makes of
 * different codes one that nobody meant. To be called before buffers are freed that operations under way may still use;
 * afterwards only comm_destroy, comm_world_finish and this again, for its answer, may be called.
 */
bool comm_world_fail(struct comm *world, struct error *err);

/* A group of this process only, whatever was started: for tools. End it with comm_destroy. */
struct comm *comm_alone_create(struct error *err);

/*
 * Every rank learns whether all succeeded: 0, or -1 with the error of the lowest rank that failed, on all ranks alike.
 * `result` is this rank's own, with *err filled when it is negative.
 */
int comm_agree(struct comm *comm, int result, struct error *err);

/* The ranks with the same color, in the order of key; collective over parent. */
struct comm *comm_split(struct comm *parent, int color, int key, struct error *err);
void comm_destroy(struct comm *comm);

/*
 * How the ranks' devices reach each other: by NCCL where each rank has a GPU of its own and NCCL can be opened on all
 * of them, else by way of host memory; on a CPU, and with one rank, there is nothing to it. Collective. What is passed
 * is borrowed, and must outlive it, as it must outlive the groups made by it.
 */
struct comm_fabric;

struct comm_fabric *comm_fabric_create(struct comm *world, struct device *dev, struct error *err);
void comm_fabric_destroy(struct comm_fabric *fabric);

/*
 * After a failure, when comm_world_fail has returned: what devices still do together is ended without the other ranks,
 * and every operation fails from now on. Else freeing memory might wait for them for ever. NULL is harmless.
 */
void comm_fabric_abandon(struct comm_fabric *fabric, const struct error *err);

/* "NCCL 2.27.7", "host memory, because ranks share a GPU"; "" where no device needs any. */
const char *comm_fabric_describe(const struct comm_fabric *fabric);

/*
 * A group that was split off the world, by this color and key, for the memory of the fabric's device, where that is no
 * host memory (device_is_host). It takes comm over, also when it fails, and is comm itself on a CPU and in a group of
 * one. Collective over the world.
 *
 * - What is reduced, gathered, sent and received is MEMORY_DEVICE, and so is scratch. Broadcasts, the forms for
 * scalars, agreements and barriers take host memory.
 * - An operation begins when what was enqueued to the device before its start is done, and what is enqueued after
 *   comm_wait has returned comes after it: nobody need wait for the device. (On a CPU operations are done when they
 *   return.) For the host to look at results, device_wait.
 * - A group is for collectives or for messages, sends and receives. Sums of NCCL's are in its own order: the same bits
 *   from run to run, but not those of the tree, and 16-bit types are not summed in fp32.
 */
enum comm_use { COMM_COLLECTIVES, COMM_MESSAGES };

struct comm *comm_on_device(struct comm_fabric *fabric, struct comm *comm, enum comm_use use, int color, int key,
                            struct error *err);

/* For host memory: comm itself, or what comm_on_device has taken over. Borrowed. */
struct comm *comm_host(struct comm *comm);

int comm_rank(const struct comm *comm);
int comm_size(const struct comm *comm);
const char *comm_describe(const struct comm *comm); /* "MPICH 4.0.2" or "one process" */

/*
 * For the flight recorder (report/recorder.h): what a communicator is called ("dp"; else "world" and "group"), to be
 * said before its first operation, alike on all members; and what its next operation is for, such as ("block 7",
 * "gradients"), which makes "reduce-scatter of block 7 gradients". Both words are borrowed until that operation has
 * begun, and either may be NULL.
 */
void comm_label(struct comm *comm, const char *label);
void comm_purpose(struct comm *comm, const char *what, const char *of);

/*
 * From any thread: from now on every comm_wait of this process fails with this error, and comm_world_fail tells and
 * waits for nobody. The first one counts.
 */
void comm_interrupt(const struct error *err);

/*
 * A comm_wait that fails with CODE_PEER calls `explain`, which may wait for what is known by then and put a better text
 * into *err. NULL for none.
 */
void comm_explain_with(void (*explain)(struct error *err, void *arg), void *arg);

/* ---- collectives ------------------------------------------------------------------------------------------------- */

/*
 * recv[count] = sum over ranks of their send[rank * stride ... + count); send is left as it is. recv may be that part
 * of send which is this rank's. 16-bit types are summed in fp32 and rounded once. scratch has room for
 * the group's size * count elements; NULL takes it from the heap for the time of the operation.
 */
struct comm_request *comm_start_reduce_scatter(struct comm *comm, enum dtype dtype, void *recv, const void *send,
                                               size_t count, size_t stride, void *scratch, struct error *err);

/* Each rank's buffer[rank * count .. + count) is spread to all: buffer has size * count elements. */
struct comm_request *comm_start_all_gather(struct comm *comm, enum dtype dtype, void *buffer, size_t count,
                                           struct error *err);

/* To and from one rank of the group, in order of posting. */
struct comm_request *comm_start_send(struct comm *comm, const void *buffer, size_t bytes, int peer, struct error *err);
struct comm_request *comm_start_recv(struct comm *comm, void *buffer, size_t bytes, int peer, struct error *err);

/*
 * Ends and frees the request; NULL means there is nothing to wait for. A lost peer is CODE_PEER. When it fails, the
 * operation is still under way: its buffers must stay until comm_world_fail has returned.
 */
int comm_wait(struct comm_request *request, struct error *err);

/* Every rank's buffer[count] becomes the sum of all, the same bits everywhere. Meant for small buffers: every rank gets
 * every other's whole. scratch as above. */
int comm_all_reduce(struct comm *comm, enum dtype dtype, void *buffer, size_t count, void *scratch, struct error *err);
int comm_all_gather(struct comm *comm, enum dtype dtype, void *buffer, size_t count, struct error *err);
int comm_broadcast(struct comm *comm, void *buffer, size_t bytes, int root, struct error *err);
int comm_barrier(struct comm *comm, struct error *err);

/*
 * For a handful of scalars: every rank gets the tree sum, or the greatest, of each. NaN wins over every number in max.
 */
int comm_sum_f64(struct comm *comm, double *values, size_t count, struct error *err);
int comm_max_f64(struct comm *comm, double *values, size_t count, struct error *err);

#endif
