/* model_fields.h - models for tests, by layers, hidden, heads, seq_length and vocab. */
#ifndef MUSTER_TESTS_MODEL_FIELDS_H
#define MUSTER_TESTS_MODEL_FIELDS_H

#include "common/model/model_tensors.h"

#define MODEL_SIZES(l, d, h, s, v) .layers = (l), .hidden = (d), .heads = (h), .seq_length = (s), .vocab = (v)

#endif
