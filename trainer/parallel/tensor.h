/*
 * tensor.h - tensor parallelism with sequence parallelism (Megatron-LM, arXiv 1909.08053 and 2205.05198): the tp ranks
 * of a group share each layer's matrices, and between the matrices each holds an equal part of the rows (tokens).
 *
 *     local rows [R/tp, d] --gather--> all rows [R, d] --column-parallel--> [R, n/tp] ...
 *     ... --row-parallel--> partial sums [R, d] --reduce--> local rows [R/tp, d]
 *
 * Norms, dropout and residuals work on local rows, so they are computed once, and their parameters' gradients are sums
 * over the group. With one rank nothing is copied: gather and reduce give back what they were given.
 *
 * Failures stick, as those of kernels do; tensor_status tells.
 */
#ifndef MUSTER_TRAINER_PARALLEL_TENSOR_H
#define MUSTER_TRAINER_PARALLEL_TENSOR_H

#include "kernels/kernels.h"
#include "trainer/comm/comm.h"
#include "plan/footprint.h"

/* tensor_sum sends so many elements at a time, of all ranks together: its scratch has 32 MiB, whatever the model. */
enum { TENSOR_SUM_ELEMENTS = 8 << 20 };

struct tensor {
    struct device *dev;
    struct comm *comm;
    int size, rank;
    enum dtype dtype;
    void *scratch;        /* for one sum under way */
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
 * Start to bring all ranks' rows together: local [rows/size, cols] into full [rows, cols]. One exchange, of either
 * kind, is under way at a time; tensor_gathered ends this one and returns where all rows are: full, or local with one
 * rank.
 */
void tensor_gather(struct tensor *tp, const void *local, void *full, int rows, int cols, const char *what);
const void *tensor_gathered(struct tensor *tp, const void *local, const void *full);

/* The same for the sum over ranks of their full [rows, cols], of which each gets its part in local. */
void tensor_reduce(struct tensor *tp, void *local, const void *full, int rows, int cols, const char *what);
const void *tensor_reduced(struct tensor *tp, const void *local, const void *full);

/* Every rank's fp32 part [count], at parts + rank * count, is spread to all. */
void tensor_share(struct tensor *tp, float *parts, size_t count, const char *what);

/* The sum over ranks of fp32 gradients, in place and in buckets. Each element's sum is the tree's, whatever the bucket
 * (but for NCCL's, see comm_on_device). */
void tensor_sum(struct tensor *tp, float *gradients, size_t count, const char *what);

#endif
