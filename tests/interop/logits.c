/*
 * logits.c - for hf.py: what a checkpoint's GPT says, as raw fp32.
 *
 *   logits JOB.cfg CHECKPOINTS TOKENS OUT [path=value]...
 *
 * TOKENS holds int32, seq_length a sample; OUT gets vocab numbers for each of them. CHECKPOINTS is a directory of
 * checkpoints, whose newest is taken. One process.
 */
#include <stdio.h>
#include <stdlib.h>

#include "trainer/engine.h"

static struct error err;

static void skipped(const char *why)
{
    fprintf(stderr, "logits: skipped %s\n", why);
}

static int write_sample(struct engine *e, const int32_t *tokens, float *logits, FILE *out)
{
    const struct model_shape *shape = &e->job->model;
    struct micro_batch one = {.samples = 1, .tokens = tokens};

    model_forward(e->model, 0, 0, &one);
    for (int i = 0; i < shape->seq_length; i++) {
        model_logits(e->model, &one, 0, i, logits);
        if (device_status(e->dev, &err) < 0)
            return -1;
        if (fwrite(logits, sizeof *logits, (size_t)shape->vocab, out) != (size_t)shape->vocab)
            return error_errno(&err, CODE_IO, "write");
    }
    return 0;
}

static int run(struct engine *e, char **paths)
{
    size_t seq = (size_t)e->job->model.seq_length;
    int32_t *tokens = calloc(seq, sizeof *tokens);
    float *logits = calloc((size_t)e->job->model.vocab, sizeof *logits);
    FILE *in = fopen(paths[1], "r"), *out = fopen(paths[2], "w");
    int result = engine_restore(e, paths[0], false, skipped, &err);

    if (!tokens || !logits || !in || !out)
        return error_errno(&err, CODE_IO, "%s, %s", paths[1], paths[2]);
    if (result < 1)
        return result < 0 ? -1 : error_set(&err, CODE_DATA, "%s: no checkpoint", paths[0]);
    while (fread(tokens, sizeof *tokens, seq, in) == seq)
        if (write_sample(e, tokens, logits, out) < 0)
            return -1;
    free(tokens);
    free(logits);
    fclose(in);
    return fclose(out) == 0 ? 0 : error_errno(&err, CODE_IO, "%s", paths[2]);
}

int main(int argc, char **argv)
{
    struct job job;
    struct comm *world;
    struct engine *e;

    if (argc < 5)
        return CODE_USAGE;
    if (job_load(&job, argv[1], argv + 5, argc - 5, &err) < 0 || !(world = comm_world_create(&err)) ||
        !(e = engine_create(&job, world, &err)) || run(e, argv + 2) < 0)
        return error_report(&err);
    engine_destroy(e);
    comm_world_finish(world);
    job_destroy(&job);
    return 0;
}
