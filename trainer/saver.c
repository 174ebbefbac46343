#include "trainer/saver.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "trainer/partner.h"
#include "trainer/saver_impl.h"

enum {
    JOIN_SECONDS = 10,
    LINE_SIZE = 1024,
};

void saver_say_line(struct saver *s, const char *format, ...)
{
    char line[LINE_SIZE];
    va_list args;

    if (comm_rank(s->world) != 0)
        return;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    s->say(s->arg, line);
}

/* Once: a log that repeats itself is not read. */
void saver_say_straight(struct saver *s, const struct error *why)
{
    if (!s->said)
        saver_say_line(s, "checkpoints are written straight to %s: %s", s->job->checkpoint.dir, why->text);
    s->said = true;
}

/* This rank's copy has come out as `result`. 0: staged on every rank; 1: not possible, *err says why; -1. */
static int share(struct saver *s, const struct ckpt_save *save, int result, struct error *err)
{
    struct error ignored;
    double worst = result < 0 ? 2 : result;
    bool kept;

    comm_purpose(s->world, "copies", "of a checkpoint");
    if (comm_max_f64(s->world, &worst, 1, err) < 0)
        return -1;
    if (worst == 0)
        return s->job->checkpoint.partner && nodes_count(s->nodes) > 1
                   ? partner_exchange(s->stage, save, s->world, s->nodes, &kept, err)
                   : 0;
    if (s->first)
        ckpt_stage_drop(s->stage, save->state.step, save->attempt, &ignored);
    if (comm_agree(s->world, result == 0 ? 0 : -1, err) == 0 || err->code == CODE_PEER)
        return -1;
    return worst == 1 ? 1 : -1;
}

static int begin_copy(struct saver *s, bool beside, struct error *err)
{
    double started = clock_monotonic();
    int result = engine_part_create(s->engine, &s->copy.part, err);

    if (result == 0)
        saver_copy_start(&s->copy, s->stage, beside);
    else
        engine_part_destroy(&s->copy.part);
    s->waited = clock_monotonic() - started;
    return result;
}

/* What share says of it. */
static int end_copy(struct saver *s, struct error *err)
{
    const struct ckpt_save *save = &s->copy.part.save;
    int result = saver_copy_wait(&s->copy, err);

    result = share(s, save, result, err);
    if (result == 0)
        s->saved = s->staged = save->state.step;
    engine_part_destroy(&s->copy.part);
    return result;
}

int saver_ready(struct saver *s, bool *ready, struct error *err)
{
    return saver_make_room(s, false, ready, err);
}

static int save_failed(uint64_t step, struct error *err)
{
    return error_prefix(err, "checkpoint of step %" PRIu64 " failed", step);
}

static uint64_t step_to_save(const struct saver *s)
{
    return s->engine->is_captured ? s->engine->captured.step : s->engine->step;
}

/* What this run has not reached yet, somebody else has saved; the two remove each other's checkpoints. */
void saver_look_for_others(struct saver *s)
{
    uint64_t *steps = NULL;
    size_t count = 0;

    /* Before its first save this run may not even have resumed, and what is drained is of the one before it. */
    if (s->others_said || s->saved == UINT64_MAX || comm_rank(s->world) != 0 ||
        ckpt_list(s->job->checkpoint.dir, &steps, &count, NULL) < 0)
        return;
    if (count > 0 && steps[0] > s->engine->step) {
        saver_say_line(s,
                       "%s has a checkpoint of step %" PRIu64 ", and this run is at step %" PRIu64
                       ": another job saves there, and each removes the other's checkpoints: stop one of them (or a "
                       "node that an earlier run lost was late)",
                       s->job->checkpoint.dir, steps[0], s->engine->step);
        s->others_said = true;
    }
    free(steps);
}

/* Once, as muster-ckptd says it of what it drains. */
static void say_prune_failed(struct saver *s)
{
    if (s->engine->prune_failed && !s->prune_said)
        saver_say_line(s, "removing old checkpoints failed, and they stay: %s", s->engine->prune_error.text);
    s->prune_said |= s->engine->prune_failed;
}

static int save_straight(struct saver *s, double started, struct error *err)
{
    uint64_t step = step_to_save(s);

    if (engine_save(s->engine, err) < 0)
        return save_failed(step, err);
    s->saved = s->committed = step;
    s->staged = UINT64_MAX;
    saver_say_line(s, "checkpoint of step %" PRIu64 " saved in %.2f s", step, clock_monotonic() - started);
    say_prune_failed(s);
    saver_look_for_others(s);
    return 0;
}

int saver_begin(struct saver *s, struct error *err)
{
    uint64_t step = step_to_save(s);
    bool ready;

    if (!s->stage)
        return save_straight(s, clock_monotonic(), err);
    if (saver_make_room(s, true, &ready, err) < 0) /* a rank that waited alone could not be told to drop a save */
        return -1;
    return begin_copy(s, s->engine->is_captured, err) < 0 ? save_failed(step, err) : 0;
}

bool saver_is_busy(const struct saver *s)
{
    return s && s->copy.under_way;
}

/* 1: on every rank. How long it takes to ask is time that training stands still, too. */
static int copies_are_over(struct saver *s, struct error *err)
{
    double going_on = !saver_copy_is_over(&s->copy);

    comm_purpose(s->world, "copies", "of a checkpoint");
    if (comm_max_f64(s->world, &going_on, 1, err) < 0)
        return -1;
    return going_on == 0;
}

/* The copy of that step did not get into the stage: the present state goes straight, unless that may be a bad one. */
static int save_instead(struct saver *s, uint64_t step, double started, struct error *err)
{
    saver_say_straight(s, err);
    if (s->engine->step != step && s->engine->skipped_in_a_row > 0)
        return save_failed(step, err);
    return save_straight(s, started, err);
}

int saver_end(struct saver *s, bool wait, struct error *err)
{
    double started = clock_monotonic();
    uint64_t step = s->copy.part.save.state.step;
    int result, over = 1;

    if (!s->copy.under_way)
        return 0;
    if (!wait && (over = copies_are_over(s, err)) <= 0) {
        s->waited += clock_monotonic() - started;
        return over;
    }
    result = end_copy(s, err);
    s->waited += clock_monotonic() - started;
    if (result < 0)
        return save_failed(step, err);
    return result == 0 || save_instead(s, step, started, err) == 0 ? 1 : -1;
}

int saver_save(struct saver *s, struct error *err)
{
    return saver_begin(s, err) < 0 || saver_end(s, true, err) < 0 ? -1 : 0;
}

uint64_t saver_saved(const struct saver *s)
{
    return s->saved;
}

uint64_t saver_committed(const struct saver *s)
{
    return s ? s->committed : UINT64_MAX;
}

/* Rank 0 knows whether the last save got through; it is not staged again, because nobody may be there to drain it. */
static int save_again(struct saver *s, struct error *err)
{
    double failed = comm_rank(s->world) == 0 && s->staged != UINT64_MAX && s->committed != s->staged;

    if (comm_max_f64(s->world, &failed, 1, err) < 0)
        return -1;
    if (failed == 0)
        return 0;
    if (engine_save(s->engine, err) < 0)
        return -1;
    s->committed = s->engine->step;
    saver_say_line(s, "checkpoint of step %" PRIu64 " saved at the second try", s->engine->step);
    return 0;
}

int saver_settle(struct saver *s, struct error *err)
{
    if (!s || !s->stage)
        return 0;
    if (saver_end(s, true, err) < 0) {
        if (err->code == CODE_PEER)
            return -1;
        saver_say_line(s, "%s", err->text);
    }
    return saver_wait_for_drain(s, err);
}

static void close_stage(struct saver *s)
{
    struct error ignored;

    if (s->first)
        ckpt_stage_close(s->stage, &ignored);
    ckpt_stage_destroy(s->stage);
    s->stage = NULL;
}

int saver_finish(struct saver *s, struct error *err)
{
    int result;

    if (!s || !s->stage)
        return 0;
    result = saver_settle(s, err);
    if (result < 0 && err->code == CODE_PEER)
        return -1;
    if (result > 0) { /* muster-ckptd tries once more when we have ended, as the epilog does */
        error_prefix(err, "it stays in %s, and likewise on the other nodes", ckpt_stage_directory(s->stage));
        close_stage(s);
        return 1;
    }
    result = save_again(s, err);
    if (result < 0)
        return -1;
    close_stage(s);
    ckptd_join(&s->ckptd, JOIN_SECONDS); /* a step that ends would take it along */
    return 0;
}

void saver_destroy(struct saver *s)
{
    struct error ignored;

    if (!s)
        return;
    if (s->copy.under_way) { /* of a run that fails: it is complete, or nobody takes it for that */
        saver_copy_wait(&s->copy, &ignored);
        engine_part_destroy(&s->copy.part);
    }
    ckpt_stage_destroy(s->stage);
    nodes_destroy(s->nodes);
    free(s);
}
