/*
 * drain_commit.c - an attempt in the checkpoint directory: commits it when its shards are copied; or abandons it, for
 * all nodes, if it can never be committed.
 */
#include <fcntl.h>
#include <math.h>
#include <sys/stat.h>

#include "ckpt/drain/drain_internal.h"
#include "ckpt/write/attempt.h"

#define MOST_DELAY 1.0 /* seconds between commits */

#define SILENT_SECONDS 1.0  /* without a change in the attempt, until other nodes' shards are not waited for */
#define OTHERS_SECONDS 10.0 /* the longest wait */
#define SEEN_SECONDS   3.0  /* a network file system may show another node's rename late */

/* ---- the commit -------------------------------------------------------------------------------------------------- */

/* One of this node's parts, drained or not; NULL if none can be read. */
static struct manifest *read_any_part(const struct drain_turn *turn)
{
    struct manifest *part = NULL;
    struct listing listing = listing_open(&turn->source);
    const char *name;
    int shard, shards;

    while (!part && (name = listing_next(&listing)))
        if ((name_parse_shard(name, SHARD_PART, &shard, &shards) ||
             name_parse_shard(name, SHARD_DRAINED, &shard, &shards)) &&
            shards == turn->save->staged.save.shards)
            part = manifest_read(&turn->source, name, shard, shards, NULL);
    listing_close(&listing, NULL);
    return part;
}

static int is_committed(struct drain_turn *turn, struct error *err)
{
    const struct staged_save *staged = &turn->save->staged.save;
    struct ckpt_save save = {.dir = staged->dir, .attempt = staged->attempt};
    struct manifest *part;
    int result;

    if (!step_is_committed(&turn->target, staged->step))
        return 0;
    part = read_any_part(turn);
    if (!part)
        return DRAIN_COMMITTED;
    save.state = part->state;
    save.job_text = part->job_text;
    result = ckpt_check_owner(&save, err) < 0 ? -1 : DRAIN_COMMITTED;
    manifest_destroy(part);
    return result;
}

static bool is_superseded(const struct drain_turn *turn)
{
    uint64_t *newest = &turn->drainer->shared->newest;

    return step_newest_committed(&turn->target, newest, NULL) > 0 && *newest > turn->save->staged.save.step;
}

static bool is_node_of_shard_0(const struct drain_turn *turn)
{
    char first[FILE_NAME_SIZE];

    name_shard(first, SHARD_DRAINED, 0, turn->save->staged.save.shards);
    return file_exists(&turn->source, first);
}

/* Whether this node commits now: 1, 0 or -1. */
static int may_commit(const struct drain_turn *turn, struct error *err)
{
    const struct staged_save *save = &turn->save->staged.save;
    const char *path = turn->drainer->stage.path, *slash = strrchr(path, '/');
    int complete, mine;

    if (drainer_run_goes_on(turn->drainer) && !is_node_of_shard_0(turn))
        return 0;
    complete = mine = attempt_is_complete(&turn->target, save->step, save->attempt, err);
    if (complete > 0)
        mine = attempt_take_commit(&turn->target, save->step, save->attempt, slash ? slash + 1 : path, err);
    turn->save->complete = complete > 0 && mine == 0;
    return mine;
}

/* A number that changes as the attempt's files grow. */
static double measure_attempt(const struct drain_turn *turn)
{
    struct directory directory;
    struct listing listing;
    const char *file;
    struct stat info;
    double sum = 0;

    if (directory_open_made(&directory, &turn->target, turn->save->staged.name, NULL) < 0)
        return -1;
    listing = listing_open(&directory);
    while ((file = listing_next(&listing)))
        if (fstatat(directory.fd, file, &info, AT_SYMLINK_NOFOLLOW) == 0)
            sum += 1 + (double)info.st_size;
    listing_close(&listing, NULL);
    directory_close(&directory);
    return sum;
}

/*
 * Whether to look again. As long as the run goes on, other nodes' shards will come. After it, this node has done its
 * part. It looks again only as long as files change: another node may be about to commit, or its last files may be
 * visible late.
 */
static bool waits_for_others(struct drain_turn *turn)
{
    struct drain_save *state = turn->save;
    bool goes_on = drainer_run_goes_on(turn->drainer);

    if (goes_on && !is_node_of_shard_0(turn))
        return true;
    standstill_look(&state->others, measure_attempt(turn));
    if (goes_on)
        return true;
    if (state->alone_since == 0)
        state->alone_since = clock_monotonic();
    return (state->complete || state->others.seconds < SILENT_SECONDS) &&
           clock_monotonic() - state->alone_since < OTHERS_SECONDS;
}

/* Another node may have renamed the attempt: what it did may be visible late. */
static bool may_be_seen_later(struct drain_save *state)
{
    if (state->lost_since == 0)
        state->lost_since = clock_monotonic();
    return clock_monotonic() - state->lost_since < SEEN_SECONDS;
}

static int try_commit(struct drain_turn *turn, struct error *err)
{
    const struct staged_save *save = &turn->save->staged.save;
    const char *partial = turn->save->staged.name;
    char committed[FILE_NAME_SIZE];
    int result;

    if (drain_check_abandoned(turn, err) < 0 ||
        (!step_is_committed(&turn->target, save->step) && drain_check_claim(turn, err) < 0))
        return -1;
    result = may_commit(turn, err);
    if (result > 0) {
        result = ckpt_commit(save->dir, save->step, save->attempt, err);
        if (result <= 0)
            attempt_leave_commit(&turn->target, save->step, save->attempt);
    }
    if (result > 0 || step_is_committed(&turn->target, save->step))
        return is_committed(turn, err);
    if (result == 0 && file_exists(&turn->target, partial)) {
        turn->save->lost_since = 0;
        return 0;
    }
    if (result == 0 && may_be_seen_later(turn->save))
        return 0;
    name_step(committed, save->step);
    /* Its manifest cannot be found, for example because a storage server is down: it is unknown whose it is. */
    if (result == 0 && file_exists(&turn->target, committed))
        return error_set(err, CODE_IO, "%s/%s/" MANIFEST_NAME " cannot be found", save->dir, committed);
    if (result == 0)
        error_set(err, CODE_DATA, "%s/%s: has been removed", save->dir, partial);
    /* Another node may have abandoned it: then files vanish during the commit. */
    if (drain_check_abandoned(turn, err) < 0)
        return -1;
    if (err->code == CODE_DATA) /* in the target: the staged data is not damaged */
        return drain_judge_missing(turn, err);
    err->code = CODE_IO;
    return -1;
}

static int commit_if_due(struct drain_turn *turn, struct error *err)
{
    struct drain_save *state = turn->save;
    double now = clock_monotonic();
    int result;

    if (now < state->next_commit)
        return 0;
    state->next_commit = now + state->commit_delay;
    state->commit_delay = fmin(1.5 * state->commit_delay, MOST_DELAY);
    result = try_commit(turn, err);
    if (result < 0)
        state->next_commit = 0; /* retry_later has its own pauses */
    if (result != 0)
        return result;
    if (is_superseded(turn))
        return DRAIN_SUPERSEDED;
    if (state->lost_since != 0) /* it is not visible */
        return 0;
    return waits_for_others(turn) ? 0 : DRAIN_ALONE;
}

/* ---- an attempt that can never be committed ---------------------------------------------------------------------- */

/* So that other nodes do not wait for this node's shards. An earlier reason stays. */
static void abandon_attempt(struct drain_turn *turn, const char *why)
{
    const struct staged_save *save = &turn->save->staged.save;

    if (!attempt_is_abandoned(&turn->target, save->step, save->attempt, NULL, 0))
        attempt_abandon(&turn->target, save->step, save->attempt, why, NULL);
}

/* ---- after a commit ---------------------------------------------------------------------------------------------- */

/* When old checkpoints cannot be removed the disk fills: logged, but only once. */
static void prune_target(const struct drainer *drainer, const struct staged_save *save)
{
    struct drain_shared *shared = drainer->shared;
    struct error err;

    if (ckpt_prune(save->dir, save->keep, save->keep_every, &err) == 0 || shared->prune_failed)
        return;
    shared->prune_failed = true;
    drainer_log(drainer, true, "removing old checkpoints failed: %s", err.text);
}

/* ---- a turn ------------------------------------------------------------------------------------------------------ */

static int copy_missing(struct drain_turn *turn, const struct directory *from, struct error *err)
{
    int result = is_committed(turn, err); /* another node with copies of its shards may have done it */

    if (result != 0)
        return result;
    if (turn->save->copy_began == 0)
        turn->save->copy_began = clock_monotonic();
    atomic_store(&turn->drainer->shared->copying, true);
    if (from == &turn->source && !turn->drainer->in_use && is_superseded(turn)) /* by a later run */
        result = drain_check_claim(turn, err) < 0 ? -1 : DRAIN_SUPERSEDED;
    else
        result = drain_shards(turn, from, err);
    atomic_store(&turn->drainer->shared->copying, false);
    return result;
}

/* Copies what the target lacks, and then commits. */
static int drain_further(struct drain_turn *turn, struct error *err)
{
    struct directory partner;
    int result = 0;

    if (turn->own.staged > 0) { /* the expensive checks of the target, not at each turn */
        result = copy_missing(turn, &turn->source, err);
        if (result == 0)
            result = staged_contents(&turn->source, ".", &turn->own, err);
    }
    if (result == 0 && turn->copies) {
        result = directory_open(&partner, &turn->source, STAGE_PARTNER, err);
        if (result == 0)
            result = copy_missing(turn, &partner, err);
        directory_close(&partner);
    }
    if (result != 0 || turn->own.staged > 0 || turn->own.drained < turn->save->staged.save.local)
        return result;
    return commit_if_due(turn, err);
}

void drain_work(struct drain_turn *turn)
{
    struct drain_shared *shared = turn->drainer->shared;
    struct staged_save save = turn->save->staged.save; /* the drainer takes the record back once it has the result */
    struct error err = {0};
    int result = directory_open(&turn->target, NULL, save.dir, &err);
    bool prunes;

    if (turn->save->dropped) {
        if (result == 0)
            abandon_attempt(turn, turn->save->status.reason);
        return;
    }
    if (result == 0)
        result = drain_further(turn, &err);
    if (result < 0 && drain_ends(&err))
        abandon_attempt(turn, err.text);
    else if (result < 0 && is_superseded(turn))
        result = DRAIN_SUPERSEDED;
    if (result == DRAIN_COMMITTED)
        is_superseded(turn);                                        /* sets `newest`: another job's step may be newer */
    prunes = result == DRAIN_COMMITTED && is_node_of_shard_0(turn); /* one node does it */
    shared->result = (enum drain_result)result;
    shared->err = err;
    atomic_store(&shared->reported, true);
    if (write(turn->drainer->child.news, "\n", 1) == 1 &&
        prunes) /* the save has ended; the next one waits for this child */
        prune_target(turn->drainer, &save);
}
