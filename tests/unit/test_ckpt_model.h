/*
 * test_ckpt_model.h - small GPTs and BERTs, and checkpoints of them that no trainer wrote, for the tests of resharding
 * and of conversions. The value of an element follows from its place in its logical tensor alone.
 */
#ifndef MUSTER_TESTS_CKPT_MODEL_H
#define MUSTER_TESTS_CKPT_MODEL_H

#include "ckpt/models/rewrite.h"
#include "ckpt/models/units.h"

#define MODEL_KINDS 3

extern const char *const state_kinds[MODEL_KINDS];

/* A model whose heads and seq_length every tp of draw_mesh divides, and a mesh of at most 64 ranks with its chunks. */
struct model_shape draw_model(uint64_t *random);
struct mesh draw_mesh(uint64_t *random, int *chunks);

/* All of the model on one rank: its table of tensors. */
struct units *model_units(const struct model_shape *shape);

/* The value that a tensor's element has; `kind` is an index into state_kinds. */
float model_value(uint32_t tensor, size_t kind, uint64_t place);

/* Write step 5 in that mesh's shards into dir. Fails the test if that fails. */
void model_write(const struct model_shape *shape, const struct mesh *mesh, int chunks, const char *dir);

/* Whether `data`, read for the piece, has the right values: those of model_value. */
bool model_is_right(const struct units *units, const struct ckpt_piece *piece, size_t kind, const float *data);

/* Read all tensors of dir's checkpoint of that step whole, one by one: whether every value is right, bit by bit.
 * `round`, if any, is applied to the value of `param`; with zero_moments the other kinds must be zeros. */
bool model_matches(const struct model_shape *shape, const char *dir, uint64_t step, float (*round)(float),
                   bool zero_moments);

#endif
