#include "plan/activations.h"

#include "common/model/model_tensors.h"

static size_t all_rows(const struct pass_sizes *s, int samples)
{
    return (size_t)samples * (size_t)s->shape->seq_length;
}

static size_t local_rows(const struct pass_sizes *s, int samples)
{
    return all_rows(s, samples) / (size_t)s->tp;
}

/* An RMSNorm has no mean. */
static size_t mean_bytes(const struct pass_sizes *s, size_t rows)
{
    return s->shape->norm == NORM_LAYER ? rows * sizeof(float) : 0;
}

static size_t angles_bytes(const struct pass_sizes *s)
{
    size_t floats = (size_t)s->shape->seq_length * (size_t)model_head_size(s->shape);

    return s->shape->positions == POSITIONS_ROTARY ? floats * sizeof(float) : 0;
}

void block_pieces(const struct pass_sizes *s, size_t bytes[BLOCK_PIECES])
{
    size_t rows = all_rows(s, s->samples), local = local_rows(s, s->samples);
    size_t d = (size_t)s->shape->hidden, tp = (size_t)s->tp, element = dtype_size(s->dtype);

    bytes[PIECE_Y1] = bytes[PIECE_MID] = bytes[PIECE_Y2] = local * d * element;
    bytes[PIECE_RSTD1] = bytes[PIECE_RSTD2] = local * sizeof(float);
    bytes[PIECE_MEAN1] = bytes[PIECE_MEAN2] = mean_bytes(s, local);
    bytes[PIECE_PRE] = rows * (size_t)model_fc_width(s->shape) / tp * element;
    bytes[PIECE_ACT] = rows * (size_t)model_inner(s->shape) / tp * element;
    bytes[PIECE_QKV] = rows * (size_t)model_qkv_width(s->shape) / tp * element;
    bytes[PIECE_HEADS] = bytes[PIECE_HEADS_RSTD] = 0;
    if (s->shape->qk_norm) {
        size_t heads = (size_t)(s->shape->heads + model_kv_heads(s->shape)) / tp;

        bytes[PIECE_HEADS] = rows * heads * (size_t)model_head_size(s->shape) * element;
        bytes[PIECE_HEADS_RSTD] = rows * heads * sizeof(float);
    }
    bytes[PIECE_ATT] = rows * (size_t)model_query_width(s->shape) / tp * element;
    bytes[PIECE_LSE] = rows * (size_t)s->shape->heads / tp * sizeof(float);
}

enum piece_place block_piece_place(enum recompute recompute, int piece)
{
    if (recompute == RECOMPUTE_FULL)
        return PIECE_SHARED;
    if (recompute >= RECOMPUTE_LIGHT && piece <= PIECE_ACT)
        return PIECE_IN_SCRATCH;
    return recompute == RECOMPUTE_SELECTIVE && piece >= PIECE_QKV ? PIECE_SHARED : PIECE_KEPT;
}

void scratch_pieces(const struct pass_sizes *s, size_t bytes[SCRATCH_PIECES])
{
    size_t rows = all_rows(s, s->samples), local = local_rows(s, s->samples);
    size_t d = (size_t)s->shape->hidden, tp = (size_t)s->tp, element = dtype_size(s->dtype);
    size_t fc = (size_t)model_fc_width(s->shape), qkv = (size_t)model_qkv_width(s->shape);
    size_t query = (size_t)model_query_width(s->shape);

    bytes[SCRATCH_WIDE] = rows * (fc > qkv ? fc : qkv) / tp * element;
    bytes[SCRATCH_NARROW] = rows * (query > d ? query : d) / tp * element;
    bytes[SCRATCH_PART] = rows * d * element;
    bytes[SCRATCH_LOCAL] = s->tp > 1 || s->dropout ? local * d * element : 0;
    bytes[SCRATCH_FULL_A] = bytes[SCRATCH_FULL_B] = s->tp > 1 ? rows * d * element : 0;
    bytes[SCRATCH_ANGLES] = angles_bytes(s);
}

const int head_piece_times[HEAD_PIECES] = {
    [HEAD_LOGITS] = 1,         [HEAD_FULL] = 1,    [HEAD_STATS] = 1,   [HEAD_LOSS] = 4,       [HEAD_WIDE] = 1,
    [HEAD_HOST] = 1,           [HEAD_NORM] = 1,    [HEAD_MEAN] = 1,    [HEAD_RSTD] = 1,       [HEAD_TRANSFORM] = 4,
    [HEAD_TRANSFORM_MEAN] = 2, [HEAD_SAMPLES] = 3, [HEAD_TARGETS] = 1, [HEAD_ORDER_LOSS] = 4, [HEAD_ORDER_LOGITS] = 1,
};

void head_pieces(const struct pass_sizes *s, size_t bytes[HEAD_PIECES])
{
    size_t rows = all_rows(s, s->samples), local = local_rows(s, s->samples), tp = (size_t)s->tp;
    size_t d = (size_t)s->shape->hidden, element = dtype_size(s->dtype), vocab = (size_t)s->shape->vocab;
    size_t most = rows < (size_t)s->logits_rows ? rows : (size_t)s->logits_rows;
    size_t transformed = model_elements(s->shape, PART_MLM, WEIGHT) ? local : 0;
    size_t samples = model_elements(s->shape, PART_ORDER, WEIGHT) ? (size_t)s->samples : 0;

    bytes[HEAD_LOGITS] = most * (size_t)s->vocab_padded * element;
    bytes[HEAD_FULL] = tp > 1 ? rows * d * element : 0;
    bytes[HEAD_STATS] = tp > 1 ? tp * 3 * most * sizeof(float) : 0;
    bytes[HEAD_LOSS] = rows * sizeof(float);
    bytes[HEAD_WIDE] = s->discrete ? vocab * sizeof(float) : 0;
    bytes[HEAD_HOST] = bytes[HEAD_WIDE];
    bytes[HEAD_NORM] = local * d * element;
    bytes[HEAD_MEAN] = mean_bytes(s, local);
    bytes[HEAD_RSTD] = local * sizeof(float);
    bytes[HEAD_TRANSFORM] = transformed * d * element;
    bytes[HEAD_TRANSFORM_MEAN] = transformed * sizeof(float);
    bytes[HEAD_SAMPLES] = samples * d * element;
    bytes[HEAD_TARGETS] = samples * sizeof(int32_t);
    bytes[HEAD_ORDER_LOSS] = samples * sizeof(float);
    bytes[HEAD_ORDER_LOGITS] = samples * 2 * element;
}

size_t buffer_bytes(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

size_t stream_bytes(const struct pass_sizes *s, int samples)
{
    return local_rows(s, samples) * (size_t)s->shape->hidden * dtype_size(s->dtype);
}

int chunk_inputs(const struct model_chunk *chunk)
{
    return chunk->has_embedding ? chunk->slots : chunk->slots + 1;
}

int chunk_outputs(const struct model_chunk *chunk)
{
    return chunk->has_head ? chunk->slots : 2;
}

enum recompute layer_recompute(const struct job *job, int layer_of_stage)
{
    int first = job->parallel.recompute_layers; /* 0: all */

    return first == 0 || layer_of_stage < first ? job->parallel.recompute : RECOMPUTE_NONE;
}

/* Adds a layer's kept activations of one micro-batch; *shared is the most that a layer recomputes. */
static size_t layer_bytes(const size_t piece[BLOCK_PIECES], enum recompute recompute, size_t *shared)
{
    size_t at[PIECE_IN_SCRATCH + 1] = {0};

    for (int i = 0; i < BLOCK_PIECES; i++)
        at[block_piece_place(recompute, i)] += buffer_bytes(piece[i]);
    *shared = at[PIECE_SHARED] > *shared ? at[PIECE_SHARED] : *shared;
    return at[PIECE_KEPT];
}

static void add_head(const struct pass_sizes *s, struct model_bytes *bytes)
{
    size_t piece[HEAD_PIECES];

    head_pieces(s, piece);
    for (int i = 0; i < HEAD_PIECES; i++)
        *(i == HEAD_HOST ? &bytes->host : &bytes->workspace) += buffer_bytes(piece[i]) * (size_t)head_piece_times[i];
}

struct model_bytes model_bytes(const struct job *job, const struct pass_sizes *s, const struct model_config *config)
{
    size_t stream = buffer_bytes(stream_bytes(s, s->samples)), block[BLOCK_PIECES], scratch[SCRATCH_PIECES];
    struct model_bytes bytes = {0};
    int layer = 0; /* of the stage */

    block_pieces(s, block);
    scratch_pieces(s, scratch);
    for (int i = 0; i < config->chunks; i++) {
        const struct model_chunk *chunk = &config->chunk[i];
        size_t slot = chunk->layers > 1 ? (size_t)(chunk->layers - 1) * stream : 0;

        for (int l = 0; l < chunk->layers; l++)
            slot += layer_bytes(block, layer_recompute(job, layer++), &bytes.shared);
        bytes.kept += (size_t)(chunk_inputs(chunk) + chunk_outputs(chunk)) * stream + (size_t)chunk->slots * slot;
        if (chunk->has_head)
            add_head(s, &bytes);
    }
    for (int i = 0; i < SCRATCH_PIECES; i++)
        bytes.workspace += buffer_bytes(scratch[i]);
    bytes.workspace += (config->pipelined ? MODEL_GRADIENTS : 1) * stream;
    if (s->discrete)
        bytes.host += buffer_bytes(scratch[SCRATCH_ANGLES]); /* on their way to the device */
    return bytes;
}

size_t batch_bytes(const struct model_shape *shape, bool documents, long most)
{
    size_t samples = most > 0 ? (size_t)most : 1, tokens = samples * (size_t)shape->seq_length;

    tokens *= 2 + (shape->token_types > 0) + documents;
    samples *= shape->bidirectional + (model_elements(shape, PART_ORDER, WEIGHT) > 0);
    return sizeof(int32_t) * (tokens + samples);
}

size_t losses_bytes(const struct model_shape *shape, long most)
{
    return (size_t)most * (size_t)(shape->seq_length + 1) * sizeof(float);
}

size_t tp_scratch_bytes(int size, enum dtype dtype, int rows, int cols, size_t gradients)
{
    size_t bucket = TP_BUCKET_ELEMENTS / (size_t)size, sums, product = (size_t)rows * (size_t)cols * dtype_size(dtype);

    if (size == 1)
        return 0;
    bucket = bucket > 0 ? bucket : 1;
    sums = (gradients < bucket ? gradients : bucket) * (size_t)size * sizeof(float);
    return product > sums ? product : sums;
}
