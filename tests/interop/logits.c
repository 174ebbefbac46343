/*
 * logits.c - for hf.py: what a checkpoint's model says, as raw fp32.
 *
 *   logits JOB.cfg CHECKPOINTS TOKENS OUT [path=value]...
 *
 * TOKENS holds int32, seq_length a sample; for a BERT these are followed by seq_length types and a length. OUT gets vocab
 * numbers for each token; for a BERT then the logarithms of the two orders' probabilities. CHECKPOINTS is a directory of
 * checkpoints, whose newest is taken, or a folder of Hugging Face's. One process.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/engine.h"

static struct error err;

static void skipped(const char *why)
{
    fprintf(stderr, "logits: skipped %s\n", why);
}

static int write_floats(FILE *out, const float *numbers, int count)
{
    return fwrite(numbers, sizeof *numbers, (size_t)count, out) == (size_t)count ? 0
                                                                                 : error_errno(&err, CODE_IO, "write");
}

/* The loss of an order is minus the logarithm of its probability. */
static int write_orders(struct engine *e, struct micro_batch *one, FILE *out)
{
    float orders[2];

    for (int32_t order = 0; order < 2; order++) {
        one->order = &order;
        model_losses(e->model, 0, one);
        device_wait(e->dev);
        orders[order] = -*e->losses.orders;
    }
    return write_floats(out, orders, 2);
}

/* numbers: the sample's, as in TOKENS. targets: -1 each, nothing is to be predicted. */
static int write_sample(struct engine *e, const int32_t *numbers, const int32_t *targets, float *logits, FILE *out)
{
    const struct model_shape *shape = &e->job->model;
    struct micro_batch one = {.samples = 1, .tokens = numbers, .targets = targets, .losses = e->losses};

    if (shape->objective == OBJECTIVE_MASKED) {
        one.types = numbers + shape->seq_length;
        one.lengths = numbers + 2 * (size_t)shape->seq_length;
    }
    model_forward(e->model, 0, 0, &one);
    for (int i = 0; i < shape->seq_length; i++) {
        model_logits(e->model, &one, 0, i, logits);
        if (device_status(e->dev, &err) < 0)
            return -1;
        if (write_floats(out, logits, shape->vocab) < 0)
            return -1;
    }
    return shape->objective == OBJECTIVE_MASKED ? write_orders(e, &one, out) : 0;
}

static int run(struct engine *e, char **paths)
{
    size_t seq = (size_t)e->job->model.seq_length,
           count = e->job->model.objective == OBJECTIVE_MASKED ? 2 * seq + 1 : seq;
    int32_t *numbers = calloc(count, sizeof *numbers), *targets = malloc(seq * sizeof *targets);
    float *logits = calloc((size_t)e->job->model.vocab, sizeof *logits);
    FILE *in = fopen(paths[1], "r"), *out = fopen(paths[2], "w");
    int result = engine_restore(e, paths[0], RESTORE_WEIGHTS, skipped, &err);

    if (!numbers || !targets || !logits || !in || !out)
        return error_errno(&err, CODE_IO, "%s, %s", paths[1], paths[2]);
    if (result < 1)
        return result < 0 ? -1 : error_set(&err, CODE_DATA, "%s: no checkpoint", paths[0]);
    memset(targets, 0xff, seq * sizeof *targets);
    while (fread(numbers, sizeof *numbers, count, in) == count)
        if (write_sample(e, numbers, targets, logits, out) < 0)
            return -1;
    free(numbers);
    free(targets);
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
    comm_destroy(world);
    job_destroy(&job);
    return 0;
}
