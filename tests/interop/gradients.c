/*
 * gradients.c - for gradients.py and peer_compare.py: one step of a job; writes into a directory the weights before it,
 * the losses and the gradients, as raw numbers with a list of what is where. One process; parallel.zero must be 0.
 *
 *   gradients JOB.cfg DIR [path=value]...
 *
 * DIR/index.txt has "loss X", the step's; for each sample of its batch "sample T O", the sum of its tokens' losses and
 * that of its order (0 for a GPT), evaluated alone; "loss_scale X", by which the gradients are multiplied; and for each
 * tensor "tensor NAME OFFSET SIZE...", the offset in floats of weights.bin and of gradients.bin.
 *
 * The weights are those of checkpoint.init. Without it they are random: biases begin as 0 and norms as 1, so that a
 * product that forgot them would pass; all of them are shifted first.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/philox.h"
#include "trainer/engine.h"
#include "trainer/parallel/zero_impl.h"

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

static void close_whole(FILE *file)
{
    if (ferror(file) || fclose(file) != 0) {
        perror("write");
        exit(CODE_IO);
    }
}

/* The parameters of a unit in host memory, from which zero_finish_load takes them. */
static float *master_of(const struct engine *e, int unit)
{
    const struct zero_unit *u = &e->zero->unit[unit];

    return u->size.mirror ? u->mirror[0] : u->master;
}

static int shift_vector(const struct engine *e, int unit, const struct unit_tensor *tensor)
{
    struct philox_stream stream = {.seed = e->job->batch.seed, .step = 1};
    float *at = master_of(e, unit) + tensor->offset, *shift = malloc(tensor->count * sizeof *shift);

    if (!shift)
        return error_set(&err, CODE_IO, "out of memory");
    stream.site = philox_site(e->units->tensors[tensor->index].name);
    philox_normal(shift, tensor->count, stream, 0, 0.0, 0.1);
    for (size_t i = 0; i < tensor->count; i++)
        at[i] += shift[i];
    free(shift);
    return 0;
}

static void skipped(const char *why)
{
    fprintf(stderr, "gradients: skipped %s\n", why);
}

static int load(struct engine *e)
{
    const char *dir = e->job->checkpoint.init;
    int result = engine_restore(e, dir, RESTORE_WEIGHTS, skipped, &err);

    return result == 0 ? error_set(&err, CODE_DATA, "%s: no checkpoint", dir) : result;
}

static int initialize(struct engine *e)
{
    const struct units *units = e->units;

    if (engine_initialize(e, &err) < 0)
        return -1;
    for (int u = 0; u < units->nunits; u++)
        for (int t = 0; t < units->units[u].ntensors; t++)
            if (!units->units[u].tensors[t].row.decays && shift_vector(e, u, &units->units[u].tensors[t]) < 0)
                return -1;
    return zero_finish_load(e->zero, &err);
}

/* Parameters or gradients of every tensor, one after the other, in the order of the table. */
static void write_tensors(const struct engine *e, const char *dir, bool gradients)
{
    const struct units *units = e->units;
    FILE *file = open_in(dir, gradients ? "gradients.bin" : "weights.bin");

    for (int u = 0; u < units->nunits; u++) {
        const float *flat = gradients ? e->zero->unit[u].grad : master_of(e, u);

        for (int t = 0; t < units->units[u].ntensors; t++)
            fwrite(flat + units->units[u].tensors[t].offset, sizeof *flat, units->units[u].tensors[t].count, file);
    }
    close_whole(file);
}

static void write_table(const struct engine *e, FILE *index)
{
    const struct units *units = e->units;
    size_t offset = 0;

    for (int u = 0; u < units->nunits; u++)
        for (int t = 0; t < units->units[u].ntensors; t++) {
            const struct ckpt_tensor *tensor = &units->tensors[units->units[u].tensors[t].index];

            fprintf(index, "tensor %s %zu", tensor->name, offset);
            for (int i = 0; i < tensor->ndim; i++)
                fprintf(index, " %zu", (size_t)tensor->shape[i]);
            fputc('\n', index);
            offset += units->units[u].tensors[t].count;
        }
}

/* The losses of each sample of the first batch, by the forward pass alone. */
static int write_samples(struct engine *e, FILE *index)
{
    const struct batch *b = e->batch;

    if (batch_read(e->batch, e->train, 0, e->job->batch.global_batch, &err) < 0)
        return -1;
    for (long i = 0; i < b->samples; i++) {
        size_t at = (size_t)i * (size_t)b->seq_length;
        struct micro_batch one = {
            .samples = 1,
            .first_sample = (uint64_t)i,
            .tokens = b->tokens + at,
            .targets = b->targets + at,
            .document_start = b->document_start ? b->document_start + at : NULL,
            .types = b->types ? b->types + at : NULL,
            .lengths = b->lengths ? b->lengths + i : NULL,
            .order = b->order ? b->order + i : NULL,
            .losses = e->losses,
        };
        double tokens = 0;

        if (pipeline_run(e->pipeline, &one, 1, NULL, &err) < 0 || device_status(e->dev, &err) < 0)
            return -1;
        device_wait(e->dev);
        for (int t = 0; t < b->seq_length; t++)
            tokens += e->losses.tokens[t];
        fprintf(index, "sample %.17g %.17g\n", tokens, (double)*e->losses.orders);
    }
    return 0;
}

static int run(struct engine *e, const char *dir)
{
    FILE *index = open_in(dir, "index.txt");
    struct step_result result;

    if (e->zero->config.zero_stage != 0)
        return error_set(&err, CODE_CONFIG, "parallel.zero must be 0, so that gradients are whole");
    if ((*e->job->checkpoint.init ? load(e) : initialize(e)) < 0)
        return -1;
    write_tensors(e, dir, false);
    if (write_samples(e, index) < 0 || engine_step(e, &result, &err) < 0)
        return -1;
    if (result.skip != SKIP_NONE)
        return error_set(&err, CODE_DATA, "the step was skipped: loss %g, gradient norm %g", result.loss.all,
                         result.grad_norm);
    write_tensors(e, dir, true);
    fprintf(index, "loss %.17g\nloss_scale %.17g\n", result.loss.all, result.loss_scale);
    write_table(e, index);
    close_whole(index);
    return 0;
}

int main(int argc, char **argv)
{
    struct job job;
    struct comm *world;
    struct engine *e;

    if (argc < 3)
        return CODE_USAGE;
    if (job_load(&job, argv[1], argv + 3, argc - 3, &err) < 0 || !(world = comm_world_create(&err)) ||
        !(e = engine_create(&job, world, &err)) || run(e, argv[2]) < 0)
        return error_report(&err);
    engine_destroy(e);
    comm_destroy(world);
    job_destroy(&job);
    return 0;
}
