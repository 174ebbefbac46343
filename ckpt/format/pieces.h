/*
 * pieces.h - the arithmetic of pieces: which elements two of them share and their places in each; and that all
 * pieces of a checkpoint hold every element exactly once.
 *
 * A piece is a box of a tensor and a run [first, first + count) of the box's elements in row-major order. Row-major
 * order within a box is the lexicographic order of the coordinates, the same for every box of the tensor. So a piece is
 * the elements of its box between two coordinates, and what two pieces share is the elements of the boxes' intersection
 * between the later beginning and the earlier end: a piece again. Everything here follows from that.
 */
#ifndef MUSTER_CKPT_FORMAT_PIECES_H
#define MUSTER_CKPT_FORMAT_PIECES_H

#include "ckpt/format/manifest.h"

/* Elements of a box of that shape. tensor_is_valid holds, so nothing overflows. */
uint64_t box_elements(const uint64_t *shape, int ndim);

/* 1 to CKPT_MAX_DIMS dimensions, none 0, and 4 x elements within 63 bits. */
bool tensor_is_valid(const struct ckpt_tensor *tensor);

bool tensor_same_shape(const struct ckpt_tensor *a, const struct ckpt_tensor *b);

/* The box within the tensor, and the run within the box. The piece's own `tensor` is ignored. */
bool piece_is_valid(const struct ckpt_piece *piece, const struct ckpt_tensor *tensor);

/* A piece that is elements [first, first + count) of the whole tensor. */
struct ckpt_piece piece_of_tensor(uint32_t index, const struct ckpt_tensor *tensor, uint64_t first, uint64_t count);

/* Positions of the first and the last element in the row-major order of the whole tensor. count is not 0. */
void piece_extent(const struct ckpt_piece *piece, const struct ckpt_tensor *tensor, uint64_t *first, uint64_t *last);

/* The elements that a and b share, as a piece; false if there are none. Both are valid pieces of the same tensor. */
bool piece_intersect(const struct ckpt_piece *a, const struct ckpt_piece *b, int ndim, struct ckpt_piece *common);

/*
 * The parts of the pieces that are elements [first, first + count) of all pieces one after the other. `parts` has room
 * for npieces; returns their number.
 */
size_t pieces_cut(const struct ckpt_piece *pieces, size_t npieces, uint64_t first, uint64_t count,
                  struct ckpt_piece *parts);

/*
 * The shared elements as runs that are contiguous in both pieces, longest possible, in order:
 *
 *     for (overlap_start(&walk, a, b, ndim); overlap_next(&walk, UINT64_MAX); )
 *         memcpy(to + walk.a, from + walk.b, walk.count * size);
 */
struct overlap {
    uint64_t a, b;  /* where the run starts, in elements from the start of either piece */
    uint64_t count; /* elements in the run */

    const struct ckpt_piece *pieces[2];
    struct ckpt_piece common;
    uint64_t at;  /* next element to give out, in the row-major order of common's box */
    uint64_t end; /* where to stop, in the same order */
    uint64_t row; /* elements of common's box that are contiguous in both pieces */
    int ndim;
};

/* Returns whether there is any overlap; the pieces are borrowed during the walk. */
bool overlap_start(struct overlap *walk, const struct ckpt_piece *a, const struct ckpt_piece *b, int ndim);

/* Limits a walk that has just been started to elements [begin, end) of b. Returns whether any are left. */
bool overlap_within(struct overlap *walk, uint64_t begin, uint64_t end);

/* The places in b of the first and the last element that are left; there is at least one. */
void overlap_span(const struct overlap *walk, uint64_t *first, uint64_t *last);

/* The next run, of at most `most` elements; false at the end. */
bool overlap_next(struct overlap *walk, uint64_t most);

/* Where in b the next run will start; false at the end. Does not advance. */
bool overlap_peek(const struct overlap *walk, uint64_t *b);

/* An index of all pieces of a checkpoint by tensor. */

struct cover_piece {
    const struct ckpt_piece *piece;
    int shard;
    uint64_t offset;      /* elements of the shard's segment before it */
    uint64_t first, last; /* its extent in the tensor, as of piece_extent */
    uint64_t reach;       /* the greatest `last` of this and all before it */
};

struct cover {
    struct cover_piece *pieces; /* by tensor, then by first */
    size_t *start;              /* [ntensors + 1] where each tensor's begin */
    const struct manifest *manifest;
};

/* The manifest is borrowed. Fails with CODE_DATA when an element is missing or there twice, or a tensor
 * has pieces of more than 4096 different boxes. */
int cover_create(struct cover *cover, const struct manifest *manifest, struct error *err);
void cover_destroy(struct cover *cover);

/*
 * The pieces that may overlap elements first..last of the tensor's row-major order:
 *
 *     for (i = cover_begin(cover, tensor, first); cover_in(cover, tensor, i, last); i++)
 */
size_t cover_begin(const struct cover *cover, size_t tensor, uint64_t first);
bool cover_in(const struct cover *cover, size_t tensor, size_t index, uint64_t last);

#endif
