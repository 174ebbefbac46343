/*
 * drain_commit.c - an attempt in the checkpoint directory: commits it when its shards are copied; or abandons it, for
 * all nodes, if it can never be committed.
 */
#include "config.h"

#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "ckpt/drain/drain_internal.h"
#include "ckpt/write/attempt.h"
#include "common/clock.h"

#define MOST_DELAY  1.0  /* seconds between commits */
#define MANY_SHARDS 4096 /* with so many, a node does not list all files for each try */

#define IDLE_LOOKS 16 /* calls of measure_activity in `idle` seconds, while a node waits for others' shards */

#define COMMIT_TRIES 6
#define COMMIT_PAUSE 0.05

#define OTHERS_SECONDS 1.5 /* only the node of shard 0 commits a complete attempt for so long */

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

    if (drain_open_target(turn, NULL) < 0 || !step_is_committed(&turn->target, staged->step))
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

    return turn->target.fd >= 0 && step_newest_committed(&turn->target, newest, NULL) > 0 &&
           *newest > turn->save->staged.save.step;
}

/* A number that changes whenever a process writes to an attempt in the checkpoint directory. */
static uint64_t measure_activity(const struct directory *target)
{
    struct attempt *attempts;
    struct directory directory;
    struct listing listing;
    const char *file;
    struct stat info;
    uint64_t sum = 0;
    size_t count;

    if (attempt_list(target, &attempts, &count, NULL) < 0)
        return 0;
    for (size_t i = 0; i < count; i++) {
        if (attempts[i].abandoned || directory_open_made(&directory, target, attempts[i].name, NULL) < 0)
            continue;
        listing = listing_open(&directory);
        while ((file = listing_next(&listing)))
            if (fstatat(directory.fd, file, &info, AT_SYMLINK_NOFOLLOW) == 0)
                sum += 1 + (uint64_t)info.st_size + (uint64_t)info.st_mtim.tv_sec + (uint64_t)info.st_mtim.tv_nsec;
        listing_close(&listing, NULL);
        directory_close(&directory);
        sum++;
    }
    free(attempts);
    return sum;
}

static int check_moving(struct drain_turn *turn, double now)
{
    struct drain_save *state = turn->save;
    uint64_t sum;

    if (turn->drainer->options.idle < 0)
        return DRAIN_WAITS;
    if (now < state->next_look)
        return state->stalled ? DRAIN_WAITS : 0;
    state->next_look = now + turn->drainer->options.idle / IDLE_LOOKS;
    sum = measure_activity(&turn->target);
    if (sum != state->activity) {
        state->activity = sum;
        state->moved_at = now;
        state->stalled = false;
    }
    return now - state->moved_at < turn->drainer->options.idle ? 0 : DRAIN_WAITS;
}

static bool had_first_shard(const struct drain_turn *turn)
{
    char first[FILE_NAME_SIZE];

    name_shard(first, SHARD_DRAINED, 0, turn->save->staged.save.shards);
    return file_exists(&turn->source, first);
}

/*
 * Whether to commit now if no file is missing. The node of shard 0 always does; another node only when the attempt has
 * been complete for OTHERS_SECONDS and shard 0's node has not committed it. So two nodes rarely commit at the same
 * time: GlusterFS loses a file when one client renames to its name while another removes the source of such a rename.
 *
 * For a save of many shards, the other nodes look for missing files right after they have copied their own shards, and
 * then after every half of `idle`, so that not all nodes list all files repeatedly.
 */
static bool may_commit(struct drain_turn *turn)
{
    const struct staged_save *save = &turn->save->staged.save;
    struct drain_save *state = turn->save;
    double now = clock_monotonic();

    if (had_first_shard(turn))
        return true;
    if (save->shards >= MANY_SHARDS && now < state->next_gather)
        return false;
    state->next_gather = now + turn->drainer->options.idle / 2;
    if (!attempt_is_complete(&turn->target, save->step, save->attempt)) {
        state->complete_since = 0;
        return true; /* ckpt_commit finds out what is missing */
    }
    if (state->complete_since == 0)
        state->complete_since = now;
    if (now - state->complete_since >= OTHERS_SECONDS)
        return true;
    state->next_gather = 0;
    return false;
}

static int try_commit(struct drain_turn *turn, struct error *err)
{
    const struct staged_save *save = &turn->save->staged.save;
    const char *partial = turn->save->staged.name;
    char committed[FILE_NAME_SIZE];
    struct error abandoned;
    int result;
    bool there;

    if (drain_open_target(turn, err) < 0 || drain_check_abandoned(turn, err) < 0)
        return -1;
    if (!step_is_committed(&turn->target, save->step) && drain_check_claim(turn, err) < 0)
        return -1;
    if (!may_commit(turn))
        return is_committed(turn, err);
    there = file_exists(&turn->target, partial);
    result = ckpt_commit(save->dir, save->step, save->attempt, err);
    if (result > 0 || step_is_committed(&turn->target, save->step))
        return is_committed(turn, err);
    if (result == 0 && there)
        return 0;
    name_step(committed, save->step);
    if (result == 0 && file_exists(&turn->target, committed)) /* step-N exists and its manifest cannot be found, for
                                                                 example because a storage server is down: it is unknown
                                                                 whose it is */
        return error_set(err, CODE_IO, "%s/%s/" MANIFEST_NAME " cannot be found", save->dir, committed);
    if (result == 0)
        error_set(err, CODE_DATA, "%s/%s: has been removed", save->dir, partial);
    /* Another node may have abandoned it: then files vanish during the commit. */
    if (drain_check_abandoned(turn, &abandoned) < 0) {
        *err = abandoned;
        return -1;
    }
    if (err->code == CODE_DATA) /* in the target: the staged data is not damaged */
        return drain_judge_missing(turn, err);
    err->code = CODE_IO;
    return -1;
}

/* Whether the attempt, or its step, is in the checkpoint directory. */
static bool is_in_target(const struct drain_turn *turn)
{
    const struct staged *staged = &turn->save->staged;
    char committed[FILE_NAME_SIZE];

    name_step(committed, staged->save.step);
    return turn->target.fd >= 0 && (file_exists(&turn->target, staged->name) || file_exists(&turn->target, committed));
}

/*
 * Several nodes may commit at the same time; may_commit makes that rare. While one of them renames the directory, and
 * about a second later, a network file system may deny another node the files in it (GlusterFS: ENOENT). So a failure
 * counts only if it persists.
 */
static int commit_patiently(struct drain_turn *turn, struct error *err)
{
    double pause = COMMIT_PAUSE;
    int result = try_commit(turn, err);

    for (int tries = 0; tries < COMMIT_TRIES && result < 0 && err->code == CODE_IO && is_in_target(turn); tries++) {
        clock_sleep(pause);
        pause *= 2;
        turn->save->next_gather = 0;
        result = try_commit(turn, err);
    }
    return result;
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
    result = commit_patiently(turn, err);
    if (result < 0)
        state->next_commit = state->next_gather = 0;                 /* retry_later has its own pauses */
    if (result != 0 || now - state->complete_since < OTHERS_SECONDS) /* shard 0's node may still commit it */
        return result;
    return is_superseded(turn) ? DRAIN_SUPERSEDED : check_moving(turn, now);
}

/* ---- an attempt that can never be committed ---------------------------------------------------------------------- */

/* So that other nodes do not wait for this node's shards. An earlier reason stays. */
static void abandon_attempt(struct drain_turn *turn, const char *why)
{
    const struct staged_save *save = &turn->save->staged.save;

    if (drain_open_target(turn, NULL) == 0 && !attempt_is_abandoned(&turn->target, save->step, save->attempt, NULL, 0))
        attempt_abandon(&turn->target, save->step, save->attempt, why, NULL);
}

/* ---- after a commit ---------------------------------------------------------------------------------------------- */

/* When old checkpoints cannot be removed the disk fills: logged, but only once. The next prune removes what cannot be
 * removed now. */
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
    turn->save->next_gather = 0;
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
    int result;
    bool prunes;

    if (turn->save->dropped) {
        abandon_attempt(turn, turn->save->status.reason);
        return;
    }
    result = drain_further(turn, &err);
    if (result < 0 && drain_ends(&err))
        abandon_attempt(turn, err.text);
    else if (result < 0 && is_superseded(turn))
        result = DRAIN_SUPERSEDED;
    if (result == DRAIN_COMMITTED)
        /* Sets `newest`: another job's step may be newer. */
        is_superseded(turn);
    prunes = result == DRAIN_COMMITTED && had_first_shard(turn); /* one node does it */
    shared->result = (enum drain_result)result;
    shared->err = err;
    atomic_store(&shared->reported, true);
    if (write(turn->drainer->child.news, "\n", 1) == 1 && prunes) /* the drainer continues meanwhile */
        prune_target(turn->drainer, &save);
}
