/* tool.h - what the commands of muster-ckpt(1) have in common. */
#ifndef MUSTER_CKPT_TOOL_H
#define MUSTER_CKPT_TOOL_H

#include <jansson.h>

#include "ckpt/ckpt.h"

struct options {
    bool json;
    bool all;     /* verify: every checkpoint of a directory */
    bool tensors; /* show: the table of tensors */
    bool job;     /* show: the job file alone */
    bool quiet;   /* no progress bar */
    int threads;
};

/* Each returns the program's exit code, having printed what there is to say. */
int tool_list(const char *dir, const struct options *options);
int tool_show(const char *path, const struct options *options);
int tool_verify(const char *path, const struct options *options);
int tool_status(char **paths, int count, const struct options *options); /* no path: all stages under /dev/shm */
int tool_diff(const char *a, const char *b, const struct options *options);

/*
 * Open `path`: a checkpoint, or a directory of checkpoints, of which it takes the newest. NULL and CODE_DATA if it is
 * neither.
 */
struct ckpt *tool_open(const char *path, struct error *err);

/* That `path` is a directory: CODE_DATA if there is none. */
int tool_check_directory(const char *path, struct error *err);

/* Whether a checkpoint that was listed is there no more: a training prunes while we look. */
bool tool_is_gone(const char *path);

/* A JSON string, with '?' for what is not ASCII in a text that is not UTF-8. */
json_t *tool_json_text(const char *text);

/* "1.5 GiB", "512 B" */
void tool_format_bytes(char *text, size_t size, uint64_t bytes);

/* "2026-01-31 12:34", local time */
void tool_format_time(char *text, size_t size, uint64_t seconds);

/* "dp 4 x tp 2 x pp 1, ZeRO 3" */
void tool_format_mesh(char *text, size_t size, const struct ckpt_state *state);

/* What list and show have in common, as members of a new JSON object. */
json_t *tool_summary_json(const struct ckpt *ckpt);

/* Print the object and free it. */
int tool_print_json(json_t *json);

#endif
