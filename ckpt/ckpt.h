/*
 * ckpt.h - checkpoints, format 1: written by any number of ranks in any topology, read by any other.
 *
 * The library sees named ranges of bytes in host memory and a directory. It knows nothing of MPI or of the trainer:
 * each process works out from the topology alone which pieces of which logical tensors it holds, and nobody exchanges
 * tensors.
 *
 *   <dir>/step-00000100/             exists only when complete
 *     manifest.json                  what is where, with its own crc32c
 *     shard-00000-of-00004.safetensors ...
 *   <dir>/step-00000200.ATTEMPT.partial/   a save under way, or one that was cut off
 *     shard-00002-of-00004.safetensors and shard-00002-of-00004.json (that shard's part of the manifest)
 *   <dir>/.trash/                    what is being removed
 *   <dir>/latest                     a hint for people; never read
 *
 * Words: a *tensor* is a logical, unsharded, unpadded tensor of the model ("h.0.attn.c_attn.weight"). Each has one
 * value a *kind*: "param", "exp_avg", "exp_avg_sq". A *piece* is a run of a tensor's elements that one shard holds. A
 * shard file has one 1-D tensor a kind, all of the same length: its pieces, one after the other. An *attempt* is the
 * name of one try to save a step; every try has its own directory, so that what an earlier one left behind, or a
 * process of it that is still alive on some node, cannot mix with a later one.
 *
 * doc/muster-checkpoint.5.scd describes the bytes. All functions return 0 or -1, or as stated, and fill *err.
 */
#ifndef MUSTER_CKPT_CKPT_H
#define MUSTER_CKPT_CKPT_H

#include <stdbool.h>
#include <stdint.h>
#include <stddef.h>

#include "common/dtype.h"
#include "common/error.h"

#define CKPT_MAX_DIMS     4
#define CKPT_NAME_SIZE    96
#define CKPT_ATTEMPT_SIZE 65

struct ckpt_tensor {
    char name[CKPT_NAME_SIZE];
    int ndim;
    uint64_t shape[CKPT_MAX_DIMS];
};

/*
 * Elements [first, first + count) of the row-major flattening of a box of a tensor. The box is what one tensor-parallel
 * rank holds (start 0 and the whole shape where the tensor is not split); [first, first + count) is what ZeRO left of
 * it.
 */
struct ckpt_piece {
    uint32_t tensor; /* index into the table of tensors that goes with the pieces */
    uint64_t start[CKPT_MAX_DIMS], shape[CKPT_MAX_DIMS];
    uint64_t first, count;
};

/* The logical state beside the tensors. */
struct ckpt_state {
    uint64_t step;             /* optimizer steps done */
    uint64_t consumed_samples; /* progress, the one number */
    uint64_t seed;             /* key of all random numbers */
    uint64_t skipped_steps;
    uint64_t skipped_in_a_row; /* as optimizer.most_skipped counts them */
    double loss_scale;         /* 1 where there is none */
    int loss_scale_good_steps; /* of a dynamic scale: steps since it changed or gradients overflowed */
    int loss_scale_hysteresis; /* of a dynamic scale: overflows until it halves, at least 1; 0 if it is not dynamic */
    double loss_mean;          /* running mean of the loss, to tell a spike */
    uint64_t loss_count;       /* steps in it; 0 means there is none yet */
    int dp, tp, pp, zero;      /* who wrote it: for people, never needed to read it */
};

/* ---- writing ----------------------------------------------------------------------------------------------------- */

/* One rank's part of a save. Everything is borrowed for the call. */
struct ckpt_save {
    const char *dir;
    int shard, shards;                 /* this rank writes shard `shard` of `shards` */
    const struct ckpt_tensor *tensors; /* the whole model's table, the same on every rank */
    size_t ntensors;
    const char *const *kinds; /* fp32 each */
    size_t nkinds;
    const struct ckpt_piece *pieces; /* may be none */
    size_t npieces;
    const void *const *sources; /* [npieces * nkinds], kind fastest: where piece p's elements of kind k lie; or NULL: */
    /* Puts elements [first, first + count) of all pieces one after the other, of that kind, into `to`; in order. */
    int (*source)(void *arg, size_t kind, uint64_t first, uint64_t count, float *to, struct error *err);
    void *source_arg;
    struct ckpt_state state;
    const char *job_text; /* the job file; may be NULL */
    const char *attempt;  /* the same on every rank of a save, and new for every try: "4711.0.1" for the first save of
                             job 4711 before it was requeued. 1 to 64 letters, digits, '.', '_' and '-' */
};

/*
 * Write this rank's shard and its part of the manifest into <dir>/step-N.ATTEMPT.partial, checksummed from a staging
 * buffer before the write, and fsync both. Creates directories as needed, and removes what other attempts at this step
 * left, and attempts at earlier steps than the newest that is committed. If step N is committed already, does what
 * ckpt_check_committed does and no more. On failure nothing that was committed is touched; when the disk is full the
 * error says how much was wanted and how much is free. A failed write or fsync is not retried: the next attempt writes
 * new files.
 */
int ckpt_write_shard(const struct ckpt_save *save, struct error *err);

/*
 * If every shard of that attempt at step N is complete, and they agree with each other and hold every element of every
 * tensor once, write manifest.json, fsync, rename the directory to its final name and fsync the parent, and only then
 * remove the parts. An attempt with a manifest.json needs no parts. Any process may call it at any time, and several at
 * once. Returns 1 when step N is committed (now or before), 0 when shards are still missing (or, on a network
 * filesystem, not visible yet: ask again), -1 on failure. What is committed may be of another attempt, of another run
 * even: ckpt_check_committed tells.
 */
int ckpt_commit(const char *dir, uint64_t step, const char *attempt, struct error *err);

/*
 * Whether step N, which is committed, can pass for this save: it is of the same attempt; or its step,
 * consumed_samples, seed, skipped_steps and job text are the same, the lines "#! --set ..." aside, as when a run comes
 * to a step again that it has saved. Else CODE_DATA: another run saves in this directory. Only dir, state, job_text and
 * attempt are looked at.
 */
int ckpt_check_committed(const struct ckpt_save *save, struct error *err);

/*
 * Remove, through <dir>/.trash, an attempt that all ranks have given up: without it a full disk stays full. Nobody may
 * be writing to it any more. An attempt that is not there, or was committed, is left as it is.
 */
int ckpt_abandon(const char *dir, uint64_t step, const char *attempt, struct error *err);

/*
 * Commit whatever complete attempts lie in dir: for a trainer that starts, or for whoever outlived one. An incomplete
 * or broken attempt is left alone; one that is newer than all checkpoints and complete, but in a form that this muster
 * does not know (form.h), is CODE_CONFIG: it is newer than what could be loaded. Also removes what a commit that was cut off left in step-N: the parts. Returns how
 * many steps were committed, or -1. A dir that does not exist has none.
 */
int ckpt_recover(const char *dir, struct error *err);

/*
 * Remove, through <dir>/.trash, the checkpoints older than the newest `keep` (at least 0; 0 keeps all) that ckpt_open
 * accepts, and the attempts at steps older than the newest of these. Since one that does not open is not counted, the
 * last whole one always stays; a broken one that is newer stays too, to be looked at, and whatever is of an unknown form
 * (form.h). Leftovers probe.*.tmp and
 * latest.*.tmp that are older than a day go as well, and so does what a removal that was cut off left in .trash. With
 * keep_every above 0, checkpoints of steps that are multiples of it are never removed; they count among the newest
 * `keep` all the same.
 */
int ckpt_prune(const char *dir, int keep, uint64_t keep_every, struct error *err);

/*
 * Remove the checkpoint of step N through <dir>/.trash. The last one that ckpt_open accepts is refused with CODE_USAGE,
 * unless `even_last`; one that is broken goes without question, and one of an unknown form (form.h) is refused with
 * CODE_CONFIG. CODE_DATA if there is none of that step.
 */
int ckpt_remove(const char *dir, uint64_t step, bool even_last, struct error *err);

/* ---- reading ----------------------------------------------------------------------------------------------------- */

struct ckpt;

/*
 * Open <path> = .../step-N: parses and checks the manifest (its crc, every name, offset and range; that the pieces of
 * every tensor cover it exactly once), and every shard's size and header against it. Does not read the data.
 * Fails with CODE_DATA and "path: what is wrong" (with the offset where there is one) for anything that does not fit;
 * with CODE_CONFIG where the manifest is whole, but in a form that this muster does not know (form.h): such a checkpoint
 * is not broken, and none before it must be taken instead.
 */
struct ckpt *ckpt_open(const char *path, struct error *err);

/*
 * The same, but a shard's size and header are looked at only when something of it is read: for the ranks of a large
 * job, which need few of the shards each. One of them, or who decides whether this is the checkpoint to take, had
 * better call ckpt_open.
 */
struct ckpt *ckpt_open_lazily(const char *path, struct error *err);
void ckpt_close(struct ckpt *ckpt);

/* Who wrote it and when: for people. */
struct ckpt_origin {
    const char *version; /* of muster */
    const char *attempt;
    const char *host; /* of shard 0 */
    uint64_t written; /* seconds since 1970, of the last shard */
};

struct ckpt_origin ckpt_origin(const struct ckpt *ckpt);
const struct ckpt_state *ckpt_state(const struct ckpt *ckpt);
const char *ckpt_job_text(const struct ckpt *ckpt); /* "" if none */
const char *ckpt_path(const struct ckpt *ckpt);
const struct ckpt_tensor *ckpt_tensors(const struct ckpt *ckpt, size_t *count);
const char *const *ckpt_kinds(const struct ckpt *ckpt, size_t *count);
int ckpt_shards(const struct ckpt *ckpt);
uint64_t ckpt_bytes(const struct ckpt *ckpt); /* of all shard files */

/*
 * Read pieces of any other topology. `tensors` is the reader's table, in any order: names and shapes must be those of
 * the checkpoint, none missing on either side; kinds may be some of the checkpoint's. targets [npieces * nkinds], kind
 * fastest. Every 4 MiB block that holds something wanted is read once and its checksum verified before its bytes count;
 * a mismatch is CODE_DATA naming file and offset. One call for everything is therefore much cheaper than many small
 * ones. A few threads read and copy at once, past the page cache where most of what they read is wanted. Memory: a
 * block a thread, and about 300 bytes for each pair of pieces that overlap and each 16 MiB of a shard that it spans. On
 * failure the targets' contents are undefined.
 */
int ckpt_read(struct ckpt *ckpt, const struct ckpt_tensor *tensors, size_t ntensors, const char *const *kinds,
              size_t nkinds, const struct ckpt_piece *pieces, size_t npieces, void *const *targets, struct error *err);

/*
 * Read and check every byte of every shard, on `threads` threads, past the page cache where the filesystem allows.
 * progress may be NULL; called from one thread at a time. Fails with the first block that is wrong.
 */
int ckpt_verify(struct ckpt *ckpt, int threads, void (*progress)(uint64_t done, uint64_t total, void *arg), void *arg,
                struct error *err);

/* ---- directories ------------------------------------------------------------------------------------------------- */

/* Steps of the committed checkpoints in dir, newest first; *steps is malloc'ed. A dir that does not exist has none. */
int ckpt_list(const char *dir, uint64_t **steps, size_t *count, struct error *err);

/*
 * Whether checkpoints can be written to dir: makes the directories that are missing, and does what a save does (makes a
 * directory, writes a file in it, syncs both, renames the directory) and removes it again.
 * Better asked before a run than after its first hours.
 */
int ckpt_probe(const char *dir, struct error *err);

/*
 * Rename a committed checkpoint that proved broken to "step-N.broken", or "step-N.broken-2" and so on, so that step N
 * can be saved anew and the broken one still be looked at. Nothing here reads it again. `path` gets its new place; it
 * may be NULL.
 */
int ckpt_set_aside(const char *dir, uint64_t step, char *path, size_t size, struct error *err);

/* "<dir>/step-00000100" into path. */
void ckpt_step_path(char *path, size_t size, const char *dir, uint64_t step);

/* The reverse: "<dir>/step-00000100/", as people write it, into dir and step. False if it is no such path. */
bool ckpt_split_step_path(char *dir, size_t size, uint64_t *step, const char *path);

/*
 * Compare two checkpoints tensor by tensor, bit by bit, whatever topologies wrote them, in bounded memory. `differ` is
 * called once for every tensor and kind that is not identical or not in both (reason says which, with the first element
 * and both values), and for what differs of the logical state ("state" and the field's name; dp, tp, pp and zero
 * aside). Returns the number of calls, or -1.
 */
int ckpt_diff(struct ckpt *a, struct ckpt *b,
              void (*differ)(const char *tensor, const char *kind, const char *reason, void *arg), void *arg,
              struct error *err);

#endif
