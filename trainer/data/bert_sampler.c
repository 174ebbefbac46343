#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/philox.h"
#include "trainer/data/draws.h"
#include "trainer/data/indexed.h"
#include "trainer/data/packing.h"
#include "trainer/data/samples.h"

#define FRAME 3 /* [CLS], [SEP] and [SEP] */

struct bert_sampler {
    struct samples base;
    struct indexed *data;
    struct packing *packing;
    struct bert_options options;
    int32_t special[4]; /* sorted */
    uint64_t seed;
    uint32_t site;
    int seq_length, vocab;
    bool shuffled;
};

/* Memory for reading one sample. */
struct scratch {
    struct mask_span *spans;
    int *breaks, *order;
    bool *chosen;
};

static int scratch_create(struct scratch *scratch, size_t length, struct error *err)
{
    struct mask_span *memory =
        malloc(length * (sizeof *scratch->spans + 2 * sizeof *scratch->order + sizeof *scratch->chosen));

    if (!memory)
        return error_errno(err, CODE_IO, "no memory to read a sample of %zu tokens", length);
    scratch->spans = memory;
    scratch->breaks = (int *)(scratch->spans + length);
    scratch->order = scratch->breaks + length;
    scratch->chosen = (bool *)(scratch->order + length);
    return 0;
}

/* ---- the text ---------------------------------------------------------------------------------------------------- */

static bool is_special(const struct bert_sampler *s, int32_t token)
{
    return token == s->special[0] || token == s->special[1] || token == s->special[2] || token == s->special[3];
}

static const char *special_name(const struct bert_sampler *s, int32_t token)
{
    const struct bert_tokens *special = &s->options.special;

    return token == special->cls ? "cls" : token == special->sep ? "sep" : token == special->mask ? "mask" : "pad";
}

static int read_text(const struct bert_sampler *s, uint64_t first, int count, int32_t *tokens, struct error *err)
{
    if (indexed_read(s->data, first, (size_t)count, s->vocab, tokens, err) < 0)
        return -1;
    for (int i = 0; i < count; i++)
        if (is_special(s, tokens[i])) {
            char why[200];

            snprintf(why, sizeof why,
                     "that is data.%s: choose special token ids that do not occur in the text, or a larger "
                     "model.vocab than %d",
                     special_name(s, tokens[i]), s->vocab);
            return indexed_refuse(s->data, first + (uint64_t)i, tokens[i], why, err);
        }
    return 0;
}

/* [CLS] A [SEP] B [SEP] and padding, unmasked; *a and *b are the segments' lengths. */
static int lay_out(const struct bert_sampler *s, struct draws *draws, const struct packed *packed, const int *breaks,
                   const struct sample *into, int *a, int *b, struct error *err)
{
    const struct bert_tokens *special = &s->options.special;
    int split = packed->breaks ? breaks[draws_below(draws, (uint32_t)packed->breaks)] : packed->length / 2;
    bool swapped = draws_below(draws, 2);
    uint64_t middle = packed->first + (uint64_t)split;

    *a = swapped ? packed->length - split : split;
    *b = packed->length - *a;
    if (read_text(s, swapped ? middle : packed->first, *a, into->tokens + 1, err) < 0 ||
        read_text(s, swapped ? packed->first : middle, *b, into->tokens + *a + 2, err) < 0)
        return -1;
    into->tokens[0] = special->cls;
    into->tokens[*a + 1] = into->tokens[packed->length + 2] = special->sep;
    for (int i = 0; i < s->seq_length; i++) {
        if (i >= packed->length + FRAME)
            into->tokens[i] = special->pad;
        into->types[i] = i > *a + 1 && i < packed->length + FRAME;
        into->targets[i] = -1;
    }
    *into->length = packed->length + FRAME;
    *into->order = swapped;
    return 0;
}

/* ---- masks ------------------------------------------------------------------------------------------------------- */

/* One of the tokens that are not special, each with the same probability. */
static int32_t draw_ordinary(const struct bert_sampler *s, struct draws *draws)
{
    int32_t token = (int32_t)draws_below(draws, (uint32_t)s->vocab - 4);

    for (int i = 0; i < 4; i++)
        token += token >= s->special[i];
    return token;
}

static void mask_token(const struct bert_sampler *s, struct draws *draws, int32_t *token, int32_t *target)
{
    uint32_t ticket = draws_below(draws, 10);

    *target = *token;
    if (ticket < 8)
        *token = s->options.special.mask;
    else if (ticket == 8)
        *token = draw_ordinary(s, draws);
}

static void mask_text(const struct bert_sampler *s, struct draws *draws, int a, int b, const struct sample *into,
                      struct scratch *scratch)
{
    int count = mask_count(s->options.mask_probability, a + b);
    int spans = mask_choose(draws, a, b, count, scratch->order, scratch->chosen, scratch->spans);

    for (int i = 0; i < spans; i++) {
        int first = scratch->spans[i].first;
        int at = first + (first < a ? 1 : 2);

        for (int k = 0; k < scratch->spans[i].length; k++)
            mask_token(s, draws, into->tokens + at + k, into->targets + at + k);
    }
}

static int bert_sampler_read(const struct samples *samples, uint64_t n, const struct sample *into, struct error *err)
{
    const struct bert_sampler *s = (const struct bert_sampler *)samples;
    uint64_t place = n % samples->per_epoch;
    struct draws draws = draws_start(s->seed, s->site, s->shuffled ? n : place);
    struct packed packed;
    struct scratch scratch = {0};
    int a, b, status = -1;

    if (s->shuffled) /* after 2^32 epochs the orders repeat */
        place = permute(place, samples->per_epoch, s->seed, (uint32_t)(n / samples->per_epoch));
    if (scratch_create(&scratch, (size_t)s->seq_length, err) < 0)
        return -1;
    if (packing_read(s->packing, place, &packed, scratch.breaks, err) < 0 ||
        lay_out(s, &draws, &packed, scratch.breaks, into, &a, &b, err) < 0)
        goto done;
    mask_text(s, &draws, a, b, into, &scratch);
    status = 0;

done:
    free(scratch.spans);
    return status;
}

/* ---- creation ---------------------------------------------------------------------------------------------------- */

static void bert_sampler_destroy(struct samples *samples)
{
    struct bert_sampler *s = (struct bert_sampler *)samples;

    packing_destroy(s->packing);
    indexed_close(s->data);
    free(s);
}

static const struct samples_ops ops = {bert_sampler_read, bert_sampler_destroy};

static int compare_tokens(const void *left, const void *right)
{
    int32_t a = *(const int32_t *)left, b = *(const int32_t *)right;

    return (a > b) - (a < b);
}

static int check_special(struct bert_sampler *s, struct error *err)
{
    const struct bert_tokens *special = &s->options.special;
    const int32_t tokens[4] = {special->cls, special->sep, special->mask, special->pad};

    for (int i = 0; i < 4; i++) {
        s->special[i] = tokens[i];
        if (tokens[i] < 0 || tokens[i] >= s->vocab)
            return error_set(err, CODE_CONFIG, "data.%s = %" PRId32 "; with model.vocab = %d tokens are 0 to %d",
                             special_name(s, tokens[i]), tokens[i], s->vocab, s->vocab - 1);
    }
    qsort(s->special, 4, sizeof s->special[0], compare_tokens);
    for (int i = 1; i < 4; i++)
        if (s->special[i] == s->special[i - 1])
            return error_set(err, CODE_CONFIG,
                             "data.cls, data.sep, data.mask and data.pad are %" PRId32 ", %" PRId32 ", %" PRId32
                             " and %" PRId32 "; they must be four different tokens",
                             tokens[0], tokens[1], tokens[2], tokens[3]);
    if (s->vocab < 5)
        return error_set(err, CODE_CONFIG, "model.vocab = %d has no token that is not special; at least 5", s->vocab);
    return 0;
}

static int open_data(struct bert_sampler *s, const char *prefix, struct error *err)
{
    s->data = indexed_open(prefix, err);
    if (!s->data)
        return -1;
    if (indexed_facts(s->data).longest_document < 2)
        return error_set(err, CODE_DATA,
                         "%s.idx has no document of two sentences, which a BERT needs; make the data with "
                         "muster-data --sentences",
                         prefix);
    s->packing = packing_create(s->data, s->seq_length - FRAME, s->options.short_probability, s->seed, err);
    if (!s->packing)
        return error_prefix(err, "%s.idx", prefix);
    s->base.per_epoch = packing_samples(s->packing);
    return 0;
}

struct samples *bert_sampler_create(const char *prefix, const struct model_shape *shape,
                                    const struct bert_options *options, bool shuffled, uint64_t seed, struct error *err)
{
    struct bert_sampler *s = calloc(1, sizeof *s);

    if (!s) {
        error_errno(err, CODE_IO, "no memory to sample %s", prefix);
        return NULL;
    }
    s->base.ops = &ops;
    s->options = *options;
    s->seed = seed;
    s->site = philox_site("data.bert.sample");
    s->seq_length = shape->seq_length;
    s->vocab = shape->vocab;
    s->shuffled = shuffled;
    if (s->seq_length < FRAME + 2) {
        error_set(err, CODE_CONFIG, "model.seq_length = %d; a sample of a BERT has at least %d tokens", s->seq_length,
                  FRAME + 2);
        goto fail;
    }
    if (check_special(s, err) == 0 && open_data(s, prefix, err) == 0)
        return &s->base;

fail:
    bert_sampler_destroy(&s->base);
    return NULL;
}
