/*
 * activations.h - the memory of a rank's forward and backward passes: what is kept between them, and the scratch of one
 * layer, of the head and of its logits. trainer/model/ places exactly the pieces that these functions size; block.h
 * and head.h there say what is in each.
 *
 * R = rows of a micro-batch, Rl = R / tp = local rows, d = hidden, V' = this rank's padded rows of the vocabulary.
 */
#ifndef MUSTER_PLAN_ACTIVATIONS_H
#define MUSTER_PLAN_ACTIVATIONS_H

#include <stdbool.h>
#include <stddef.h>

#include "common/dtype.h"
#include "common/job.h"

enum { MODEL_MAX_CHUNKS = 64 };

/* One of a stage's runs of layers. */
struct model_chunk {
    int first_layer, layers;
    bool has_embedding, has_head;
    int slots; /* micro-batches whose activations are held at once */
};

struct model_config {
    int chunks;
    struct model_chunk chunk[MODEL_MAX_CHUNKS];
    bool pipelined; /* activations come from and go to other stages */
};

/* What the pieces depend on. */
struct pass_sizes {
    const struct model_shape *shape;
    int tp, samples, vocab_padded;
    enum dtype dtype;
    int logits_rows; /* struct device_traits */
    bool dropout;    /* of hidden activations */
    bool discrete;   /* the device's memory is not host memory */
};

/* ---- pieces, in bytes; 0: not needed ----------------------------------------------------------------------------- */

/* Activations of one block. */
enum block_piece {
    PIECE_Y1, /* the first three: not kept with light recompute */
    PIECE_Y2,
    PIECE_ACT,
    PIECE_MID,
    PIECE_MEAN1,
    PIECE_RSTD1,
    PIECE_MEAN2,
    PIECE_RSTD2,
    PIECE_PRE,
    PIECE_QKV,   /* from here on: not kept with selective recompute either */
    PIECE_HEADS, /* with a norm of heads: queries and keys before it */
    PIECE_HEADS_RSTD,
    PIECE_ATT,
    PIECE_LSE,
    BLOCK_PIECES,
};
void block_pieces(const struct pass_sizes *s, size_t bytes[BLOCK_PIECES]);

/*
 * Where a piece lies from forward to backward. What is not kept is made again, in memory that all blocks share; but with
 * light and selective recompute outputs of norms and activations lie in the scratch, which has room for them whenever
 * they are used.
 */
enum piece_place { PIECE_KEPT, PIECE_SHARED, PIECE_IN_SCRATCH };
enum piece_place block_piece_place(enum recompute recompute, int piece);

/* Scratch of one block at a time. */
enum scratch_piece {
    SCRATCH_WIDE,
    SCRATCH_NARROW,
    SCRATCH_PART,
    SCRATCH_LOCAL,
    SCRATCH_FULL_A,
    SCRATCH_FULL_B,
    SCRATCH_ANGLES, /* [s, head size] fp32, of rotary positions; lasts as long as the model */
    SCRATCH_PIECES,
};
void scratch_pieces(const struct pass_sizes *s, size_t bytes[SCRATCH_PIECES]);

/* The head with its losses. */
enum head_piece {
    HEAD_LOGITS,
    HEAD_FULL,
    HEAD_STATS,
    HEAD_LOSS, /* one of the four arrays of a cross-entropy's results */
    HEAD_WIDE,
    HEAD_HOST,      /* in host memory */
    HEAD_NORM,      /* [Rl, d] */
    HEAD_MEAN,      /* [Rl] fp32 */
    HEAD_RSTD,      /* [Rl] fp32 */
    HEAD_TRANSFORM, /* [Rl, d]; it and the next are of the transform of all tokens */
    HEAD_TRANSFORM_MEAN,
    HEAD_SAMPLES, /* [samples, d]; it and the rest are of the order of sentences */
    HEAD_TARGETS,
    HEAD_ORDER_LOSS,
    HEAD_ORDER_LOGITS,
    HEAD_PIECES,
};
void head_pieces(const struct pass_sizes *s, size_t bytes[HEAD_PIECES]);

/* How often each piece occurs. */
extern const int head_piece_times[HEAD_PIECES];

/* ---- a rank's ---------------------------------------------------------------------------------------------------- */

enum { MODEL_GRADIENTS = 3 }; /* buffers for gradients of a chunk's output, with a pipeline */

size_t buffer_bytes(size_t bytes); /* of a piece in its buffer: rounded up to whole cache lines */

/* A chunk's input, or output, with `samples` samples: [Rl, d]. */
size_t stream_bytes(const struct pass_sizes *s, int samples);

/* The buffers for a chunk's inputs and outputs. There is one input more than slots, so that the next one can be
 * received ahead; the embedding's is written here. Without a head, outputs alternate between two. */
int chunk_inputs(const struct model_chunk *chunk);
int chunk_outputs(const struct model_chunk *chunk);

/* A layer recomputes if it is one of the first parallel.recompute_layers of its stage, counted over the chunks. */
enum recompute layer_recompute(const struct job *job, int layer_of_stage);

/* The bytes of a model's four buffers. */
struct model_bytes {
    size_t kept, shared, workspace, host;
};
struct model_bytes model_bytes(const struct job *job, const struct pass_sizes *s, const struct model_config *config);

/* The samples of a step on a discrete device, of at most `most` samples: batch.h. documents: data.reset. */
size_t batch_bytes(const struct model_shape *shape, bool documents, long most);

/* Their losses in host memory, of each token and of each sample's order (struct losses). */
size_t losses_bytes(const struct model_shape *shape, long most);

/* tp_all_reduce_f32 sums in buckets of at most this many fp32 elements, counted over all ranks. So its scratch has at
 * most 32 MiB for any model. */
enum { TP_BUCKET_ELEMENTS = 8 << 20 };

/* The scratch of a tp group of `size` ranks. rows, cols: the most of a tp_start_reduce_scatter; gradients: the most
 * elements of a tp_all_reduce_f32. */
size_t tp_scratch_bytes(int size, enum dtype dtype, int rows, int cols, size_t gradients);

#endif
