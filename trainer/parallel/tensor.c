#include "trainer/parallel/tensor.h"

static size_t larger_size(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Elements of one rank's part of a bucket. */
static size_t bucket_elements(const struct tensor *tp)
{
    return tp->scratch_bytes / ((size_t)tp->size * sizeof(float));
}

static size_t scratch_bytes(int size, enum dtype dtype, int rows, int cols, size_t gradients)
{
    size_t bucket = larger_size(TENSOR_SUM_ELEMENTS / (size_t)size, 1);

    if (size == 1)
        return 0;
    return larger_size((size_t)rows * (size_t)cols * dtype_size(dtype),
                       (gradients < bucket ? gradients : bucket) * (size_t)size * sizeof(float));
}

int tensor_create(struct tensor *tp, struct device *dev, struct comm *comm, enum dtype dtype, int rows, int cols,
                  size_t gradients, struct error *err)
{
    *tp = (struct tensor){.dev = dev, .comm = comm, .size = comm_size(comm), .rank = comm_rank(comm), .dtype = dtype};
    tp->scratch_bytes = scratch_bytes(tp->size, dtype, rows, cols, gradients);
    if (!tp->scratch_bytes)
        return 0;
    tp->scratch = device_alloc(dev, MEMORY_DEVICE, tp->scratch_bytes, err);
    return tp->scratch ? 0 : error_prefix(err, "tensor parallelism");
}

void tensor_destroy(struct tensor *tp)
{
    if (tp->dev)
        device_free(tp->dev, MEMORY_DEVICE, tp->scratch);
    *tp = (struct tensor){0};
}

void tensor_footprint(int size, enum dtype dtype, int rows, int cols, size_t gradients, struct footprint *bytes)
{
    bytes->communication += scratch_bytes(size, dtype, rows, cols, gradients);
}

static void tensor_fail(struct tensor *tp, const struct error *err)
{
    if (!tp->failed)
        tp->error = *err;
    tp->failed = true;
}

int tensor_status(struct tensor *tp, struct error *err)
{
    if (!tp->failed)
        return 0;
    *err = tp->error;
    tp->failed = false;
    return -1;
}

static void keep_request(struct tensor *tp, struct comm_request *request, const struct error *err)
{
    tp->request = request;
    if (!request)
        tensor_fail(tp, err);
}

static void finish_request(struct tensor *tp)
{
    struct error err;

    if (comm_wait(tp->request, &err) < 0)
        tensor_fail(tp, &err);
    tp->request = NULL;
}

void tensor_gather(struct tensor *tp, const void *local, void *full, int rows, int cols, const char *what)
{
    size_t count = (size_t)(rows / tp->size) * (size_t)cols, bytes = count * dtype_size(tp->dtype);
    struct error err = {0};

    if (tp->size == 1)
        return;
    device_kernels(tp->dev)->copy(tp->dev, (char *)full + (size_t)tp->rank * bytes, local, bytes);
    comm_purpose(tp->comm, what, "rows");
    keep_request(tp, comm_start_all_gather(tp->comm, tp->dtype, full, count, &err), &err);
}

const void *tensor_gathered(struct tensor *tp, const void *local, const void *full)
{
    if (tp->size == 1)
        return local;
    finish_request(tp);
    return full;
}

void tensor_reduce(struct tensor *tp, void *local, const void *full, int rows, int cols, const char *what)
{
    size_t count = (size_t)(rows / tp->size) * (size_t)cols;
    struct error err = {0};

    if (tp->size == 1)
        return;
    comm_purpose(tp->comm, what, "partial sums");
    keep_request(tp, comm_start_reduce_scatter(tp->comm, tp->dtype, local, full, count, count, tp->scratch, &err),
                 &err);
}

const void *tensor_reduced(struct tensor *tp, const void *local, const void *full)
{
    if (tp->size == 1)
        return full;
    finish_request(tp);
    return local;
}

void tensor_share(struct tensor *tp, float *parts, size_t count, const char *what)
{
    struct error err;

    if (tp->size == 1)
        return;
    comm_purpose(tp->comm, what, "statistics");
    if (comm_all_gather(tp->comm, DTYPE_F32, parts, count, &err) < 0)
        tensor_fail(tp, &err);
}

void tensor_sum(struct tensor *tp, float *gradients, size_t count, const char *what)
{
    struct error err;

    if (tp->size == 1)
        return;
    for (size_t first = 0, some; first < count; first += some) {
        some = count - first < bucket_elements(tp) ? count - first : bucket_elements(tp);
        comm_purpose(tp->comm, what, "shared gradients");
        if (comm_all_reduce(tp->comm, DTYPE_F32, gradients + first, some, tp->scratch, &err) < 0) {
            tensor_fail(tp, &err);
            return;
        }
    }
}
