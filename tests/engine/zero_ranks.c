/*
 * zero_ranks.c - started on several ranks by zero.bats: gradients that are reduced as each micro-batch's backward pass
 * ends must not be written over while they are being sent. A model of one block is the hard case, for then the same
 * block's gradients follow each other. Rank 0 prints how many ranks agree.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "trainer/parallel/zero_impl.h"

enum { MICRO_BATCHES = 6, HIDDEN = 256 }; /* large enough that MPI sends from where the gradients are */

static struct comm *world;
static struct error err;

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "rank %d: %s:%d: %s: %s\n", comm_rank(world), __FILE__, __LINE__, #condition, err.text);   \
            error_set(&err, CODE_INTERNAL, "a check failed");                                                          \
            comm_world_fail(world, &err);                                                                              \
            exit(CODE_INTERNAL);                                                                                       \
        }                                                                                                              \
    } while (0)

/* The last rank is late in every micro-batch, so that the others' messages stay on their way. */
static void be_late(void)
{
    if (comm_rank(world) == comm_size(world) - 1)
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
}

/* Whole numbers: sums are exact, in whatever order. */
static float element(int rank, int micro_batch, size_t i)
{
    return (float)((rank + 1) * 1000 + micro_batch * 100 + (int)(i % 97));
}

static void one_micro_batch(struct zero *zero, const struct units *units, int unit, int micro_batch)
{
    static const float *before;
    float *grad;

    zero_begin_micro_batch(zero, micro_batch == 0, micro_batch == MICRO_BATCHES - 1);
    grad = zero_grad_begin(zero, unit);
    CHECK(micro_batch == 0 || grad != before);
    before = grad;
    for (size_t i = 0; i < units->units[unit].count; i++)
        grad[i] = element(comm_rank(world), micro_batch, i);
    be_late();
    zero_grad_ready(zero, unit);
}

static void check_sums(const float *sums, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        float expected = 0;

        for (int rank = 0; rank < comm_size(world); rank++)
            for (int m = 0; m < MICRO_BATCHES; m++)
                expected += element(rank, m, i);
        CHECK(sums[i] == expected);
    }
}

int main(void)
{
    struct model_shape shape = {.layers = 1, .hidden = HIDDEN, .heads = 1, .seq_length = 8, .vocab = 8};
    struct mesh mesh = {.tp = 1, .pp = 1};
    struct zero_config config = {.reduce_every_micro_batch = true, .many_micro_batches = true};
    struct rank_units counts = {0};
    struct zero_comms comms;
    struct device *dev;
    struct units *units;
    struct zero *zero;

    world = comm_world_create(&err);
    if (!world)
        return error_report(&err);
    config.dp = mesh.dp = comm_size(world);
    config.dp_rank = comm_rank(world);
    comms = (struct zero_comms){.dp = world, .world = world};
    CHECK(dev = device_create("cpu", 1, &err));
    CHECK(units = units_create(&shape, &mesh, 1, comm_rank(world), &err));
    for (int kind = 0; kind < UNIT_KINDS; kind++) {
        counts.size[kind] = unit_size_of(&shape, (enum unit_kind)kind, &mesh);
        counts.number[kind] = 1;
    }
    CHECK(zero = zero_create(dev, &comms, units, &counts, &config, &err));
    for (int m = 0; m < MICRO_BATCHES; m++)
        one_micro_batch(zero, units, UNIT_BLOCK0, m);
    CHECK(zero_finish_gradients(zero, &err) == 0);
    check_sums(zero->unit[UNIT_BLOCK0].grad, units->units[UNIT_BLOCK0].count);
    zero_destroy(zero);
    units_destroy(units);
    device_destroy(dev);
    if (comm_rank(world) == 0)
        printf("%d ranks agree\n", config.dp);
    comm_destroy(world);
    return 0;
}
