/*
 * job_impl.h - what job*.c share: the table of keys, and a job file while it is read. Private to them and their tests.
 */
#ifndef MUSTER_COMMON_JOB_IMPL_H
#define MUSTER_COMMON_JOB_IMPL_H

#include <stdbool.h>
#include <stddef.h>

#include "common/job.h"

enum job_key_type {
    JOB_KEY_INT,    /* int */
    JOB_KEY_LONG,   /* long */
    JOB_KEY_U64,    /* uint64_t */
    JOB_KEY_NUMBER, /* double; the file may have an integer */
    JOB_KEY_STRING, /* char[size] */
    JOB_KEY_DATA,   /* char[JOB_DATA_SIZE]: data sets (job_data.h); the file may have a list */
    JOB_KEY_BOOL,   /* bool: true or false */
    JOB_KEY_CHOICE, /* an enum: the string's index among `choices` */
};

/* Whether a string is a path (or data sets, which have paths), and may hold patterns (job_expand_paths). */
enum job_key_files { JOB_FILES_NONE, JOB_FILES_PLAIN, JOB_FILES_PATTERNS };

/* A row of the table: the parser, the defaults, the ranges, the messages and the man page's test all read it. */
struct job_key {
    const char *path; /* "batch.micro_batch" */
    enum job_key_type type;
    size_t offset, size;        /* of the field in struct job */
    double least, most;         /* of numbers, both allowed; every bound is exact in a double */
    const char *rule;           /* the allowed range in words, where "at least" and "at most" do not describe it well */
    const char *const *choices; /* NULL at the end */
    enum job_key_files files;
    const char *default_text; /* the default, in the job file's syntax; NULL if there is none */
    const char *help;         /* one line */
};

extern const struct job_key job_keys[];
extern const int job_key_count;

/* Index of the key, or -1. */
int job_key_find(const char *path);

/* True if some key lies in the group `path`. */
bool job_key_is_group(const char *path);

/* "integer", "number", "boolean" or "string". */
const char *job_key_type_name(enum job_key_type type);

/* Writes the end of the message about an unknown key: "did you mean 'optimizer.lr'?", or the names in its group. */
void job_key_advice(const char *path, char *advice, size_t size);

/* Where a value was given. If neither member is set, the value is the default. */
struct job_origin {
    int line;             /* in the file, from 1 */
    const char *override; /* "path=value" of --set on the command line */
};

struct job_reader {
    struct job *job;
    const char *name; /* of the file, for errors */
    bool stored;      /* the text of an earlier run: its paths are not checked */
    struct job_origin origin[JOB_KEY_MAX];
    struct error *err;
};

/* CODE_CONFIG with "FILE:LINE: ", "--set path=value: " or "FILE: " before the text. Returns -1. */
int job_reader_fail(const struct job_reader *reader, struct job_origin at, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/*
 * Whether the key is a path that only a shell expands: "~/ck", "$SCRATCH/ck", "${HOME}/ck". muster does not: ranks could
 * have other environments, and write to different directories. Writes the message with the remedy.
 */
bool job_needs_shell(const struct job *job, const struct job_key *key, char *message, size_t size);

/* The first key of a path that has a '%' that begins no pattern (job_expand_paths); NULL for none. */
const char *job_bad_pattern(const struct job *job);

/*
 * The checks that involve more than one key. Fills the values that follow from other keys: sizes from the preset,
 * BERT's tokens from the vocabulary, parallel.reduce = "auto", precision.reduce = "compute". Returns 0 or -1.
 */
int job_check(const struct job_reader *reader);

#endif
