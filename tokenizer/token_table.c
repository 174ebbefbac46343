/* token_table.c - tokens by id and by their bytes, and the merges of byte-level BPE by their pairs. */
#include "tokenizer/tokenizer_impl.h"

#include <stdlib.h>

int token_list_reserve(struct token_list *list, size_t more, struct error *err)
{
    return error_reserve(&list->ids, &list->room, list->count, more, sizeof *list->ids, err);
}

int text_list_append(struct text_list *list, const char *text, size_t bytes, struct error *err)
{
    if (error_reserve(&list->text, &list->room, list->count, bytes + 1, 1, err) < 0)
        return -1;
    if (bytes > 0)
        memcpy(list->text + list->count, text, bytes);
    list->count += bytes;
    return 0;
}

/* The slot of these bytes, or the empty one where they belong. */
static int32_t *find_slot(const struct token_table *table, const char *bytes, size_t count)
{
    for (uint32_t at = (uint32_t)hash_bytes(bytes, count) & table->mask;; at = (at + 1) & table->mask) {
        int32_t id = table->slots[at];
        const struct token_entry *entry;

        if (id < 0)
            return &table->slots[at];
        entry = &table->entries[id];
        if (entry->length == count && memcmp(table->bytes + entry->at, bytes, count) == 0)
            return &table->slots[at];
    }
}

/* At most half of the slots are taken. */
static int grow_slots(struct token_table *table, struct error *err)
{
    size_t count = table->slots ? 2 * ((size_t)table->mask + 1) : 1024;
    int32_t *slots = malloc(count * sizeof *slots);

    if (!slots)
        return error_set(err, CODE_IO, "out of memory for %zu tokens", count);
    free(table->slots);
    table->slots = slots;
    table->mask = (uint32_t)(count - 1);
    memset(table->slots, 0xff, count * sizeof *table->slots);
    for (int32_t id = 0; id < table->size; id++) {
        const struct token_entry *entry = &table->entries[id];
        bool found = entry->flags && !(entry->flags & TOKEN_BYTE);
        int32_t *slot = found ? find_slot(table, table->bytes + entry->at, entry->length) : NULL;

        if (slot && *slot < 0)
            *slot = id;
    }
    return 0;
}

int token_table_add(struct token_table *table, int64_t id, const char *bytes, size_t count, unsigned flags,
                    struct error *err)
{
    int32_t *slot;

    if (id < 0 || id >= TOKENS_MOST)
        return error_set(err, CODE_DATA, "token id %lld is not between 0 and %d", (long long)id, TOKENS_MOST - 1);
    if (id < table->size && table->entries[id].flags)
        return error_set(err, CODE_DATA, "two tokens have the id %lld", (long long)id);
    if (table->used + count > UINT32_MAX)
        return error_set(err, CODE_DATA, "the tokens have more than 4 GiB of text");
    if (error_reserve(&table->bytes, &table->room, table->used, count + 1, 1, err) < 0 ||
        error_reserve(&table->entries, &table->entries_room, 0, (size_t)id + 1, sizeof *table->entries, err) < 0)
        return -1;
    if ((!table->slots || (uint32_t)table->known >= table->mask / 2) && grow_slots(table, err) < 0)
        return -1;
    for (; table->size <= id; table->size++)
        table->entries[table->size] = (struct token_entry){0};
    if (count > 0)
        memcpy(table->bytes + table->used, bytes, count);
    table->entries[id] = (struct token_entry){(uint32_t)table->used, (uint32_t)count, (uint8_t)(TOKEN_KNOWN | flags)};
    slot = flags & TOKEN_BYTE ? NULL : find_slot(table, bytes, count);
    if (slot && *slot < 0)
        *slot = (int32_t)id;
    table->used += count;
    table->known++;
    return 0;
}

int32_t token_table_find(const struct token_table *table, const char *bytes, size_t count)
{
    return table->slots ? *find_slot(table, bytes, count) : -1;
}

int32_t token_table_own(const struct token_table *table, const char *bytes, size_t count)
{
    int32_t id = token_table_find(table, bytes, count);

    return id >= 0 && table->entries[id].flags & TOKEN_ADDED ? -1 : id;
}

void token_table_free(struct token_table *table)
{
    free(table->bytes);
    free(table->entries);
    free(table->slots);
}

int merge_table_create(struct merge_table *table, uint32_t count, struct error *err)
{
    size_t slots = 64;

    while (slots < 2 * (size_t)count)
        slots *= 2;
    table->slots = malloc(slots * sizeof *table->slots);
    table->seen = calloc(slots, 1);
    if (!table->slots || !table->seen)
        return error_set(err, CODE_IO, "out of memory for %u merges", (unsigned)count);
    memset(table->slots, 0xff, slots * sizeof *table->slots);
    table->mask = (uint32_t)(slots - 1);
    return 0;
}

void merge_table_add(struct merge_table *table, int32_t left, int32_t right, uint32_t rank, int32_t id)
{
    uint64_t pair = token_pair(left, right), hash = hash_pair(pair);

    table->seen[(hash >> 3) & table->mask] |= (uint8_t)(1 << (hash & 7));
    *merge_table_slot(table, pair) = (struct merge_slot){pair, {rank, id}};
}

/* Counts the pairs, or adds them. */
static uint32_t add_pairs(struct tokenizer *tokenizer, const uint32_t *ranks, bool add)
{
    const struct token_table *table = &tokenizer->table;
    uint32_t count = 0;

    for (int32_t id = 0; id < table->size; id++) {
        const struct token_entry *entry = &table->entries[id];
        const char *text = table->bytes + entry->at;

        for (uint32_t cut = 1; cut < entry->length && !(entry->flags & TOKEN_ADDED); cut++) {
            int32_t left = token_table_own(table, text, cut);
            int32_t right = left < 0 ? -1 : token_table_own(table, text + cut, entry->length - cut);

            count += right >= 0;
            if (right >= 0 && add)
                merge_table_add(&tokenizer->merges, left, right, ranks ? ranks[id] : (uint32_t)id, id);
        }
    }
    return count;
}

int merge_any_pairs(struct tokenizer *tokenizer, const uint32_t *ranks, struct error *err)
{
    if (merge_table_create(&tokenizer->merges, add_pairs(tokenizer, ranks, false), err) < 0)
        return -1;
    add_pairs(tokenizer, ranks, true);
    return 0;
}
