/*
 * bpe.c - merges the bytes of a word: of all pairs of neighbours, the one with the lowest rank, and of several the
 * leftmost, until no pair has a merge (Sennrich et al., arXiv 1508.07909).
 *
 * In a short word the best pair is searched for each time: the word is in the first-level cache. For a long word a heap
 * gives the next pair: O(n log n), also for a million letters.
 */
#include "tokenizer/tokenizer_impl.h"

#include <stdlib.h>

static struct pair_merge merge_of(const struct merge_table *table, int32_t left, int32_t right)
{
    return merge_table_slot(table, token_pair(left, right))->merge;
}

/* ---- short words ------------------------------------------------------------------------------------------------- */

/* parts[i] and parts[i + 1] merge into merges[i].id. Returns the number of parts that remain. */
static size_t merge_short(const struct merge_table *table, const uint8_t *word, int32_t *parts, size_t count)
{
    struct pair_merge merges[WORD_LONG];

    for (size_t i = 0; i + 1 < count; i++)
        merges[i] = table->byte_pairs[word[i] << 8 | word[i + 1]];
    while (count > 1) {
        uint32_t lowest = NO_RANK;
        size_t best = 0;

        for (size_t i = 0; i + 1 < count; i++)
            if (merges[i].rank < lowest) {
                lowest = merges[i].rank;
                best = i;
            }
        if (lowest == NO_RANK)
            break;
        parts[best] = merges[best].id;
        count--;
        for (size_t i = best + 1; i < count; i++) {
            parts[i] = parts[i + 1];
            merges[i - 1] = merges[i];
        }
        if (best > 0)
            merges[best - 1] = merge_of(table, parts[best - 1], parts[best]);
        if (best + 1 < count)
            merges[best] = merge_of(table, parts[best], parts[best + 1]);
    }
    return count;
}

/* ---- long words -------------------------------------------------------------------------------------------------- */

/* A heap of rank << 32 | position: the smallest is the next pair to be merged. */
struct pair_heap {
    uint64_t *items;
    size_t count;
};

static void heap_push(struct pair_heap *heap, uint64_t item)
{
    size_t at = heap->count++;

    for (; at > 0 && heap->items[(at - 1) / 2] > item; at = (at - 1) / 2)
        heap->items[at] = heap->items[(at - 1) / 2];
    heap->items[at] = item;
}

static uint64_t heap_pop(struct pair_heap *heap)
{
    uint64_t top = heap->items[0], last = heap->items[--heap->count];
    size_t at = 0, child;

    while ((child = 2 * at + 1) < heap->count) {
        if (child + 1 < heap->count && heap->items[child + 1] < heap->items[child])
            child++;
        if (heap->items[child] >= last)
            break;
        heap->items[at] = heap->items[child];
        at = child;
    }
    heap->items[at] = last;
    return top;
}

/* A word as a list: parts[i] is -1 where a merge removed the part. */
struct long_word {
    int32_t *parts, *next, *previous;
    int32_t count;
};

/* Of the part `at` and the next one. */
static struct pair_merge merge_at(const struct merge_table *table, const struct long_word *word, int32_t at)
{
    return word->parts[at] < 0 || word->next[at] == word->count
               ? (struct pair_merge){NO_RANK, -1}
               : merge_of(table, word->parts[at], word->parts[word->next[at]]);
}

static void push_pair(const struct merge_table *table, const struct long_word *word, struct pair_heap *heap, int32_t at)
{
    struct pair_merge merge = merge_at(table, word, at);

    if (merge.rank != NO_RANK)
        heap_push(heap, (uint64_t)merge.rank << 32 | (uint32_t)at);
}

/* Each merge pushes two pairs at most and removes a part: the heap never has more than 3 * count items. */
static void merge_long(const struct merge_table *table, struct long_word *word, struct pair_heap *heap)
{
    for (int32_t i = 0; i < word->count; i++) {
        word->next[i] = i + 1;
        word->previous[i] = i - 1;
    }
    for (int32_t i = 0; i < word->count; i++)
        push_pair(table, word, heap, i);
    while (heap->count > 0) {
        uint64_t top = heap_pop(heap);
        int32_t at = (int32_t)(uint32_t)top, removed;
        struct pair_merge merge = merge_at(table, word, at);

        if (merge.rank != top >> 32)
            continue; /* one of the two was merged with another part */
        removed = word->next[at];
        word->parts[at] = merge.id;
        word->parts[removed] = -1;
        word->next[at] = word->next[removed];
        if (word->next[at] < word->count)
            word->previous[word->next[at]] = at;
        if (word->previous[at] >= 0)
            push_pair(table, word, heap, word->previous[at]);
        push_pair(table, word, heap, at);
    }
}

static int reserve_scratch(struct word_scratch *scratch, size_t bytes, struct error *err)
{
    size_t room = bytes + bytes / 2;

    if (scratch->room >= bytes)
        return 0;
    free(scratch->numbers);
    free(scratch->heap);
    scratch->numbers = reallocarray(NULL, 3 * room, sizeof *scratch->numbers);
    scratch->heap = reallocarray(NULL, 3 * room, sizeof *scratch->heap);
    scratch->room = scratch->numbers && scratch->heap ? room : 0;
    return scratch->room ? 0 : error_set(err, CODE_IO, "out of memory for a word of %zu bytes", bytes);
}

int bpe_word(const struct tokenizer *tokenizer, struct word_scratch *scratch, const char *word, size_t bytes,
             struct token_list *ids, struct error *err)
{
    int32_t *parts, whole = tokenizer->whole_words ? token_table_find(&tokenizer->table, word, bytes) : -1;
    bool is_long = bytes > WORD_LONG;

    if (token_list_reserve(ids, bytes, err) < 0 || (is_long && reserve_scratch(scratch, bytes, err) < 0))
        return -1;
    if (whole >= 0 && !(tokenizer->table.entries[whole].flags & TOKEN_ADDED)) {
        ids->ids[ids->count++] = whole;
        return 0;
    }
    parts = is_long ? scratch->numbers : ids->ids + ids->count;
    for (size_t i = 0; i < bytes; i++)
        parts[i] = tokenizer->byte_ids[(uint8_t)word[i]];
    if (!is_long) {
        ids->count += merge_short(&tokenizer->merges, (const uint8_t *)word, parts, bytes);
        return 0;
    }
    struct long_word list = {parts, parts + bytes, parts + 2 * bytes, (int32_t)bytes};
    struct pair_heap heap = {scratch->heap, 0};
    merge_long(&tokenizer->merges, &list, &heap);
    for (int32_t i = 0; i < list.count; i = list.next[i])
        ids->ids[ids->count++] = list.parts[i];
    return 0;
}
