#include "kernels/cpu/vector/attention.h"

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
