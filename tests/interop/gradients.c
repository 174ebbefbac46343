/*
 * gradients.c - for gradients.py: one step of a job from initial weights; writes into a directory the weights before
 * it, the gradient and the batch, as raw numbers with a list of what is where.
 *
 *   gradients JOB.cfg DIR    DIR/index.txt: "loss X", then "name offset count" in floats of weights.bin and
 * gradients.bin
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/engine.h"

static struct error err;

static FILE *open_in(const char *dir, const char *name)
{
    char path[4096];
    FILE *file;

    snprintf(path, sizeof path, "%s/%s", dir, name);
    file = fopen(path, "w");
    if (!file) {
        perror(path);
        exit(CODE_IO);
    }
    return file;
}

static void write_floats(FILE *file, const float *values, size_t count)
{
    if (fwrite(values, sizeof *values, count, file) != count) {
        perror("write");
        exit(CODE_IO);
    }
}

/* Parameters or gradients of every tensor, one after the other, in the order of the table. */
static void write_tensors(const struct engine *e, const char *dir, const char *name, bool gradients)
{
    FILE *file = open_in(dir, name);

    for (int u = 0; u < e->units->nunits; u++)
        for (int t = 0; t < e->units->units[u].ntensors; t++) {
            const struct unit_tensor *tensor = &e->units->units[u].tensors[t];
            const float *flat = gradients ? zero_gradient(e->zero, u) : zero_param(e->zero, u);

            write_floats(file, flat + tensor->offset, tensor->count);
        }
    fclose(file);
}

static void write_index(const struct engine *e, const char *dir, double loss)
{
    FILE *file = open_in(dir, "index.txt");
    size_t offset = 0;

    fprintf(file, "loss %.17g\n", loss);
    for (int u = 0; u < e->units->nunits; u++)
        for (int t = 0; t < e->units->units[u].ntensors; t++) {
            const struct unit_tensor *tensor = &e->units->units[u].tensors[t];

            fprintf(file, "%s %zu %zu\n", e->units->tensors[tensor->index].name, offset, tensor->count);
            offset += tensor->count;
        }
    fclose(file);
}

static void write_batch(const struct engine *e, const char *dir)
{
    size_t seq = (size_t)e->job->model.seq_length;
    int32_t *tokens = calloc(seq, sizeof *tokens), *targets = calloc(seq, sizeof *targets);
    FILE *file = open_in(dir, "batch.bin");

    for (int i = 0; i < e->job->batch.global_batch; i++) {
        if (samples_read(e->train, (uint64_t)i, &(struct sample){.tokens = tokens, .targets = targets}, &err) < 0)
            exit(error_report(&err));
        fwrite(tokens, sizeof *tokens, seq, file);
        fwrite(targets, sizeof *targets, seq, file);
    }
    fclose(file);
    free(tokens);
    free(targets);
}

int main(int argc, char **argv)
{
    struct job job;
    struct comm *world;
    struct engine *e;
    struct step_result result;

    if (argc < 3)
        return CODE_USAGE;
    if (job_load(&job, argv[1], argv + 3, argc - 3, &err) < 0 || !(world = comm_world_create(&err)) ||
        !(e = engine_create(&job, world, &err)))
        return error_report(&err);
    engine_initialize(e);
    write_tensors(e, argv[2], "weights.bin", false);
    write_batch(e, argv[2]);
    if (engine_step(e, &result, &err) < 0)
        return error_report(&err);
    write_tensors(e, argv[2], "gradients.bin", true);
    write_index(e, argv[2], result.loss);
    engine_destroy(e);
    comm_world_finish(world);
    job_destroy(&job);
    return 0;
}
