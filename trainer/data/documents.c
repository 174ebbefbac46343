/* documents.c - where the documents of a data set begin. */
#include <string.h>

#include "trainer/data/indexed.h"

/* The position of the first token of document `document`, at most D. */
static int document_begin(const struct indexed *x, uint64_t document, uint64_t *token, struct error *err)
{
    uint64_t sequence;

    return indexed_boundaries(x, document, 1, &sequence, err) < 0 ? -1
                                                                  : indexed_sequence_begin(x, sequence, token, err);
}

/* The first document that begins at `token` or after it; D if none does. */
static int find_document(const struct indexed *x, uint64_t token, uint64_t *document, struct error *err)
{
    uint64_t low = 0, high = indexed_facts(x).documents;

    while (low < high) {
        uint64_t middle = low + (high - low) / 2, begin;

        if (document_begin(x, middle, &begin, err) < 0)
            return -1;
        if (begin < token)
            low = middle + 1;
        else
            high = middle;
    }
    *document = low;
    return 0;
}

int indexed_document_flags(const struct indexed *x, uint64_t first, size_t count, int32_t *begins, struct error *err)
{
    uint64_t documents = indexed_facts(x).documents, document, begin;

    memset(begins, 0, count * sizeof *begins);
    if (find_document(x, first, &document, err) < 0)
        return -1;
    for (; document < documents; document++) {
        if (document_begin(x, document, &begin, err) < 0)
            return -1;
        if (begin - first >= count)
            break;
        begins[begin - first] = 1;
    }
    return 0;
}
