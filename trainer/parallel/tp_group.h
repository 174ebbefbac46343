/*
 * tp_group.h - tensor parallelism with sequence parallelism (Megatron-LM, arXiv 1909.08053 and 2205.05198): the tp
 * ranks of a group share each layer's matrices, and outside the products each holds an equal part of the rows (tokens).
 *
 *     local rows [R/tp, d] --all-gather--> all rows [R, d] --column-parallel--> [R, n/tp] ...
 *     ... --row-parallel--> partial sums [R, d] --reduce-scatter--> local rows [R/tp, d]
 *
 * Norms, dropout and residuals work on local rows, so they are computed once, and their parameters' gradients are sums
 * over the group. With one rank nothing is copied: both exchanges return their input.
 *
 * The first failure is kept, like those of kernels (struct tp_group).
 */
#ifndef MUSTER_TRAINER_PARALLEL_TP_GROUP_H
#define MUSTER_TRAINER_PARALLEL_TP_GROUP_H

#include "kernels/kernels.h"
#include "plan/activations.h"
#include "trainer/comm/comm.h"

struct tp_group {
    struct device *dev;
    struct comm *comm;
    int size, rank;
    enum dtype dtype;
    void *scratch;        /* for one sum */
    size_t scratch_bytes; /* a test may lower it: tp_all_reduce_f32's buckets become smaller */
    struct comm_request *request;
    struct error error; /* the first failure, for error_take */
};

/* comm is borrowed. */
int tp_create(struct tp_group *tp, struct device *dev, struct comm *comm, enum dtype dtype, size_t scratch_bytes,
              struct error *err);
void tp_destroy(struct tp_group *tp);

/*
 * Starts to gather all ranks' rows: local [rows/size, cols] into full [rows, cols]. tp_all_gathered waits for it and
 * returns the address of all rows: full, or local with one rank. Only one exchange, of either kind, may be in flight.
 * what: for comm_purpose.
 */
void tp_start_all_gather(struct tp_group *tp, const void *local, void *full, int rows, int cols, const char *what);
const void *tp_all_gathered(struct tp_group *tp, const void *local, const void *full);

/*
 * Starts to sum `full` [rows, cols] over the ranks; tp_reduce_scattered waits and returns the address of this rank's
 * rows of the sum: local, or full with one rank.
 */
void tp_start_reduce_scatter(struct tp_group *tp, void *local, const void *full, int rows, int cols, const char *what);
const void *tp_reduce_scattered(struct tp_group *tp, const void *local, const void *full);

/* All-gather of the ranks' fp32 parts [count], at parts + rank * count. */
void tp_all_gather_f32(struct tp_group *tp, float *parts, size_t count, const char *what);

/* The sum over ranks of fp32 gradients, in place and in buckets. The order of each element's sum is that of comm.h's
 * tree and does not depend on the bucket (except with NCCL, see comm_on_device). */
void tp_all_reduce_f32(struct tp_group *tp, float *gradients, size_t count, const char *what);

#endif
