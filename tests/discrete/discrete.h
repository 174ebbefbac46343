/*
 * discrete.h - "cpu-discrete": a test device that computes on the CPU and has discrete memory and a queue, as a GPU
 * has. A run that computes the CPU's bits here depends neither on memory that host and device share, nor on operations
 * that are complete when the call returns.
 *
 *   memory      MEMORY_DEVICE is a range of addresses without access: the host faults there. The contents lie at the
 *               same offset in a second range, which only operations know, and start as NaN. MEMORY_HOST has its own
 *               range, so that a copy can tell it from other host memory.
 *   operands    An address outside these ranges fails the device; the error names the operation.
 *   the queue   An operation is stored with its operands, and runs when the host waits. A transfer runs later still:
 *               when it is joined or waited for. With MUSTER_TEST_TRANSFERS=early in the environment it runs at once,
 *               as early as the rules allow.
 *
 * tests/discrete/muster-train and muster-generate are the product's programs, which always compute on this device
 * (programs.c).
 */
#ifndef MUSTER_TESTS_DISCRETE_H
#define MUSTER_TESTS_DISCRETE_H

#include "kernels/device.h"

/* The ranges: addresses that the caller gets, the contents, and host memory. */
enum discrete_range { DISCRETE_DEVICE, DISCRETE_CONTENTS, DISCRETE_HOST, DISCRETE_RANGES };

/* One operation with its operands, already translated; `plain` holds the operands that are not in one struct. */
struct discrete_entry {
    void (*run)(struct device *cpu, const struct discrete_entry *entry);
    union {
        struct matmul matmul;
        struct norm norm;
        struct norm_backward norm_backward;
        struct residual residual;
        struct query_key query_key;
        struct gated gated;
        struct attention attention;
        struct embedding embedding;
        struct position_embedding position_embedding;
        struct cross_entropy cross_entropy;
        struct cross_entropy_combine cross_entropy_combine;
        struct adamw adamw;
        struct {
            void *y;
            const void *x, *z;
            size_t count;
            enum dtype to, from;
            int rows;
            bool accumulate;
            struct dropout dropout;
        } plain;
        uint64_t ticket;
    } is;
};

struct discrete_transfer {
    void *y;
    const void *x;
    size_t bytes;
};

struct discrete {
    struct device *cpu; /* the CPU that computes */
    char *range[DISCRETE_RANGES];
    size_t used[DISCRETE_RANGES];
    struct discrete_entry *entries;
    size_t nentries, most_entries;
    struct discrete_transfer *transfers; /* number i has ticket first_ticket + i */
    size_t ntransfers, most_transfers;
    uint64_t first_ticket;
    bool early; /* MUSTER_TEST_TRANSFERS */
    /* Called before and after each run of the queue, which then runs after every operation. For tests/kernels/mirror.h,
     * whose `cpu` may be any device; else NULL. */
    void (*before)(struct device *dev), (*after)(struct device *dev);
};

static inline struct discrete *device_discrete(struct device *dev)
{
    return dev->state;
}

extern const struct backend backend_discrete;

/* The host address of an operand of operation `name`; NULL for NULL, and when that fails the device. The second form
 * takes MEMORY_HOST too. */
void *discrete_operand(struct device *dev, const char *name, const void *at);
void *discrete_any_operand(struct device *dev, const char *name, const void *at);

void discrete_enqueue(struct device *dev, const struct discrete_entry *entry);
void discrete_wait(struct device *dev);

/* discrete_operations.c */
extern const struct kernels discrete_kernels;

#endif
