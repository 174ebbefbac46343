#include <stdio.h>
#include <string.h>

#include "common/job_impl.h"

static struct job_origin origin_of(const struct job_reader *r, const char *path)
{
    return r->origin[job_key_find(path)];
}

/* Where the first of two conflicting keys was given, else where the other was. */
static struct job_origin either_origin(const struct job_reader *r, const char *path, const char *other)
{
    return origin_of(r, job_gives(r->job, path) ? path : other);
}

/* Fields of the model that no key gives are the preset's, or where model.kind is another than the preset's, that kind's. */
static int fill_model(const struct job_reader *r)
{
    struct model_shape shape = {0}, *model = &r->job->model;
    bool kind_given = job_gives(r->job, "model.kind");
    int kind = 0, given = r->job->kind;
    struct error err;

    if (r->job->preset[0] && model_preset(&shape, &kind, r->job->preset, &err) < 0)
        return job_reader_fail(r, origin_of(r, "model.preset"), "%s", err.text);
    if (kind_given && given != kind)
        model_set_kind(&shape, given);
    r->job->kind = kind_given ? given : kind;
    for (int k = 0; k < job_key_count; k++) {
        const struct job_key *key = &job_keys[k];
        size_t at = key->offset - offsetof(struct job, model);

        if (at >= sizeof shape) /* not of the model, which is the first in struct job */
            continue;
        if (r->job->given[k])
            memcpy((char *)&shape + at, (char *)model + at, key->size);
        else if (at < offsetof(struct model_shape, kv_heads) && !r->job->preset[0])
            return job_reader_fail(r, r->origin[k], "%s is missing; give it, or a model.preset such as \"gpt-125m\"",
                                   key->path);
    }
    *model = shape;
    if (model->head_size || model->hidden % model->heads == 0)
        return model_check(model, &err) < 0
                   ? job_reader_fail(r, either_origin(r, "model.kind", "model.preset"), "%s", err.text)
                   : 0;
    return job_reader_fail(
        r, either_origin(r, "model.hidden", "model.heads"),
        "model.hidden = %d is not a multiple of model.heads = %d; each head has hidden / heads columns", model->hidden,
        model->heads);
}

/*
 * Pairs of numbers that contradict each other. Of the sizes that tensor parallelism divides, the widths need no check:
 * they are multiples of heads. The number of layers need not be a multiple of anything.
 */
static int check_pairs(const struct job_reader *r)
{
    const struct job *job = r->job;
    const struct model_shape *model = &job->model;
    int tp = job->parallel.tp, global = job->batch.global_batch;
    int kv_heads = model_kv_heads(model);
    double start = job->precision.loss_scale_start, least = job->precision.loss_scale_min;
    char largest[64];
    const struct {
        bool wrong;
        const char *path, *is, *other, *advice;
        double value, limit;
    } pairs[] = {
        {kv_heads % tp != 0, "parallel.tp", "does not divide", model->kv_heads ? "model.kv_heads" : "model.heads",
         largest, tp, kv_heads},
        {model->seq_length % tp != 0, "parallel.tp", "does not divide", "model.seq_length",
         "; each rank normalizes seq_length / tp tokens of a sample", tp, model->seq_length},
        {model->vocab < tp, "parallel.tp", "is more than", "model.vocab", "; each rank has a part of the vocabulary",
         tp, model->vocab},
        {job->batch.micro_batch > global, "batch.micro_batch", "is more than", "batch.global_batch",
         "; at most the global batch", job->batch.micro_batch, global},
        {job->batch.rampup_start >= global, "batch.rampup_start", "is not less than", "batch.global_batch", "",
         job->batch.rampup_start, global},
        {job->optimizer.min_lr > job->optimizer.lr, "optimizer.min_lr", "is more than", "optimizer.lr",
         "; at most the peak rate", job->optimizer.min_lr, job->optimizer.lr},
        {least > start, "precision.loss_scale_min", "is more than", "precision.loss_scale_start", "", least, start},
    };

    snprintf(largest, sizeof largest, "; the largest that does is %d", model_largest_tp(model, tp));
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++)
        if (pairs[i].wrong)
            return job_reader_fail(r, either_origin(r, pairs[i].path, pairs[i].other), "%s = %.15g %s %s = %.15g%s",
                                   pairs[i].path, pairs[i].value, pairs[i].is, pairs[i].other, pairs[i].limit,
                                   pairs[i].advice);
    return 0;
}

/* BERT's four special tokens: by default the last of the vocabulary. They must lie within it and differ. */
static int fill_bert_tokens(const struct job_reader *r)
{
    struct job *job = r->job;
    const struct {
        const char *path;
        int *id;
    } tokens[] = {
        {"data.cls", &job->data.cls},
        {"data.sep", &job->data.sep},
        {"data.mask", &job->data.mask},
        {"data.pad", &job->data.pad},
    };

    if (job->model.objective != OBJECTIVE_MASKED)
        return 0;
    if (job->model.vocab < 5)
        return job_reader_fail(r, either_origin(r, "model.vocab", "model.kind"),
                               "model.vocab = %d, but a BERT has four special tokens besides those of the text; "
                               "at least 5",
                               job->model.vocab);
    if (job->model.seq_length < 5)
        return job_reader_fail(r, either_origin(r, "model.seq_length", "model.kind"),
                               "model.seq_length = %d, but a sample of BERT's has three special tokens and two "
                               "sentences; at least 5",
                               job->model.seq_length);
    for (int i = 0; i < 4; i++) {
        if (*tokens[i].id == -1)
            *tokens[i].id = job->model.vocab - 4 + i;
        if (*tokens[i].id >= job->model.vocab)
            return job_reader_fail(r, either_origin(r, tokens[i].path, "model.vocab"),
                                   "%s = %d is not less than model.vocab = %d; tokens are 0 to vocab - 1",
                                   tokens[i].path, *tokens[i].id, job->model.vocab);
        for (int k = 0; k < i; k++)
            if (*tokens[i].id == *tokens[k].id)
                return job_reader_fail(r, either_origin(r, tokens[i].path, tokens[k].path),
                                       "%s and %s are both %d; each special token has an id of its own", tokens[k].path,
                                       tokens[i].path, *tokens[i].id);
    }
    return 0;
}

static int check_documents(const struct job_reader *r)
{
    const struct job *job = r->job;

    if (job->data.reset != RESET_NONE && job->model.objective == OBJECTIVE_MASKED)
        return job_reader_fail(r, either_origin(r, "data.reset", "model.kind"),
                               "data.reset = \"document\" is for a GPT; a sample of a BERT is always of one document: "
                               "remove the key");
    if (job->data.eod >= job->model.vocab)
        return job_reader_fail(r, either_origin(r, "data.eod", "model.vocab"),
                               "data.eod = %d is not less than model.vocab = %d; tokens are 0 to vocab - 1",
                               job->data.eod, job->model.vocab);
    return 0;
}

static int check_parallel(const struct job_reader *r)
{
    int pp = r->job->parallel.pp, chunks = r->job->parallel.chunks;

    if (chunks > 1 && pp == 1 && (r->job->parallel.mesh != MESH_AUTO || job_gives(r->job, "parallel.pp")))
        return job_reader_fail(r, either_origin(r, "parallel.chunks", "parallel.pp"),
                               "parallel.chunks = %d, but parallel.pp = 1; give pp of at least 2, or chunks = 1",
                               chunks);
    if (r->job->parallel.recompute_layers > 0 && r->job->parallel.recompute == RECOMPUTE_NONE)
        return job_reader_fail(r, either_origin(r, "parallel.recompute_layers", "parallel.recompute"),
                               "parallel.recompute_layers = %d, but parallel.recompute = \"none\"; use \"light\", "
                               "\"selective\" or \"full\", or recompute_layers = 0",
                               r->job->parallel.recompute_layers);
    return 0;
}

/* The batch grows from start by increments and must reach global_batch exactly. */
static int check_rampup(const struct job_reader *r)
{
    static const char *const paths[] = {"batch.rampup_start", "batch.rampup_increment", "batch.rampup_samples"};
    int start = r->job->batch.rampup_start, increment = r->job->batch.rampup_increment;
    int global = r->job->batch.global_batch;
    const bool on[] = {start > 0, increment > 0, r->job->batch.rampup_samples > 0};

    if (!on[0] && !on[1] && !on[2])
        return 0;
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < 3; k++)
            if (on[i] && !on[k])
                return job_reader_fail(r, either_origin(r, paths[i], paths[k]),
                                       "%s is given, but %s is not, or 0; a ramp-up needs all three of rampup_start, "
                                       "rampup_increment and rampup_samples",
                                       paths[i], paths[k]);
    if ((global - start) % increment != 0)
        return job_reader_fail(r, either_origin(r, "batch.rampup_increment", "batch.global_batch"),
                               "batch.rampup_increment = %d does not divide %d: batch.global_batch = %d minus "
                               "batch.rampup_start = %d",
                               increment, global - start, global, start);
    return 0;
}

/* "wsd": warm-up, stable, decay. It needs the length of the decay, which must fit after the warm-up. */
static int check_cooldown(const struct job_reader *r, long decay, const char *decay_path)
{
    long warmup = r->job->optimizer.warmup_steps, cooldown = r->job->optimizer.cooldown_steps;
    bool wsd = r->job->optimizer.schedule == LR_WSD;

    if (cooldown > 0 && !wsd)
        return job_reader_fail(r, origin_of(r, "optimizer.cooldown_steps"),
                               "optimizer.cooldown_steps = %ld is for optimizer.schedule = \"wsd\" only; choose that "
                               "schedule, or cooldown_steps = 0",
                               cooldown);
    if (cooldown == 0 && wsd)
        return job_reader_fail(r, origin_of(r, "optimizer.schedule"),
                               "optimizer.schedule = \"wsd\" needs optimizer.cooldown_steps: the length of its decay, "
                               "often a tenth of the run");
    if (wsd && cooldown > decay - warmup)
        return job_reader_fail(r, either_origin(r, "optimizer.cooldown_steps", decay_path),
                               "optimizer.cooldown_steps = %ld is more than the %ld steps from the end of the warm-up "
                               "to %s = %ld",
                               cooldown, decay - warmup, decay_path, decay);
    return 0;
}

static int check_schedule(const struct job_reader *r)
{
    long warmup = r->job->optimizer.warmup_steps, decay = r->job->optimizer.decay_steps;
    const char *decay_path = decay ? "optimizer.decay_steps" : "batch.steps";

    if (!decay)
        decay = r->job->batch.steps;
    if (warmup >= decay && r->job->optimizer.schedule != LR_CONSTANT)
        return job_reader_fail(
            r, either_origin(r, "optimizer.warmup_steps", decay_path),
            "optimizer.warmup_steps = %ld is not less than %s = %ld; the rate must rise before it falls", warmup,
            decay_path, decay);
    return check_cooldown(r, decay, decay_path);
}

/* Factors that must be more than 1, or 0 for off. */
static int check_factors(const struct job_reader *r)
{
    const struct {
        const char *path;
        double factor;
    } factors[] = {
        {"optimizer.spike_factor", r->job->optimizer.spike_factor},
        {"report.straggler_factor", r->job->report.straggler_factor},
    };

    for (size_t i = 0; i < sizeof factors / sizeof factors[0]; i++)
        if (factors[i].factor > 0 && factors[i].factor <= 1)
            return job_reader_fail(r, origin_of(r, factors[i].path), "%s = %g; more than 1, or 0 for off",
                                   factors[i].path, factors[i].factor);
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
    if (job->report.tensorboard[0] && !job->report.metrics[0])
        return job_reader_fail(r, origin_of(r, "report.tensorboard"),
                               "report.tensorboard shows what report.metrics has, and there is none; give its file, or "
                               "tensorboard = \"\"");
    if (job->report.prometheus[0] && !job->report.metrics[0])
        return job_reader_fail(r, origin_of(r, "report.prometheus"),
                               "report.prometheus is written beside report.metrics, and there is none; give its file, "
                               "or prometheus = \"\"");
    if (job->checkpoint.load[0] && job->checkpoint.init[0])
        return job_reader_fail(
            r, origin_of(r, "checkpoint.init"),
            "checkpoint.load and checkpoint.init are both given; load goes on with a run, init takes "
            "its weights alone: remove one");
    if (job->checkpoint.every > 0 && !job->checkpoint.dir[0])
        return job_reader_fail(r, origin_of(r, "checkpoint.every"),
                               "checkpoint.every = %ld, but there is no checkpoint.dir; give a directory, or every = 0",
                               job->checkpoint.every);
    return 0;
}

static int check_paths(const struct job_reader *r)
{
    const char *key = job_bad_pattern(r->job);
    char message[sizeof r->err->text];

    for (int k = 0; k < job_key_count && !r->stored; k++)
        if (job_needs_shell(r->job, &job_keys[k], message, sizeof message))
            return job_reader_fail(r, r->origin[k], "%s", message);
    if (!key)
        return 0;
    return job_reader_fail(r, origin_of(r, key),
                           "%s has an unknown pattern; it can be %%j (job), %%A (job array), %%a (array task), "
                           "%%x (job name) or %%%% (a percent sign)",
                           key);
}

int job_check(const struct job_reader *r)
{
    struct job *job = r->job;

    if (fill_model(r) < 0 || check_pairs(r) < 0 || fill_bert_tokens(r) < 0 || check_documents(r) < 0 ||
        check_parallel(r) < 0 || check_rampup(r) < 0 || check_schedule(r) < 0 || check_factors(r) < 0 ||
        check_files(r) < 0 || check_paths(r) < 0)
        return -1;
    if (job->parallel.reduce == REDUCE_AUTO)
        job->parallel.reduce = job->parallel.zero < 2 ? REDUCE_STEP : REDUCE_MICRO_BATCH;
    if (job->precision.reduce != DTYPE_F32) /* store_choice stored 0 ("fp32") or 1 ("compute") here, and below */
        job->precision.reduce = job->precision.compute;
    if (job->precision.gradients != DTYPE_F32)
        job->precision.gradients = job->precision.compute;
    return 0;
}
