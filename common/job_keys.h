/*
 * job_keys.h - the table of the job file's keys, private to job*.c and their tests.
 *
 * A row is all there is to a key: the parser, the defaults, the ranges, the messages and the man page's test read it
 * here.
 */
#ifndef MUSTER_COMMON_JOB_KEYS_H
#define MUSTER_COMMON_JOB_KEYS_H

#include <stdbool.h>
#include <stddef.h>

#define JOB_KEY_MAX 96

enum job_key_type {
    JOB_KEY_INT,    /* int */
    JOB_KEY_LONG,   /* long */
    JOB_KEY_U64,    /* uint64_t */
    JOB_KEY_NUMBER, /* double; the file may have an integer */
    JOB_KEY_STRING, /* char[size] */
    JOB_KEY_BOOL,   /* bool: true or false */
    JOB_KEY_CHOICE, /* an enum: the string's index among `choices` */
};

struct job_key {
    const char *path; /* "batch.micro_batch" */
    enum job_key_type type;
    size_t offset, size;        /* of the field in struct job */
    double least, most;         /* of numbers, both allowed; every bound is exact in a double */
    const char *rule;           /* says what is allowed, where "at least" and "at most" do not say it well */
    const char *const *choices; /* NULL at the end */
    const char *fallback;       /* the default, as the job file would have it; NULL if there is none */
    const char *help;           /* one line */
};

extern const struct job_key job_keys[];
extern const int job_key_count;

/* Index of the key, or -1. */
int job_key_find(const char *path);

/* Whether some key lies in the group `path`. */
bool job_key_is_group(const char *path);

/* "integer", "number", "boolean" or "string". */
const char *job_key_type_name(enum job_key_type type);

/* What would be right in place of the unknown key `path`: "did you mean 'batch.lr'?", or the names that exist there. */
void job_key_advice(const char *path, char *advice, size_t size);

#endif
