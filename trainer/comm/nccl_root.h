/*
 * nccl_root.h - NCCL itself, opened at run time, and the communicator of all ranks from which groups are split: what
 * can go wrong with it, and how all of it is aborted at once. For comm_nccl.c.
 */
#ifndef MUSTER_TRAINER_COMM_NCCL_ROOT_H
#define MUSTER_TRAINER_COMM_NCCL_ROOT_H

#include <nccl.h>

#include "common/library.h"
#include "trainer/comm/comm_nccl.h"

#define NCCL_FUNCTIONS(f)                                                                                              \
    f(ncclGetVersion) f(ncclGroupStart) f(ncclGroupEnd) f(ncclGetUniqueId) f(ncclGetErrorString)                       \
        f(ncclCommInitRankConfig) f(ncclCommSplit) f(ncclCommFinalize) f(ncclCommDestroy) f(ncclCommAbort)             \
            f(ncclCommGetAsyncError) f(ncclAllGather) f(ncclAllReduce) f(ncclReduceScatter)

struct nccl_api {
    NCCL_FUNCTIONS(LIBRARY_MEMBER)
};

/* After comm_nccl_load. */
const struct nccl_api *nccl_api(void);

/* A group's communicator, known to the root until it leaves. */
struct nccl_member {
    ncclComm_t handle; /* NULL: none, or aborted */
    struct nccl_member *next;
};

/* Collective over the world; who does not join gets no communicator. */
int nccl_root_split(struct nccl_root *root, bool join, int color, int key, struct nccl_member *member,
                    struct error *err);
void nccl_root_leave(struct nccl_root *root, struct nccl_member *member);
struct device *nccl_root_device(const struct nccl_root *root);

/* -1 with the error for which everything was aborted. */
int nccl_root_usable(const struct nccl_root *root, struct error *err);

/*
 * Ends whatever is under way in any communicator, on this rank; the first error counts. All are told before the first
 * is freed: to free one, CUDA waits for the whole GPU, where another's kernel may be waiting for a rank that is gone.
 */
void nccl_root_abort(struct nccl_root *root, const struct error *err);

/* Whether all is well, while waiting: -1, everything being aborted, if NCCL or another rank has failed, or the watchdog
 * has given its verdict. */
int nccl_look(struct nccl_root *root, ncclComm_t handle, struct error *err);

/*
 * What a call has returned whose work may still be in progress: waits until it is not. ncclSuccess does not say so: a
 * split returns that at once, and sets its handle, as of 2.28, only when the parent is no longer in progress. So the
 * communicator is asked in any case.
 */
int nccl_settle(struct nccl_root *root, ncclComm_t handle, ncclResult_t status, const char *what, struct error *err);

#endif
