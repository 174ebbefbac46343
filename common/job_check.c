#include "common/job_check.h"

#include <string.h>

static struct job_origin origin_of(const struct job_reader *r, const char *path)
{
    return r->origin[job_key_find(path)];
}

static bool is_given(struct job_origin at)
{
    return at.line > 0 || at.set;
}

/* Of two keys that do not go together, where the first that was given stands. */
static struct job_origin either(const struct job_reader *r, const char *path, const char *other)
{
    struct job_origin at = origin_of(r, path);

    return is_given(at) ? at : origin_of(r, other);
}

static int fill_sizes(const struct job_reader *r)
{
    struct model_shape preset = {0}, *model = &r->job->model;
    const struct {
        const char *path;
        int *size, *preset;
    } sizes[] = {
        {"model.layers", &model->layers, &preset.layers}, {"model.hidden", &model->hidden, &preset.hidden},
        {"model.heads", &model->heads, &preset.heads},    {"model.seq_length", &model->seq_length, &preset.seq_length},
        {"model.vocab", &model->vocab, &preset.vocab},
    };
    struct error err;

    if (r->job->preset[0] && model_preset(&preset, r->job->preset, &err) < 0)
        return job_reader_fail(r, origin_of(r, "model.preset"), "%s", err.text);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct job_origin at = origin_of(r, sizes[i].path);

        if (is_given(at))
            continue;
        if (!r->job->preset[0])
            return job_reader_fail(r, at, "%s is missing; give it, or a model.preset such as \"gpt-125m\"",
                                   sizes[i].path);
        *sizes[i].size = *sizes[i].preset;
    }
    return 0;
}

static int check_model(const struct job_reader *r)
{
    const struct model_shape *model = &r->job->model;

    if (model->hidden % model->heads != 0)
        return job_reader_fail(
            r, either(r, "model.heads", "model.hidden"),
            "model.hidden = %d is not a multiple of model.heads = %d; each head has hidden / heads columns",
            model->hidden, model->heads);
    return 0;
}

static int check_batch(const struct job_reader *r)
{
    int global = r->job->batch.global_batch, micro = r->job->batch.micro_batch;

    if (micro > global)
        return job_reader_fail(r, either(r, "batch.micro_batch", "batch.global_batch"),
                               "batch.micro_batch = %d is more than batch.global_batch = %d; at most the global batch",
                               micro, global);
    return 0;
}

static int check_schedule(const struct job_reader *r)
{
    double lr = r->job->optimizer.lr, min_lr = r->job->optimizer.min_lr;
    long warmup = r->job->optimizer.warmup_steps, decay = r->job->optimizer.decay_steps;
    const char *decay_path = decay ? "optimizer.decay_steps" : "batch.steps";

    if (min_lr > lr)
        return job_reader_fail(r, either(r, "optimizer.min_lr", "optimizer.lr"),
                               "optimizer.min_lr = %g is more than optimizer.lr = %g; at most the peak rate", min_lr,
                               lr);
    if (!decay)
        decay = r->job->batch.steps;
    if (warmup >= decay && r->job->optimizer.schedule != LR_CONSTANT)
        return job_reader_fail(
            r, either(r, "optimizer.warmup_steps", decay_path),
            "optimizer.warmup_steps = %ld is not less than %s = %ld; the rate must rise before it falls", warmup,
            decay_path, decay);
    return 0;
}

static int check_files(const struct job_reader *r)
{
    const struct job *job = r->job;

    if (!job->data.train[0])
        return job_reader_fail(r, origin_of(r, "data.train"),
                               "data.train is missing; give the prefix of a .bin and .idx made by muster-data");
    if (job->report.eval_every > 0 && !job->data.valid[0])
        return job_reader_fail(
            r, origin_of(r, "report.eval_every"),
            "report.eval_every = %ld, but there is no data.valid; give its prefix, or eval_every = 0",
            job->report.eval_every);
    if (job->checkpoint.every > 0 && !job->checkpoint.dir[0])
        return job_reader_fail(r, origin_of(r, "checkpoint.every"),
                               "checkpoint.every = %ld, but there is no checkpoint.dir; give a directory, or every = 0",
                               job->checkpoint.every);
    return 0;
}

int job_check(const struct job_reader *r)
{
    if (fill_sizes(r) < 0 || check_model(r) < 0 || check_batch(r) < 0 || check_schedule(r) < 0 || check_files(r) < 0)
        return -1;
    return 0;
}
