#include "trainer/data/samples.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/philox.h"
#include "trainer/data/draws.h"

#define FRAME 3 /* [CLS], [SEP] and [SEP] */

struct samples {
    struct indexed *data;
    uint64_t per_epoch, seed;
    int seq_length, vocab;
    bool shuffled;

    /* for a GPT only */
    bool separate; /* documents within a sample */
    int32_t eod;   /* -1: none */

    /* for BERT only */
    struct packing *packing; /* NULL: GPT */
    int32_t special[4];      /* by enum special */
    int32_t sorted[4];       /* the same */
    double mask_probability;
};

enum special { CLS, SEP, MASK, PAD };
static const char *const special_names[4] = {"cls", "sep", "mask", "pad"};

/* Memory for reading one sample. */
struct scratch {
    struct mask_span *spans;
    int *breaks, *order;
    bool *chosen;
};

static int scratch_create(struct scratch *scratch, size_t length, struct error *err)
{
    size_t each = sizeof *scratch->spans + 2 * sizeof *scratch->order + sizeof *scratch->chosen;
    struct mask_span *memory = error_calloc(length, each, err);

    if (!memory)
        return -1;
    scratch->spans = memory;
    scratch->breaks = (int *)(scratch->spans + length);
    scratch->order = scratch->breaks + length;
    scratch->chosen = (bool *)(scratch->order + length);
    return 0;
}

/* ---- the text ---------------------------------------------------------------------------------------------------- */

static int read_text(const struct samples *s, uint64_t first, int count, int32_t *tokens, struct error *err)
{
    if (indexed_read(s->data, first, (size_t)count, s->vocab, tokens, err) < 0)
        return -1;
    for (int i = 0; i < 4 * count; i++)
        if (tokens[i / 4] == s->special[i % 4])
            return indexed_refuse(s->data, first + (uint64_t)i / 4, tokens[i / 4], err,
                                  "that is data.%s: choose special token ids that do not occur in the text, or a "
                                  "larger model.vocab than %d",
                                  special_names[i % 4], s->vocab);
    return 0;
}

/* [CLS] A [SEP] B [SEP] and padding, unmasked; *a and *b are the segments' lengths. */
static int lay_out(const struct samples *s, struct draws *draws, const struct packed *packed, const int *breaks,
                   const struct sample *into, int *a, int *b, struct error *err)
{
    int split = packed->breaks ? breaks[draws_below(draws, (uint32_t)packed->breaks)] : packed->length / 2;
    bool swapped = draws_below(draws, 2);
    uint64_t middle = packed->first + (uint64_t)split;

    *a = swapped ? packed->length - split : split;
    *b = packed->length - *a;
    if (read_text(s, swapped ? middle : packed->first, *a, into->tokens + 1, err) < 0 ||
        read_text(s, swapped ? packed->first : middle, *b, into->tokens + *a + 2, err) < 0)
        return -1;
    into->tokens[0] = s->special[CLS];
    into->tokens[*a + 1] = into->tokens[packed->length + 2] = s->special[SEP];
    for (int i = 0; i < s->seq_length; i++) {
        if (i >= packed->length + FRAME)
            into->tokens[i] = s->special[PAD];
        into->types[i] = i > *a + 1 && i < packed->length + FRAME;
        into->targets[i] = -1;
    }
    *into->length = packed->length + FRAME;
    *into->order = swapped;
    return 0;
}

/* ---- masks ------------------------------------------------------------------------------------------------------- */

/* One of the tokens that are not special, each with the same probability. */
static int32_t draw_ordinary(const struct samples *s, struct draws *draws)
{
    int32_t token = (int32_t)draws_below(draws, (uint32_t)s->vocab - 4);

    for (int i = 0; i < 4; i++)
        token += token >= s->sorted[i];
    return token;
}

static void mask_token(const struct samples *s, struct draws *draws, int32_t *token, int32_t *target)
{
    uint32_t ticket = draws_below(draws, 10);

    *target = *token;
    if (ticket < 8)
        *token = s->special[MASK];
    else if (ticket == 8)
        *token = draw_ordinary(s, draws);
}

static void mask_text(const struct samples *s, struct draws *draws, int a, int b, const struct sample *into,
                      struct scratch *scratch)
{
    int count = mask_count(s->mask_probability, a + b);
    int spans = mask_choose(draws, a, b, count, scratch->order, scratch->chosen, scratch->spans);

    for (int i = 0; i < spans; i++) {
        int first = scratch->spans[i].first;
        int at = first + (first < a ? 1 : 2);

        for (int k = 0; k < scratch->spans[i].length; k++)
            mask_token(s, draws, into->tokens + at + k, into->targets + at + k);
    }
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

/* `first` is the position of the sample's first token in the data. */
static int separate_documents(const struct samples *s, uint64_t first, const struct sample *into, struct error *err)
{
    /* The same memory: element i is read as a flag and then overwritten with a start. */
    int32_t *next_begins = into->document_start;
    int32_t start = 0;

    if (indexed_document_flags(s->data, first + 1, (size_t)s->seq_length, next_begins, err) < 0)
        return -1;
    for (int32_t i = 0; i < s->seq_length; i++) {
        bool ends = next_begins[i] || into->tokens[i] == s->eod;

        into->document_start[i] = start;
        if (ends) {
            into->targets[i] = -1;
            start = i + 1;
        }
    }
    return 0;
}

static int read_gpt(const struct samples *s, uint64_t place, const struct sample *into, struct error *err)
{
    size_t length = (size_t)s->seq_length;

    if (indexed_read(s->data, place * length, 1, s->vocab, into->tokens, err) < 0 ||
        indexed_read(s->data, place * length + 1, length, s->vocab, into->targets, err) < 0)
        return -1;
    memcpy(into->tokens + 1, into->targets, (length - 1) * sizeof *into->tokens);
    return s->separate ? separate_documents(s, place * length, into, err) : 0;
}

/* `number` identifies the random choices. */
static int read_bert(const struct samples *s, uint64_t place, uint64_t number, const struct sample *into,
                     struct error *err)
{
    struct draws draws = draws_start(s->seed, philox_site("data.bert.sample"), number);
    struct packed packed;
    struct scratch scratch = {0};
    int a, b, status = -1;

    if (scratch_create(&scratch, (size_t)s->seq_length, err) < 0)
        return -1;
    if (packing_read(s->packing, place, &packed, scratch.breaks, err) == 0 &&
        lay_out(s, &draws, &packed, scratch.breaks, into, &a, &b, err) == 0) {
        mask_text(s, &draws, a, b, into, &scratch);
        status = 0;
    }
    free(scratch.spans);
    return status;
}

int samples_read(const struct samples *s, uint64_t n, const struct sample *into, struct error *err)
{
    uint64_t place = n % s->per_epoch, number = s->shuffled ? n : place;

    if (s->shuffled) /* after 2^32 epochs the orders repeat */
        place = permute(place, s->per_epoch, s->seed, (uint32_t)(n / s->per_epoch));
    return s->packing ? read_bert(s, place, number, into, err) : read_gpt(s, place, into, err);
}

uint64_t samples_per_epoch(const struct samples *s)
{
    return s->per_epoch;
}

const struct indexed *samples_data(const struct samples *samples)
{
    return samples->data;
}

/* ---- creation ---------------------------------------------------------------------------------------------------- */

static int compare_tokens(const void *left, const void *right)
{
    int32_t a = *(const int32_t *)left, b = *(const int32_t *)right;

    return (a > b) - (a < b);
}

static int check_bert(struct samples *s, struct error *err)
{
    const int32_t *special = s->special;

    if (s->seq_length < FRAME + 2)
        return error_set(err, CODE_CONFIG, "model.seq_length = %d; a sample of a BERT has at least %d tokens",
                         s->seq_length, FRAME + 2);
    for (int i = 0; i < 4; i++) {
        s->sorted[i] = special[i];
        if (special[i] < 0 || special[i] >= s->vocab)
            return error_set(err, CODE_CONFIG, "data.%s = %" PRId32 "; with model.vocab = %d tokens are 0 to %d",
                             special_names[i], special[i], s->vocab, s->vocab - 1);
    }
    qsort(s->sorted, 4, sizeof s->sorted[0], compare_tokens);
    for (int i = 1; i < 4; i++)
        if (s->sorted[i] == s->sorted[i - 1])
            return error_set(err, CODE_CONFIG,
                             "data.cls, data.sep, data.mask and data.pad are %" PRId32 ", %" PRId32 ", %" PRId32
                             " and %" PRId32 "; they must be four different tokens",
                             special[CLS], special[SEP], special[MASK], special[PAD]);
    if (s->vocab < 5)
        return error_set(err, CODE_CONFIG, "model.vocab = %d has no token that is not special; at least 5", s->vocab);
    return 0;
}

static int open_gpt(struct samples *s, const char *prefix, struct error *err)
{
    uint64_t tokens = indexed_facts(s->data).tokens;

    s->per_epoch = tokens ? (tokens - 1) / (uint64_t)s->seq_length : 0;
    if (s->per_epoch == 0)
        return error_set(err, CODE_DATA, "%s.bin has %llu tokens; a sample of model.seq_length = %d needs at least %d",
                         prefix, (unsigned long long)tokens, s->seq_length, s->seq_length + 1);
    return 0;
}

static int open_bert(struct samples *s, const char *prefix, double short_probability, struct error *err)
{
    if (indexed_facts(s->data).longest_document < 2)
        return error_set(err, CODE_DATA,
                         "%s.idx has no document of two sentences, which a BERT needs; make the data with "
                         "muster-data --sentences",
                         prefix);
    s->packing = packing_create(s->data, s->seq_length - FRAME, short_probability, s->seed, err);
    if (!s->packing)
        return error_prefix(err, "%s.idx", prefix);
    s->per_epoch = packing_samples(s->packing);
    return 0;
}

struct samples *samples_create(const struct job *job, const char *prefix, bool shuffled, uint64_t seed,
                               struct error *err)
{
    struct samples *s = error_calloc(1, sizeof *s, err);
    bool bert = job->model.objective == OBJECTIVE_MASKED;

    if (!s)
        return NULL;
    *s = (struct samples){
        .seed = seed,
        .seq_length = job->model.seq_length,
        .vocab = job->model.vocab,
        .shuffled = shuffled,
        .separate = job->data.reset == RESET_DOCUMENT,
        .eod = job->data.eod,
        .special = {job->data.cls, job->data.sep, job->data.mask, job->data.pad},
        .mask_probability = job->data.mask_probability,
    };
    if (bert && check_bert(s, err) < 0)
        goto fail;
    s->data = indexed_open(prefix, err);
    if (s->data && (bert ? open_bert(s, prefix, job->data.short_probability, err) : open_gpt(s, prefix, err)) == 0)
        return s;

fail:
    samples_destroy(s);
    return NULL;
}

void samples_destroy(struct samples *s)
{
    if (!s)
        return;
    packing_destroy(s->packing);
    indexed_close(s->data);
    free(s);
}
