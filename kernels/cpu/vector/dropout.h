/*
 * dropout.h - the random bits of kernels.h's struct dropout, many at a time.
 *
 * A run holds the bits of elements that follow each other; asking for elements beyond it makes the next. One run for
 * each thread, asked in ascending order, makes every bit once.
 */
#ifndef MUSTER_KERNELS_CPU_VECTOR_DROPOUT_H
#define MUSTER_KERNELS_CPU_VECTOR_DROPOUT_H

#include "kernels/cpu/vector/vector.h"

#define DROPOUT_RUN 256 /* elements of a run; a few kB that stay in the nearest cache */

struct dropout_run {
    struct philox_stream stream;
    uint32_t threshold; /* an element is kept when its 16 bits are at least this */
    float scale;        /* of what is kept */
    uint64_t first;     /* element of bits[0]; a multiple of 8 */
    bool made;
    uint16_t bits[DROPOUT_RUN];
};

/* Whether there is anything to do; if not, the run is not to be used. */
static inline bool dropout_begin(struct dropout_run *run, const struct dropout *dropout)
{
    if (dropout->p <= 0)
        return false;
    run->stream = dropout->stream;
    run->threshold = dropout_threshold(dropout->p);
    run->scale = dropout_scale(dropout->p);
    run->made = false;
    return true;
}

/* bits[count] = the 16 bits of elements [first, first + count); both multiples of 8. Up to a vector's worth of blocks
 * is made at once, so bits must have room for count rounded up to 4 * LANES. */
void ISA(dropout_bits)(uint16_t *bits, struct philox_stream stream, uint64_t first, size_t count);

/* x with the elements that are dropped set to 0 and the others scaled; its first lane is element i. */
INLINE vec dropout_apply(struct dropout_run *run, vec x, uint64_t i)
{
    if (!run->made || i < run->first || i - run->first > DROPOUT_RUN - LANES) {
        run->first = i & ~(uint64_t)7;
        run->made = true;
        ISA(dropout_bits)(run->bits, run->stream, run->first, DROPOUT_RUN);
    }
    return vec_select((ivec)(halves_widen(run->bits + (i - run->first)) >= run->threshold), x * run->scale, (vec){0});
}

#endif
