#include "trainer/parallel/tp_group.h"

int tp_create(struct tp_group *tp, struct device *dev, struct comm *comm, enum dtype dtype, size_t scratch_bytes,
              struct error *err)
{
    *tp = (struct tp_group){.dev = dev, .comm = comm, .size = comm_size(comm), .rank = comm_rank(comm), .dtype = dtype};
    if (!scratch_bytes)
        return 0;
    tp->scratch_bytes = scratch_bytes;
    tp->scratch = device_alloc(dev, MEMORY_DEVICE, scratch_bytes, err);
    return tp->scratch ? 0 : error_prefix(err, "tensor parallelism");
}

void tp_destroy(struct tp_group *tp)
{
    if (tp->dev)
        device_free(tp->dev, MEMORY_DEVICE, tp->scratch);
    *tp = (struct tp_group){0};
}

static void finish_request(struct tp_group *tp)
{
    comm_wait(tp->request, error_first(&tp->error));
    tp->request = NULL;
}

void tp_start_all_gather(struct tp_group *tp, const void *local, void *full, int rows, int cols, const char *what)
{
    size_t count = (size_t)(rows / tp->size) * (size_t)cols, bytes = count * dtype_size(tp->dtype);

    if (tp->size == 1)
        return;
    device_kernels(tp->dev)->copy(tp->dev, (char *)full + (size_t)tp->rank * bytes, local, bytes);
    comm_purpose(tp->comm, what, "rows");
    tp->request = comm_start_all_gather(tp->comm, tp->dtype, full, count, error_first(&tp->error));
}

const void *tp_all_gathered(struct tp_group *tp, const void *local, const void *full)
{
    if (tp->size == 1)
        return local;
    finish_request(tp);
    return full;
}

void tp_start_reduce_scatter(struct tp_group *tp, void *local, const void *full, int rows, int cols, const char *what)
{
    size_t count = (size_t)(rows / tp->size) * (size_t)cols;

    if (tp->size == 1)
        return;
    comm_purpose(tp->comm, what, "partial sums");
    tp->request =
        comm_start_reduce_scatter(tp->comm, tp->dtype, local, full, count, count, tp->scratch, error_first(&tp->error));
}

const void *tp_reduce_scattered(struct tp_group *tp, const void *local, const void *full)
{
    if (tp->size == 1)
        return full;
    finish_request(tp);
    return local;
}

void tp_all_gather_f32(struct tp_group *tp, float *parts, size_t count, const char *what)
{
    if (tp->size == 1)
        return;
    comm_purpose(tp->comm, what, "statistics");
    comm_all_gather(tp->comm, DTYPE_F32, parts, count, error_first(&tp->error));
}

void tp_all_reduce_f32(struct tp_group *tp, float *gradients, size_t count, const char *what)
{
    size_t bucket = tp->scratch_bytes / ((size_t)tp->size * sizeof(float)); /* elements of one rank's part */

    if (tp->size == 1)
        return;
    for (size_t first = 0, some; first < count; first += some) {
        some = count - first < bucket ? count - first : bucket;
        comm_purpose(tp->comm, what, "shared gradients");
        if (comm_all_reduce(tp->comm, DTYPE_F32, gradients + first, some, tp->scratch, error_first(&tp->error)) < 0)
            return;
    }
}
