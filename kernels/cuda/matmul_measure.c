#include "kernels/cuda/cuda_matmul.h"

#include <cuda_runtime_api.h>
#include <string.h>

#include "kernels/cuda/operations.h"

#define REPEATS     3
#define MOST_TRIES  16 /* products that are tried; each of them waits for the GPU */
#define TELLING_F32 4096
#define TELLING_16  (4 << 20)

struct sums {
    unsigned long long of[3];
};

static struct sums sums_of(struct device *dev, const struct product *product, const void *d, void *space)
{
    struct sums sums = {{0}};

    cuda_checksum(dev, space, product->d.dtype, d, (size_t)product->d.cols, (size_t)product->d.rows,
                  (size_t)product->d.ld);
    cuda_fetch(dev, sums.of, space, sizeof sums.of);
    return sums;
}

/* Of a few runs after the first; negative if this candidate does not run at all. */
static float elapsed_milliseconds(struct device *dev, const struct matmul_choice *choice, const struct product *product,
                                  const struct matmul_operands *at, int candidate)
{
    struct cuda_matmul *matmul = device_cuda(dev)->matmul;
    struct CUstream_st *stream = device_cuda(dev)->stream;
    float time = 0;

    if (!CUDA_OK(dev, cudaEventRecord(matmul->start, stream)))
        return -1;
    for (int i = 0; i < REPEATS; i++)
        if (!LT_OK(dev, matmul_run(dev, choice, product, at, candidate)))
            return -1;
    if (!CUDA_OK(dev, cudaEventRecord(matmul->stop, stream)) || !CUDA_OK(dev, cudaEventSynchronize(matmul->stop)) ||
        !CUDA_OK(dev, cudaEventElapsedTime(&time, matmul->start, matmul->stop)))
        return -1;
    return time;
}

/*
 * Whether what was compared so far tells algorithms apart. Zeros, as gradients are before anything was learned, and
 * what an overflow of fp16 leaves are the same by any of them. And what one adds in another order than the other shows
 * in nearly every number of fp32, but only in one of some thousands when it is rounded to 16 bits.
 */
static bool is_telling(const struct product *product, unsigned long long told)
{
    unsigned long long half = (unsigned long long)product->d.rows * (unsigned long long)product->d.cols / 2;
    unsigned long long least = product->d.dtype == DTYPE_F32 ? TELLING_F32 : TELLING_16;

    return told > (half > least ? half : least);
}

/* Rules out those that turn out not to run, and those whose bits are not the first's. Returns how many numbers of the
 * first tell something. */
static unsigned long long compare_results(struct device *dev, struct matmul_choice *choice,
                                          const struct product *product, const struct matmul_operands *at, void *space)
{
    struct sums first = {{0}};
    bool any = false;

    for (int i = 0; i < choice->count && !dev->failed; i++) {
        struct sums sums;

        if (choice->out[i])
            continue;
        if (matmul_run(dev, choice, product, at, i) != CUBLAS_STATUS_SUCCESS) {
            cuda_forget_error();
            choice->out[i] = true;
            continue;
        }
        sums = sums_of(dev, product, at->d, space);
        if (!any)
            first = sums;
        any = true;
        choice->out[i] = memcmp(&sums, &first, sizeof sums) != 0 && !device_cuda(dev)->matmul->any;
    }
    return first.of[2];
}

static void choose_fastest(struct device *dev, struct matmul_choice *choice, const struct product *product,
                           const struct matmul_operands *at)
{
    float best = -1;

    for (int i = 0; i < choice->count && !dev->failed; i++) {
        float time = choice->out[i] ? -1 : elapsed_milliseconds(dev, choice, product, at, i);

        if (time >= 0 && (best < 0 || time < best)) {
            best = time;
            choice->chosen = i;
        }
    }
}

static void measure_algorithm(struct device *dev, struct matmul_choice *choice, const struct product *product,
                              const struct matmul_operands *at, void *space)
{
    choice->told += compare_results(dev, choice, product, at, space);
    if (is_telling(product, choice->told) || device_cuda(dev)->matmul->any) {
        choose_fastest(dev, choice, product, at);
        choice->measured = true;
    }
    if (++choice->tries == MOST_TRIES)
        choice->measured = true;
}

void matmul_measure(struct device *dev, struct matmul_choice *choice, const struct product *product,
                    const struct matmul_operands *at)
{
    size_t beside = product_scratch(product);
    struct matmul_operands trial = *at;
    char *workspace;

    _Static_assert(sizeof(struct sums) <= MATMUL_SUMS, "room for the checksum");
    if (choice->count == 1 ||
        (product->accumulate &&
         (size_t)product->d.ld * (size_t)product->d.cols * dtype_size(product->d.dtype) > MATMUL_MOST_BESIDE)) {
        choice->measured = true;
        return;
    }
    if (product->accumulate)
        beside = (size_t)product->d.ld * (size_t)product->d.cols * dtype_size(product->d.dtype);
    beside = (beside + 255) / 256 * 256;
    workspace = cuda_workspace(dev, workspace_matmul(beside));
    if (!workspace)
        return;
    trial.workspace = workspace;
    if (beside)
        trial.d = workspace + MATMUL_WORKSPACE;
    if (!product->accumulate)
        trial.add = trial.d;
    measure_algorithm(dev, choice, product, &trial, workspace + MATMUL_WORKSPACE + beside);
}
