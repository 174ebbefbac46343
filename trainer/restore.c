/* restore.c - loads an engine's state from a checkpoint of any mesh. */
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/crc32c.h"
#include "common/process/process.h"
#include "trainer/data/blend.h"
#include "trainer/restore_impl.h"

enum { LOAD_RETRIES = 5 }; /* a second apart */

/*
 * ---- the ranks of a node, and memory that they share for ckpt_read_together ----
 *
 * The node's lowest rank makes it (process_share), and the others map it. Where ranks of a node cannot see each other's
 * processes (containers), each reads alone, which is slower.
 */
struct node_memory {
    struct comm *ranks; /* of the node */
    struct ckpt_node node;
    bool failed_elsewhere; /* ckpt_read_together has failed, and not on this rank but on another one of the node */
};

/*
 * The same number on all ranks that may share memory: a checksum of the host's name and the namespace of its pids. If
 * two nodes had the same number, mapping would fail, and their ranks would be alone.
 */
static int node_color(void)
{
    uint64_t pids = process_self().pid_namespace;
    char host[256] = "";

    gethostname(host, sizeof host - 1);
    return (int)(crc32c(crc32c(0, host, strlen(host)), &pids, sizeof pids) & INT_MAX);
}

static int agree_ranks(void *arg, int result, struct error *err)
{
    struct node_memory *memory = arg;

    if (comm_agree(memory->ranks, result, err) == 0)
        return 0;
    memory->failed_elsewhere = result == 0;
    return -1;
}

static void unmap_memory(struct node_memory *memory)
{
    if (memory->node.memory)
        munmap(memory->node.memory, memory->node.bytes);
    memory->node = (struct ckpt_node){.rank = 0, .ranks = 1};
}

/* 0, or -1 when a rank was lost. */
static int share_memory(struct node_memory *memory, size_t bytes, struct error *err)
{
    struct { /* where the others find it */
        struct process owner;
        int64_t fd;
    } place = {process_self(), -1};
    bool first = comm_rank(memory->ranks) == 0;
    int fd = -1;
    void *shared = first ? process_share(bytes, &fd) : NULL;
    struct error alone;
    int result;

    place.fd = fd;
    result = comm_broadcast(memory->ranks, &place, sizeof place, 0, err);
    if (result == 0 && !first)
        shared = process_map(&place.owner, (int)place.fd, bytes, true);
    memory->node.memory = shared;
    memory->node.bytes = bytes;
    if (result == 0) {
        error_set(&alone, CODE_IO, "the memory of this node's ranks cannot be shared");
        if (comm_agree(memory->ranks, shared ? 0 : -1, &alone) == 0) {
            memory->node.rank = comm_rank(memory->ranks);
            memory->node.ranks = comm_size(memory->ranks);
        } else {
            unmap_memory(memory);
            result = alone.code == CODE_PEER ? -1 : 0;
            if (result < 0)
                *err = alone;
        }
    }
    if (fd >= 0)
        close(fd);
    return result;
}

/*
 * For ckpt_read_together: all ranks of the node, with memory for this checkpoint; or this rank alone. Borrowed, until
 * the next call or unmap_memory. NULL only when a rank was lost. Collective over the ranks of the node.
 */
static const struct ckpt_node *memory_for(struct node_memory *memory, const struct ckpt *ckpt, struct error *err)
{
    int ranks = comm_size(memory->ranks);

    unmap_memory(memory);
    memory->failed_elsewhere = false;
    if (ranks > 1 && share_memory(memory, ckpt_node_bytes(ckpt, ranks), err) < 0)
        return NULL;
    memory->node.agree = agree_ranks;
    memory->node.arg = memory;
    return &memory->node;
}

int engine_share(struct engine *e, int result, void **data, size_t *bytes, struct error *err)
{
    bool first = comm_rank(e->world) == 0;

    if (comm_agree(e->world, result, err) < 0 || comm_broadcast(e->world, bytes, sizeof *bytes, 0, err) < 0)
        return -1;
    if (!first)
        *data = error_calloc(*bytes + 1, 1, err);
    if (comm_agree(e->world, first || *data ? 0 : -1, err) < 0)
        return -1;
    return *bytes ? comm_broadcast(e->world, *data, *bytes, 0, err) : 0;
}

/* ---- one checkpoint ---- */

/* Compares names and shapes in the order of the table, which is the same for all meshes. A checkpoint of another model
 * is the user's mistake (CODE_CONFIG). ckpt_read would report it as a damaged file (CODE_DATA). */
static int check_model(const struct engine *e, const struct ckpt *ckpt, struct error *err)
{
    size_t count;
    const struct ckpt_tensor *theirs = ckpt_tensors(ckpt, &count);
    const struct units *units = e->units;

    for (size_t i = 0; i < count && i < units->ntensors; i++) {
        const struct ckpt_tensor *ours = &units->tensors[i];

        if (strcmp(ours->name, theirs[i].name) != 0)
            return error_set(err, CODE_CONFIG, "%s is of another model: it has %s where the job file's model has %s",
                             ckpt_path(ckpt), theirs[i].name, ours->name);
        if (ours->ndim != theirs[i].ndim || memcmp(ours->shape, theirs[i].shape, sizeof ours->shape) != 0)
            return error_set(
                err, CODE_CONFIG,
                "%s is of another model: its %s is %" PRIu64 " x %" PRIu64 ", the job file's %" PRIu64 " x %" PRIu64,
                ckpt_path(ckpt), ours->name, theirs[i].shape[0], theirs[i].ndim > 1 ? theirs[i].shape[1] : 1,
                ours->shape[0], ours->ndim > 1 ? ours->shape[1] : 1);
    }
    if (count != units->ntensors)
        return error_set(err, CODE_CONFIG, "%s is of another model: it has %zu tensors, the job file's model %zu",
                         ckpt_path(ckpt), count, units->ntensors);
    return 0;
}

/*
 * No tensor's shape depends on the number of heads, but the same weights with other heads are another model. So this
 * compares the number of heads with the one in the checkpoint's job text. Without a readable job text nothing is
 * compared. Keeps the parsed job, for the log, and whether the data has changed.
 */
static int check_job(struct engine *e, const struct ckpt *ckpt, struct error *err)
{
    const char *text = ckpt_job_text(ckpt);

    job_destroy(&e->loaded);
    e->changed = (struct error){0};
    set_record_compare(text, e->job_text, e->train, &e->changed);
    if (e->changed.code == CODE_OK)
        set_record_compare(text, e->job_text, e->valid, &e->changed);
    if (job_parse(&e->loaded, text, ckpt_path(ckpt), NULL, 0, NULL) < 0)
        return 0;
    if (e->loaded.model.heads != e->job->model.heads)
        return error_set(err, CODE_CONFIG, "%s is of another model: it has %d heads, the job file's model %d",
                         ckpt_path(ckpt), e->loaded.model.heads, e->job->model.heads);
    return 0;
}

/* Rank 0 reads the manifest, so that a job of many ranks reads it once. *failed_here: this rank failed. */
static struct ckpt *open_shared(struct engine *e, const char *path, bool *failed_here, struct error *err)
{
    bool first = comm_rank(e->world) == 0;
    struct ckpt *ckpt = NULL;
    size_t bytes = 0;
    void *text = first ? ckpt_manifest_text(path, &bytes, err) : NULL;

    *failed_here = first && !text;
    if (engine_share(e, *failed_here ? -1 : 0, &text, &bytes, err) == 0) {
        ckpt = ckpt_open_with(path, text, bytes, err);
        *failed_here = !ckpt;
    }
    free(text);
    return ckpt;
}

/* Reads the state that this rank holds, or its first kinds alone, together with the other ranks of its node. */
static int read_state(struct engine *e, struct ckpt *ckpt, size_t kinds, struct node_memory *memory, struct error *err)
{
    const struct ckpt_node *node = memory_for(memory, ckpt, err);
    struct ckpt_piece *pieces;
    void **addresses;
    size_t npieces;
    int result = -1;

    if (!node)
        return -1;
    if (comm_agree(e->world, zero_pieces(e->zero, ZERO_LOAD, &pieces, &addresses, &npieces, err), err) == 0) {
        zero_clear(e->zero);
        device_wait(e->dev);
        for (size_t i = 0; i < npieces * kinds; i++)
            addresses[i] = addresses[i / kinds * ZERO_KINDS + i % kinds];
        /* All in one call: the checkpoint then reads and verifies each of its blocks once. */
        result = ckpt_read_together(ckpt, node, e->units->tensors, e->units->ntensors, zero_kinds, kinds, pieces,
                                    npieces, addresses, err);
    }
    free(pieces);
    free(addresses);
    return result;
}

static void take_progress(struct engine *e, const struct ckpt_progress *state, bool weights)
{
    e->step = state->step;
    e->loss_scale = loss_scale_init(e->job);
    if (weights)
        return;
    e->consumed_samples = state->consumed_samples;
    e->skipped_steps = state->skipped_steps;
    e->skipped_in_a_row = state->skipped_in_a_row;
    e->spike = (struct spike){.mean = state->loss_mean, .count = state->loss_count};
    e->loss_scale = loss_scale_resume(
        e->job, (struct loss_scale){state->loss_scale, state->loss_scale_good_steps, state->loss_scale_hysteresis});
    e->loaded_seed = state->seed;
}

/*
 * CODE_CONFIG: do not try older checkpoints (this one is of another model, or in another release's format). CODE_DATA:
 * it cannot be used, and engine_restore tries an older one. Other codes: load_agreed tries again, then engine_restore
 * fails. All ranks fail if one does; *failed_here: this one.
 */
static int load_one(struct engine *e, const char *dir, uint64_t step, bool weights, struct node_memory *memory,
                    bool *failed_here, struct error *err)
{
    char path[JOB_PATH_SIZE + 64];
    struct ckpt *ckpt;
    int result;

    ckpt_step_path(path, sizeof path, dir, step);
    ckpt = open_shared(e, path, failed_here, err);
    result = ckpt ? 0 : -1;
    if (ckpt && (weights ? restore_check_weights(e, ckpt, err) < 0
                         : (check_model(e, ckpt, err) < 0 || check_job(e, ckpt, err) < 0))) {
        *failed_here = true;
        result = -1;
    }
    /* No rank begins to read alone: the ranks of a node read together. */
    result = comm_agree(e->world, result, err);
    if (result == 0 && e->zero) {
        result = read_state(e, ckpt, weights ? 1 : ZERO_KINDS, memory, err);
        *failed_here = result < 0 && !memory->failed_elsewhere;
        result = comm_agree(e->world, result, err);
    }
    if (result == 0)
        take_progress(e, ckpt_progress(ckpt), weights);
    ckpt_close(ckpt);
    return result;
}

/*
 * Rank 0 reads the directory: nodes may see different entries at the same moment. In a directory that is not `ours` it
 * may not be allowed to commit.
 */
static int shared_list(struct engine *e, const char *dir, bool ours, uint64_t **steps, size_t *count, struct error *err)
{
    size_t bytes = 0;
    int result = 0;
    void *list;

    *steps = NULL;
    *count = 0;
    if (comm_rank(e->world) == 0) {
        /* A save that was complete but not committed when its job was killed becomes the newest checkpoint now. */
        if (e->zero && ckpt_recover(dir, err) < 0 && (ours || err->code == CODE_CONFIG))
            result = -1;
        result = result < 0 ? -1 : ckpt_list(dir, steps, count, err);
        bytes = *count * sizeof **steps;
    }
    list = *steps;
    result = engine_share(e, result, &list, &bytes, err);
    *steps = list;
    *count = bytes / sizeof **steps;
    if (result < 0)
        free(list);
    return result;
}

/*
 * All ranks must agree that a checkpoint is damaged. If only some could not read it, or the operating system reported
 * an error, a network filesystem may show a file late: tries again.
 */
static int load_agreed(struct engine *e, const char *dir, uint64_t step, bool weights, struct node_memory *memory,
                       struct error *err)
{
    for (int tries = 0;; tries++) {
        bool failed_here;
        int result = load_one(e, dir, step, weights, memory, &failed_here, err);
        double failed = failed_here;

        if (comm_sum_f64(e->world, &failed, 1, err) < 0)
            return -1;
        if (result == 0 || err->code == CODE_CONFIG || tries == LOAD_RETRIES || !e->zero ||
            (err->code == CODE_DATA && (int)failed == comm_size(e->world)))
            return result;
        clock_sleep(1);
    }
}

/*
 * If rank 0 may write to the directory, ckpt_probe must succeed there before a checkpoint counts as damaged: while a
 * part of a parallel file system is down, the rest may say that a file does not exist. Without write permission nothing
 * is probed.
 */
static int check_directory(struct engine *e, const char *dir, struct error *err)
{
    struct error damage = *err, why;
    int result = 0;

    if (comm_rank(e->world) == 0 && e->zero && access(dir, W_OK) == 0 && ckpt_probe(dir, &why) < 0)
        result = error_set(err, CODE_IO, "%.400s; it may be whole, because its file system fails: %.500s", damage.text,
                           why.text);
    if (comm_agree(e->world, result, err) < 0)
        return -1;
    *err = damage;
    return 0;
}

/* Rank 0 renames the skipped checkpoints, so that their steps can be saved again. */
static int set_aside(struct engine *e, const char *dir, const uint64_t *steps, size_t count, struct error *err)
{
    int result = 0;

    for (size_t i = 0; i < count && result == 0 && comm_rank(e->world) == 0 && e->zero; i++)
        result = ckpt_set_aside(dir, steps[i], err);
    return comm_agree(e->world, result, err);
}

/* A run keeps its seed: another one would change the order of samples in the middle of an epoch. */
static int check_seed(const struct engine *e, const char *dir, struct error *err)
{
    if (e->loaded_seed == e->job->batch.seed)
        return 0;
    return error_set(err, CODE_CONFIG,
                     "%s was trained with batch.seed = %" PRIu64 ", the job file has %" PRIu64
                     ": keep the seed, or give a new checkpoint.dir and name this one as checkpoint.load",
                     dir, e->loaded_seed, e->job->batch.seed);
}

/* The same seed gives other samples from other data. */
static int check_data(const struct engine *e, struct error *err)
{
    if (e->changed.code == CODE_OK || e->job->data.changed == CHANGED_ACCEPT)
        return 0;
    return error_set(err, CODE_CONFIG, "%.900s: restore it, or go on with it by --set data.changed=accept",
                     e->changed.text);
}

/* Keeps only `step` in the list. Returns the list's new length: 1, or 0 if the step is not in it. */
static size_t keep_only(uint64_t *steps, size_t count, uint64_t step)
{
    for (size_t i = 0; i < count; i++)
        if (steps[i] == step) {
            steps[0] = step;
            return 1;
        }
    return 0;
}

int engine_restore(struct engine *e, const char *dir, enum restore_from from, void (*skipped)(const char *why),
                   struct error *err)
{
    char parent[JOB_PATH_SIZE];
    struct node_memory memory = {0};
    uint64_t *steps, step;
    size_t count, tried = 0;
    bool ours = from == RESTORE_OWN, one = !ours && ckpt_find_step_path(parent, sizeof parent, &step, dir);
    bool folder = from == RESTORE_WEIGHTS && hf_is_model(dir);
    int result = comm_broadcast(e->world, &folder, sizeof folder, 0, err);

    if (result < 0 || folder)
        return result < 0 ? -1 : restore_folder(e, dir, err);
    dir = one ? parent : dir;
    if (shared_list(e, dir, ours, &steps, &count, err) < 0)
        return -1;
    if (one)
        count = keep_only(steps, count, step);
    memory.ranks = comm_split(e->world, node_color(), comm_rank(e->world), err);
    if (!memory.ranks) {
        free(steps);
        return -1;
    }
    comm_label(memory.ranks, "node");
    for (; tried < count; tried++) {
        result = load_agreed(e, dir, steps[tried], from == RESTORE_WEIGHTS, &memory, err);
        if (result == 0 || err->code != CODE_DATA || one || check_directory(e, dir, err) < 0)
            break;
        if (comm_rank(e->world) == 0)
            skipped(err->text);
    }
    unmap_memory(&memory);
    comm_destroy(memory.ranks);
    if (result < 0 && tried == count) {
        struct error last = *err;

        error_set(err, CODE_DATA,
                  "%s: none of its %zu checkpoints can be read (the last tried: %.600s); "
                  "to start anew, move them away or name another directory",
                  dir, count, last.text);
    }
    if (result == 0 && count > 0 && ours)
        result = check_seed(e, dir, err) < 0 || check_data(e, err) < 0 ? -1 : set_aside(e, dir, steps, tried, err);
    free(steps);
    if (result < 0 || count == 0)
        return result;
    return e->zero && zero_finish_load(e->zero, err) < 0 ? -1 : 1;
}
