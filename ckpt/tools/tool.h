/* tool.h - the commands of muster-ckpt(1), and the functions that they share. */
#ifndef MUSTER_CKPT_TOOLS_TOOL_H
#define MUSTER_CKPT_TOOLS_TOOL_H

#include <jansson.h>

#include "ckpt/ckpt.h"

struct options {
    bool json;
    bool all;          /* verify: every checkpoint of a directory */
    bool tensors;      /* show: the table of tensors */
    bool job;          /* show: the job file alone */
    bool quiet;        /* no progress bar */
    bool force;        /* rm: the last whole one too */
    bool all_users;    /* status, reclaim: root sees the stages of all users */
    double older_than; /* reclaim: seconds; 0 if not given */
    long threads;
    const char *to;        /* reshard, import: "dp=4,tp=2"; NULL if not given */
    const char *format;    /* export, import */
    const char *dtype;     /* export */
    const char *tokenizer; /* export, import: NULL if not given */
    uint64_t shard_size;   /* export: bytes of a file */
    long heads;            /* import: 0 if not given */
    long keep;             /* prune: -1 if not given */
    long keep_every;
};

/*
 * Each prints its results and returns the exit code; or -1 with *err, which the caller reports. `paths` is ended by
 * NULL and has as many as the command takes.
 */
typedef int tool_command(char **paths, const struct options *options, struct error *err);

tool_command tool_list, tool_show, tool_verify, tool_diff;
tool_command tool_status, tool_reclaim; /* no path: all stages under /dev/shm */
tool_command tool_reshard, tool_export, tool_import, tool_recover, tool_prune, tool_rm;

/* "1.4 GiB in 0.6 s (2.4 GiB/s)"; returns `text`. */
#define TOOL_RATE_SIZE 96
const char *tool_format_rate(char text[TOOL_RATE_SIZE], uint64_t bytes, double seconds);

/*
 * Open `path`: a checkpoint, or a directory of checkpoints, of which it takes the newest. NULL and CODE_DATA if it is
 * neither.
 */
struct ckpt *tool_open(const char *path, struct error *err);

/* ckpt_list of `path`, which must be a directory: CODE_DATA if there is none. */
int tool_list_steps(const char *path, uint64_t **steps, size_t *count, struct error *err);

/* Whether there is no such name: a checkpoint that was listed has been removed meanwhile. Sets errno. */
bool tool_is_removed(const char *path);

/* Print the object and free it. CODE_OK, or -1. */
int tool_print_json(json_t *json, struct error *err);

#endif
