/*
 * comm.h - groups of ranks and what they do together. Every axis of the mesh (dp, tp, pp) is one struct comm, and so is
 * the world. Implementations: self (one rank, no library), mpi (any MPI 3 library); and, for buffers on a GPU, staged
 * (by way of the host) and nccl.
 *
 * Every rank of a group must call the same operations in the same order. Operations begin with a start function and end
 * with comm_wait; between the two the buffers belong to the operation. Several may be under way at once. The blocking
 * forms are start and wait in one.
 *
 * Sums are taken in a fixed binary tree over the ranks, ((0+1)+(2+3))+.... So the same inputs give the same bits on any
 * network, placement and MPI library (NCCL has orders of its own), and the sum over 2^k ranks equals that over 2^(k-1)
 * ranks that have each added the inputs of two neighbours first. A reduce-scatter and an all-reduce of the same
 * buffers agree bit by bit.
 *
 * A wait calls sched_yield, so that there may be more ranks than cores.
 */
#ifndef MUSTER_TRAINER_COMM_COMM_H
#define MUSTER_TRAINER_COMM_COMM_H

#include <stdbool.h>
#include <stddef.h>

#include "common/dtype.h"
#include "common/error.h"
#include "kernels/kernels.h"

struct comm;
struct comm_request;

/*
 * All ranks that the launcher started (launch.h): MPI when there are several, otherwise one rank alone. Fails with
 * CODE_USAGE when the MPI library does not speak the launcher's protocol (each rank would believe itself alone). Call
 * once, before threads; comm_destroy after everything else, on every way out but a crash. With MPI both are in
 * comm_mpi.c, and what they and comm_world_fail do after a failure is in comm_mpi_failure.c.
 */
struct comm *comm_world_create(struct error *err);

/* The type for srun --mpi that suits the MPI library of this build: "pmi2", "pmix"; "none" without MPI. */
const char *comm_launch_type(void);

/*
 * A rank that fails tells the others, which may be waiting for it in any operation: there comm_wait fails with the
 * error of the rank that failed, its exit code included, so that all ranks end with the same code and name the true
 * reason. A rank that fails because it was notified does not notify others. Waits a few seconds for the others to fail
 * too. Returns true if all ranks have this error, or after comm_interrupt: then only one rank needs to print it. Then
 * err->code is rank 0's on every rank, because a launcher combines different exit codes into one that no rank returned.
 * To be called before buffers are freed that operations under way may still use; afterwards only comm_destroy and
 * this again, for its result, may be called.
 */
bool comm_world_fail(struct comm *world, struct error *err);

/* A group of this process only, whatever was started: for tools. Destroy it with comm_destroy. */
struct comm *comm_alone_create(struct error *err);

/*
 * Tells every rank whether all succeeded. All return the same: 0, or -1 with the error of the lowest rank that failed.
 * `result` is this rank's own, with *err filled when it is negative.
 */
int comm_agree(struct comm *comm, int result, struct error *err);

/* The ranks with the same color, in the order of key; collective over parent. */
struct comm *comm_split(struct comm *parent, int color, int key, struct error *err);
void comm_destroy(struct comm *comm);

/*
 * How the ranks' devices reach each other: by NCCL where each rank has a GPU of its own and NCCL can be opened on all
 * of them, else by way of host memory; on a CPU, and with one rank, it does nothing. Collective. `world` and `dev` are
 * borrowed and must outlive it, and it must outlive the groups made by it.
 */
struct comm_fabric;

struct comm_fabric *comm_fabric_create(struct comm *world, struct device *dev, struct error *err);
void comm_fabric_destroy(struct comm_fabric *fabric);

/*
 * After a failure, when comm_world_fail has returned: ends the devices' operations without the other ranks; from now on
 * every operation fails. Without this, freeing memory might wait for these operations for ever. NULL does nothing.
 */
void comm_fabric_abandon(struct comm_fabric *fabric, const struct error *err);

/* "NCCL 2.27.7", "host memory, because ranks share a GPU"; "" for a CPU or one rank. */
const char *comm_fabric_describe(const struct comm_fabric *fabric);

/*
 * A group with the ranks of comm, which was split off the world by this color and key, for the memory of the fabric's
 * device. It takes ownership of comm, also when it fails. On a CPU (device_is_host) and in a group of one it returns
 * comm itself. Collective over the world.
 *
 * - Buffers that are reduced, gathered, sent or received are MEMORY_DEVICE, and so is scratch. Broadcasts, the forms
 *   for scalars, agreements and barriers take host memory.
 * - An operation begins when the device has done what was enqueued before its start; what is enqueued after comm_wait
 *   has returned comes after it. So the caller need not wait for the device. (On a CPU operations are done when they
 *   return.) Before the host reads results, call device_wait.
 * - A group is for collectives, or for messages (sends and receives). NCCL sums in its own order: the same bits from
 *   run to run on the same GPUs, but not those of the tree, and it does not sum 16-bit types in fp32.
 */
enum comm_use { COMM_COLLECTIVES, COMM_MESSAGES };

struct comm *comm_on_device(struct comm_fabric *fabric, struct comm *comm, enum comm_use use, int color, int key,
                            struct error *err);

/* The same group for host memory: comm itself, or what comm_on_device took ownership of. Borrowed. */
struct comm *comm_host(struct comm *comm);

int comm_rank(const struct comm *comm);
int comm_size(const struct comm *comm);
const char *comm_describe(const struct comm *comm); /* "MPICH 4.0.2" or "one process" */

/*
 * For the flight recorder (trainer/watch/recorder.h). comm_label names a communicator ("dp"; the default is "world" or
 * "group"): call it before the first operation, with the same label on all members. comm_purpose names the purpose of
 * the next operation: unit "block 7" and data "gradients" make "reduce-scatter of block 7 gradients". Both are borrowed
 * until that operation has begun, and either may be NULL.
 */
void comm_label(struct comm *comm, const char *label);
void comm_purpose(struct comm *comm, const char *unit, const char *data);

/*
 * From any thread (the watchdog calls it): from now on every comm_wait of this process fails with this error,
 * and comm_world_fail neither tells other ranks nor waits for them. Only the first call counts.
 */
void comm_interrupt(const struct error *err);

/* From now on a comm_wait that fails with CODE_PEER raises the watchdog's alarm, and waits so long for comm_interrupt,
 * whose error has the cause. 0: there is no watchdog. */
void comm_await_cause(double seconds);

/* ---- collectives ------------------------------------------------------------------------------------------------- */

/*
 * recv[count] = sum over ranks of their send[rank * stride ... + count); send does not change. recv may be this rank's
 * part of send. 16-bit types are summed in fp32 and rounded once. scratch has room for size * count elements (size: of
 * the group); if it is NULL, the operation allocates it.
 */
struct comm_request *comm_start_reduce_scatter(struct comm *comm, enum dtype dtype, void *recv, const void *send,
                                               size_t count, size_t stride, void *scratch, struct error *err);

/* Each rank's buffer[rank * count .. + count) is copied to all ranks: buffer has size * count elements. */
struct comm_request *comm_start_all_gather(struct comm *comm, enum dtype dtype, void *buffer, size_t count,
                                           struct error *err);

/* To and from one rank of the group, received in the order in which they were sent. */
struct comm_request *comm_start_send(struct comm *comm, const void *buffer, size_t bytes, int peer, struct error *err);
struct comm_request *comm_start_recv(struct comm *comm, void *buffer, size_t bytes, int peer, struct error *err);

/*
 * Waits for the operation and frees the request; for NULL it does nothing. A lost peer is CODE_PEER. When it fails, the
 * operation is still under way: its buffers must stay until comm_world_fail has returned.
 */
int comm_wait(struct comm_request *request, struct error *err);

/* Every rank's buffer[count] becomes the sum of all, the same bits everywhere. For small buffers: every rank receives
 * every other's whole buffer. scratch as above. */
int comm_all_reduce(struct comm *comm, enum dtype dtype, void *buffer, size_t count, void *scratch, struct error *err);
int comm_all_gather(struct comm *comm, enum dtype dtype, void *buffer, size_t count, struct error *err);
int comm_broadcast(struct comm *comm, void *buffer, size_t bytes, int root, struct error *err);
int comm_barrier(struct comm *comm, struct error *err);

/* For a few scalars: every rank gets the tree sum, or the maximum, of each. The maximum of NaN and a number is NaN. */
int comm_sum_f64(struct comm *comm, double *values, size_t count, struct error *err);
int comm_max_f64(struct comm *comm, double *values, size_t count, struct error *err);

#endif
