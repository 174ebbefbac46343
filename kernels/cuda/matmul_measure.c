#include "kernels/cuda/cuda_matmul.h"

#include <cuda_runtime_api.h>
#include <string.h>

#include "kernels/cuda/cuda.h"

#define REPEATS    3
#define MOST_TRIES 16 /* products of a shape that are compared; each of them waits for the GPU */
#define ENOUGH_F32 4096
#define ENOUGH_16  (4 << 20)

struct checksum {
    unsigned long long of[3];
};

static struct checksum checksum_of(struct device *dev, const struct matmul_call *call, const void *d, void *space)
{
    struct checksum sums = {{0}};

    cuda_checksum(dev, space, call->d.dtype, d, (size_t)call->d.cols, (size_t)call->d.rows, (size_t)call->d.ld);
    cuda_fetch(dev, sums.of, space, sizeof sums.of);
    return sums;
}

/* The time of REPEATS runs, after compare_results has run each candidate once; negative if a call fails. */
static float elapsed_milliseconds(struct device *dev, const struct matmul_choice *choice,
                                  const struct matmul_operands *at, int candidate)
{
    struct matmul_state *state = device_cuda(dev)->matmul;
    struct CUstream_st *stream = device_cuda(dev)->stream;
    float time = 0;

    if (!CUDA_OK(dev, cudaEventRecord(state->start, stream)))
        return -1;
    for (int i = 0; i < REPEATS; i++)
        if (!LT_OK(dev, matmul_run(dev, choice, at, candidate)))
            return -1;
    if (!CUDA_OK(dev, cudaEventRecord(state->stop, stream)) || !CUDA_OK(dev, cudaEventSynchronize(state->stop)) ||
        !CUDA_OK(dev, cudaEventElapsedTime(&time, state->start, state->stop)))
        return -1;
    return time;
}

/*
 * Whether enough numbers were compared to tell algorithms apart. Zeros (gradients at the beginning) and what an fp16
 * overflow leaves are the same for all algorithms; they are not counted. A different order of summation changes nearly
 * every fp32 result, but only one 16-bit result in thousands.
 */
static bool is_enough(const struct matmul_call *call, unsigned long long compared)
{
    unsigned long long half = (unsigned long long)call->d.rows * (unsigned long long)call->d.cols / 2;
    unsigned long long least = call->d.dtype == DTYPE_F32 ? ENOUGH_F32 : ENOUGH_16;

    return compared > (half > least ? half : least);
}

/* Excludes candidates that do not run, and those whose bits differ from the first's. Returns how many numbers were
 * compared: those of the first that are finite and not near zero. */
static unsigned long long compare_results(struct device *dev, struct matmul_choice *choice,
                                          const struct matmul_operands *at, void *space)
{
    struct checksum reference = {{0}};
    bool any = false;

    for (int i = 0; i < choice->count && !dev->failed; i++) {
        struct checksum sums;

        if (choice->excluded[i])
            continue;
        if (matmul_run(dev, choice, at, i) != CUBLAS_STATUS_SUCCESS) {
            cuda_forget_error();
            choice->excluded[i] = true;
            continue;
        }
        sums = checksum_of(dev, &choice->call, at->d, space);
        if (!any)
            reference = sums;
        any = true;
        choice->excluded[i] = memcmp(&sums, &reference, sizeof sums) != 0 && !device_cuda(dev)->matmul->any;
    }
    return reference.of[2];
}

static void choose_fastest(struct device *dev, struct matmul_choice *choice, const struct matmul_operands *at)
{
    float best = -1;

    for (int i = 0; i < choice->count && !dev->failed; i++) {
        float time = choice->excluded[i] ? -1 : elapsed_milliseconds(dev, choice, at, i);

        if (time >= 0 && (best < 0 || time < best)) {
            best = time;
            choice->chosen = i;
        }
    }
}

static void measure_algorithm(struct device *dev, struct matmul_choice *choice, const struct matmul_operands *at,
                              void *space)
{
    choice->compared += compare_results(dev, choice, at, space);
    if (is_enough(&choice->call, choice->compared) || device_cuda(dev)->matmul->any) {
        choose_fastest(dev, choice, at);
        choice->settled = true;
    }
    if (++choice->tries == MOST_TRIES)
        choice->settled = true;
}

void matmul_measure(struct device *dev, struct matmul_choice *choice, const struct matmul_operands *at)
{
    const struct matmul_call *call = &choice->call;
    size_t in_place = (size_t)call->d.ld * (size_t)call->d.cols * dtype_size(call->d.dtype);
    size_t beside = call->accumulate ? in_place : matmul_call_scratch(call);
    struct matmul_operands trial = *at;
    char *workspace;

    _Static_assert(sizeof(struct checksum) <= MATMUL_CHECKSUM, "room for the checksum");
    if (choice->count == 1 || (call->accumulate && in_place > MATMUL_MOST_BESIDE)) {
        choice->settled = true;
        return;
    }
    beside = (beside + 255) / 256 * 256;
    workspace = cuda_workspace(dev, workspace_matmul(beside));
    if (!workspace)
        return;
    trial.workspace = workspace;
    if (beside)
        trial.d = workspace + MATMUL_WORKSPACE;
    if (!call->accumulate)
        trial.add = trial.d;
    measure_algorithm(dev, choice, &trial, workspace + MATMUL_WORKSPACE + beside);
}
