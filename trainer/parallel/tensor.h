/*
 * tensor.h - tensor parallelism with sequence parallelism (Megatron-LM, arXiv 1909.08053 and 2205.05198): the tp ranks
 * of a group share each layer's matrices, and between the matrices each holds an equal part of the rows (tokens).
 *
 *     local rows [R/tp, d] --gather--> all rows [R, d] --column-parallel--> [R, n/tp] ...
 *     ... --row-parallel--> partial sums [R, d] --reduce--> local rows [R/tp, d]
 *
 * Norms, dropout and residuals work on local rows, so they are computed once, and their parameters' gradients are sums
 * over the group. With one rank nothing is copied: gather and reduce return their input.
 *
 * The first failure is kept, like those of kernels, and returned by tensor_status.
 */
#ifndef MUSTER_TRAINER_PARALLEL_TENSOR_H
#define MUSTER_TRAINER_PARALLEL_TENSOR_H

#include "kernels/kernels.h"
#include "trainer/comm/comm.h"
#include "plan/footprint.h"

/* The elements that tensor_sum sends at a time, of all ranks together: its scratch has 32 MiB for any model. */
enum { TENSOR_SUM_ELEMENTS = 8 << 20 };

struct tensor {
    struct device *dev;
    struct comm *comm;
    int size, rank;
    enum dtype dtype;
    void *scratch;        /* for one sum */
    size_t scratch_bytes; /* a test may lower it: tensor_sum's buckets become smaller */
    struct comm_request *request;
    bool failed;
    struct error error;
};

/* rows, cols: the largest that tensor_reduce will see; gradients: the most elements of tensor_sum. Comm is borrowed. */
int tensor_create(struct tensor *tp, struct device *dev, struct comm *comm, enum dtype dtype, int rows, int cols,
                  size_t gradients, struct error *err);
void tensor_destroy(struct tensor *tp);
void tensor_footprint(int size, enum dtype dtype, int rows, int cols, size_t gradients, struct footprint *bytes);

int tensor_status(struct tensor *tp, struct error *err);

/*
 * Starts to gather all ranks' rows: local [rows/size, cols] into full [rows, cols]. tensor_gathered waits for it and
 * returns the address of all rows: full, or local with one rank. Only one exchange, of either kind, may be in flight.
 */
void tensor_gather(struct tensor *tp, const void *local, void *full, int rows, int cols, const char *what);
const void *tensor_gathered(struct tensor *tp, const void *local, const void *full);

/* The same for the sum over ranks of their full [rows, cols]; each rank gets its part in local. */
void tensor_reduce(struct tensor *tp, void *local, const void *full, int rows, int cols, const char *what);
const void *tensor_reduced(struct tensor *tp, const void *local, const void *full);

/* All-gather of the ranks' fp32 parts [count], at parts + rank * count. */
void tensor_share(struct tensor *tp, float *parts, size_t count, const char *what);

/* The sum over ranks of fp32 gradients, in place and in buckets. The order of each element's sum is the tree's and does
 * not depend on the bucket (except with NCCL, see comm_on_device). */
void tensor_sum(struct tensor *tp, float *gradients, size_t count, const char *what);

#endif
