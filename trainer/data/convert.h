/*
 * convert.h - converts texts to data sets, for muster-data.
 *
 * text_reader.h defines texts and documents. Around a document's tokens are only the special tokens that `begin` and
 * `append_end` ask for; "<|endoftext|>" in the text is encoded as text. With sentences, each sentence is a sequence and is
 * encoded by itself. Documents without a token are left out.
 *
 * Each data set has a copy of the tokenizer (indexed.h). The index is the last file to appear. A failure removes all
 * new files.
 */
#ifndef MUSTER_TRAINER_DATA_CONVERT_H
#define MUSTER_TRAINER_DATA_CONVERT_H

#include "trainer/data/indexed.h"
#include "trainer/data/text_reader.h"

#define CONVERT_SETS         3
#define CONVERT_WORKERS_MOST 1024
#define CONVERT_TEMPLATE     "template"

struct convert {
    struct text_inputs texts;
    const char *tokenizer; /* as tokenizer_open takes it; NULL: each byte is a token (uint8; with append_end uint16) */
    const char *key;       /* of JSON lines */
    bool sentences;        /* each sentence is a sequence; otherwise each document is */
    const char *begin;     /* a token before each document; CONVERT_TEMPLATE: tokenizer_begin's. NULL: none */
    bool append_end;       /* the tokenizer's end-of-document token after each document */
    long workers;          /* threads that encode: 1 to CONVERT_WORKERS_MOST. The data set does not depend on it */
    long skip_bad;         /* leave out up to that many bad places (parcel.h) */

    const char *out; /* prefix */

    /* A second data set of the last valid_percent of all tokens; more than 0 and less than 100. NULL: none. */
    const char *valid_out;
    double valid_percent;

    /*
     * Or: data sets out_train, out_valid and out_test, for each weight that is not 0. Documents go there in order, in
     * numbers as the weights: the first D * weights[0] / sum to out_train, rounded, and so on. All 0: no split.
     */
    double split[CONVERT_SETS];
};

struct converted {
    struct converted_set {
        char prefix[PATH_MAX];
        struct indexed_facts facts;
    } sets[CONVERT_SETS];
    int count;                      /* of sets */
    uint64_t documents, empty, bad; /* empty ones, and bad places, which were left out */
    char first_empty[300], first_bad[600];
    uint64_t lost; /* bytes that have no token (encoder_take_loss) */
    char first_lost[300];
};

/* Whether there are weights of a split. */
bool convert_is_split(const struct convert *convert);

/* CODE_DATA for the first bad place that is not to be skipped, with its text, line and offset. */
int convert_texts(const struct convert *convert, struct converted *converted, struct error *err);

#endif
