/* units_initialize.h - initial weights, the same in every topology. What each tensor begins with stands in
 * ckpt/units.h. */
#ifndef MUSTER_TRAINER_MODEL_UNITS_INITIALIZE_H
#define MUSTER_TRAINER_MODEL_UNITS_INITIALIZE_H

#include "ckpt/units.h"

/* Initial values of elements [first, first + count) of a unit, of the stream of `seed`; padding is zero. */
void units_initialize(const struct units *units, int unit, uint64_t seed, size_t first, size_t count, float *out);

#endif
