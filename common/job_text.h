/*
 * job_text.h - reads a job file and prepares its text for libconfig.
 *
 * libconfig 1.5 silently truncates integers to 32 bits (4294967297 becomes 1), 1.7 may read 010 as 8, and with @include
 * the job file in a checkpoint could depend on files that no longer exist. So the text is checked first.
 */
#ifndef MUSTER_COMMON_JOB_TEXT_H
#define MUSTER_COMMON_JOB_TEXT_H

#include <libconfig.h>

#include "common/error.h"

/* The whole file; to be freed. NULL with CODE_CONFIG, or CODE_IO for memory. */
char *job_text_read(const char *path, struct error *err);

/*
 * A copy of `text`, line for line, in which every decimal integer has libconfig's suffix for 64 bits; to be freed.
 * Refuses integers of more than 18 digits, with leading zeros or in hexadecimal, strings that do not end on their line,
 * and @include. On failure *line is the line's number.
 */
char *job_text_prepare(const char *text, int *line, struct error *err);

/* Prepares and parses a text into *config, which the caller destroys in any case. On failure *line is where. */
int job_text_parse(config_t *config, const char *text, int *line, struct error *err);

/* The type of a setting, for messages: "an integer", "a group", ... */
const char *job_setting_kind(const config_setting_t *setting);

#endif
