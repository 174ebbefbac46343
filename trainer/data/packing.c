#include "trainer/data/samples.h"

#include <stdlib.h>

#include "common/philox.h"
#include "trainer/data/draws.h"

#define MOST_LANDMARKS ((uint64_t)1 << 20)
#define WINDOW         1024

/* Where a sample begins. */
struct walk_place {
    uint64_t document, sequence;
    uint64_t token; /* in the data */
    int inside;     /* tokens of `sequence` before it */
};

struct packing {
    const struct indexed *data;
    struct indexed_facts facts;
    int most;
    double short_probability;
    uint64_t seed, samples;

    struct walk_place *landmarks; /* [samples / stride, rounded up, of MOST_LANDMARKS] sample i * stride */
    uint64_t stride;
};

/* ---- a walk over the sentences ----------------------------------------------------------------------------------- */

/* A position in the sentences, with the part of the index around it, so that the index is read in chunks. */
struct text_walk {
    const struct packing *packing;
    struct walk_place at;
    uint64_t end; /* sequence after the document's last */

    uint64_t lengths_first, boundaries_first;
    size_t lengths_count, boundaries_count;
    int32_t lengths[WINDOW];
    uint64_t boundaries[WINDOW];
};

static int read_length(struct text_walk *w, uint64_t sequence, int32_t *length, struct error *err)
{
    if (sequence < w->lengths_first || sequence >= w->lengths_first + w->lengths_count) {
        uint64_t left = w->packing->facts.sequences - sequence;

        w->lengths_first = sequence;
        w->lengths_count = left < WINDOW ? (size_t)left : WINDOW;
        if (indexed_lengths(w->packing->data, sequence, w->lengths_count, w->lengths, err) < 0)
            return -1;
    }
    *length = w->lengths[sequence - w->lengths_first];
    return 0;
}

static int enter_document(struct text_walk *w, uint64_t document, struct error *err)
{
    uint64_t boundary = document + 1;

    if (boundary < w->boundaries_first || boundary >= w->boundaries_first + w->boundaries_count) {
        uint64_t left = w->packing->facts.documents + 1 - boundary;

        w->boundaries_first = boundary;
        w->boundaries_count = left < WINDOW ? (size_t)left : WINDOW;
        if (indexed_boundaries(w->packing->data, boundary, w->boundaries_count, w->boundaries, err) < 0)
            return -1;
    }
    w->at.document = document;
    w->end = w->boundaries[boundary - w->boundaries_first];
    return 0;
}

static int walk_start(struct text_walk *w, const struct packing *packing, struct walk_place place, struct error *err)
{
    w->packing = packing;
    w->at = place;
    w->lengths_count = w->boundaries_count = 0;
    return enter_document(w, place.document, err);
}

/* Moves forward by `count` tokens, or to the end of the document. */
static int advance_place(struct text_walk *w, int count, struct error *err)
{
    while (count > 0 && w->at.sequence < w->end) {
        int32_t length;
        int here;

        if (read_length(w, w->at.sequence, &length, err) < 0)
            return -1;
        here = length - w->at.inside < count ? length - w->at.inside : count;
        count -= here;
        w->at.token += (uint64_t)here;
        w->at.inside += here;
        if (w->at.inside == length) {
            w->at.sequence++;
            w->at.inside = 0;
        }
    }
    return 0;
}

/* The number of tokens left in the document, at most 2; -1 for an error. */
static int tokens_left(struct text_walk *w, struct error *err)
{
    int64_t left = -w->at.inside;

    for (uint64_t sequence = w->at.sequence; sequence < w->end && left < 2; sequence++) {
        int32_t length;

        if (read_length(w, sequence, &length, err) < 0)
            return -1;
        left += length;
    }
    return left < 2 ? (int)left : 2;
}

/* Moves to the next place where a sample can begin. Returns 1, 0 if there is none, -1 for an error. */
static int find_sample(struct text_walk *w, struct error *err)
{
    for (;;) {
        int left = tokens_left(w, err);

        if (left < 0)
            return -1;
        if (left == 2)
            return 1;
        if (advance_place(w, left, err) < 0)
            return -1;
        if (w->at.document + 1 == w->packing->facts.documents)
            return 0;
        w->at.sequence = w->end;
        w->at.inside = 0;
        if (enter_document(w, w->at.document + 1, err) < 0)
            return -1;
    }
}

/* ---- one sample -------------------------------------------------------------------------------------------------- */

static int target_length(const struct packing *packing, uint64_t p)
{
    struct draws draws = draws_start(packing->seed, philox_site("data.bert.length"), p);

    if (!draws_chance(&draws, packing->short_probability))
        return packing->most;
    return 2 + (int)draws_below(&draws, (uint32_t)packing->most - 1);
}

/* The sample's text from the walk's place on: its length, and the ends of its whole sentences. */
static int fill_breaks(struct text_walk *w, int target, struct packed *packed, int *breaks, struct error *err)
{
    int inside = w->at.inside;

    packed->first = w->at.token;
    packed->length = packed->breaks = 0;
    for (uint64_t sequence = w->at.sequence; sequence < w->end; sequence++, inside = 0) {
        int32_t length;

        if (read_length(w, sequence, &length, err) < 0)
            return -1;
        length -= inside;
        if (length == 0)
            continue;
        if (length > target - packed->length) {
            if (packed->breaks < 2 || packed->length < target - packed->length)
                packed->length = target;
            break;
        }
        packed->length += length;
        breaks[packed->breaks++] = packed->length;
    }
    return 0;
}

/* Sample p, which begins at the walk's place; the walk moves to its end. */
static int take_sample(struct text_walk *w, uint64_t p, struct packed *packed, int *breaks, struct error *err)
{
    const int most = w->packing->most;
    struct walk_place begin = w->at;
    int left;

    if (fill_breaks(w, target_length(w->packing, p), packed, breaks, err) < 0 ||
        advance_place(w, packed->length, err) < 0)
        return -1;
    left = tokens_left(w, err);
    if (left < 0)
        return -1;
    if (left == 1 && packed->length < most)
        packed->length++;
    else if (left == 1 && most > 2)
        packed->length--;
    while (packed->breaks > 0 && breaks[packed->breaks - 1] >= packed->length)
        packed->breaks--;
    w->at = begin;
    return advance_place(w, packed->length, err);
}

/* ---- landmarks --------------------------------------------------------------------------------------------------- */

static void add_landmark(struct packing *packing, struct walk_place place)
{
    uint64_t count = packing->samples / packing->stride;

    if (packing->samples % packing->stride != 0)
        return;
    if (count == MOST_LANDMARKS) { /* keep every second one; this one is among them */
        for (uint64_t i = 0; i < count / 2; i++)
            packing->landmarks[i] = packing->landmarks[2 * i];
        packing->stride *= 2;
        count /= 2;
    }
    packing->landmarks[count] = place;
}

static int pack_all(struct packing *packing, struct error *err)
{
    int *breaks = error_calloc((size_t)packing->most, sizeof *breaks, err), found = -1;
    struct text_walk walk;

    /* Pages that are not used take no memory. */
    packing->landmarks = error_calloc(MOST_LANDMARKS, sizeof *packing->landmarks, err);
    if (!breaks || !packing->landmarks || walk_start(&walk, packing, (struct walk_place){0}, err) < 0)
        goto done;
    while ((found = find_sample(&walk, err)) > 0) {
        struct packed packed;

        add_landmark(packing, walk.at);
        if (take_sample(&walk, packing->samples, &packed, breaks, err) < 0) {
            found = -1;
            break;
        }
        packing->samples++;
    }
    if (found == 0 && packing->samples == 0)
        found = error_set(err, CODE_DATA, "none of the %llu documents has two tokens",
                          (unsigned long long)packing->facts.documents);
done:
    free(breaks);
    return found;
}

struct packing *packing_create(const struct indexed *data, int most, double short_probability, uint64_t seed,
                               struct error *err)
{
    struct packing *packing = error_calloc(1, sizeof *packing, err);

    if (!packing)
        return NULL;
    packing->data = data;
    packing->facts = indexed_facts(data);
    packing->most = most;
    packing->short_probability = short_probability;
    packing->seed = seed;
    packing->stride = 1;
    if (pack_all(packing, err) < 0) {
        packing_destroy(packing);
        return NULL;
    }
    return packing;
}

void packing_destroy(struct packing *packing)
{
    if (!packing)
        return;
    free(packing->landmarks);
    free(packing);
}

uint64_t packing_samples(const struct packing *packing)
{
    return packing->samples;
}

int packing_read(const struct packing *packing, uint64_t p, struct packed *packed, int *breaks, struct error *err)
{
    uint64_t i = p / packing->stride * packing->stride;
    struct text_walk walk;

    if (walk_start(&walk, packing, packing->landmarks[p / packing->stride], err) < 0)
        return -1;
    for (;; i++) {
        int found = find_sample(&walk, err);

        if (found == 0)
            error_set(err, CODE_DATA, "the index has changed since it was opened: sample %llu is missing",
                      (unsigned long long)p);
        if (found <= 0 || take_sample(&walk, i, packed, breaks, err) < 0)
            return -1;
        if (i == p)
            return 0;
    }
}
