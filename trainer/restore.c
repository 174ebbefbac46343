/* restore.c - an engine gets its state back from a checkpoint of any topology. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "trainer/engine.h"

enum { LOAD_TRIES = 5 }; /* a second apart */

/* Names and shapes must be ours: another model's checkpoint is the user's mistake, not a damaged file. */
static int same_model(const struct engine *e, const struct ckpt *ckpt, struct error *err)
{
    size_t count;
    const struct ckpt_tensor *theirs = ckpt_tensors(ckpt, &count);

    const struct units *units = e->config->units;

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

void engine_forget_loaded(struct engine *e)
{
    if (e->is_loaded_known)
        job_destroy(&e->loaded);
    e->is_loaded_known = false;
}

/*
 * What the checkpoint's own job file says, where it has one that this muster reads: heads show in no tensor's shape,
 * and other heads make another model of the same numbers. The rest is noted, for the log.
 */
static int same_job(struct engine *e, const struct ckpt *ckpt, struct error *err)
{
    engine_forget_loaded(e);
    if (job_parse(&e->loaded, ckpt_job_text(ckpt), ckpt_path(ckpt), NULL, 0, NULL) < 0)
        return 0;
    e->is_loaded_known = true;
    if (e->loaded.model.heads != e->job->model.heads)
        return error_set(err, CODE_CONFIG, "%s is of another model: it has %d heads, the job file's model %d",
                         ckpt_path(ckpt), e->loaded.model.heads, e->job->model.heads);
    return 0;
}

static int read_tensors(struct engine *e, struct ckpt *ckpt, struct error *err)
{
    struct ckpt_piece *pieces;
    void **addresses;
    size_t npieces;
    int result;

    if (zero_pieces(e->zero, false, &pieces, &addresses, &npieces, err) < 0)
        return -1;
    zero_clear(e->zero);
    device_wait(e->dev);
    result = ckpt_read(ckpt, e->config->units->tensors, e->config->units->ntensors, zero_kinds, ZERO_KINDS, pieces,
                       npieces, addresses, err);
    free(pieces);
    free(addresses);
    return result;
}

/*
 * 0; or -1 with CODE_CONFIG when no checkpoint of this directory can be meant, or another release wrote this one and no
 * older one may pass for it; else when this one is not usable.
 */
static int load_one(struct engine *e, const char *dir, uint64_t step, struct error *err)
{
    char path[JOB_PATH_SIZE + 64];
    struct ckpt *ckpt;
    int result;

    ckpt_step_path(path, sizeof path, dir, step);
    /* One rank looks at every shard; the others at those that they read. */
    ckpt = comm_rank(e->world) == 0 ? ckpt_open(path, err) : ckpt_open_lazily(path, err);
    if (!ckpt)
        return -1;
    result = same_model(e, ckpt, err) < 0 || same_job(e, ckpt, err) < 0 || read_tensors(e, ckpt, err) < 0 ? -1 : 0;
    if (result == 0) {
        const struct ckpt_state *state = ckpt_state(ckpt);

        e->step = state->step;
        e->consumed_samples = state->consumed_samples;
        e->skipped_steps = state->skipped_steps;
        e->skipped_in_a_row = state->skipped_in_a_row;
        e->spike = (struct spike){.mean = state->loss_mean, .count = state->loss_count};
        e->loss_scale = loss_scale_resume(
            e->job, (struct loss_scale){state->loss_scale, state->loss_scale_good_steps, state->loss_scale_hysteresis});
        e->loaded_seed = state->seed;
    }
    ckpt_close(ckpt);
    return result;
}

/* Rank 0 looks, all get the same list: directories need not look alike on every node at the same moment. */
static int shared_list(struct engine *e, const char *dir, uint64_t **steps, size_t *count, struct error *err)
{
    uint64_t n = 0;
    int result = 0;

    *steps = NULL;
    if (comm_rank(e->world) == 0) {
        /* A save that was complete but for its commit when its job was killed becomes the newest checkpoint now. */
        result = ckpt_recover(dir, err) < 0 ? -1 : ckpt_list(dir, steps, count, err);
        n = result < 0 ? 0 : *count;
    }
    if (comm_agree(e->world, result, err) < 0 || comm_broadcast(e->world, &n, sizeof n, 0, err) < 0)
        goto fail;
    if (comm_rank(e->world) != 0 && !(*steps = calloc(n + 1, sizeof **steps)))
        result = error_set(err, CODE_IO, "out of memory for a list of %" PRIu64 " checkpoints", n);
    if (comm_agree(e->world, result, err) < 0 ||
        (n && comm_broadcast(e->world, *steps, n * sizeof **steps, 0, err) < 0))
        goto fail;
    *count = n;
    return 0;
fail:
    free(*steps);
    return -1;
}

/*
 * Whether a checkpoint is damaged is for all ranks to see alike. One that only some could not read, or that the
 * operating system would not read, may be a network filesystem that shows a file late: try again before saying so.
 */
static int load_agreed(struct engine *e, const char *dir, uint64_t step, struct error *err)
{
    for (int tries = 0;; tries++) {
        int result = load_one(e, dir, step, err);
        double failed = result < 0;

        if (comm_sum_f64(e->world, &failed, 1, err) < 0)
            return -1;
        result = comm_agree(e->world, result, err);
        if (result == 0 || err->code == CODE_CONFIG || tries == LOAD_TRIES ||
            (err->code == CODE_DATA && (int)failed == comm_size(e->world)))
            return result;
        clock_sleep(1);
    }
}

/* What was skipped must not stand in the way of a save of the same step: rank 0 renames it. */
static int set_aside(struct engine *e, const char *dir, const uint64_t *steps, size_t count, struct error *err)
{
    int result = 0;

    for (size_t i = 0; i < count && result == 0 && comm_rank(e->world) == 0; i++)
        result = ckpt_set_aside(dir, steps[i], NULL, 0, err);
    return comm_agree(e->world, result, err);
}

/* A run keeps its seed: another one would change the order of samples in the middle of an epoch. */
static int same_seed(const struct engine *e, const char *dir, struct error *err)
{
    if (e->loaded_seed == e->job->batch.seed)
        return 0;
    return error_set(err, CODE_CONFIG,
                     "%s was trained with batch.seed = %" PRIu64 ", the job file has %" PRIu64
                     ": keep the seed, or give a new checkpoint.dir and name this one as checkpoint.load",
                     dir, e->loaded_seed, e->job->batch.seed);
}

/* Of the list, that one alone, if it is there. */
static size_t keep_only(uint64_t *steps, size_t count, uint64_t step)
{
    for (size_t i = 0; i < count; i++)
        if (steps[i] == step) {
            steps[0] = step;
            return 1;
        }
    return 0;
}

int engine_restore(struct engine *e, const char *dir, bool ours, void (*skipped)(const char *why), struct error *err)
{
    char parent[JOB_PATH_SIZE];
    uint64_t *steps, step;
    size_t count, tried = 0;
    bool one = !ours && ckpt_split_step_path(parent, sizeof parent, &step, dir);
    int result = 0;

    dir = one ? parent : dir;
    if (shared_list(e, dir, &steps, &count, err) < 0)
        return -1;
    if (one)
        count = keep_only(steps, count, step);
    for (; tried < count; tried++) {
        result = load_agreed(e, dir, steps[tried], err);
        if (result == 0 || err->code != CODE_DATA || one)
            break;
        skipped(err->text);
    }
    if (result < 0 && tried == count) {
        struct error last = *err;

        error_set(err, CODE_DATA,
                  "%s: none of its %zu checkpoints can be read (the last tried: %.600s); "
                  "to start anew, move them away or name another directory",
                  dir, count, last.text);
    }
    if (result == 0 && count > 0 && ours)
        result = same_seed(e, dir, err) < 0 ? -1 : set_aside(e, dir, steps, tried, err);
    free(steps);
    if (result < 0)
        return -1;
    if (count == 0)
        return 0;
    return zero_loaded(e->zero, err) < 0 ? -1 : 1;
}
