/*
 * comm_nccl.h - collectives between GPUs by NCCL. Only files in this folder include it: comm_nccl.c has the groups'
 * operations; nccl_root.c opens NCCL, has the communicator of all ranks, and aborts all communicators at once.
 *
 * NCCL is opened when a run begins (common/library.h). Its unique id goes to all ranks by a broadcast of the world for
 * host memory. (PMI2's key-value space is not available: a process has one connection to PMI2, and MPI uses it.) All
 * groups are split off one communicator. They do not share its resources (splitShare), because then NCCL would run the
 * operations of all groups in one order, on which ranks would have to agree.
 *
 * Every communicator is non-blocking and has a stream of its own. A wait polls the operation's event, and sometimes
 * NCCL's asynchronous errors, failures of other ranks (check_failure), and comm_interrupt. On any of these all
 * communicators are aborted, so that nothing on the GPU waits for ever. The host waits, not the GPU: this keeps the
 * flight record correct, because the operation that a rank waits in is the one that has not finished. Where time
 * matters, a collective is started well before the wait, so that work enqueued between the two keeps the GPU busy.
 *
 * There are no sends here. Receives are posted ahead of sends, so each pair of neighbours would need a communicator of
 * its own: on a common one, two stages could wait for each other's sends behind their own receives. Stages exchange by
 * way of the host (comm_device.c).
 */
#ifndef MUSTER_TRAINER_COMM_COMM_NCCL_H
#define MUSTER_TRAINER_COMM_COMM_NCCL_H

#include <nccl.h>

#include "common/library.h"
#include "trainer/comm/comm_impl.h"

struct nccl_root;

/* Opens NCCL. CODE_CONFIG if this machine has none. To be called before the functions below. */
int comm_nccl_load(struct error *err);

/* The communicator of all ranks of the world, each with a GPU of its own. Collective. */
struct nccl_root *comm_nccl_root_create(struct comm *world, struct device *dev, struct error *err);
void comm_nccl_root_destroy(struct nccl_root *root);

/* "NCCL 2.27.7" */
void comm_nccl_version(char *text, size_t size);

/*
 * The same group as host, whose ownership it takes, also when it fails; color and key are those that host was split by.
 * Collective over the world. A rank whose group has fewer ranks than `least` (2; 1 for tests with one GPU) gets host
 * back.
 */
struct comm *comm_nccl_create(struct nccl_root *root, struct comm *host, int least, int color, int key,
                              struct error *err);

/* ---- nccl_root.c for comm_nccl.c ---- */

#define NCCL_FUNCTIONS(f)                                                                                              \
    f(ncclGetVersion) f(ncclGroupStart) f(ncclGroupEnd) f(ncclGetUniqueId) f(ncclGetErrorString)                       \
        f(ncclCommInitRankConfig) f(ncclCommSplit) f(ncclCommFinalize) f(ncclCommDestroy) f(ncclCommAbort)             \
            f(ncclCommGetAsyncError) f(ncclAllGather) f(ncclAllReduce) f(ncclReduceScatter)

struct nccl_api {
    NCCL_FUNCTIONS(LIBRARY_MEMBER)
};

extern struct nccl_api nccl_api; /* filled by comm_nccl_load */

/* A group's communicator, known to the root until it leaves. */
struct nccl_member {
    ncclComm_t handle; /* NULL: none, or aborted */
    struct nccl_member *next;
};

struct nccl_root {
    struct comm *world;
    struct device *dev;
    struct nccl_member all;
    struct nccl_member *members;
    bool aborted;
    struct error why;
};

/* Collective over the world; a rank that does not join gets no communicator. */
int nccl_root_split(struct nccl_root *root, bool join, int color, int key, struct nccl_member *member,
                    struct error *err);
void nccl_root_leave(struct nccl_root *root, struct nccl_member *member);

/* Returns -1 with the first error if everything was aborted. */
int nccl_root_usable(const struct nccl_root *root, struct error *err);

/*
 * Aborts all communicators of this rank; only the first call's error counts. For NULL it does nothing. All are aborted
 * before the first is freed: to free one, CUDA waits for the whole GPU, where another's kernel may wait for a lost
 * rank.
 */
void nccl_root_abort(struct nccl_root *root, const struct error *err);

/* Polled while waiting. Aborts everything and returns -1 if NCCL or another rank has failed, or the watchdog has given
 * its verdict. */
int nccl_look(struct nccl_root *root, ncclComm_t handle, struct error *err);

/*
 * Waits until the work of an NCCL call, which returned `status`, is no longer in progress. ncclSuccess does not mean
 * that: a split returns it at once, and sets its handle, as of 2.28, only when the parent is no longer in progress. So
 * the communicator is asked in any case.
 */
int nccl_settle(struct nccl_root *root, ncclComm_t handle, ncclResult_t status, const char *what, struct error *err);

#endif
