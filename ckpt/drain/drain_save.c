/*
 * drain_save.c - decides from a save's files what to do next for it. A `dropped` mark takes effect at once, even if a
 * child waits for the target. If there is work in the target, the save gets a turn: a child process copies shards,
 * tries to commit, and reports what becomes of the save (drain_work). It is tried again while its target fails, or
 * it ends: committed, superseded or failed.
 */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "ckpt/drain/drain_internal.h"

#define FIRST_DELAY 0.05
#define FIRST_PAUSE 0.25
#define MOST_PAUSE  30.0
#define FIRST_LOG   30.0
#define MOST_LOG    600.0

#define MISSING_SECONDS 300.0 /* without a change, until the log says that other nodes' shards are missing */

/* Its record, or a new one. */
static struct drain_save *find_save(struct drainer *drainer, const struct staged *staged)
{
    struct drain_save *saves = drainer->shared->saves, *unused = saves;

    for (int i = 0; i < DRAIN_SAVES; i++) {
        if (strcmp(saves[i].staged.name, staged->name) == 0)
            return &saves[i];
        if (!saves[i].staged.name[0] && (unused->staged.name[0] || unused->dropped))
            unused = &saves[i];
    }
    *unused = (struct drain_save){.commit_delay = FIRST_DELAY};
    status_begin(&unused->status, &staged->save);
    return unused;
}

/* What the save's directory holds, and its copies of partner's shards. */
static int read_contents(struct drain_turn *turn, struct error *err)
{
    struct contents partner;

    if (staged_contents(&turn->source, ".", &turn->own, err) < 0 ||
        staged_contents(&turn->source, STAGE_PARTNER, &partner, err) < 0)
        return -1;
    turn->copies = partner.staged > 0 && (turn->drainer->options.partner || !turn->drainer->in_use);
    return 0;
}

static void update_state(struct drain_turn *turn)
{
    turn->save->status.state = status_of(&turn->own, turn->save->staged.save.local);
}

/* Updates bytes and state of its status. Not while a child has it: then watch_turn adds the child's bytes. */
static void update_status(struct drain_turn *turn)
{
    struct ckpt_save_status *status = &turn->save->status;

    update_state(turn);
    /* Shards that are not here any more are drained. */
    if (status->bytes_total > turn->own.bytes && turn->own.drained > 0)
        turn->save->drained_bytes = status->bytes_total - turn->own.bytes;
    status->bytes_done = turn->save->drained_bytes;
    status->bytes_total = turn->save->drained_bytes + turn->own.bytes;
}

/* Sets why it has not ended yet (struct ckpt_save_status). */
static void set_reason(struct drain_turn *turn, const char *text)
{
    char *reason = turn->save->status.reason;
    bool same = strncmp(reason, text, sizeof turn->save->status.reason - 1) == 0;

    snprintf(reason, sizeof turn->save->status.reason, "%.511s", text);
    drainer_write_status(turn->drainer, !same);
}

/* ---- a target that fails ----------------------------------------------------------------------------------------- */

/* When it begins to fail, and then at intervals that grow: a log line for each try would hide the others. */
static void log_trouble(struct drain_turn *turn, double now, const struct error *why)
{
    const struct drainer *drainer = turn->drainer;
    struct drain_save *save = turn->save;
    double pause = save->logged_at - save->failing_since;

    if (save->failing_since == 0) {
        save->failing_since = save->logged_at = now;
        if (drainer_waits(drainer)) /* else log_left follows at once */
            drain_log(turn, true, "drain failed, it stays in %s and is tried again: %s", drainer->stage.path,
                      why->text);
    } else if (now - save->logged_at >= fmin(fmax(pause, FIRST_LOG), MOST_LOG)) {
        save->logged_at = now;
        drain_log(turn, true, "the drain to %s has failed for %.0f s, %s is kept: %s", turn->save->staged.save.dir,
                  now - save->failing_since, drainer->stage.path, why->text);
    }
}

/* The target failed: the save stays, and is tried again after a pause that grows. */
static void retry_later(struct drain_turn *turn, const struct error *why)
{
    struct drain_save *save = turn->save;
    double now = clock_monotonic();

    save->retry_pause = fmin(fmax(2 * save->retry_pause, FIRST_PAUSE), MOST_PAUSE);
    save->retry_at = drainer_waits(turn->drainer) ? now + save->retry_pause : HUGE_VAL;
    turn->drainer->retrying++;
    log_trouble(turn, now, why);
    set_reason(turn, why->text);
}

/* The target does not answer, which counts as a failure. `at_work`: the child has this save. */
static void wait_for_answer(struct drain_turn *turn, bool at_work)
{
    struct error why;

    error_set(&why, CODE_IO, "%s has not answered for %.0f s", turn->save->staged.save.dir,
              turn->drainer->child.still.seconds);
    turn->drainer->retrying++;
    if (at_work)
        log_trouble(turn, clock_monotonic(), &why);
    if (at_work && turn->save->status.state < CKPT_HANGING)
        turn->save->status.state = CKPT_HANGING;
    set_reason(turn, why.text);
}

void drainer_end_pauses(struct drainer *drainer)
{
    for (int i = 0; i < DRAIN_SAVES; i++)
        drainer->shared->saves[i].retry_at = 0;
}

/* The target works. It may be that other nodes' shards do not come: said once. */
static void note_others(struct drain_turn *turn)
{
    bool missing = turn->save->others.seconds >= MISSING_SECONDS, said = turn->save->status.reason[0];
    char text[512] = "";

    if (missing)
        snprintf(text, sizeof text, "other nodes' shards are missing in %.400s, and nothing changes there",
                 turn->save->staged.save.dir);
    if (missing && !said)
        drain_log(turn, false, "%s", text);
    if (missing || said)
        set_reason(turn, text);
}

/* The target works again, if it failed before. */
static void note_recovery(struct drain_turn *turn)
{
    struct drain_save *save = turn->save;

    note_others(turn);
    if (save->failing_since == 0)
        return;
    drain_log(turn, true, "the drain to %s works again, it had failed for %.0f s", turn->save->staged.save.dir,
              clock_monotonic() - save->failing_since);
    save->retry_pause = save->failing_since = save->lost_since = 0;
    drainer_end_pauses(turn->drainer);
}

/* ---- its end ----------------------------------------------------------------------------------------------------- */

/* Takes the save out of the stage: the ranks may use its slots again. If it cannot be moved away,
 * because the stage has no inode left, its files are deleted where they are. */
static void remove_save(struct drain_turn *turn)
{
    const struct directory *stage = &turn->drainer->stage;
    char *name = turn->save->staged.name;

    if (file_trash(stage, name, NULL) < 0) {
        file_remove_all(&turn->source);
        unlinkat(stage->fd, name, AT_REMOVEDIR);
    }
    name[0] = '\0';
}

/* The status first: if this process is killed in between, the next drainer ends the save in the same way. */
static void end_drain(struct drain_turn *turn, enum ckpt_save_state state, const char *reason)
{
    struct drainer *drainer = turn->drainer;
    struct ckpt_save_status *ended = drainer->status.saves, *status = &turn->save->status;

    status->state = state;
    status->ended = clock_realtime();
    status->serial = drainer->ended > 0 ? ended[drainer->ended - 1].serial + 1 : 1;
    if (state != CKPT_FAILED)
        status->newest = drainer->shared->newest;
    if (state == CKPT_COMMITTED) {
        status->bytes_done = status->bytes_total;
        drainer_end_pauses(drainer); /* older ones are superseded */
    }
    snprintf(status->reason, sizeof status->reason, "%.511s", reason);
    if (drainer->ended == STATUS_ENDED)
        memmove(ended, ended + 1, --drainer->ended * sizeof *ended);
    ended[drainer->ended++] = *status;
    drainer_write_status(drainer, true);
    /* The run logs a dropped save, in one line for all nodes. */
    drain_log(turn, state == CKPT_FAILED && !turn->save->dropped, "%s%s%s", status_state_name(state),
              *reason ? ": " : "", reason);
    remove_save(turn);
}

static void fail_drain(struct drain_turn *turn, enum ckpt_drained result, const char *reason)
{
    if (turn->drainer->result != CKPT_DRAIN_DAMAGED)
        turn->drainer->result = result;
    end_drain(turn, CKPT_FAILED, reason);
}

/*
 * The run has given it up, or can complete it no more. Kills a child that works on it: memory is freed even if the
 * target does not answer. A child then tries to abandon the attempt. `why` is "" where the run reports it, or is dead.
 */
static void drop_save(struct drain_turn *turn, const char *why)
{
    struct drain_save *save = turn->save;
    char *reason = save->status.reason;
    struct error err;

    error_set(&err, CODE_IO, "dropped, %s%s%s", *why ? why : "not all of its shards were staged", *reason ? ": " : "",
              reason);
    if (strcmp(turn->drainer->child.name, save->staged.name) == 0)
        drain_child_kill(turn->drainer);
    save->dropped = true;
    if (*why) {
        end_drain(turn, CKPT_FAILED, err.text);
    } else {
        snprintf(reason, sizeof save->status.reason, "%.511s", err.text);
        drain_log(turn, false, "%s", reason);
        remove_save(turn);
    }
}

bool drainer_abandon_next(struct drainer *drainer)
{
    struct drain_save *save = drainer->shared->saves, *end = save + DRAIN_SAVES, own;
    struct drain_turn turn = {.drainer = drainer, .save = &own};

    while (save < end && !save->dropped)
        save++;
    if (save == end || drainer->child.pid != 0)
        return save < end;
    own = *save; /* the record is free, and the child has a copy */
    save->dropped = false;
    drain_child_start(&turn, NULL);
    return true;
}

/* ---- its turn: end_turn and take_turn return false if the save has ended ----------------------------------------- */

/* Ends the turn: handles the child's result, or the child's end without a result. */
static bool end_turn(struct drain_turn *turn)
{
    struct drainer *drainer = turn->drainer;
    struct error err = drainer->shared->err;
    enum drain_result result = drainer->shared->result;
    char why[512];

    drainer->child.name[0] = '\0';
    if (!atomic_load(&drainer->shared->reported)) {
        if (drainer->child.stopped) {
            drain_log(turn, true, "failed: the process that drains it was stopped; another one continues");
            return true;
        }
        result = DRAIN_FAILED;
        error_set(&err, CODE_IO, "the process that drains it ended unexpectedly");
    }
    update_status(turn);
    if (result == DRAIN_ALONE) {
        snprintf(
            why, sizeof why,
            turn->save->complete
                ? "complete in %.350s, and the node that had begun to commit it does not end: the job's next start "
                  "commits it, or muster-ckpt recover"
                : "other nodes' shards are missing in %.350s: a node that still has the save commits it when they "
                  "arrive",
            turn->save->staged.save.dir);
        fail_drain(turn, CKPT_DRAIN_OTHERS, why);
        return false;
    }
    if (result == DRAIN_FAILED && !drain_ends(&err)) {
        retry_later(turn, &err);
        return true;
    }
    if (result == DRAIN_NOT_YET || result == DRAIN_COMMITTED)
        note_recovery(turn);
    if (result == DRAIN_NOT_YET || result == DRAIN_STOPPED)
        return true;
    if (result == DRAIN_FAILED)
        fail_drain(turn, err.code == CODE_DATA ? CKPT_DRAIN_DAMAGED : CKPT_DRAIN_OTHERS, err.text);
    else
        end_drain(turn, result == DRAIN_COMMITTED ? CKPT_COMMITTED : CKPT_SUPERSEDED, "");
    return false;
}

/* While the child has it. */
static void watch_turn(struct drain_turn *turn)
{
    const struct drain_shared *shared = turn->drainer->shared;
    struct ckpt_save_status *status = &turn->save->status;
    double now = clock_monotonic(), began = turn->save->copy_began;
    uint64_t bytes = atomic_load(&shared->bytes);

    if (drain_child_hangs(turn->drainer)) {
        update_state(turn);
        wait_for_answer(turn, true);
        return;
    }
    if (status->state == CKPT_HANGING) {
        update_state(turn);
        set_reason(turn, "");
    }
    if (atomic_load(&shared->copying) && now > began) {
        status->state = CKPT_DRAINING;
        status->bytes_done = turn->save->drained_bytes + bytes;
        status->rate = (double)bytes / (now - began);
    }
}

/* Gives it a turn if there is work in the target now. */
static void begin_turn(struct drain_turn *turn)
{
    struct drainer *drainer = turn->drainer;
    struct error err;

    if (turn->own.staged == 0 && !turn->copies &&
        (turn->own.drained < turn->save->staged.save.local || clock_monotonic() < turn->save->next_commit)) {
        /* A process of that run may still stage the rest. */
        drainer->retrying += drainer->last_try && turn->save->status.state == CKPT_STAGING;
        return;
    }
    if (drain_child_hangs(drainer))
        wait_for_answer(turn, false);
    else if (drainer->child.pid != 0)
        return;
    else if (drain_child_start(turn, &err) < 0)
        retry_later(turn, &err);
    else
        memcpy(drainer->child.name, turn->save->staged.name, sizeof drainer->child.name);
}

/* Whether the run has given it up; sets *why, which is "" where the run reports it. Without a run the mark has no
 * effect: the save that it made room for may not exist. */
static bool is_dropped(const struct drain_turn *turn, char *why, size_t size)
{
    bool dropped = turn->drainer->in_use && stage_read_mark(&turn->source, STAGE_DROPPED, why, size);

    if (!dropped || strcmp(why, DROPPED_SILENTLY) == 0)
        why[0] = '\0';
    return dropped;
}

/* What the child has done, or what is to be done. */
static bool take_turn(struct drain_turn *turn, bool under_way)
{
    struct drainer *drainer = turn->drainer;
    char why[256];

    if (under_way && (atomic_load(&drainer->shared->reported) || drainer->child.pid == 0)) {
        if (!end_turn(turn))
            return false;
        if (clock_monotonic() < turn->save->retry_at)
            return true;
        under_way = false; /* this one first: if a newer one were committed now, this one would be discarded */
    }
    if (!under_way)
        update_status(turn);
    if (is_dropped(turn, why, sizeof why) ||
        (!under_way && !drainer->in_use && turn->save->status.state == CKPT_STAGING)) {
        drop_save(turn, why);
        return false;
    }
    if (under_way)
        watch_turn(turn);
    else if (clock_monotonic() < turn->save->retry_at)
        drainer->retrying++;
    else
        begin_turn(turn);
    return true;
}

/* ---- any save of the stage --------------------------------------------------------------------------------------- */

/* Its target.json cannot be read. The save stays: nothing else says where it goes. */
static bool handle_unread(struct drain_turn *turn)
{
    if (!file_exists(&turn->source, STAGE_TARGET)) { /* a drainer was killed while it removed the save */
        remove_save(turn);
        return false;
    }
    retry_later(turn, &turn->save->staged.unread);
    return true;
}

bool drain_handle(struct drainer *drainer, const struct staged *staged)
{
    struct drain_turn turn = {.drainer = drainer, .save = find_save(drainer, staged), .partial.fd = -1};
    bool under_way = strcmp(drainer->child.name, staged->name) == 0, left = true;
    struct error why;

    if (directory_open(&turn.source, &drainer->stage, staged->name, NULL) < 0) {
        drainer->retrying += errno != ENOENT;
        return errno != ENOENT;
    }
    if (!under_way)
        turn.save->staged = *staged;
    if (turn.save->staged.unread.code != CODE_OK)
        left = handle_unread(&turn);
    else if (read_contents(&turn, &why) < 0)
        retry_later(&turn, &why);
    else
        left = take_turn(&turn, under_way);
    directory_close(&turn.source);
    return left;
}
