/*
 * mesh_pieces.h - what each rank of a mesh saves of a GPT or BERT, as a pure function of the model and the mesh: the
 * trainer's own arithmetic (units.h, plan/partition.h), for tools that have no trainer.
 */
#ifndef MUSTER_CKPT_MODELS_MESH_PIECES_H
#define MUSTER_CKPT_MODELS_MESH_PIECES_H

#include "ckpt/models/units.h"
#include "common/job.h"
#include "common/mesh.h"

/*
 * The sizes of the model whose tensors these are, in any order; a table does not show `heads`, which is left 0.
 * CODE_DATA if they are not exactly the tensors of a GPT or BERT.
 */
int mesh_model_of(const struct ckpt_tensor *tensors, size_t ntensors, struct model_shape *shape, struct error *err);

/* Check that the model can be split so; CODE_USAGE otherwise. heads 0 is not checked. */
int mesh_check(const struct model_shape *shape, const struct mesh *mesh, int chunks, struct error *err);

/*
 * The pieces that shard `rank` of that mesh's checkpoint has, in the order in which the trainer writes them. `chunks`
 * is the job file's parallel.chunks. The ZeRO stage does not matter: data-parallel ranks share the work of saving in
 * every stage. *pieces is malloc'ed; they are of the table of units_create.
 */
int mesh_pieces(const struct model_shape *shape, const struct mesh *mesh, int chunks, int rank,
                struct ckpt_piece **pieces, size_t *npieces, struct error *err);

#endif
