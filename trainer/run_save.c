/* run_save.c - when a run saves, and what it says of it. */
#include <inttypes.h>

#include "trainer/watch/recorder.h"
#include "trainer/run.h"
#include "trainer/saver.h"

static void say_line(void *arg, const char *line)
{
    run_log(arg, "%s", line);
}

int run_save_start(struct run *run, struct error *err)
{
    recorder_phase("draining what was staged before");
    run->saver = saver_create(run->engine, run->hosts[0].host, sizeof *run->hosts, say_line, run, err);
    return run->saver ? 0 : -1;
}

/* A run that saves once, at its end, need not hold the memory from the start. */
int run_save_reserve(struct run *run, struct error *err)
{
    recorder_phase("reserving memory for checkpoints");
    return run->job->checkpoint.every > 0 ? saver_reserve(run->saver, err) : 0;
}

uint64_t run_last_saved(const struct run *run)
{
    uint64_t committed = saver_committed(run->saver);

    return committed != UINT64_MAX ? committed : run->loaded_step;
}

/* The copy beside training, if there is one and it is over on all ranks; with `wait`, when it is. */
static int end(struct run *run, bool wait, struct error *err)
{
    int result;

    if (!saver_is_busy(run->saver))
        return 0;
    recorder_phase("saving a checkpoint");
    result = saver_end(run->saver, wait, err);
    recorder_phase(NULL);
    if (result > 0)
        run->saved_step = saver_saved(run->saver);
    return result < 0 ? -1 : 0;
}

static int begin(struct run *run, struct error *err)
{
    uint64_t step = run->save_captured ? run->engine->captured.step : run->engine->step;
    struct error sync_error;
    int result;

    run->save_captured = false;
    if (!run->job->checkpoint.dir[0] || run->saved_step == step)
        return 0;
    if (run->metrics && metrics_sync(run->metrics, &sync_error) < 0)
        run_log(run, "metrics may lack steps up to this checkpoint: %s", sync_error.text);
    recorder_phase("saving a checkpoint");
    result = saver_begin(run->saver, err);
    recorder_phase(NULL);
    if (result == 0 && !saver_is_busy(run->saver)) /* straight */
        run->saved_step = saver_saved(run->saver);
    return result;
}

/* *err tells the caller why, should this checkpoint have been needed. */
static int save(struct run *run, struct error *err)
{
    return begin(run, err) < 0 ? -1 : end(run, true, err);
}

/*
 * While steps are skipped a save is put off: what makes them bad may be the parameters, and checkpoints of those would
 * soon have replaced all that are good.
 */
static bool is_due(struct run *run)
{
    long every = run->job->checkpoint.every;
    bool last = run->engine->step == (uint64_t)run->job->batch.steps; /* saved at the end anyway */

    if (every > 0 && run->engine->step % (uint64_t)every == 0)
        run->save_due = true;
    return run->save_due && !last && run->engine->skipped_in_a_row == 0;
}

/* A save for which there is no room yet is put off too, rather than that training waits for the drain. */
static int has_room(struct run *run, bool *ready, struct error *err)
{
    if (saver_ready(run->saver, ready, err) < 0)
        return -1;
    if (!*ready && !run->save_waits)
        run_log(run, "the checkpoint due at step %" PRIu64 " waits until an earlier one is drained", run->engine->step);
    run->save_waits = !*ready;
    return 0;
}

/* A failed save is reported and training goes on: earlier checkpoints stand, and the next save tries again. */
static int or_say(const struct run *run, int result, struct error *err)
{
    if (result == 0)
        return 0;
    if (err->code != CODE_IO && err->code != CODE_DATA)
        return -1;
    run_log(run, "%s; training goes on", err->text);
    return 0;
}

/* What is under way, or captured and yet to be begun: at most one of the two. */
static int save_rest(struct run *run, struct error *err)
{
    if (or_say(run, end(run, true, err), err) < 0)
        return -1;
    return run->save_captured ? or_say(run, save(run, err), err) : 0;
}

int run_save_on_the_way(struct run *run, struct error *err)
{
    bool ready;

    if (or_say(run, end(run, false, err), err) < 0)
        return -1;
    saver_poll(run->saver);
    if (run->save_captured &&
        or_say(run, begin(run, err), err) < 0) /* of the step before, whose transfer this one hid */
        return -1;
    if (!is_due(run))
        return 0;
    if (or_say(run, end(run, true, err), err) < 0) /* what it copies a capture would change */
        return -1;
    if (has_room(run, &ready, err) < 0)
        return -1;
    if (!ready)
        return 0;
    run->save_due = false;
    if (run->saved_step == run->engine->step) /* because what was captured before did not get through */
        return 0;
    run->save_captured = engine_capture(run->engine);
    return run->save_captured ? 0 : or_say(run, save(run, err), err);
}

int run_save_last(struct run *run, struct error *err)
{
    int result;

    if (save_rest(run, err) < 0 || save(run, err) < 0)
        return -1;
    recorder_phase("draining the last checkpoint");
    result = saver_finish(run->saver, err);
    recorder_phase(NULL);
    if (result < 0)
        return error_prefix(err, "checkpoint of step %" PRIu64 " failed", run->engine->step);
    if (result > 0)
        error_prefix(err, "checkpoint of step %" PRIu64 " is not in %s", run->engine->step, run->job->checkpoint.dir);
    return result;
}

int run_save_settle(struct run *run, struct error *err)
{
    int result;

    if (save_rest(run, err) < 0)
        return -1;
    recorder_phase("draining the last checkpoint");
    result = saver_settle(run->saver, err);
    recorder_phase(NULL);
    return result < 0 ? -1 : 0;
}

void run_save_stop(struct run *run)
{
    saver_destroy(run->saver);
    run->saver = NULL;
}
