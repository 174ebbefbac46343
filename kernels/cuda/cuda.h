/*
 * cuda.h - the CUDA backend's insides; internal to kernels/cuda. backend.c opens the device and has its streams,
 * transfers and workspace.
 *
 * Operations are enqueued on one stream in program order, so an operation may reuse the memory of an earlier one
 * without waiting. Code that uses another stream (copies for offload and staging, NCCL) orders the two by events, and
 * frees nothing that the other still uses. An operation allocates only when its operands are larger than any before.
 *
 * Needs no CUDA header, so that the tests' emulator can compile the same operations as plain C++. There tests/cuda
 * opens the device; "emulated" says what it sets in `struct cuda`.
 */
#ifndef MUSTER_KERNELS_CUDA_CUDA_H
#define MUSTER_KERNELS_CUDA_CUDA_H

#include <stdlib.h>
#include <string.h>

#include "common/workspace/workspace_cuda.h"
#include "kernels/device.h"

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st;     /* a cudaStream_t is a pointer to it */
struct cuda_memory;     /* memory.c */
struct matmul_state;    /* cuda_matmul.c */
struct attention_cudnn; /* attention_cudnn.c */

/* Each transfer has an event, of which there are a few in a ring. The stream keeps its order, so where a ticket's event
 * has gone to a later transfer, waiting for that one is waiting for both. */
#define CUDA_EVENTS 64

struct cuda {
    int ordinal;                     /* of the GPU, among those visible to this process */
    int capability;                  /* 80 for sm_80, 90 for sm_90; emulated: 80 */
    int sms;                         /* streaming multiprocessors; emulated: any number */
    size_t shared_limit;             /* bytes of shared memory that a block may request, also emulated */
    struct CUstream_st *stream;      /* of operations; emulated: NULL */
    struct CUstream_st *copy_stream; /* of transfers beside them; emulated: NULL */
    bool waits; /* MUSTER_CUDA_WAIT=1: synchronize after each operation, to find a failing kernel */
    void *page; /* pinned, the destination of cuda_fetch */

    struct cuda_memory *memory;
    struct matmul_state *matmul;
    struct CUevent_st *transferred[CUDA_EVENTS]; /* of transfers, the newest ones */
    struct CUevent_st *computed;                 /* what was enqueued before a transfer */
    uint64_t last_transfer;                      /* ticket given out */
    struct attention_cudnn *attention;           /* NULL until cuDNN is loaded */
    void *workspace;
};

static inline struct cuda *device_cuda(const struct device *dev)
{
    return (struct cuda *)dev->state;
}

/*
 * Scratch for the kernels of one operation, 256-byte aligned, at least `bytes`; the next operation may write over it.
 * NULL: the device has failed. An operation that calls other operations calls this after them.
 */
void *cuda_workspace(struct device *dev, size_t bytes);

/* Waits for the stream, and copies at most 4096 bytes to the host: for the few results that operations return. */
void cuda_fetch(struct device *dev, void *to, const void *from, size_t bytes);

/* Whether a call of CUDA's run-time library succeeded. If not, the device fails; the error names the call and CUDA's
 * reason. An asynchronous failure of an earlier kernel is reported by the next call. */
bool cuda_ok(struct device *dev, int status, const char *doing);
#define CUDA_OK(dev, call) cuda_ok(dev, (int)(call), #call)

/* After a call that may fail: CUDA keeps the last error until it is read, and the next kernel launch would take that
 * error for its own. */
int cuda_forget_error(void);

/* cuda_matmul.c: the state of matmul. cuda_matmul_close also accepts a state that was opened only in part. */
int cuda_matmul_open(struct device *dev, struct error *err);
void cuda_matmul_close(struct device *dev);

/* memory.c, which says where the memory comes from. Freeing does not wait: later operations on this stream run after
 * earlier ones. */
struct cuda_memory *cuda_memory_open(struct device *dev, struct error *err);
void cuda_memory_close(struct device *dev, struct cuda_memory *memory);
void *cuda_alloc(struct device *dev, enum memory space, size_t bytes, struct error *err);
size_t cuda_free(struct device *dev, enum memory space, void *pointer);
size_t cuda_unused(struct device *dev);

/*
 * The operations of kernels.h, which says what they do, under their names there. Most are in gpu/; matmul is in
 * cuda_matmul.c, attention in cuda_attention.c, copy and zero in backend.c. The table of a device is filled from
 * CUDA_OPERATIONS.
 */
#define CUDA_OPERATIONS(f) KERNELS_OPERATIONS(f) f(matmul) f(copy) f(zero)
#define CUDA_DECLARE(name) __typeof__(*((struct kernels *)NULL)->name) cuda_##name;
#define CUDA_SET(name)     .name = cuda_##name,

CUDA_OPERATIONS(CUDA_DECLARE)

/* ---- what operations share ------------------------------------------------------------------------------------- */

/*
 * Sums over rows, in two stages: each block of rows alone, then the blocks' sums in order. The blocks depend only on
 * the number of rows, so the result is the same on every GPU.
 */

/*
 * sums[kinds][n] fp32 = sums over the rows of x[rows, n] of each kind; added to them when accumulate. kinds: 1, or 2
 * with types [rows] of 0 or 1. Takes the workspace.
 */
void cuda_column_sums(struct device *dev, enum dtype dtype, float *sums, const void *x, const int32_t *types, int rows,
                      int n, bool accumulate);

/* The second stage: first[n], and second[n] if not NULL, (+)= the sums over the blocks of partial[blocks][1 or 2][n]. */
void cuda_add_partial_sums(struct device *dev, float *first, float *second, const float *partial, int blocks, int n,
                           bool accumulate);

/* c (and aux) = op's epilogue of product, packed [m,n] fp32. op's strides are all given. */
void cuda_epilogue(struct device *dev, const struct matmul *op, const float *product);

#ifdef __cplusplus
}
#endif

#endif
