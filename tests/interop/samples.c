/*
 * samples.c - for the Python checks: samples of a job's data as the trainer sees them, as raw int32.
 *
 *   samples JOB.cfg train|valid COUNT FILE [path=value]...
 *
 * Each sample is tokens, targets and types, seq_length numbers each, then length and order. For a GPT the types are 0,
 * the length is seq_length and the order -1.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/data/batch.h"

static struct error err;

static int write_numbers(FILE *file, const int32_t *numbers, size_t count)
{
    return fwrite(numbers, sizeof *numbers, count, file) == count ? 0 : error_errno(&err, CODE_IO, "write");
}

static int write_sample(FILE *file, const struct batch *batch, long index)
{
    size_t seq = (size_t)batch->seq_length, at = (size_t)index * seq;
    int32_t *types = calloc(seq, sizeof *types), last[2] = {batch->seq_length, -1};
    int result = -1;

    if (batch->types) {
        memcpy(types, batch->types + at, seq * sizeof *types);
        last[0] = batch->lengths[index];
        last[1] = batch->order[index];
    }
    if (write_numbers(file, batch->tokens + at, seq) == 0 && write_numbers(file, batch->targets + at, seq) == 0 &&
        write_numbers(file, types, seq) == 0 && write_numbers(file, last, 2) == 0)
        result = 0;
    free(types);
    return result;
}

static int write_batch(const struct job *job, bool train, long count, const char *path)
{
    struct blend *samples = blend_create(job, train, &err);
    struct batch *batch = samples ? batch_create(&job->model, job->data.reset == RESET_DOCUMENT, count, &err) : NULL;
    FILE *file = fopen(path, "w");
    int result = -1;

    if (!file)
        error_errno(&err, CODE_IO, "%s", path);
    else if (batch && batch_read(batch, samples, 0, count, &err) == 0)
        result = 0;
    for (long i = 0; i < count && result == 0; i++)
        result = write_sample(file, batch, i);
    if (file && fclose(file) != 0 && result == 0)
        result = error_errno(&err, CODE_IO, "%s", path);
    batch_destroy(batch);
    blend_destroy(samples);
    return result;
}

int main(int argc, char **argv)
{
    struct job job;
    int result;

    if (argc < 5)
        return CODE_USAGE;
    if (job_load(&job, argv[1], argv + 5, argc - 5, &err) < 0)
        return error_report(&err);
    result = write_batch(&job, strcmp(argv[2], "train") == 0, atol(argv[3]), argv[4]);
    job_destroy(&job);
    return result < 0 ? error_report(&err) : 0;
}
