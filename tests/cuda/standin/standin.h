/*
 * standin.h - the part of CUDA's run-time library, of cuBLASLt, cuDNN and NCCL that muster calls, on a CPU: so that the
 * engine for GPUs runs whole, as it is, where there is no GPU. Its kernels are the emulated ones (../emulator.h), which
 * go to a stream here as they do to a GPU's.
 *
 * What it shows is how these libraries are called: that nothing is used before it is there, or after it was given away,
 * or while another stream still writes it. It shows nothing of speed, nor whether the real libraries accept what this
 * one does; some conditions that their documents state are checked. Nor does it show a kernel that uses the host's
 * memory (copies, products and collectives are checked; tests/discrete does the rest); work that a stream or memory is
 * destroyed under; two ranks on a GPU with NCCL; and collectives of two communicators that would keep each other from
 * beginning.
 *
 * A process has one thread that is its GPU. It takes work from the streams in any order that streams and events allow:
 * MUSTER_STANDIN_SEED chooses one; with 0 it is the order of the calls. A collective is done when all ranks' streams
 * have come to it, through a file that they share. Errors are a GPU's: they stick, and the next calls return them.
 * What has no name in CUDA's list of errors is said on standard error.
 *
 *     MUSTER_STANDIN_SEED=7     the order; else of the time of day, which is then said
 *     MUSTER_STANDIN_GPUS=4     how many GPUs there seem to be (1)
 *     MUSTER_STANDIN_EPILOGUES=0   cuBLASLt offers plain products only
 *     MUSTER_STANDIN_REFUSES=1     cuBLASLt offers all, but the first algorithm, and any epilogue, turn out not to run
 *     MUSTER_STANDIN_PLANS=0       cuDNN has no plan for any graph
 *     MUSTER_STANDIN_HIDE=1        a host that touches the GPU's memory, while the GPU does nothing, ends by SIGSEGV
 *     MUSTER_STANDIN_MIB=64     how much memory each has (4096)
 *     MUSTER_STANDIN_BREAK=300  the GPU fails at that kernel
 *     MUSTER_STANDIN_WAITS=1    at its end a process says how often its host waited for the GPU
 *     MUSTER_STANDIN_FORGET=cudaStreamWaitEvent:2   a place that does not wait (streams.cc): a test should notice
 */
#ifndef MUSTER_TESTS_CUDA_STANDIN_H
#define MUSTER_TESTS_CUDA_STANDIN_H

#include <stddef.h>
#include <stdint.h>

#include <functional>

struct CUstream_st;

/* What a stream does: true when it is done, false to be asked again later. */
typedef std::function<bool()> standin_work;

/* After all that was enqueued there before. NULL is no stream: the legacy one is not offered. */
void standin_enqueue(CUstream_st *stream, standin_work work);

/* A kernel's run, which says in why[size] how it failed. */
void standin_launch(CUstream_st *stream, const std::function<bool(char *why, size_t size)> &run);

/* The GPU has failed with this cudaError_t: the first that says so counts. */
void standin_fail(int error, const char *format, ...) __attribute__((format(printf, 2, 3)));
int standin_error(void);

/* What a call of the run-time library returns: as CUDA does, it is kept for the thread, until cudaGetLastError, or the
 * launch of a kernel, asks for it. */
int standin_kept(int error);
int standin_last_error(void);
#define KEPT(error) static_cast<cudaError_t>(standin_kept(error))

/* A number of the environment's. */
size_t standin_number(const char *variable, size_t otherwise);

/* For whoever makes memory go away; what fails says so elsewhere. */
void standin_wait_for_all(void);

/* ---- memory.cc ---- */

/* The GPU's thread begins to work, or stops: while it does not, its memory may be hidden. */
void standin_working(bool now);

enum standin_space { STANDIN_PAGEABLE, STANDIN_PINNED, STANDIN_DEVICE };

/* Where [at, at + bytes) lies; fails the GPU if it begins in an allocation and does not end there. */
enum standin_space standin_space_of(const void *at, size_t bytes, const char *what);

/* Whether a stream may read or write it: fails the GPU where it is device memory that is not there. */
bool standin_reachable(const void *at, size_t bytes, const char *what);

#endif
