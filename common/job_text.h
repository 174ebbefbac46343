/*
 * job_text.h - the job file as text, made safe for libconfig; private to job.c.
 *
 * libconfig 1.5 cuts integers down to 32 bits without a word (4294967297 becomes 1), 1.7 may read 010 as 8, and
 * @include would let the job file that a checkpoint holds depend on files that are gone. So the text is looked over
 * first.
 */
#ifndef MUSTER_COMMON_JOB_TEXT_H
#define MUSTER_COMMON_JOB_TEXT_H

#include <stddef.h>

#include "common/error.h"

/* The whole file; to be freed. NULL with CODE_CONFIG, or CODE_IO for memory. */
char *job_text_read(const char *path, struct error *err);

/*
 * A copy of `text`, line for line, in which every decimal integer has libconfig's suffix for 64 bits; to be freed.
 * Refuses integers of more than 18 digits, with leading zeros or in hexadecimal, strings that do not end on their line,
 * and @include. On failure *line is the line's number.
 */
char *job_text_widen(const char *text, int *line, struct error *err);

#endif
