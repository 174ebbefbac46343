/*
 * bpe.c - merges the bytes or characters of a word: of all pairs of neighbours, the one with the lowest rank, and of
 * several the leftmost, until no pair has a merge (Sennrich et al., arXiv 1508.07909).
 *
 * In a short word the best pair is searched for each time: the word is in the first-level cache. For a long word a heap
 * gives the next pair: O(n log n), also for a million letters.
 */
#include "tokenizer/tokenizer_impl.h"

static struct pair_merge merge_of(const struct merge_table *table, int32_t left, int32_t right)
{
    const uint64_t pair = token_pair(left, right), hash = hash_pair(pair);

    if (!(table->seen[(hash >> 3) & table->mask] & 1 << (hash & 7)))
        return (struct pair_merge){NO_RANK, -1};
    return merge_table_slot(table, pair)->merge;
}

/* ---- what merging begins with ------------------------------------------------------------------------------------ */

static void lose_character(struct encode_loss *loss, const uint8_t *text, int length)
{
    if (loss->bytes == 0) {
        memcpy(loss->first, text, (size_t)length);
        loss->length = length;
    }
    loss->bytes += (uint64_t)length;
}

/* Appends the bytes' tokens of a character that has none. False if one of them is missing. */
static bool fall_back(const struct tokenizer *tokenizer, const uint8_t *text, int length, int32_t *parts, size_t *count)
{
    for (int i = 0; i < length; i++)
        if (tokenizer->byte_ids[text[i]] < 0)
            return false;
    for (int i = 0; i < length; i++)
        parts[(*count)++] = tokenizer->byte_ids[text[i]];
    return true;
}

/*
 * The tokens of a word's bytes or characters; returns their number. As in `tokenizers`, a run of unknown characters that
 * are fused goes before the next character that has a token of its own, behind those that fell back to bytes.
 */
static size_t begin_parts(const struct tokenizer *tokenizer, struct encode_loss *loss, const char *word, size_t bytes,
                          int32_t *parts)
{
    const uint8_t *at = (const uint8_t *)word, *end = at + bytes;
    bool unknown = false; /* one is to be written */
    size_t count = 0;
    uint32_t code;

    for (int length = 1; at < end; at += length) {
        int32_t id;

        length = tokenizer->characters ? utf8_next(at, end, &code) : 1;
        id = tokenizer->characters ? token_table_own(&tokenizer->table, (const char *)at, (size_t)length)
                                   : tokenizer->byte_ids[*at];
        if (id < 0 && tokenizer->characters && fall_back(tokenizer, at, length, parts, &count))
            continue;
        if (unknown && (id >= 0 || !tokenizer->fuse_unknown))
            parts[count++] = tokenizer->unknown;
        unknown = id < 0 && tokenizer->unknown >= 0;
        if (id >= 0)
            parts[count++] = id;
        else
            lose_character(loss, at, length);
    }
    if (unknown)
        parts[count++] = tokenizer->unknown;
    return count;
}

/* ---- short words ------------------------------------------------------------------------------------------------- */

/* parts[i] and parts[i + 1] merge into merges[i].id. Returns the number of parts that remain. */
static size_t merge_short(const struct merge_table *table, int32_t *parts, size_t count)
{
    struct pair_merge merges[WORD_LONG];

    for (size_t i = 0; i + 1 < count; i++)
        merges[i] = merge_of(table, parts[i], parts[i + 1]);
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

/* For a word of so many bytes. */
static int reserve_scratch(struct word_scratch *s, size_t bytes, struct error *err)
{
    return error_reserve(&s->numbers, &s->numbers_room, 0, 3 * bytes, sizeof *s->numbers, err) < 0
               ? -1
               : error_reserve(&s->heap, &s->heap_room, 0, 3 * bytes, sizeof *s->heap, err);
}

int bpe_word(const struct tokenizer *tokenizer, struct word_scratch *scratch, const char *word, size_t bytes,
             struct token_list *ids, struct error *err)
{
    int32_t *parts, whole = tokenizer->whole_words ? token_table_own(&tokenizer->table, word, bytes) : -1;
    bool is_long = bytes > WORD_LONG;
    size_t count;

    if (token_list_reserve(ids, bytes, err) < 0 || (is_long && reserve_scratch(scratch, bytes, err) < 0))
        return -1;
    if (whole >= 0) {
        ids->ids[ids->count++] = whole;
        return 0;
    }
    parts = is_long ? scratch->numbers : ids->ids + ids->count;
    count = begin_parts(tokenizer, &scratch->loss, word, bytes, parts);
    if (!is_long) {
        ids->count += merge_short(&tokenizer->merges, parts, count);
        return 0;
    }
    struct long_word list = {parts, parts + bytes, parts + 2 * bytes, (int32_t)count};
    struct pair_heap heap = {scratch->heap, 0};
    merge_long(&tokenizer->merges, &list, &heap);
    for (int32_t i = 0; i < list.count; i = list.next[i])
        ids->ids[ids->count++] = list.parts[i];
    return 0;
}
