#include "trainer/saver.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ckpt/stage.h"
#include "common/crc32c.h"
#include "trainer/ckptd.h"
#include "trainer/nodes.h"
#include "trainer/partner.h"

enum {
    MOST_RESTARTS = 5, /* of muster-ckptd, each after less than LONG_LIVED seconds */
    LONG_LIVED = 10,
    JOIN_SECONDS = 10,
    LINE_SIZE = 1024,
    NAME_SIZE = CKPT_ATTEMPT_SIZE, /* of the stage; what ckpt_stage_open takes */
};

struct saver {
    struct engine *engine;
    const struct job *job;
    struct comm *world;
    saver_say *say;
    void *arg;
    struct nodes *nodes;
    struct ckpt_stage *stage; /* NULL: saves go straight */
    struct ckptd ckptd;       /* of the first rank of each node */
    int restarts;
    double restarted; /* when it was last */
    bool said;        /* that staging is not possible */
    bool first;
    uint64_t saved, staged, committed; /* steps; UINT64_MAX: none */
    double waited;                     /* that training stood still for the last staged save, in seconds */
};

static void say(struct saver *s, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void say(struct saver *s, const char *format, ...)
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

static double seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Once: a log that repeats itself is not read. */
static void say_straight(struct saver *s, const struct error *why)
{
    if (!s->said)
        say(s, "checkpoints are written straight to %s: %s", s->job->checkpoint.dir, why->text);
    s->said = true;
}

/* ---- the drain ---- */

/* Also by another than ours: one that outlived an earlier run has the stage until it is through with that run's. */
static bool is_tended(struct saver *s)
{
    return (s->ckptd.pid != 0 && !ckptd_ended(&s->ckptd)) || ckpt_stage_is_drained(s->stage);
}

/* A drainer that was killed costs nothing but a new one; one that ends again and again is left alone. */
static void tend(struct saver *s)
{
    struct error err;

    if (!s->stage || !s->first || is_tended(s))
        return;
    if (seconds() - s->restarted > LONG_LIVED)
        s->restarts = 0;
    if (s->restarts == MOST_RESTARTS)
        return;
    s->restarts++;
    s->restarted = seconds();
    if (ckptd_start(&s->ckptd, ckpt_stage_directory(s->stage), s->job->checkpoint.drain_mib, &err) == 0)
        say(s, "muster-ckptd had ended and was started anew");
    else
        say(s, "%s", err.text);
}

static void tell(struct saver *s, const struct ckpt_stage_news *news)
{
    bool last = news->step == s->staged;

    switch (news->outcome) {
    case CKPT_COMMITTED:
        s->committed = news->step;
        if (last)
            say(s, "checkpoint of step %" PRIu64 " saved in %.2f s, of which training waited %.3f s", news->step,
                news->seconds, s->waited);
        else
            say(s, "checkpoint of step %" PRIu64 " saved in %.2f s", news->step, news->seconds);
        break;
    case CKPT_SUPERSEDED:
        say(s, "checkpoint of step %" PRIu64 " was overtaken by a newer one", news->step);
        break;
    case CKPT_FAILED:
        say(s, "checkpoint of step %" PRIu64 " failed: %s; training goes on", news->step, news->reason);
        break;
    }
}

void saver_poll(struct saver *s)
{
    struct ckpt_stage_news news;
    struct error err;

    if (!s || !s->stage)
        return;
    tend(s);
    while (comm_rank(s->world) == 0 && ckpt_stage_poll(s->stage, &news, &err) > 0)
        tell(s, &news);
}

/* In short collectives, so that no watchdog takes a long drain for a hang. */
static int wait_for_drain(struct saver *s, struct error *err)
{
    enum { DONE, DRAINING, NOBODY };

    for (;;) {
        double state = DONE;
        struct error ignored;
        int result = s->first ? ckpt_stage_wait(s->stage, 0.05, &ignored) : 0;

        saver_poll(s);
        if (result != 0)
            state = is_tended(s) || s->restarts < MOST_RESTARTS ? DRAINING : NOBODY;
        if (comm_max_f64(s->world, &state, 1, err) < 0)
            return -1;
        if (state == DONE)
            break;
        if (state == NOBODY)
            return error_set(err, CODE_IO, "muster-ckptd ended %d times on a node: nobody drains what is staged there",
                             MOST_RESTARTS);
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    }
    saver_poll(s);
    return 0;
}

/* ---- opening ---- */

/*
 * "JOB.HOST.CHECKSUM": a job that comes back must find what it staged. Under Slurm it keeps its number, which the
 * epilog looks for too. The checksum is of the checkpoint directory, for runs without Slurm, and for several in one
 * job. The node, or what fits of its name, is part of it because tests run several nodes on one machine.
 */
static int stage_name(struct saver *s, const char *host, char name[static NAME_SIZE], struct error *err)
{
    const char *job = getenv("SLURM_JOB_ID");
    char path[4096];
    uint32_t where = 0;

    if (comm_rank(s->world) == 0 && realpath(s->job->checkpoint.dir, path))
        where = crc32c(0, path, strlen(path));
    if (comm_broadcast(s->world, &where, sizeof where, 0, err) < 0)
        return -1;
    snprintf(name, NAME_SIZE, "%.10s.%.44s.%08x", job && job[0] ? job : "run", host, (unsigned)where);
    return 0;
}

/* The first rank of a node clears up, then its others come in. */
static int open_stage(struct saver *s, const char *host, struct error *err)
{
    char name[NAME_SIZE];
    struct ckpt_stage_config config = {
        .root = s->job->checkpoint.stage,
        .job = name,
        .local = nodes_locals(s->nodes, nodes_of(s->nodes, comm_rank(s->world))),
        .staged = s->job->checkpoint.staged,
        .keep = s->job->checkpoint.keep,
        .keep_every = (uint64_t)s->job->checkpoint.keep_every,
        .adopt = s->first,
    };
    int result = 0;

    if (stage_name(s, host, name, err) < 0)
        return -1;
    if (s->first) {
        s->stage = ckpt_stage_open(&config, err);
        result =
            s->stage ? ckptd_start(&s->ckptd, ckpt_stage_directory(s->stage), s->job->checkpoint.drain_mib, err) : -1;
    }
    if (comm_agree(s->world, result, err) < 0)
        return -1;
    if (!s->first)
        s->stage = ckpt_stage_open(&config, err);
    return comm_agree(s->world, s->stage ? 0 : -1, err);
}

static void forget_stage(struct saver *s)
{
    struct error ignored;

    if (s->stage && s->first)
        ckpt_stage_close(s->stage, &ignored);
    ckpt_stage_destroy(s->stage);
    s->stage = NULL;
}

struct saver *saver_create(struct engine *engine, const char *hosts, size_t stride, saver_say *say_line, void *arg,
                           struct error *err)
{
    struct saver *s = calloc(1, sizeof *s);
    int rank = comm_rank(engine->world);

    if (comm_agree(engine->world, s ? 0 : error_set(err, CODE_IO, "out of memory for saving"), err) < 0) {
        free(s);
        return NULL;
    }
    *s = (struct saver){.engine = engine,
                        .job = engine->job,
                        .world = engine->world,
                        .say = say_line,
                        .arg = arg,
                        .saved = UINT64_MAX,
                        .staged = UINT64_MAX,
                        .committed = UINT64_MAX};
    if (!s->job->checkpoint.dir[0] || !s->job->checkpoint.stage[0])
        return s;
    s->nodes = nodes_create(hosts, stride, comm_size(s->world), err);
    if (comm_agree(s->world, s->nodes ? 0 : -1, err) < 0)
        goto fail;
    s->first = nodes_local(s->nodes, rank) == 0;
    if (open_stage(s, hosts + (size_t)rank * stride, err) == 0 && wait_for_drain(s, err) == 0)
        return s;
    if (err->code == CODE_PEER)
        goto fail;
    say_straight(s, err);
    forget_stage(s);
    return s;
fail:
    saver_destroy(s);
    return NULL;
}

/* ---- saving ---- */

/* 0: staged on every rank; 1: not possible, *err says why; -1. */
static int stage(struct saver *s, const struct ckpt_save *save, struct error *err)
{
    struct error ignored;
    double worst;
    bool kept;
    int result = ckpt_stage_shard(s->stage, save, err);

    worst = result < 0 ? 2 : result;
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

int saver_reserve(struct saver *s, struct error *err)
{
    struct engine_part part;
    int result;

    if (!s->stage)
        return 0;
    result = engine_part_create(s->engine, &part, err);
    if (result < 0) {
        engine_part_destroy(&part);
        return -1;
    }
    result = ckpt_stage_reserve(s->stage, &part.save, err);
    engine_part_destroy(&part);
    if (comm_agree(s->world, result == 0 ? 0 : -1, err) == 0)
        return 0;
    if (err->code == CODE_PEER)
        return -1;
    say_straight(s, err);
    forget_stage(s);
    return 0;
}

int saver_ready(struct saver *s, bool *ready, struct error *err)
{
    double full = s->stage && !ckpt_stage_ready(s->stage, comm_rank(s->world), comm_size(s->world));

    comm_purpose(s->world, "room", "for a checkpoint");
    if (comm_max_f64(s->world, &full, 1, err) < 0)
        return -1;
    *ready = full == 0;
    return 0;
}

/* 0: staged; 1: not possible, *err says why; -1. */
static int save_staged(struct saver *s, struct error *err)
{
    struct engine_part part;
    int result = engine_part_create(s->engine, &part, err) < 0 ? -1 : stage(s, &part.save, err);

    if (result == 0)
        s->saved = s->staged = part.save.state.step;
    engine_part_destroy(&part);
    return result;
}

int saver_save(struct saver *s, struct error *err)
{
    double started = seconds();
    uint64_t step;

    if (s->stage) {
        int result = save_staged(s, err);

        s->waited = seconds() - started;
        if (result <= 0)
            return result;
        say_straight(s, err); /* and what was captured is gone: this is the present state */
    }
    step = s->engine->is_captured ? s->engine->captured.step : s->engine->step;
    if (engine_save(s->engine, err) < 0)
        return -1;
    s->saved = s->committed = step;
    s->staged = UINT64_MAX;
    say(s, "checkpoint of step %" PRIu64 " saved in %.2f s", step, seconds() - started);
    return 0;
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
    say(s, "checkpoint of step %" PRIu64 " saved at the second try", s->engine->step);
    return 0;
}

int saver_settle(struct saver *s, struct error *err)
{
    return s && s->stage ? wait_for_drain(s, err) : 0;
}

int saver_finish(struct saver *s, struct error *err)
{
    struct error ignored;
    int result;

    if (!s || !s->stage)
        return 0;
    result = wait_for_drain(s, err);
    if (result < 0 && err->code == CODE_PEER)
        return -1;
    result = save_again(s, err);
    if (result < 0)
        return -1;
    if (s->first)
        ckpt_stage_close(s->stage, &ignored);
    ckpt_stage_destroy(s->stage);
    s->stage = NULL;
    ckptd_join(&s->ckptd, JOIN_SECONDS); /* a step that ends would take it along */
    return 0;
}

void saver_destroy(struct saver *s)
{
    if (!s)
        return;
    ckpt_stage_destroy(s->stage);
    nodes_destroy(s->nodes);
    free(s);
}
