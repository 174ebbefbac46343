/*
 * convert.h - converts texts to data sets, for muster-data.
 *
 * Every byte of a text is a token and every text a document. A text with a zero byte is refused: it is compressed, or
 * UTF-16. The tokens are the same with and without sentences: only the index differs.
 */
#ifndef MUSTER_TRAINER_DATA_CONVERT_H
#define MUSTER_TRAINER_DATA_CONVERT_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/error.h"
#include "trainer/data/indexed.h"

struct convert {
    char *const *texts; /* paths; "-" is standard input */
    int ntexts;
    const char *out;       /* prefix */
    const char *valid_out; /* prefix, or NULL: the last valid_percent of all bytes go there */
    bool sentences;        /* each sentence is a sequence (packing.h); otherwise each document is */
    double valid_percent;  /* more than 0 and less than 100 */

    void (*progress)(uint64_t done, uint64_t total); /* bytes; total is 0 if unknown; may be NULL */
    const volatile sig_atomic_t *stop;               /* fails with CODE_STOPPED when this is not 0; may be NULL */
};

struct converted {
    struct indexed_facts train, valid; /* valid is all 0 without valid_out */
    int empty;                         /* number of empty texts, which become no document */
    const char *first_empty;           /* NULL if there are none */
};

/* The training set is committed last: on failure there is none. A validation set needs regular files, whose size is
 * known before they are read. */
int convert_texts(const struct convert *convert, struct converted *converted, struct error *err);

/* The names of the texts that muster-data reads: its arguments, and those listed in a file. */
struct text_names {
    char **names;
    int count;
    int room;
};

/* Copies each. */
int text_names_add(struct text_names *names, char *const *more, int count, struct error *err);

/* Adds those in the file `list`, one a line; skips empty lines. "-" is standard input. CODE_DATA or CODE_IO. */
int text_names_read(struct text_names *names, const char *list, struct error *err);

void text_names_destroy(struct text_names *names);

#endif
