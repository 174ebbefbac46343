/*
 * initial_weights.h - the weights that training starts from, the same in every topology: each element is a function of
 * the seed and its place in the logical tensor. As GPT-2 has them: biases 0, scales of norms 1, matrices normal with
 * deviation init_std, and the two output projections of a block (c_proj) with init_std / sqrt(2 layers).
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

/* Whether weight decay applies to this tensor: to matrices, not to biases and the scales of norms. */
bool initial_weights_decay(const struct ckpt_tensor *tensor);

#endif
