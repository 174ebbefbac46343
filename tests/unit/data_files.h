/* data_files.h - files of data sets made by hand, and their samples, for the tests that read them. */
#ifndef MUSTER_TESTS_DATA_FILES_H
#define MUSTER_TESTS_DATA_FILES_H

#include "tests/unit/test_files.h"
#include "trainer/data/samples.h"

/* Little-endian. */
static inline void put(unsigned char *at, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        at[i] = (unsigned char)(value >> 8 * i);
}

/* PREFIX.idx and PREFIX.bin of uint8 tokens, laid out as indexed.h says. boundaries[documents + 1]. */
static inline void write_data_set(const char *prefix, const unsigned char *tokens, const int *lengths, size_t sequences,
                                  const uint64_t *boundaries, size_t documents)
{
    size_t size = 34 + 12 * sequences + 8 * (documents + 1), begin = 0;
    unsigned char *idx = calloc(1, size);
    char path[256];

    assert_non_null(idx);
    memcpy(idx, "MMIDIDX\0", 9);
    put(idx + 9, 1, 8);
    idx[17] = 1; /* uint8 */
    put(idx + 18, sequences, 8);
    put(idx + 26, documents + 1, 8);
    for (size_t i = 0; i < sequences; i++) {
        put(idx + 34 + 4 * i, (uint64_t)lengths[i], 4);
        put(idx + 34 + 4 * sequences + 8 * i, begin, 8);
        begin += (size_t)lengths[i];
    }
    for (size_t i = 0; i <= documents; i++)
        put(idx + 34 + 12 * sequences + 8 * i, boundaries[i], 8);
    snprintf(path, sizeof path, "%s.idx", prefix);
    write_file(path, idx, size);
    snprintf(path, sizeof path, "%s.bin", prefix);
    write_file(path, tokens, begin);
    free(idx);
}

/* BERT's special tokens and probabilities. */
struct bert_options {
    struct bert_tokens {
        int cls, sep, mask, pad;
    } special;
    double mask_probability, short_probability;
};

/* The samples of a job with this data: GPT's without options, else BERT's. shuffled: for training. */
static inline struct samples *make_samples(const char *prefix, const struct model_shape *shape,
                                           const struct bert_options *options, bool shuffled, uint64_t seed,
                                           struct error *err)
{
    static struct job job;

    job = (struct job){.model = *shape};
    job.model.objective = options ? OBJECTIVE_MASKED : OBJECTIVE_CAUSAL;
    if (options) {
        job.data.cls = options->special.cls;
        job.data.sep = options->special.sep;
        job.data.mask = options->special.mask;
        job.data.pad = options->special.pad;
        job.data.mask_probability = options->mask_probability;
        job.data.short_probability = options->short_probability;
    }
    return samples_create(&job, prefix, shuffled, shuffled ? seed : 0, err);
}

#endif
