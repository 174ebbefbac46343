#include "config.h"
#include "kernels/device.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/text.h"

static const struct backend *const backends[] = {
    &backend_cpu,
#ifdef HAVE_CUDA
    &backend_cuda,
#endif
};

/* "kind" or "kind:index" */
static const struct backend *find_backend(const char *kind, int *index)
{
    for (size_t i = 0; i < sizeof backends / sizeof *backends; i++) {
        size_t length = strlen(backends[i]->kind);
        long number = 0;

        if (strncmp(backends[i]->kind, kind, length) == 0 &&
            (!kind[length] || (kind[length] == ':' && text_to_long(kind + length + 1, 0, INT_MAX, &number)))) {
            *index = (int)number;
            return backends[i];
        }
    }
    return NULL;
}

#ifdef HAVE_CUDA
#define KINDS "there are \"cpu\", \"cuda\" and \"cuda:N\""
#else
#define KINDS "this build of muster has only \"cpu\""
#endif

/* MUSTER_LOGITS_ROWS, if it is a number, else the backend's. */
static void set_product_rows(struct device *dev)
{
    const char *text = getenv("MUSTER_LOGITS_ROWS");
    long rows;

    if (dev->logits_rows == 0)
        dev->logits_rows = LOGITS_ROWS_CPU;
    if (text && text_to_long(text, 1, INT_MAX, &rows))
        dev->logits_rows = (int)rows;
}

struct device *device_open(const struct backend *backend, int index, int threads, struct error *err)
{
    struct device *dev = calloc(1, sizeof *dev);

    if (!dev) {
        error_errno(err, CODE_IO, "device \"%s\"", backend->kind);
        return NULL;
    }
    dev->backend = backend;
    dev->index = index;
    dev->attention = ATTENTION_OWN;
    if (backend->open(dev, threads, err) < 0) {
        backend->close(dev);
        free(dev);
        return NULL;
    }
    set_product_rows(dev);
    return dev;
}

struct device *device_create(const char *kind, int threads, struct error *err)
{
    int index = 0;
    const struct backend *backend = find_backend(kind, &index);

    if (!backend) {
        error_set(err, CODE_CONFIG, "device \"%s\": " KINDS, kind);
        return NULL;
    }
    if (threads < 0) {
        error_set(err, CODE_CONFIG, "device \"%s\": %d threads; give 1 or more, or 0 for all", kind, threads);
        return NULL;
    }
    return device_open(backend, index, threads, err);
}

void device_destroy(struct device *dev)
{
    if (!dev)
        return;
    dev->backend->close(dev);
    free(dev);
}

const struct kernels *device_kernels(const struct device *dev)
{
    return &dev->kernels;
}

const char *device_describe(const struct device *dev)
{
    return dev->description;
}

void device_allow_tf32(struct device *dev, bool allow)
{
    dev->tf32 = allow;
}

int device_choose_attention(struct device *dev, enum attention_choice choice, struct error *err)
{
    struct error missing = {0};
    bool loaded = choice != ATTENTION_OWN && dev->backend->load_cudnn && dev->backend->load_cudnn(dev, &missing) == 0;

    dev->attention = loaded ? choice : ATTENTION_OWN;
    if (loaded || choice != ATTENTION_CUDNN)
        return 0;
    return error_set(err, CODE_CONFIG, "attention = \"cudnn\": %s; take \"auto\" or \"own\"",
                     missing.code ? missing.text : "the device is not a GPU");
}

void device_wait(struct device *dev)
{
    if (dev->backend->wait)
        dev->backend->wait(dev);
}

int device_status(struct device *dev, struct error *err)
{
    if (!dev->failed && dev->backend->poll)
        dev->backend->poll(dev);
    if (!dev->failed)
        return 0;
    return error_set(err, dev->failure.code, "%s", dev->failure.text);
}

void device_fail(struct device *dev, enum exit_code code, const char *format, ...)
{
    char text[sizeof dev->failure.text];
    va_list args;

    if (dev->failed)
        return;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    error_set(&dev->failure, code, "%s", text);
    dev->failed = true;
}

bool device_ready(struct device *dev, enum dtype dtype, const char *name)
{
    if (dev->failed)
        return false;
    if (dtype == DTYPE_F32 || dtype == DTYPE_BF16 || dtype == DTYPE_F16)
        return true;
    device_fail(dev, CODE_INTERNAL, "%s: %s: %d is no dtype", dev->backend->kind, name, (int)dtype);
    return false;
}

void *device_alloc(struct device *dev, enum memory space, size_t bytes, struct error *err)
{
    void *pointer = dev->backend->alloc(dev, space, bytes, err);

    if (!pointer)
        return NULL;
    dev->allocations++;
    dev->bytes_used[space] += bytes;
    if (dev->bytes_peak[space] < dev->bytes_used[space])
        dev->bytes_peak[space] = dev->bytes_used[space];
    return pointer;
}

void device_free(struct device *dev, enum memory space, void *pointer)
{
    if (pointer)
        dev->bytes_used[space] -= dev->backend->free(dev, space, pointer);
}

size_t device_bytes_unused(struct device *dev)
{
    return dev->backend->unused ? dev->backend->unused(dev) : SIZE_MAX;
}

size_t device_allocations(const struct device *dev)
{
    return dev->allocations;
}

int device_reserve_workspace(struct device *dev, size_t bytes, struct error *err)
{
    if (!dev->backend->reserve)
        return 0;
    dev->reserved = bytes;
    return dev->backend->reserve(dev, bytes, err);
}

bool device_is_host(const struct device *dev)
{
    return !dev->backend->discrete;
}

struct device_traits device_traits(const struct device *dev, enum dtype dtype)
{
    return (struct device_traits){
        .threads = dev->threads,
        .widens = dev->backend->widens && dev->backend->widens(dev, dtype),
        .is_host = device_is_host(dev),
        .gpu = dev->backend->gpu,
        .logits_rows = dev->logits_rows,
        .attention = dev->attention,
    };
}

uint64_t device_transfer(struct device *dev, void *y, const void *x, size_t bytes)
{
    if (dev->backend->transfer)
        return dev->backend->transfer(dev, y, x, bytes);
    dev->kernels.copy(dev, y, x, bytes);
    return 1; /* any ticket but 0: waiting for the queue waits for it too */
}

void device_transfer_join(struct device *dev, uint64_t ticket)
{
    if (ticket && dev->backend->transfer)
        dev->backend->transfer_join(dev, ticket);
}

void device_transfer_wait(struct device *dev, uint64_t ticket)
{
    if (ticket && dev->backend->transfer)
        dev->backend->transfer_wait(dev, ticket);
    else if (ticket)
        device_wait(dev);
}

size_t device_bytes_peak(const struct device *dev, enum memory space)
{
    return dev->bytes_peak[space];
}

struct CUstream_st *device_stream(const struct device *dev)
{
    return dev->backend->stream ? dev->backend->stream(dev) : NULL;
}

int device_gpu_name(const struct device *dev, unsigned char name[], struct error *err)
{
    return dev->backend->gpu_name(dev, name, err);
}

/* ---- a product's operands ---------------------------------------------------------------------------------------- */

struct matmul matmul_with_strides(const struct matmul *op)
{
    struct matmul full = *op;

    if (!full.lda)
        full.lda = op->transpose_a ? op->m : op->k;
    if (!full.ldb)
        full.ldb = op->transpose_b ? op->k : op->n;
    if (!full.ldc)
        full.ldc = op->n;
    return full;
}

bool matmul_valid(struct device *dev, const struct matmul *op)
{
    bool needs_bias = op->epilogue == EPILOGUE_BIAS || op->epilogue == EPILOGUE_BIAS_GELU;
    bool needs_aux = op->epilogue == EPILOGUE_BIAS_GELU || op->epilogue == EPILOGUE_DGELU;
    const char *kind = dev->backend->kind;

    if (op->m < 0 || op->n < 0 || op->k < 1)
        device_fail(dev, CODE_INTERNAL,
                    "%s: matmul: m = %d, n = %d, k = %d; m and n must not be negative, k must be 1 or more", kind,
                    op->m, op->n, op->k);
    else if (op->lda < (op->transpose_a ? op->m : op->k) || op->ldb < (op->transpose_b ? op->k : op->n) ||
             op->ldc < op->n)
        device_fail(dev, CODE_INTERNAL,
                    "%s: matmul: lda = %d, ldb = %d, ldc = %d are too small for m = %d, n = %d, k = %d", kind, op->lda,
                    op->ldb, op->ldc, op->m, op->n, op->k);
    else if ((needs_bias && !op->bias) || (needs_aux && !op->aux))
        device_fail(dev, CODE_INTERNAL, "%s: matmul: the epilogue needs %s, which is NULL", kind,
                    needs_bias && !op->bias ? "bias" : "aux");
    else if (op->sums && (op->epilogue != EPILOGUE_NONE ||
                          (op->sums_of_a ? !op->transpose_a || op->lda != op->m : op->transpose_b || op->ldb != op->n)))
        device_fail(dev, CODE_INTERNAL, "%s: matmul: column sums need a packed, %s and no epilogue", kind,
                    op->sums_of_a ? "transposed a" : "untransposed b");
    else if (op->accumulate && (op->epilogue != EPILOGUE_NONE || (op->dtype != DTYPE_F32 && !op->c_fp32)))
        device_fail(dev, CODE_INTERNAL, "%s: matmul: accumulate needs c in fp32 and no epilogue", kind);
    else
        return true;
    return false;
}

bool attention_valid(struct device *dev, const struct attention *op)
{
    const char *kind = dev->backend->kind;

    if (op->kv_heads < 1 || op->heads % op->kv_heads != 0)
        device_fail(dev, CODE_INTERNAL, "%s: attention: kv_heads = %d does not divide heads = %d", kind, op->kv_heads,
                    op->heads);
    else if (op->window < 0)
        device_fail(dev, CODE_INTERNAL, "%s: attention: window = %d; it must not be negative", kind, op->window);
    else if ((op->document_start || op->window) && (!op->causal || op->lengths))
        device_fail(dev, CODE_INTERNAL, "%s: attention: document_start and window need causal, and no lengths", kind);
    else
        return true;
    return false;
}

bool query_key_valid(struct device *dev, const struct query_key *op)
{
    if (op->head_size % 2 == 0 && !op->gamma_q == !op->gamma_k)
        return true;
    device_fail(dev, CODE_INTERNAL, "%s: query_key: needs an even head_size, and both gammas or none",
                dev->backend->kind);
    return false;
}

/* ---- the device's rate ------------------------------------------------------------------------------------------- */

#define SIDE            2048 /* of the timed square product */
#define SIDE_GPU        4096 /* the same on a GPU, which needs a larger product to be busy */
#define LEAST_SECONDS   0.01 /* between two waits for the device: long enough to hide the wait */
#define MEASURE_SECONDS 0.3
#define MEASURE_REPEATS 2 /* at least, after one warm-up */

static double time_products(struct device *dev, const struct matmul *product, int count)
{
    double start = clock_monotonic();

    for (int i = 0; i < count; i++)
        dev->kernels.matmul(dev, product);
    device_wait(dev);
    return clock_monotonic() - start;
}

/* The best time of several: other processes on the machine only make a run slower. */
static double best_time(struct device *dev, const struct matmul *product)
{
    double end, best;
    int count = 1;

    time_products(dev, product, count);
    best = time_products(dev, product, count);
    while (best < LEAST_SECONDS && !dev->failed) {
        count *= 2;
        best = time_products(dev, product, count);
    }
    end = clock_monotonic() + MEASURE_SECONDS;
    for (int repeat = 1; repeat < MEASURE_REPEATS || clock_monotonic() + best < end; repeat++) {
        double seconds = time_products(dev, product, count);

        if (seconds < best)
            best = seconds;
    }
    return best / count;
}

/* Normal deviates, because a product of zeros takes less power and then runs at a higher clock. */
static int fill_operands(struct device *dev, enum dtype dtype, int side, void *a, void *b, float *wide,
                         struct error *err)
{
    size_t count = (size_t)side * (size_t)side, bytes = count * sizeof(float);
    float *x = device_alloc(dev, MEMORY_HOST, bytes, err);

    if (!x)
        return -1;
    philox_normal(x, count, (struct philox_stream){.site = philox_site("device_measure_peak")}, 0, 0.0, 1.0);
    dev->kernels.copy(dev, wide, x, bytes);
    dev->kernels.cast(dev, dtype, a, DTYPE_F32, wide, count);
    dev->kernels.copy(dev, b, a, count * dtype_size(dtype));
    device_wait(dev);
    device_free(dev, MEMORY_HOST, x);
    return 0;
}

double device_measure_peak(struct device *dev, enum dtype dtype)
{
    int side = dev->logits_rows >= LOGITS_ROWS_GPU ? SIDE_GPU : SIDE;
    size_t count = (size_t)side * (size_t)side, bytes = count * dtype_size(dtype);
    size_t peak[2] = {dev->bytes_peak[MEMORY_DEVICE], dev->bytes_peak[MEMORY_HOST]};
    struct error err = {0};
    double rate = 0;
    void *a = NULL, *b = NULL, *c = NULL;

    a = device_alloc(dev, MEMORY_DEVICE, bytes, &err);
    b = a ? device_alloc(dev, MEMORY_DEVICE, bytes, &err) : NULL;
    c = b ? device_alloc(dev, MEMORY_DEVICE, count * sizeof(float), &err) : NULL;
    if (c && fill_operands(dev, dtype, side, a, b, c, &err) == 0) {
        struct matmul product = {.m = side, .n = side, .k = side, .dtype = dtype, .a = a, .b = b, .c = c};

        rate = 2.0 * side * side * side / best_time(dev, &product);
    } else {
        device_fail(dev, err.code, "measuring the device's rate: %s", err.text);
    }
    device_free(dev, MEMORY_DEVICE, a);
    device_free(dev, MEMORY_DEVICE, b);
    device_free(dev, MEMORY_DEVICE, c);
    dev->backend->trim(dev);
    if (dev->reserved && device_reserve_workspace(dev, dev->reserved, &err) < 0)
        device_fail(dev, err.code, "after measuring the device's rate: %s", err.text);
    for (int space = 0; space < 2; space++) /* the peak of the caller's own work */
        dev->bytes_peak[space] = peak[space];
    return rate;
}
