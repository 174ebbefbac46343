/*
 * initial_weights.h - initial weights, the same in every topology: each element is a function of the seed and its index
 * in the logical tensor. As in GPT-2, biases are 0, scales of norms 1, matrices normal with deviation init_std, and the
 * two output projections of a block (c_proj) with init_std / sqrt(2 layers).
 */
#ifndef MUSTER_TRAINER_PARALLEL_INITIAL_WEIGHTS_H
#define MUSTER_TRAINER_PARALLEL_INITIAL_WEIGHTS_H

#include "ckpt/models/units.h"

struct initial_weights {
    uint64_t seed;
    double init_std;
};

/* Elements [first, first + count) of a unit; padding is zero. */
void initial_weights(const struct initial_weights *initial, const struct units *units, int unit, size_t first,
                     size_t count, float *out);

/* True if weight decay applies to this tensor: to matrices, not to biases and the scales of norms. */
bool initial_weights_decay(const struct ckpt_tensor *tensor);

#endif
