#include <cuda_runtime_api.h>
#include <stdio.h>

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/cuda_attention.h"

#define PAGE 4096

bool cuda_ok(struct device *dev, int status, const char *doing)
{
    struct cuda *cuda = device_cuda(dev);

    if (status == cudaSuccess && cuda->waits)
        status = cudaStreamSynchronize(cuda->stream);
    if (status == cudaSuccess)
        return true;
    cuda_forget_error();
    device_fail(dev, CODE_INTERNAL, "cuda: %s: %s (%s)", doing, cudaGetErrorString((cudaError_t)status),
                cudaGetErrorName((cudaError_t)status));
    return false;
}

int cuda_forget_error(void)
{
    return cudaGetLastError();
}

static int count_gpus(struct device *dev, int *count, struct error *err)
{
    cudaError_t status = cudaGetDeviceCount(count);
    int driver = 0, runtime = 0;

    if (status == cudaSuccess && *count > 0)
        return 0;
    if (status == cudaErrorNoDevice || status == cudaSuccess)
        return error_set(
            err, CODE_CONFIG,
            "device \"cuda\": this node shows this process no GPU; ask Slurm for one (--gpus-per-node), look "
            "at CUDA_VISIBLE_DEVICES, or take device \"cpu\"");
    if (cudaDriverGetVersion(&driver) != cudaSuccess || cudaRuntimeGetVersion(&runtime) != cudaSuccess)
        driver = 0;
    if (status == cudaErrorInsufficientDriver && driver == 0)
        return error_set(err, CODE_CONFIG,
                         "device \"cuda\": no NVIDIA driver (libcuda.so.1) on this node; run on a node with a GPU, or "
                         "take device \"cpu\"");
    if (status == cudaErrorInsufficientDriver)
        return error_set(
            err, CODE_CONFIG,
            "device \"cuda\": this node's driver is for CUDA %d.%d, this build needs %d.%d; a newer driver "
            "is needed, or a build with an older nvcc",
            driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
    cuda_ok(dev, (int)status, "cudaGetDeviceCount");
    return device_status(dev, err);
}

static int find_gpu(struct device *dev, struct cuda *cuda, struct error *err)
{
    struct cudaDeviceProp gpu;
    int count = 0;

    if (count_gpus(dev, &count, err) < 0)
        return -1;
    cuda->ordinal = dev->index % count;
    if (!CUDA_OK(dev, cudaSetDevice(cuda->ordinal)) || !CUDA_OK(dev, cudaGetDeviceProperties(&gpu, cuda->ordinal)))
        return device_status(dev, err);
    cuda->capability = 10 * gpu.major + gpu.minor;
    cuda->sms = gpu.multiProcessorCount;
    cuda->shared_limit = gpu.sharedMemPerBlockOptin;
    if (cuda->capability < 80)
        return error_set(err, CODE_CONFIG, "device \"cuda\": %s is of compute capability %d.%d; 8.0 or more is needed",
                         gpu.name, gpu.major, gpu.minor);
    snprintf(dev->description, sizeof dev->description, "cuda, %.60s, %d SMs, %.0f GiB, GPU %d of %d", gpu.name,
             cuda->sms, (double)gpu.totalGlobalMem / 0x1p30, cuda->ordinal, count);
    return 0;
}

/* ---- transfers --------------------------------------------------------------------------------------------------- */

static bool open_transfers(struct device *dev)
{
    struct cuda *cuda = device_cuda(dev);
    bool ok = CUDA_OK(dev, cudaEventCreateWithFlags(&cuda->computed, cudaEventDisableTiming));

    for (int i = 0; i < CUDA_EVENTS && ok; i++)
        ok = CUDA_OK(dev, cudaEventCreateWithFlags(&cuda->transferred[i], cudaEventDisableTiming));
    return ok;
}

static void close_event(struct device *dev, cudaEvent_t event)
{
    if (event)
        CUDA_OK(dev, cudaEventDestroy(event));
}

static uint64_t cuda_transfer(struct device *dev, void *y, const void *x, size_t bytes)
{
    struct cuda *cuda = device_cuda(dev);
    cudaEvent_t done = cuda->transferred[(cuda->last_transfer + 1) % CUDA_EVENTS];

    if (dev->failed)
        return 0;
    if (!CUDA_OK(dev, cudaEventRecord(cuda->computed, cuda->stream)) ||
        !CUDA_OK(dev, cudaStreamWaitEvent(cuda->copy_stream, cuda->computed, 0)) ||
        (bytes > 0 && !CUDA_OK(dev, cudaMemcpyAsync(y, x, bytes, cudaMemcpyDefault, cuda->copy_stream))) ||
        !CUDA_OK(dev, cudaEventRecord(done, cuda->copy_stream)))
        return 0;
    return ++cuda->last_transfer;
}

static void cuda_transfer_join(struct device *dev, uint64_t ticket)
{
    struct cuda *cuda = device_cuda(dev);

    if (!dev->failed)
        CUDA_OK(dev, cudaStreamWaitEvent(cuda->stream, cuda->transferred[ticket % CUDA_EVENTS], 0));
}

static void cuda_transfer_wait(struct device *dev, uint64_t ticket)
{
    if (!dev->failed)
        CUDA_OK(dev, cudaEventSynchronize(device_cuda(dev)->transferred[ticket % CUDA_EVENTS]));
}

/* ---- for NCCL ---------------------------------------------------------------------------------------------------- */

static struct CUstream_st *cuda_stream(const struct device *dev)
{
    return device_cuda(dev)->stream;
}

static int cuda_gpu_name(const struct device *dev, unsigned char name[], struct error *err)
{
    struct cudaDeviceProp gpu;
    cudaError_t status = cudaGetDeviceProperties(&gpu, device_cuda(dev)->ordinal);

    _Static_assert(sizeof gpu.uuid == GPU_NAME, "a GPU's name is its UUID");
    if (status != cudaSuccess)
        return error_set(err, CODE_INTERNAL, "cuda: cudaGetDeviceProperties: %s", cudaGetErrorString(status));
    memcpy(name, &gpu.uuid, GPU_NAME);
    return 0;
}

/* ---- the device -------------------------------------------------------------------------------------------------- */

static int cuda_open(struct device *dev, int threads, struct error *err)
{
    struct cuda *cuda = calloc(1, sizeof *cuda);
    const char *wait = getenv("MUSTER_CUDA_WAIT");

    dev->state = cuda;
    if (!cuda)
        return error_errno(err, CODE_IO, "cuda device");
    dev->threads = threads ? threads : 1;
    if (find_gpu(dev, cuda, err) < 0)
        return -1;
    if (!CUDA_OK(dev, cudaStreamCreateWithFlags(&cuda->stream, cudaStreamNonBlocking)) ||
        !CUDA_OK(dev, cudaStreamCreateWithFlags(&cuda->copy_stream, cudaStreamNonBlocking)) ||
        !CUDA_OK(dev, cudaHostAlloc(&cuda->page, PAGE, cudaHostAllocDefault)) || !open_transfers(dev))
        return device_status(dev, err);
    cuda->memory = cuda_memory_open(dev, err);
    if (!cuda->memory || cuda_matmul_open(dev, err) < 0)
        return -1;
    cuda->waits = wait && strcmp(wait, "1") == 0;
    dev->logits_rows = LOGITS_ROWS_GPU;
    dev->kernels = (struct kernels){CUDA_OPERATIONS(CUDA_SET)};
    return 0;
}

static void cuda_trim(struct device *dev)
{
    struct cuda *cuda = device_cuda(dev);

    device_free(dev, MEMORY_DEVICE, cuda->workspace);
    cuda->workspace = NULL;
    dev->workspace = 0;
}

/* Errors are ignored: after a call that failed, the other resources are still freed. */
static void cuda_close(struct device *dev)
{
    struct cuda *cuda = device_cuda(dev);

    if (!cuda)
        return;
    cuda->waits = false;
    if (cuda->stream)
        CUDA_OK(dev, cudaStreamSynchronize(cuda->stream));
    if (cuda->copy_stream)
        CUDA_OK(dev, cudaStreamSynchronize(cuda->copy_stream));
    cuda_matmul_close(dev);
    attention_cudnn_close(dev);
    if (cuda->memory)
        cuda_trim(dev);
    cuda_memory_close(dev, cuda->memory);
    if (cuda->page)
        CUDA_OK(dev, cudaFreeHost(cuda->page));
    for (int i = 0; i < CUDA_EVENTS; i++)
        close_event(dev, cuda->transferred[i]);
    close_event(dev, cuda->computed);
    if (cuda->copy_stream)
        CUDA_OK(dev, cudaStreamDestroy(cuda->copy_stream));
    if (cuda->stream)
        CUDA_OK(dev, cudaStreamDestroy(cuda->stream));
    free(cuda);
}

static void cuda_wait(struct device *dev)
{
    CUDA_OK(dev, cudaStreamSynchronize(device_cuda(dev)->stream));
}

/* Fails the device if CUDA has found an asynchronous error. Does not wait. */
static void cuda_poll(struct device *dev)
{
    cudaError_t status = cudaStreamQuery(device_cuda(dev)->stream);

    /* By CUDA's guide this is never kept as the last error. Were it, the next launch would be taken for failed. */
    if (status == cudaErrorNotReady)
        status = cudaGetLastError();
    if (status != cudaErrorNotReady)
        cuda_ok(dev, (int)status, "an operation");
}

static int cuda_reserve(struct device *dev, size_t bytes, struct error *err)
{
    struct cuda *cuda = device_cuda(dev);

    if (bytes <= dev->workspace)
        return 0;
    cuda_trim(dev);
    cuda->workspace = device_alloc(dev, MEMORY_DEVICE, bytes, err);
    dev->workspace = cuda->workspace ? bytes : 0;
    return cuda->workspace ? 0 : -1;
}

/* The first allocation is at least what a matmul needs, so that it is usually the only one. */
void *cuda_workspace(struct device *dev, size_t bytes)
{
    size_t least = workspace_matmul(0);
    struct error err = {0};

    if (dev->failed)
        return NULL;
    if (cuda_reserve(dev, bytes > least ? bytes : least, &err) < 0)
        device_fail(dev, err.code, "cuda: workspace: %s", err.text);
    return device_cuda(dev)->workspace;
}

void cuda_fetch(struct device *dev, void *to, const void *from, size_t bytes)
{
    struct cuda *cuda = device_cuda(dev);

    if (dev->failed)
        return;
    if (bytes > PAGE) {
        device_fail(dev, CODE_INTERNAL, "cuda: cuda_fetch of %zu bytes; at most %d", bytes, PAGE);
        return;
    }
    if (CUDA_OK(dev, cudaMemcpyAsync(cuda->page, from, bytes, cudaMemcpyDefault, cuda->stream)) &&
        CUDA_OK(dev, cudaStreamSynchronize(cuda->stream)))
        memcpy(to, cuda->page, bytes);
}

void cuda_copy(struct device *dev, void *y, const void *x, size_t bytes)
{
    if (!dev->failed && bytes > 0)
        CUDA_OK(dev, cudaMemcpyAsync(y, x, bytes, cudaMemcpyDefault, device_cuda(dev)->stream));
}

void cuda_zero(struct device *dev, void *y, size_t bytes)
{
    if (!dev->failed && bytes > 0)
        CUDA_OK(dev, cudaMemsetAsync(y, 0, bytes, device_cuda(dev)->stream));
}

const struct backend backend_cuda = {
    .kind = "cuda",
    .open = cuda_open,
    .close = cuda_close,
    .wait = cuda_wait,
    .poll = cuda_poll,
    .alloc = cuda_alloc,
    .free = cuda_free,
    .trim = cuda_trim,
    .reserve = cuda_reserve,
    .unused = cuda_unused,
    .discrete = true,
    .gpu = true,
    .load_cudnn = attention_cudnn_load,
    .transfer = cuda_transfer,
    .transfer_join = cuda_transfer_join,
    .transfer_wait = cuda_transfer_wait,
    .stream = cuda_stream,
    .gpu_name = cuda_gpu_name,
};
