/*
 * units.h - the model as a list of units: token embedding, positions, block 0..L-1, head. All parameters of a unit
 * (this rank's tensor-parallel slice) lie in one flat buffer; sharding, gathering, reducing and checkpointing know only
 * units and the tensors in them. Pure arithmetic: nothing here allocates device memory. It is not in trainer/ because
 * `muster-ckpt reshard` and export, which have no trainer, write the shards of any mesh.
 *
 *     unit  |ln_1.weight| ... |mlp.c_proj.bias|attn.c_attn.weight| ... |mlp.c_proj.weight|padding|
 *           0    whole on every tp rank     replicated     this tp rank's slices                  count
 *     shard |    dp rank 0     |    dp rank 1     |    ...    |   dp rank dp-1   |
 *
 * Each tensor begins at a multiple of UNIT_ALIGN elements (not shown), and count is a multiple of dp * UNIT_ALIGN. A
 * pipeline stage holds only some of the units. The token embedding is a unit of its own because it may be tied to the
 * projection of the head: with several stages, the first and the last then both hold it.
 */
#ifndef MUSTER_CKPT_MODELS_UNITS_H
#define MUSTER_CKPT_MODELS_UNITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ckpt/ckpt.h"
#include "common/job.h"
#include "common/mesh.h"
#include "plan/tensors.h"

/* One tensor's place in its unit: a box of the logical tensor, whose name and shape are in units->tensors[index]. */
struct unit_tensor {
    struct model_tensor row; /* of the table */
    uint32_t index;
    uint64_t start[CKPT_MAX_DIMS], shape[CKPT_MAX_DIMS];
    size_t offset; /* first element in the unit's flat buffer */
    size_t count;  /* elements of the box */
};

struct unit {
    char name[32];
    bool here; /* on this rank's pipeline stage; elsewhere it has no tensors and count is 0 */
    bool copy; /* the last pipeline stage's copy of the token embedding, if it is not also the first stage: not saved,
                  and not counted in norms */
    int ntensors;
    struct unit_tensor tensors[UNIT_MAX_TENSORS];
    size_t count;      /* of the flat buffer */
    size_t replicated; /* leading elements, the same on all tp ranks; their gradients are summed over the tp ranks */
};

struct units {
    int nunits;
    struct unit *units;
    struct ckpt_tensor *tensors; /* the whole model, in canonical order; the same on every rank */
    size_t ntensors;
    bool saves_replicated;                /* tp rank 0 only: it saves the replicated tensors and counts them in norms */
    int vocab_first, vocab, vocab_padded; /* this rank's first token and number of tokens; rows of wte in memory */
};

enum { UNIT_WTE = 0, UNIT_POSITION = 1, UNIT_BLOCK0 = 2 };

/* The last unit: norms, and what BERT's losses need. */
int units_head(const struct units *units);

/* A part's weight or bias in the unit; NULL if the model has none. */
const struct unit_tensor *unit_find(const struct unit *unit, enum model_part part, enum part_term term);

/*
 * A model's units, with Hugging Face's or Megatron's tensor names, as a rank of the mesh has them. The shape of GPT-2's
 * c_attn is [d, 3, d] instead of Hugging Face's [d, 3d]; the bytes are the same. Pipeline stage s has parts
 * c * pp + s of the model, one for each chunk c (partition_layers in plan/schedule.h). NULL when out of memory.
 */
struct units *units_create(const struct model_shape *shape, const struct mesh *mesh, int chunks, int rank,
                           struct error *err);

/* The units of a rank that has the whole model: dp = tp = pp = 1. */
struct units *units_create_whole(const struct model_shape *shape, struct error *err);
void units_destroy(struct units *units);

/*
 * The number of elements of the tensor in [first, first + count) of the unit's flat buffer. *begin is the index, in the
 * tensor's box, of the first one.
 */
size_t unit_tensor_overlap(const struct unit_tensor *tensor, size_t first, size_t count, size_t *begin);

/*
 * The parts of the logical tensors in elements [first, first + count) of a unit's flat buffer, as checkpoint pieces.
 * Writes at most UNIT_MAX_TENSORS pieces, and where each begins in the flat buffer; returns how many. With `saving`,
 * skips what another rank saves: replicated tensors on tp ranks above 0, and the copy of the token embedding.
 */
size_t units_pieces(const struct units *units, int unit, size_t first, size_t count, bool saving,
                    struct ckpt_piece *pieces, size_t *offsets);

/* ---- for tools, which have no trainer ---------------------------------------------------------------------------- */

/*
 * The job file of a checkpoint, for the caller to destroy: its model is the checkpoint's. CODE_DATA if it cannot be
 * read, or if the checkpoint has not exactly its model's tensors.
 */
int units_read_job(const struct ckpt *ckpt, struct job *job, struct error *err);

/* Check that the model can be split so; CODE_USAGE otherwise. */
int units_check_mesh(const struct model_shape *shape, const struct mesh *mesh, int chunks, struct error *err);

/*
 * The pieces that shard `rank` of that mesh's checkpoint has, in the order in which the trainer writes them. `chunks`
 * is the job file's parallel.chunks. The ZeRO stage does not matter: data-parallel ranks share the work of saving in
 * every stage. The trainer's pieces are zero_pieces' (trainer/parallel/zero.h): both come from units_create and
 * units_pieces, and tests/unit/test_ckpt_mesh.c compares them. *pieces is malloc'ed; a piece's `tensor` is an index
 * into units_create's `tensors`.
 */
int units_rank_pieces(const struct model_shape *shape, const struct mesh *mesh, int chunks, int rank,
                      struct ckpt_piece **pieces, size_t *npieces, struct error *err);

#endif
