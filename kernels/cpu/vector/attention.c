#include "kernels/cpu/vector/attention.h"

#include <math.h>

struct head_slice ISA(attention_head)(const struct attention *op, int pair)
{
    int batch_index = pair / op->heads, head_index = pair % op->heads;
    int kv_head = head_index / (op->heads / op->kv_heads);
    size_t width = attention_width(op->heads, op->head_size),
           row = attention_row(op->heads, op->kv_heads, op->head_size);
    size_t sample = (size_t)batch_index * (size_t)op->seq * row;
    size_t k = sample + width + (size_t)kv_head * (size_t)op->head_size;
    int keys = op->lengths && op->lengths[batch_index] < op->seq ? op->lengths[batch_index] : op->seq;

    return (struct head_slice){
        .size = op->head_size,
        .padded = (op->head_size + LANES - 1) / LANES * LANES,
        .seq = op->seq,
        .keys = keys < 0 ? 0 : keys,
        .causal = op->causal,
        .window = op->window,
        .document_start = op->document_start ? op->document_start + (size_t)batch_index * (size_t)op->seq : NULL,
        .dtype = op->dtype,
        .stride = (ptrdiff_t)row,
        .q = typed_at(op->dtype, op->qkv, sample + (size_t)head_index * (size_t)op->head_size),
        .k = typed_at(op->dtype, op->qkv, k),
        .v = typed_at(op->dtype, op->qkv, k + attention_width(op->kv_heads, op->head_size)),
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

/* first_key does not decrease: the queries that see none of the tile's keys are the last ones. They are all only where
 * the tile's keys are the last before the padding. */
static void cut_queries(const struct head_slice *head, struct key_tile *tile)
{
    int queries = tile->end, whole;

    while (tile->end > 0 && first_key(head, tile->query + tile->end - 1) >= tile->first + tile->count)
        tile->end--;
    if (tile->end == 0) {
        tile->count = 0;
        return;
    }
    whole = key_tile_vectors(tile) * LANES;
    tile->end = whole < queries ? whole : queries;
    tile->cut = first_key(head, tile->query + tile->end - 1) > tile->first;
}

struct key_tile ISA(attention_key_tile)(const struct head_slice *head, int query, int queries, int first)
{
    bool diagonal = head->causal && first >= query;
    int end = head->causal && query + queries < head->keys ? query + queries : head->keys;
    int most = diagonal ? DIAGONAL_KEYS : KEYS;
    struct key_tile tile = {
        .first = first,
        .query = query,
        .count = end - first < most ? (end > first ? end - first : 0) : most,
        .lane = diagonal ? first - query : 0,
        .end = queries,
        .diagonal = diagonal,
    };

    if ((head->document_start || head->window) && tile.count > 0)
        cut_queries(head, &tile);
    return tile;
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

/* Key `tile.first + j` is seen by the queries whose document and window begin there or before. */
static void mask_cut(const struct head_slice *head, struct key_tile tile, float *s)
{
    int lanes = key_tile_vectors(&tile) * LANES, seeing = 0;

    for (int j = 0; j < tile.count; j++) {
        while (seeing < tile.end && first_key(head, tile.query + seeing) <= tile.first + j)
            seeing++;
        for (int i = seeing / LANES * LANES; i < lanes; i += LANES) {
            float *lane = s + j * QUERIES + i;

            vec_store(lane, vec_select(vec_iota() + (float)i < (float)seeing, vec_load(lane), vec_all(-INFINITY)));
        }
    }
}

void ISA(attention_scores)(const struct head_slice *head, const float *q_transposed, struct key_tile tile,
                           struct rows k, float *s)
{
    ISA(tile_product)
    (&(struct tile_product){
        .m = tile.count,
        .vectors = key_tile_vectors(&tile) - tile.lane / LANES,
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
    if (tile.cut)
        mask_cut(head, tile, s);
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

/* ---- dropout ----------------------------------------------------------------------------------------------------- */

_Static_assert(QUERIES == 64 && KEYS == 64, "a row of the mask is 64 bits");

/* bits[i] >> j & 1 becomes bits[j] >> i & 1: swaps the off-diagonal halves of ever smaller squares. */
static void transpose_bits(uint64_t bits[64])
{
    uint64_t low = 0x00000000ffffffff;

    for (int half = 32; half > 0; half /= 2, low ^= low << half)
        for (int i = 0; i < 64; i = ((i | half) + 1) & ~half) {
            uint64_t swap = ((bits[i] >> half) ^ bits[i | half]) & low;

            bits[i] ^= swap << half;
            bits[i | half] ^= swap;
        }
}

/* Bit j: whether element first + j is kept. */
static uint64_t keep_bits(const struct dropout *dropout, uint64_t first)
{
    uint16_t random[KEYS + 8 + 4 * LANES];
    uint32_t threshold = dropout_threshold(dropout->p);
    const uint16_t *from = random + first % 8;
    uint64_t bits = 0;

    ISA(dropout_bits)(random, dropout->stream, first / 8 * 8, first % 8 ? KEYS + 8 : KEYS);
    for (int j = 0; j < KEYS; j += LANES)
        bits |= (uint64_t)vec_bits((ivec)(halves_widen(from + j) >= threshold)) << j;
    return bits;
}

const uint64_t *ISA(attention_mask)(const struct head_slice *head, uint64_t mask[KEYS], int query, int queries,
                                    struct key_tile tile)
{
    if (!head->dropout)
        return NULL;
    if (tile.first % KEYS == 0) {
        uint64_t element = head->element + (uint64_t)query * (uint64_t)head->seq + (uint64_t)tile.first;

        for (int i = 0; i < QUERIES; i++, element += (uint64_t)head->seq)
            mask[i] = i < queries ? keep_bits(head->dropout, element) : 0;
        transpose_bits(mask);
    }
    return mask + tile.first % KEYS;
}

/* ---- products ---------------------------------------------------------------------------------------------------- */

/*
 * A block of ROWS x VECTORS vectors of c stays in registers over the whole of k. With 32 registers 4 x 4 fit, with 16
 * registers 4 x 2; each step of k loads as many numbers as it needs multiplications to hide.
 */
#define ROWS 4
#if defined(__AVX512F__) || defined(__aarch64__)
#define VECTORS 4
#else
#define VECTORS 2
#endif

/* Inlined with constant `rows` and `vectors`, so that the loops over them unroll and `sum` lives in registers. */
__attribute__((always_inline)) static inline void block(const struct tile_product *op, int rows, int vectors,
                                                        const float *a, const float *b, float *c)
{
    const ptrdiff_t a_row = op->a_row, a_column = op->a_column, b_row = op->b_row, c_row = op->c_row;
    vec sum[ROWS][VECTORS];

#pragma GCC unroll 4
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++)
            sum[i][v] = op->accumulate ? vec_load(c + i * c_row + v * LANES) : (vec){0};
    for (int p = 0; p < op->k; p++) {
        vec row[VECTORS];

#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++)
            row[v] = vec_load(b + v * LANES);
#pragma GCC unroll 4
        for (int i = 0; i < rows; i++) {
            vec element = vec_all(a[i * a_row]);

#pragma GCC unroll 4
            for (int v = 0; v < vectors; v++)
                sum[i][v] += element * row[v];
        }
        a += a_column;
        b += b_row;
    }
#pragma GCC unroll 4
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++)
            vec_store(c + i * c_row + v * LANES, sum[i][v]);
}

/* All rows of a strip of `vectors` columns; b's strip is read again for every block of rows, from the nearest cache. */
__attribute__((always_inline)) static inline void strip(const struct tile_product *op, int vectors, int first)
{
    const float *a = op->a, *b = op->b + first * LANES;
    float *c = op->c + first * LANES;
    int left = op->m;

    for (; left >= ROWS; left -= ROWS, a += ROWS * op->a_row, c += ROWS * op->c_row)
        block(op, ROWS, vectors, a, b, c);
    if (left == 3)
        block(op, 3, vectors, a, b, c);
    else if (left == 2)
        block(op, 2, vectors, a, b, c);
    else if (left == 1)
        block(op, 1, vectors, a, b, c);
}

void ISA(tile_product)(const struct tile_product *op)
{
    int first = 0;

    for (; first + VECTORS <= op->vectors; first += VECTORS)
        strip(op, VECTORS, first);
#if VECTORS == 4
    if (op->vectors - first == 3)
        strip(op, 3, first);
    else if (op->vectors - first == 2)
        strip(op, 2, first);
#endif
    if (op->vectors - first == 1)
        strip(op, 1, first);
}
