/*
 * ckpt.h - checkpoints, format 1: written by any number of ranks with any mesh, read with any other.
 *
 * The library sees named ranges of bytes in host memory and a directory. It knows nothing of MPI or of the trainer:
 * each process computes from the mesh alone which pieces of which logical tensors it holds. Processes exchange no
 * tensors.
 *
 *   <dir>/step-00000100/             exists only when complete
 *     manifest.json                  names and places of all data, with its own crc32c
 *     shard-00000-of-00004.safetensors ...
 *   <dir>/step-00000200.ATTEMPT.partial/   a save in progress, or an interrupted one
 *     shard-00002-of-00004.safetensors and shard-00002-of-00004.json (that shard's part of the manifest)
 *   <dir>/step-00000200.ATTEMPT.abandoned/ the marker of an attempt that can never be committed (write/attempt.h)
 *   <dir>/.trash/                    checkpoints that are being removed
 *   <dir>/latest                     a hint for people; never read
 *   <dir>/owner-7.json               the run that saves here (struct ckpt_claim)
 *
 * Terms: a *tensor* is a logical, unsharded, unpadded tensor of the model ("h.0.attn.c_attn.weight"). For each tensor
 * several arrays of its shape are saved, one for each *kind*: "param", "exp_avg", "exp_avg_sq". "param" is the fp32
 * master copy. A *piece* is a run of the elements of a box of a tensor; one shard holds it. A shard file has one 1-D
 * safetensors entry for each kind, all of the same length: its pieces, one after the other. An *attempt* is one try to
 * save a step, with a name and a directory of its own. Files of an earlier try, or a process of it that is still alive
 * on some node, therefore cannot mix with a later one.
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
#define CKPT_RUN_SIZE     17

struct ckpt_tensor {
    char name[CKPT_NAME_SIZE];
    int ndim;
    uint64_t shape[CKPT_MAX_DIMS];
};

/*
 * Elements [first, first + count) of the row-major flattening of a box of a tensor. The box is what one tensor-parallel
 * rank holds (start 0 and the whole shape where the tensor is not split). In every ZeRO stage a data-parallel rank
 * saves 1/dp of the unit's flat buffer (ckpt/models/units.h). [first, first + count) is the part of the box that lies
 * in this 1/dp.
 */
struct ckpt_piece {
    uint32_t tensor; /* index into the table of tensors that goes with the pieces */
    uint64_t start[CKPT_MAX_DIMS], shape[CKPT_MAX_DIMS];
    uint64_t first, count;
};

/* The run's progress: all that a checkpoint holds apart from the tensors. */
struct ckpt_progress {
    uint64_t step;             /* optimizer steps done */
    uint64_t consumed_samples; /* the position in the training data */
    uint64_t seed;             /* key of all random numbers */
    uint64_t skipped_steps;
    uint64_t skipped_in_a_row; /* as optimizer.most_skipped counts them */
    double loss_scale;         /* 1 where there is none */
    int loss_scale_good_steps; /* of a dynamic scale: steps since it changed or gradients overflowed */
    int loss_scale_hysteresis; /* of a dynamic scale: overflows until it halves, at least 1; 0 if it is not dynamic */
    double loss_mean;          /* running mean of the loss, to detect spikes */
    uint64_t loss_count;       /* steps in it; 0 means there is none yet */
    int dp, tp, pp, zero;      /* the mesh that wrote it: for people, not needed for reading */
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
    /* [npieces * nkinds], kind fastest: the elements of piece p, kind k. NULL: ckpt_write_shard calls `source`.
     * ckpt_stage_shard needs `sources`. */
    const void *const *sources;
    /* Writes `count` elements from number `first` on, of all pieces' elements of that kind one after the other. Called
     * with increasing `first`. */
    int (*source)(void *arg, size_t kind, uint64_t first, uint64_t count, float *to, struct error *err);
    void *source_arg;
    struct ckpt_progress state;
    const char *job_text; /* the job file; may be NULL */
    const char *attempt;  /* the same on every rank of a save, and new for every try. The trainer's is the time in
                             nanoseconds and rank 0's process id, both in hexadecimal, and what ckpt_claim_attempt
                             appends: "17c3a5d0e1b2f400-1a2b.owner-3". 1 to 64 letters, digits, '.', '_' and '-' */
};

/*
 * Write this rank's shard and its part of the manifest into <dir>/step-N.ATTEMPT.partial, checksummed from a staging
 * buffer before the write, and fsync both. Creates directories as needed, and removes other attempts at this step, and
 * attempts at steps before it and before the newest committed one. If step N is committed already, does only what
 * ckpt_check_owner does. A failure changes no committed checkpoint; when the disk is full the error has the wanted
 * and the free bytes. A failed write or fsync is not retried: the next attempt writes new files.
 */
int ckpt_write_shard(const struct ckpt_save *save, struct error *err);

/*
 * If every shard of that attempt at step N is complete, and they agree with each other and hold every element of every
 * tensor once, write manifest.json, fsync, rename the directory to its final name and fsync the parent, and only then
 * remove the parts. An attempt with a manifest.json needs no parts. Any process may call it at any time; several at
 * once are safe on file systems that rename as POSIX says (attempt_take_commit in write/attempt.h: GlusterFS does
 * not). Returns 1 when step N is committed (now or before), 0 when shards are still missing (or, on a network
 * filesystem, not visible yet: try again), -1 on failure. The committed step may be of another attempt, or even of
 * another run: ckpt_check_owner finds that. -1 with CODE_CONFIG also when another run owns the directory (struct
 * ckpt_claim).
 */
int ckpt_commit(const char *dir, uint64_t step, const char *attempt, struct error *err);

/*
 * Check that the committed step N is this run's: the checkpoint has this save's attempt; or it has this save's step,
 * consumed_samples, seed, skipped_steps and job text (without lines that begin with "#! "), since a run may repeat a
 * step that it has saved. Otherwise CODE_DATA: another run saves in this directory. Uses dir, state, job_text and
 * attempt only. In ckpt/write/attempt.c.
 */
int ckpt_check_owner(const struct ckpt_save *save, struct error *err);

/*
 * Remove, through <dir>/.trash, an attempt that all ranks have abandoned: otherwise a full disk stays full. No process
 * may still write to it. A missing or committed attempt is not a failure.
 */
int ckpt_remove_attempt(const char *dir, uint64_t step, const char *attempt, struct error *err);

/*
 * Commit all complete attempts in dir: for a run that starts, or muster-ckpt recover. Incomplete and broken
 * attempts are left alone. It is a failure if one that is newer than all checkpoints cannot be committed because the
 * directory fails (CODE_IO), or because its format is unknown (CODE_CONFIG; format/json_fields.h): it is newer than any
 * checkpoint that could be loaded. Also removes the parts that an interrupted commit left in step-N. Returns the number
 * of newly committed steps, or -1; 0 if there is no such dir.
 */
int ckpt_recover(const char *dir, struct error *err);

/*
 * Remove, through <dir>/.trash, the checkpoints older than the newest `keep` (at least 0; 0 keeps all) that ckpt_open
 * accepts, and the attempts at steps older than the newest of these. A checkpoint that does not open is not counted, so
 * that the last whole one always stays. Newer broken ones stay too, for inspection, and all of an unknown format
 * (format/json_fields.h). Also removes probe.*.tmp and latest.*.tmp older than a day, and the contents of .trash. With
 * keep_every above 0, the first checkpoint at or after each multiple of it, and before the next, is never removed,
 * unless it does not open and a later one of the same multiple does; they still count among the newest `keep`.
 */
int ckpt_prune(const char *dir, int keep, uint64_t keep_every, struct error *err);

/*
 * Remove the checkpoint of step N through <dir>/.trash. The last one that ckpt_open accepts is refused with CODE_USAGE,
 * unless `even_last`. A broken one is always removed, and one of an unknown format (format/json_fields.h) is refused
 * with CODE_CONFIG. CODE_DATA if there is none of that step.
 */
int ckpt_remove(const char *dir, uint64_t step, bool even_last, struct error *err);

/* ---- one directory, one run -------------------------------------------------------------------------------------- */

/*
 * A run that saves in a directory claims it by creating the file owner-N.json, N from 1. link(2) of a complete file
 * creates each N once, so only one of several runs that claim at the same time succeeds. The highest N is the owner.
 * The file stays when its run has ended, and the next N is greater by 1: there is one owner at any time, even if
 * processes are killed. The owner of number 1 takes the time in milliseconds for its N at once: a directory that was
 * emptied, and is claimed anew, uses no number again.
 *
 * Only a new claim changes the owner. The caller decides whether the owner is alive (trainer/run_claim.c).
 */
struct ckpt_claim {
    uint64_t number;  /* N */
    uint64_t accepts; /* the number of the earliest claim whose saves may still be committed: N, or a lower one
                         if the job was requeued, because its earlier saves are of the same run */
    /* Slurm's names; "" without Slurm */
    char cluster[128], job[32], array_task[64], step[32]; /* array_task: "4711_2" */
    int restart;
    char run[CKPT_RUN_SIZE]; /* the run's id, of random digits: no other run, or user, can guess it */
    /* rank 0 */
    char host[256];
    char machine[128]; /* boot id and pid namespace: `pid` means something only where both are the same */
    int pid;
    uint64_t pid_started;              /* in clock ticks, as in /proc/PID/stat */
    double since, heartbeat, released; /* seconds since 1970; `released` is 0 until the run ends */
    unsigned user;                     /* of the file; ckpt_claim_read fills it */
    struct json_t *keys; /* array of texts "path = value": the keys of the job that affect training; may be NULL */
};

/*
 * The owner of dir: 1, and *owner, to be cleared; 0 if there is none, or no such dir; -1. CODE_CONFIG if its format is
 * unknown (format/json_fields.h). Of a damaged file only number and times are known; `accepts` is 0.
 */
int ckpt_claim_read(const char *dir, struct ckpt_claim *owner, struct error *err);
void ckpt_claim_clear(struct ckpt_claim *claim);

/*
 * Become the owner. The present owner must be dead or have released the directory, and claim->number is its number + 1;
 * or it is this run. Returns 1; 0 if another process has claimed first: call ckpt_claim_read again; -1. Removes earlier
 * claims, and abandons the attempts of claims below claim->accepts (write/attempt.h).
 */
int ckpt_claim_take(const char *dir, const struct ckpt_claim *claim, struct error *err);

/*
 * Write this run's claim again, with a new `heartbeat` or `released`. Fails if its file is missing: the directory was
 * emptied, or its file system is not mounted.
 */
int ckpt_claim_refresh(const char *dir, const struct ckpt_claim *claim, struct error *err);

/*
 * 0: the claim of claim->number is the owner, or there is none, because the directory was emptied; 1: it has lost the
 * directory, as *err says (CODE_CONFIG); -1: dir cannot be read. Its file, if not damaged, is read into *claim.
 */
int ckpt_claim_check(const char *dir, struct ckpt_claim *claim, struct error *err);

/* "job 4711_2 (restart 0) on n3 since 2026-01-01T03:12:45 (owner-7.json)" */
void ckpt_claim_describe(char *text, size_t size, const struct ckpt_claim *claim);

/*
 * Append the claim's number to an attempt's name, unless it is 0. ckpt_commit, ckpt_recover and the drainers do not
 * commit such an attempt when a later owner does not accept it.
 */
void ckpt_claim_attempt(char attempt[static CKPT_ATTEMPT_SIZE], uint64_t number);

/*
 * The process that makes all calls on a trainer's checkpoint directory before training begins, and keeps the claim on
 * it: muster-ckptd --claim. If the file system does not answer, only this process waits. The trainer and it exchange
 * messages over a socket (AF_UNIX, SOCK_SEQPACKET), which is the input of the process. It answers each with the same
 * command, unless it is of another release: then it ends with CODE_CONFIG.
 *
 *   CLAIM_READ     ckpt_claim_read: `result`, `claim`, and `error` if result is -1
 *   CLAIM_TAKE     makes the directory, finds out whether checkpoints can be saved there (ckpt_probe), commits what
 *                  another job left there (ckpt_recover), and claims it for `claim`: `result` as ckpt_claim_take, and
 *                  `claim` with its final number. From then on it refreshes the heartbeat
 *   CLAIM_KEEP     a new process goes on with `claim`, which an earlier one has taken
 *   CLAIM_LOOK     ckpt_claim_check: 1 if another run has taken the directory over, as `error` says
 *   CLAIM_RELEASE  releases the directory
 *
 * It ends when the socket is closed. The claim then stays as it is.
 */
enum claim_command { CLAIM_READ, CLAIM_TAKE, CLAIM_KEEP, CLAIM_LOOK, CLAIM_RELEASE };

struct claim_message {
    enum claim_command command;
    int result;
    struct error error;
    struct ckpt_claim claim;
};

/* 0, or -1 if the socket is closed or full. */
int claim_message_send(int fd, const struct claim_message *message);

/* 1 and *message, its claim to be cleared; 0 if none is there (of a socket that does not wait); -1 if the socket is
 * closed, or a message is of another release. */
int claim_message_receive(int fd, struct claim_message *message);

/* ---- reading ----------------------------------------------------------------------------------------------------- */

struct ckpt;

/*
 * Open <path> = .../step-N: parses and checks the manifest (its crc, every name, offset and range; that the pieces of
 * every tensor cover it exactly once), and every shard's size and header against it. Does not read the data.
 * Fails with CODE_DATA and "path: the error" (with the offset where there is one) for any inconsistency;
 * with CODE_CONFIG where the manifest is whole, but in a format that this muster does not know (format/json_fields.h):
 * such a checkpoint is not broken, and no earlier one may be loaded instead.
 */
struct ckpt *ckpt_open(const char *path, struct error *err);

/* The same, but opens no shard: a shard's size and header are checked only when it is read. */
struct ckpt *ckpt_open_lazily(const char *path, struct error *err);

/*
 * ckpt_open_lazily in two parts, for a job of many processes: one reads the manifest, sends its text to the others, and
 * each opens the checkpoint with it. The text of ckpt_manifest_text is malloc'ed and not checked; ckpt_open_with checks
 * it, and borrows it for the call.
 */
char *ckpt_manifest_text(const char *path, size_t *bytes, struct error *err);
struct ckpt *ckpt_open_with(const char *path, const char *text, size_t bytes, struct error *err);
void ckpt_close(struct ckpt *ckpt);

/* Borrowed from the checkpoint. */
struct ckpt_summary {
    const char *version; /* of the muster that wrote it */
    const char *attempt;
    const char *host; /* of shard 0 */
    uint64_t written; /* seconds since 1970, of the last shard */
    int shards;
    uint64_t bytes; /* of all shard files */
    const char *const *kinds;
    size_t nkinds;
};

struct ckpt_summary ckpt_summary(const struct ckpt *ckpt);
const struct ckpt_progress *ckpt_progress(const struct ckpt *ckpt);
const char *ckpt_job_text(const struct ckpt *ckpt); /* "" if none */
const char *ckpt_path(const struct ckpt *ckpt);
const struct ckpt_tensor *ckpt_tensors(const struct ckpt *ckpt, size_t *count);

/*
 * Read pieces of any other mesh. `tensors` is the reader's table, in any order: names and shapes must be those of the
 * checkpoint, none missing on either side; kinds may be some of the checkpoint's. targets [npieces * nkinds], kind
 * fastest. Every needed 4 MiB block is read once and its checksum verified before its bytes are used; a mismatch is
 * CODE_DATA naming file and offset. One call for everything is therefore much cheaper than many small ones. A few
 * threads read and copy at once. A block whose needed elements lie close together (is_dense in read/read.c) is read
 * past the page cache. Opens only the shards of these blocks, each when its first block is read, and has at most one
 * open for each thread. Memory: a block a thread, and about 300 bytes for each pair of pieces that overlap and each
 * block that the overlap spans. On failure the targets' contents are undefined.
 */
int ckpt_read(struct ckpt *ckpt, const struct ckpt_tensor *tensors, size_t ntensors, const char *const *kinds,
              size_t nkinds, const struct ckpt_piece *pieces, size_t npieces, void *const *targets, struct error *err);

/* The processes of a node that load one checkpoint at once. */
struct ckpt_node {
    int rank, ranks; /* this process among them */
    void *memory;    /* memory that all of them have mapped, aligned to 4096 bytes */
    size_t bytes;    /* ckpt_node_bytes. Fewer are slower. CODE_INTERNAL if the marks (read/read.c) and two blocks
                        do not fit */
    /*
     * Waits until all have called it. All get the same result: 0, or -1 with the error of one whose `result` was -1.
     * What a process wrote to the memory before, all can read afterwards.
     */
    int (*agree)(void *arg, int result, struct error *err);
    void *arg;
};

size_t ckpt_node_bytes(const struct ckpt *ckpt, int ranks);

/*
 * ckpt_read of all the node's processes at once: a block that several of them want is read and verified by one of
 * these, and the others copy from the node's memory. Every process must call this, with as many bytes of memory, and
 * with the same checkpoint. If it fails on one, it may fail on all. node may be NULL.
 */
int ckpt_read_together(struct ckpt *ckpt, const struct ckpt_node *node, const struct ckpt_tensor *tensors,
                       size_t ntensors, const char *const *kinds, size_t nkinds, const struct ckpt_piece *pieces,
                       size_t npieces, void *const *targets, struct error *err);

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
 * Steps that ckpt_recover would commit, in no order, malloc'ed: they have a complete attempt and no checkpoint. Nobody
 * was left to commit them, or their run is about to. A dir that does not exist has none.
 */
int ckpt_list_complete(const char *dir, uint64_t **steps, size_t *count, struct error *err);

/*
 * Check that checkpoints can be written to dir, before a run rather than after its first hours: makes missing
 * directories, does what a save does (makes a directory, writes a file in it, syncs both, renames the directory) and
 * removes it again.
 */
int ckpt_probe(const char *dir, struct error *err);

/*
 * Rename a broken committed checkpoint to "step-N.broken", or "step-N.broken-2" and so on, so that step N can be saved
 * anew and the broken one still be inspected. No function reads it again.
 */
int ckpt_set_aside(const char *dir, uint64_t step, struct error *err);

/* "<dir>/step-00000100" into path. */
void ckpt_step_path(char *path, size_t size, const char *dir, uint64_t step);

/* The reverse: "<dir>/step-00000100/", as people write it, into dir and step. False if the path has another form. */
bool ckpt_split_step_path(char *dir, size_t size, uint64_t *step, const char *path);

/* The same of a path that may also be a link to a checkpoint, or "." in one. */
bool ckpt_find_step_path(char *dir, size_t size, uint64_t *step, const char *path);

/* Where the trainer keeps the tokenizer of the checkpoints in a directory; `path` is that, or one of them. */
void ckpt_tokenizer_path(char *folder, size_t size, const char *path);

/*
 * Compare two checkpoints tensor by tensor, bit by bit, whatever meshes wrote them, in bounded memory. `differ` is
 * called once for every tensor and kind that is not identical or not in both (the reason has the first element and both
 * values), and for every field of the logical state that differs ("state" and its name), except dp, tp, pp and zero.
 * Returns the number of calls, or -1.
 */
int ckpt_diff(struct ckpt *a, struct ckpt *b,
              void (*differ)(const char *tensor, const char *kind, const char *reason, void *arg), void *arg,
              struct error *err);

#endif
