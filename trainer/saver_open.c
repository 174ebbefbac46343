/* saver_open.c - the stage of this node, found or made, and the memory that saves will take there. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/crc32c.h"
#include "trainer/saver_impl.h"

enum { NAME_SIZE = CKPT_ATTEMPT_SIZE }; /* of the stage; what ckpt_stage_open takes */

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
        .dir = s->job->checkpoint.dir,
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
    int rank = comm_rank(engine->world), result;

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
    result = open_stage(s, hosts + (size_t)rank * stride, err);
    if (result == 0)
        result = saver_wait_for_drain(s, err);
    if (result > 0)
        saver_say_line(s, "what an earlier run has staged is not drained, and is tried again while this one trains: %s",
                       err->text);
    if (result >= 0)
        return s;
    if (err->code == CODE_PEER || err->code == CODE_CONFIG) /* the latter: another release's stage, not to be touched */
        goto fail;
    saver_say_straight(s, err);
    forget_stage(s);
    return s;
fail:
    saver_destroy(s);
    return NULL;
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
    saver_say_straight(s, err);
    forget_stage(s);
    return 0;
}
