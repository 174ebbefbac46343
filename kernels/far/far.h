/*
 * far.h - "cpu-far": the CPU's arithmetic behind the manners of a GPU; internal to kernels/far. For tests: a run that
 * gives the CPU's bits here does not owe them to memory that the host happens to share with the device, nor to
 * operations that happen to be done when the call returns.
 *
 *   memory      MEMORY_DEVICE is a range of addresses with nothing behind it, so that whoever touches it faults. What
 *               it stands for lies as far from the beginning of a second range, which only operations know. It begins
 *               as NaN, not as zeros. MEMORY_HOST has a range of its own, so that a copy can tell it from other memory.
 *   operands    Where an operation is given an address outside of these ranges, the device fails and names it.
 *   the queue   An operation is written down with its operands, and done when somebody waits. Transfers are done later
 *               yet: when they are joined or waited for. All of that a GPU may do too, though it seldom does. With
 *               MUSTER_TEST_TRANSFERS=early in the environment they are done as early as is allowed instead, at once:
 *               before what was started earlier, but elsewhere than in the queue (trainer/comm/comm_staged.c).
 */
#ifndef MUSTER_KERNELS_FAR_FAR_H
#define MUSTER_KERNELS_FAR_FAR_H

#include "kernels/device.h"

/* The ranges: what the caller knows, what is behind it, and host memory. */
enum far_range { FAR_DEVICE, FAR_BEHIND, FAR_HOST, FAR_RANGES };

/* One operation with its operands, already translated; `extra` is for those that are not all in one struct. */
struct far_entry {
    void (*run)(struct device *near, const struct far_entry *entry);
    union {
        struct matmul matmul;
        struct layernorm layernorm;
        struct layernorm_backward layernorm_backward;
        struct residual residual;
        struct attention attention;
        struct attention_backward attention_backward;
        struct embedding embedding;
        struct positions positions;
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

struct far_transfer {
    void *y;
    const void *x;
    size_t bytes;
};

struct far {
    struct device *near; /* the CPU that computes */
    char *range[FAR_RANGES];
    size_t used[FAR_RANGES];
    size_t workspace; /* of near, as last counted */
    struct far_entry *entries;
    size_t nentries, most_entries;
    bool running;
    struct far_transfer *transfers; /* number i has ticket first + i */
    size_t ntransfers, most_transfers;
    uint64_t first_ticket;
    bool early; /* MUSTER_TEST_TRANSFERS */
    /* What is done whenever the queue is run, before and after; and then an operation is not put off. For
     * tests/kernels/mirror.h, whose `near` is any device; NULL otherwise. */
    void (*before)(struct device *dev), (*after)(struct device *dev);
};

static inline struct far *device_far(struct device *dev)
{
    return dev->state;
}

/* ---- memory.c ---- */
int far_memory_open(struct far *far, struct error *err);
void far_memory_close(struct far *far);
void *far_alloc(struct device *dev, enum memory space, size_t bytes, struct error *err);
size_t far_free(struct device *dev, enum memory space, void *pointer);

/* Where the host finds what operation `name` calls `at`; NULL for NULL, and when the device fails over it. The second
 * form takes MEMORY_HOST too. */
void *far_operand(struct device *dev, const char *name, const void *at);
void *far_any_operand(struct device *dev, const char *name, const void *at);

/* ---- queue.c ---- */
void far_enqueue(struct device *dev, const struct far_entry *entry);
void far_wait(struct device *dev);
uint64_t far_transfer(struct device *dev, void *y, const void *x, size_t bytes);
void far_transfer_join(struct device *dev, uint64_t ticket);
void far_transfer_wait(struct device *dev, uint64_t ticket);

/* ---- operations.c ---- */
extern const struct kernels far_kernels;

#endif
