#include "kernels/cpu/vector/attention.h"

#include <math.h>

struct head_slice ISA(attention_head)(const struct attention *op, int pair)
{
    int batch_index = pair / op->heads, head_index = pair % op->heads;
    size_t hidden = (size_t)op->heads * (size_t)op->head_size;
    size_t q = (size_t)batch_index * (size_t)op->seq * 3 * hidden + (size_t)head_index * (size_t)op->head_size;
    int keys = op->lengths && op->lengths[batch_index] < op->seq ? op->lengths[batch_index] : op->seq;

    return (struct head_slice){
        .size = op->head_size,
        .padded = (op->head_size + LANES - 1) / LANES * LANES,
        .seq = op->seq,
        .keys = keys < 0 ? 0 : keys,
        .causal = op->causal,
        .dtype = op->dtype,
        .stride = 3 * (ptrdiff_t)hidden,
        .q = typed_at(op->dtype, op->qkv, q),
        .k = typed_at(op->dtype, op->qkv, q + hidden),
        .v = typed_at(op->dtype, op->qkv, q + 2 * hidden),
        .scale = 1.0f / sqrtf((float)op->head_size),
        .dropout = op->dropout.p > 0 ? &op->dropout : NULL,
        .element = op->dropout.first + (uint64_t)batch_index * op->dropout_stride +
                   (uint64_t)head_index * (uint64_t)op->seq * (uint64_t)op->seq,
    };
}

INLINE void pack(enum dtype T, const struct head_slice *head, float *to, const void *from, ptrdiff_t stride, int rows)
{
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < head->padded; i += LANES)
            vec_store(to + (ptrdiff_t)r * head->padded + i,
                      typed_load_part(T, from, (size_t)(r * stride + i), vec_count(i, head->size)));
}

void ISA(attention_pack)(const struct head_slice *head, float *to, const void *from, ptrdiff_t stride, int rows)
{
    WITH_DTYPE(head->dtype, T, pack(T, head, to, from, stride, rows));
}

struct rows ISA(attention_rows)(const struct head_slice *head, const void *from, ptrdiff_t stride, int first, int rows,
                                float *space)
{
    const void *at = typed_at(head->dtype, from, (size_t)(first * stride));

    if (head->dtype == DTYPE_F32)
        return (struct rows){at, stride};
    ISA(attention_pack)(head, space, at, stride, rows);
    return (struct rows){space, head->padded};
}

INLINE void unpack(enum dtype T, const struct head_slice *head, void *to, ptrdiff_t stride, const float *from, int rows,
                   float scale)
{
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < head->size; i += LANES)
            typed_store_part(T, to, (size_t)(r * stride + i), scale * vec_load(from + (ptrdiff_t)r * head->padded + i),
                             vec_count(i, head->size));
}

void ISA(attention_unpack)(const struct head_slice *head, void *to, ptrdiff_t stride, const float *from, int rows,
                           float scale)
{
    WITH_DTYPE(head->dtype, T, unpack(T, head, to, stride, from, rows, scale));
}

struct key_tile ISA(attention_key_tile)(const struct head_slice *head, int query, int queries, int first)
{
    bool diagonal = head->causal && first >= query;
    int end = head->causal && query + queries < head->keys ? query + queries : head->keys;
    int most = diagonal ? DIAGONAL_KEYS : KEYS;

    return (struct key_tile){
        .first = first,
        .count = end - first < most ? (end > first ? end - first : 0) : most,
        .lane = diagonal ? first - query : 0,
        .diagonal = diagonal,
    };
}

/* Key `tile.first + j` is seen by the queries from tile.lane + j on. */
static void mask_diagonal(struct key_tile tile, float *s)
{
    for (int j = 1; j < tile.count; j++)
        for (int i = 0; i < DIAGONAL_KEYS; i += LANES) {
            float *lane = s + j * QUERIES + tile.lane + i;

            vec_store(lane, vec_select(vec_iota() + (float)i < (float)j, vec_all(-FLT_MAX), vec_load(lane)));
        }
}

void ISA(attention_scores)(const struct head_slice *head, const float *q_transposed, int vectors, struct key_tile tile,
                           struct rows k, float *s)
{
    ISA(tile_product)
    (&(struct tile_product){
        .m = tile.count,
        .vectors = vectors - tile.lane / LANES,
        .k = head->size,
        .a = k.at,
        .a_row = k.stride,
        .a_column = 1,
        .b = q_transposed + tile.lane,
        .b_row = QUERIES,
        .c = s + tile.lane,
        .c_row = QUERIES,
    });
    if (tile.diagonal)
        mask_diagonal(tile, s);
}

typedef float four __attribute__((vector_size(16)));
typedef float four_unaligned __attribute__((vector_size(16), aligned(4), may_alias));
typedef int32_t four_index __attribute__((vector_size(16)));

/* to[c][r] = scale * from[r][c] for a square of four. */
static inline void transpose_four(float *to, ptrdiff_t to_row, const float *from, ptrdiff_t from_row, float scale)
{
    four a = *(const four_unaligned *)from, b = *(const four_unaligned *)(from + from_row);
    four c = *(const four_unaligned *)(from + 2 * from_row), d = *(const four_unaligned *)(from + 3 * from_row);
    four ab_low = __builtin_shuffle(a, b, (four_index){0, 4, 1, 5});
    four ab_high = __builtin_shuffle(a, b, (four_index){2, 6, 3, 7});
    four cd_low = __builtin_shuffle(c, d, (four_index){0, 4, 1, 5});
    four cd_high = __builtin_shuffle(c, d, (four_index){2, 6, 3, 7});

    *(four_unaligned *)to = scale * __builtin_shuffle(ab_low, cd_low, (four_index){0, 1, 4, 5});
    *(four_unaligned *)(to + to_row) = scale * __builtin_shuffle(ab_low, cd_low, (four_index){2, 3, 6, 7});
    *(four_unaligned *)(to + 2 * to_row) = scale * __builtin_shuffle(ab_high, cd_high, (four_index){0, 1, 4, 5});
    *(four_unaligned *)(to + 3 * to_row) = scale * __builtin_shuffle(ab_high, cd_high, (four_index){2, 3, 6, 7});
}

/* to[columns][rows] = scale * from[rows][columns] */
static void transpose_tile(float *to, ptrdiff_t to_row, const float *from, ptrdiff_t from_row, int rows, int columns,
                           float scale)
{
    int whole_rows = rows / 4 * 4, whole_columns = columns / 4 * 4;

    for (int r = 0; r < whole_rows; r += 4)
        for (int c = 0; c < whole_columns; c += 4)
            transpose_four(to + c * to_row + r, to_row, from + r * from_row + c, from_row, scale);
    for (int r = 0; r < rows; r++)
        for (int c = r < whole_rows ? whole_columns : 0; c < columns; c++)
            to[c * to_row + r] = scale * from[r * from_row + c];
}

void ISA(attention_transpose)(float *to, struct rows from, int rows, int size, float scale)
{
    if (rows < QUERIES)
        memset(to, 0, (size_t)size * QUERIES * sizeof *to);
    transpose_tile(to, QUERIES, from.at, from.stride, rows, size, scale);
}

void ISA(attention_untranspose)(float *to, ptrdiff_t stride, const float *from, int rows, int size)
{
    transpose_tile(to, stride, from, QUERIES, size, rows, 1.0f);
}
