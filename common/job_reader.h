/*
 * job_reader.h - a job file while it is being read: the values so far, and where each came from; private to job*.c.
 */
#ifndef MUSTER_COMMON_JOB_READER_H
#define MUSTER_COMMON_JOB_READER_H

#include "common/job.h"
#include "common/job_keys.h"

/* Where a value was given. Neither line nor set: nowhere, it is the default. */
struct job_origin {
    int line;        /* in the file, from 1 */
    const char *set; /* "path=value" of the command line */
};

struct job_reader {
    struct job *job;
    const char *name; /* of the file, for errors */
    struct job_origin origin[JOB_KEY_MAX];
    struct error *err;
};

/* CODE_CONFIG with "FILE:LINE: ", "--set path=value: " or "FILE: " before the text. Returns -1. */
int job_reader_fail(const struct job_reader *reader, struct job_origin at, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
