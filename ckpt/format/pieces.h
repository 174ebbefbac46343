/*
 * pieces.h - the arithmetic of pieces: which elements two of them share and their positions in each; and that all
 * pieces of a checkpoint hold every element exactly once.
 *
 * A piece is a box of a tensor and a run [first, first + count) of the box's elements in row-major order. Row-major
 * order within a box is the lexicographic order of the coordinates, the same for every box of the tensor. So a piece is
 * the elements of its box between two coordinates. Two pieces share a piece again: its box is the intersection of both
 * boxes; it begins where the later of the two begins, and ends where the earlier one ends. Everything here follows from
 * that.
 */
#ifndef MUSTER_CKPT_FORMAT_PIECES_H
#define MUSTER_CKPT_FORMAT_PIECES_H

#include "ckpt/format/manifest.h"

/* Elements of a box of that shape. tensor_is_valid holds, so nothing overflows. */
uint64_t box_elements(const uint64_t *shape, int ndim);

/* 1 to CKPT_MAX_DIMS dimensions, none 0, and 4 x elements within 62 bits. */
bool tensor_is_valid(const struct ckpt_tensor *tensor);

bool tensor_same_shape(const struct ckpt_tensor *a, const struct ckpt_tensor *b);

/* A table's tensors in the order of their names, malloc'ed; NULL with errno. */
const struct ckpt_tensor **tensors_by_name(const struct ckpt_tensor *tensors, size_t ntensors);

/* The tensor of that name in such a list, or NULL. */
const struct ckpt_tensor *tensors_find(const struct ckpt_tensor *const *by_name, size_t ntensors, const char *name);

/* The box within the tensor, and the run within the box. The piece's own `tensor` is ignored. */
bool piece_is_valid(const struct ckpt_piece *piece, const struct ckpt_tensor *tensor);

/* A piece that is elements [first, first + count) of the whole tensor. */
struct ckpt_piece piece_of_tensor(uint32_t index, const struct ckpt_tensor *tensor, uint64_t first, uint64_t count);

/* Positions of the first and the last element in the row-major order of the whole tensor. count is not 0. */
void piece_extent(const struct ckpt_piece *piece, const struct ckpt_tensor *tensor, uint64_t *first, uint64_t *last);

/*
 * Cuts elements [first, first + count) out of the concatenation of the pieces. Writes them as pieces to `cut`, which
 * has room for npieces, and returns the number written.
 */
size_t pieces_cut(const struct ckpt_piece *pieces, size_t npieces, uint64_t first, uint64_t count,
                  struct ckpt_piece *cut);

/*
 * The shared elements as runs that are contiguous in both pieces, longest possible, in order:
 *
 *     for (overlap_start(&walk, a, b, ndim); overlap_next(&walk); )
 *         memcpy(to + walk.at_a, from + walk.at_b, walk.count * size);
 */
struct overlap {
    uint64_t at_a, at_b; /* where the run starts, in elements from the start of piece a and of piece b */
    uint64_t count;      /* elements in the run */

    const struct ckpt_piece *pieces[2];
    struct ckpt_piece common;
    uint64_t at;  /* next element to give out, in the row-major order of common's box */
    uint64_t end; /* where to stop, in the same order */
    uint64_t row; /* elements of common's box that are contiguous in both pieces */
    int ndim;
};

/* Returns whether there is any overlap; the pieces are borrowed during the walk. */
bool overlap_start(struct overlap *walk, const struct ckpt_piece *a, const struct ckpt_piece *b, int ndim);

/* Limits a walk that has just been started to elements [begin, end) of piece b. Returns whether any are left. */
bool overlap_within(struct overlap *walk, uint64_t begin, uint64_t end);

/* The positions in piece b of the first and the last element that are left; there is at least one. */
void overlap_span(const struct overlap *walk, uint64_t *first, uint64_t *last);

/* The next run; false at the end. */
bool overlap_next(struct overlap *walk);

/* ---- an index of all pieces of a checkpoint, by tensor ----------------------------------------------------------- */

struct indexed_piece {
    const struct ckpt_piece *piece;
    int shard;
    uint64_t offset;                    /* elements of the shard's entry before it */
    uint64_t tensor_first, tensor_last; /* its extent in the tensor (piece_extent) */
    uint64_t last_so_far;               /* the greatest tensor_last of the tensor's pieces up to this one */
};

struct piece_index {
    struct indexed_piece *pieces; /* by tensor, then by tensor_first */
    size_t npieces;
    size_t *start; /* [ntensors + 1] where each tensor's begin */
    const struct manifest *manifest;
};

/*
 * Makes the index, and checks that the pieces cover the tensors. The manifest is borrowed. Fails with CODE_DATA when an
 * element is missing or there twice, or a tensor has pieces of more than 4096 different boxes.
 */
int piece_index_create(struct piece_index *index, const struct manifest *manifest, struct error *err);

/* The first of a tensor's pieces whose extent may reach position `first`; start[tensor + 1] if there is none. */
size_t piece_index_find(const struct piece_index *index, uint32_t tensor, uint64_t first);
void piece_index_destroy(struct piece_index *index);

#endif
