/* tool.h - the commands of muster-ckpt(1), and the functions that they share. */
#ifndef MUSTER_CKPT_TOOLS_TOOL_H
#define MUSTER_CKPT_TOOLS_TOOL_H

#include <jansson.h>

#include "ckpt/ckpt.h"
#include "common/mesh.h"

struct options {
    bool json;
    bool all;     /* verify: every checkpoint of a directory */
    bool tensors; /* show: the table of tensors */
    bool job;     /* show: the job file alone */
    bool quiet;   /* no progress bar */
    bool force;   /* rm: the last whole one too */
    int threads;
    const char *to;      /* reshard, import: "dp=4,tp=2"; NULL if not given */
    const char *format;  /* export, import */
    const char *dtype;   /* export */
    uint64_t shard_size; /* export: bytes of a file */
    int heads;           /* export, import: 0 if not given */
    int keep;            /* prune: -1 if not given */
    int keep_every;
};

/* Each prints its results and errors and returns the exit code. paths: as many as it takes, ended by NULL. */
int tool_list(char **paths, const struct options *options);
int tool_show(char **paths, const struct options *options);
int tool_verify(char **paths, const struct options *options);
int tool_diff(char **paths, const struct options *options);
int tool_status(char **paths, const struct options *options); /* no path: all stages under /dev/shm */
int tool_reshard(char **paths, const struct options *options);
int tool_export(char **paths, const struct options *options);
int tool_import(char **paths, const struct options *options);
int tool_prune(char **paths, const struct options *options);
int tool_rm(char **paths, const struct options *options);

/* The value of --to: missing sizes are 1, chunks 0 and zero -1. CODE_USAGE. */
struct tool_mesh {
    struct mesh mesh;
    int chunks, zero;
};

int tool_parse_mesh(const char *text, struct tool_mesh *to, struct error *err);

/* A progress bar on standard error, where that is a terminal and --quiet was not given. */
struct bar {
    bool draw;
    int last; /* what was drawn, in 1000ths */
    double start;
};

struct bar tool_bar(const struct options *options);
void tool_bar_draw(uint64_t done, uint64_t total, void *bar);
/* Erases it; returns the seconds since it was made. */
double tool_bar_end(struct bar *bar);

/* "1.4 GiB in 0.6 s (2.4 GiB/s)" */
void tool_format_rate(char *text, size_t size, uint64_t bytes, double seconds);

/*
 * Open `path`: a checkpoint, or a directory of checkpoints, of which it takes the newest. NULL and CODE_DATA if it is
 * neither.
 */
struct ckpt *tool_open(const char *path, struct error *err);

/* That `path` is a directory: CODE_DATA if there is none. */
int tool_check_directory(const char *path, struct error *err);

/* Whether a checkpoint that was listed has been removed meanwhile, by a training that prunes. */
bool tool_is_removed(const char *path);

/* Why a checkpoint did not open: "broken", or "unknown" where another release wrote it (json_fields.h). */
const char *tool_flaw(const struct error *err);

/* "1.5 GiB", "512 B" */
void tool_format_bytes(char *text, size_t size, uint64_t bytes);

/* "2026-01-31 12:34", local time */
void tool_format_time(char *text, size_t size, uint64_t seconds);

/* "dp 4 x tp 2 x pp 1, ZeRO 3" */
void tool_format_mesh(char *text, size_t size, const struct ckpt_state *state);

/* Print the object and free it. */
int tool_print_json(json_t *json);

#endif
