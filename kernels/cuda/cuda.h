/*
 * cuda.h - the CUDA backend's insides; internal to kernels/cuda.
 *
 * Operations are enqueued on one stream in program order, so memory that one operation is done with serves the next
 * without waiting. Whoever works on another stream (copies for offload and staging, NCCL) orders the two by events, and
 * frees nothing that the other still uses. No operation allocates once it has met its largest operands.
 *
 * Needs no CUDA header, so that the tests' emulator can compile the same operations as plain C++. There another file
 * opens the device: "emulated" marks what it must set in `struct cuda`.
 */
#ifndef MUSTER_KERNELS_CUDA_CUDA_H
#define MUSTER_KERNELS_CUDA_CUDA_H

#include "kernels/device.h"

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st;     /* a cudaStream_t is a pointer to it */
struct cuda_memory;     /* memory.c */
struct cuda_matmul;     /* matmul.c */
struct cuda_transfers;  /* streams.c */
struct attention_cudnn; /* attention_cudnn.c */
struct cuda_marks;      /* streams.c */

struct cuda {
    int ordinal;                     /* of the GPU, among those visible to this process */
    int capability;                  /* 80 for sm_80, 90 for sm_90; emulated: 80 */
    int sms;                         /* streaming multiprocessors; emulated: as many blocks as it likes to see */
    size_t shared_limit;             /* bytes of shared memory that a block may ask for; emulated: the same */
    struct CUstream_st *stream;      /* of operations; emulated: NULL */
    struct CUstream_st *copy_stream; /* of transfers beside them; emulated: NULL */
    bool waits;                      /* MUSTER_CUDA_WAIT=1: for each operation, so that what fails is named */
    void *page;                      /* pinned: where cuda_fetch puts what it fetches */

    struct cuda_memory *memory;
    struct cuda_matmul *matmul;
    struct cuda_transfers *transfers;
    struct attention_cudnn *attention; /* NULL until cuDNN is first asked */
    struct cuda_marks *marks;          /* NULL until the first */
    void *workspace;
    size_t workspace_bytes;
};

static inline struct cuda *device_cuda(const struct device *dev)
{
    return (struct cuda *)dev->state;
}

/*
 * Scratch for the kernels of one operation, 256-byte aligned, at least `bytes`; the next operation may write over it.
 * NULL: the device has failed. An operation that calls other operations asks after they are done with theirs.
 */
void *cuda_workspace(struct device *dev, size_t bytes);

/* Waits for the stream, and copies at most 4096 bytes to the host: for the few results that operations return. */
void cuda_fetch(struct device *dev, void *to, const void *from, size_t bytes);

/* Whether a call of CUDA's run-time library succeeded; if not, the device fails with what was being done and why. An
 * asynchronous failure of an earlier kernel shows wherever the next call is. */
bool cuda_ok(struct device *dev, int status, const char *doing);
#define CUDA_OK(dev, call) cuda_ok(dev, (int)(call), #call)

/* After a call that may fail: CUDA keeps what it has returned until it is asked for, and the next launch of a kernel,
 * of whatever device, would take it for its own. */
int cuda_forget_error(void);

/* matmul.c: what products need between calls. Closing also what was half opened. */
int cuda_matmul_open(struct device *dev, struct error *err);
void cuda_matmul_close(struct device *dev);

/* memory.c: see there for where the memory comes from. Freeing does not wait: on this stream what follows comes after.
 */
struct cuda_memory *cuda_memory_open(struct device *dev, struct error *err);
void cuda_memory_close(struct device *dev, struct cuda_memory *memory);
void *cuda_alloc(struct device *dev, enum memory space, size_t bytes, struct error *err);
size_t cuda_free(struct device *dev, enum memory space, void *pointer);
size_t cuda_unused(struct device *dev);

/* streams.c: device_transfer, marks for profiles, device_stream and device_gpu_name */
int cuda_transfers_open(struct device *dev, struct error *err);
void cuda_transfers_close(struct device *dev);
uint64_t cuda_transfer(struct device *dev, void *y, const void *x, size_t bytes);
void cuda_transfer_join(struct device *dev, uint64_t ticket);
void cuda_transfer_wait(struct device *dev, uint64_t ticket);
void cuda_mark(struct device *dev, int which);
double cuda_between(struct device *dev, int first, int second);
void cuda_marks_close(struct device *dev);
struct CUstream_st *cuda_stream(const struct device *dev);
int cuda_gpu_name(const struct device *dev, unsigned char name[], struct error *err);

#ifdef __cplusplus
}
#endif

#endif
