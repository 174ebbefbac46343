#include "plan/search.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/rank_config.h"

void plan_apply(const struct plan_choice *c, struct job *job)
{
    job->parallel.tp = c->mesh.tp;
    job->parallel.pp = c->mesh.pp;
    job->parallel.chunks = c->chunks;
    job->parallel.zero = c->zero;
    job->parallel.recompute = c->recompute;
    if (!job_gives(job, "parallel.reduce"))
        job->parallel.reduce = c->zero >= 2 ? REDUCE_MICRO_BATCH : REDUCE_STEP;
    if (!job_gives(job, "parallel.recompute_layers"))
        job->parallel.recompute_layers = 0;
    job->parallel.offload = c->offload;
    job->batch.micro_batch = c->micro_batch;
}

void plan_sets(const struct plan_choice *c, char *text, size_t size)
{
    snprintf(text, size,
             "parallel.tp=%d parallel.pp=%d parallel.chunks=%d parallel.zero=%d parallel.recompute=%s "
             "parallel.offload=%s batch.micro_batch=%d",
             c->mesh.tp, c->mesh.pp, c->chunks, c->zero, job_recomputes[c->recompute], job_offloads[c->offload],
             c->micro_batch);
}

const char *plan_describe(const struct plan_choice *c, char *text, size_t size)
{
    static const char *const recomputes[] = {"", ", light recompute", ", selective recompute", ", full recompute"};
    char chunks[32] = "";

    if (c->chunks > 1)
        snprintf(chunks, sizeof chunks, " (%d chunks)", c->chunks);
    snprintf(text, size, "dp %d x tp %d x pp %d%s, ZeRO-%d, micro-batch %d%s%s", c->mesh.dp, c->mesh.tp, c->mesh.pp,
             chunks, c->zero, c->micro_batch, recomputes[c->recompute],
             c->offload == OFFLOAD_OPTIMIZER ? ", optimizer offloaded" : "");
    return text;
}

struct mesh_search {
    const struct plan_machine *machine;
    const struct stack *stack;
    const struct plan_limits *limits;
    struct plan_results *results;
    struct job job; /* with the keys of the choice that is tried */
    struct error *err;
    bool failed;             /* then nothing more is tried */
    struct plan_choice *fit; /* [count], those that fit */
    size_t count, room;
};

/* ---- results ----------------------------------------------------------------------------------------------------- */

/* By place, then the simpler one, then the faster one. */
static int compare_choices(const void *left, const void *right)
{
    static const int zero[] = {1, 0, 2, 3}; /* ZeRO-1 is the default */
    const struct plan_choice *a = left, *b = right;
    const int orders[] = {a->place - b->place,
                          (int)a->offload - (int)b->offload,
                          a->mesh.tp * a->mesh.pp - b->mesh.tp * b->mesh.pp,
                          a->mesh.pp - b->mesh.pp,
                          a->chunks - b->chunks,
                          (int)a->recompute - (int)b->recompute,
                          zero[a->zero] - zero[b->zero],
                          (a->cost.seconds > b->cost.seconds) - (a->cost.seconds < b->cost.seconds),
                          a->micro_batch - b->micro_batch};

    for (size_t i = 0; i < sizeof orders / sizeof *orders; i++)
        if (orders[i] != 0)
            return orders[i];
    return 0;
}

/* Sets the places, and takes the first choice of each mesh. */
static void sort_choices(struct mesh_search *s)
{
    struct plan_results *r = s->results;
    double fastest = INFINITY;

    for (size_t i = 0; i < s->count; i++)
        fastest = fmin(fastest, s->fit[i].cost.seconds);
    for (size_t i = 0; i < s->count; i++)
        s->fit[i].place = (int)(log(s->fit[i].cost.seconds / fastest) / log1p(fmax(s->stack->error, 1e-6)));
    if (s->count > 0)
        qsort(s->fit, s->count, sizeof *s->fit, compare_choices);
    for (size_t i = 0; i < s->count && r->count < r->most; i++) {
        int k = 0;

        while (k < r->count && memcmp(&r->best[k].mesh, &s->fit[i].mesh, sizeof r->best[k].mesh) != 0)
            k++;
        if (k == r->count)
            r->best[r->count++] = s->fit[i];
    }
}

/* Returns whether the choice fits. */
static bool try_choice(struct mesh_search *s, struct plan_choice *c)
{
    struct plan_results *r = s->results;

    plan_apply(c, &s->job);
    s->failed = s->failed || plan_memory(&s->job, &c->mesh, s->machine, s->stack, &c->memory, s->err) < 0;
    if (s->failed)
        return false;
    if (r->tried++ == 0 || c->memory.needed < r->smallest.memory.needed)
        r->smallest = *c;
    if (c->memory.needed > s->machine->memory ||
        (s->limits->host_memory > 0 && c->memory.host > s->limits->host_memory))
        return false;
    r->fitting++;
    s->failed = plan_cost(&s->job, &c->mesh, s->machine, s->stack, &c->cost, s->err) < 0 ||
                error_reserve(&s->fit, &s->room, s->count, 1, sizeof *s->fit, s->err) < 0;
    if (!s->failed)
        s->fit[s->count++] = *c;
    return !s->failed;
}

/* ---- the settings to try ---------------------------------------------------------------------------------------- */

static bool limit_allows(int limit, int value)
{
    return limit < 0 || limit == value;
}

/* Recompute costs time and saves memory: once a choice fits, more of it cannot be faster; and nothing is faster than to
 * fit without either. Returns whether one fitted. */
static bool try_savings(struct mesh_search *s, struct plan_choice *c)
{
    bool fitted = false;

    for (int offload = OFFLOAD_NONE; offload <= OFFLOAD_OPTIMIZER; offload++) {
        bool fits = false;

        if (!limit_allows(s->limits->offload, offload) || (offload && !s->machine->gpu))
            continue;
        c->offload = (enum offload)offload;
        for (int recompute = RECOMPUTE_NONE; recompute <= RECOMPUTE_FULL && !fits; recompute++) {
            c->recompute = (enum recompute)recompute;
            fits = limit_allows(s->limits->recompute, recompute) && try_choice(s, c);
        }
        if (fits && c->recompute == RECOMPUTE_NONE)
            return true;
        fitted = fitted || fits;
    }
    return fitted;
}

/* With dp 1 all stages are the same: only the default is tried. The micro-batch grows as long as it fits. */
static void try_stages(struct mesh_search *s, struct plan_choice *c)
{
    int share = (s->job.batch.global_batch + c->mesh.dp - 1) / c->mesh.dp, given = s->limits->micro_batch;

    for (c->zero = 0; c->zero <= 3; c->zero++) {
        if (!limit_allows(s->limits->zero, c->zero) || (c->mesh.dp == 1 && c->zero != 1 && s->limits->zero != c->zero))
            continue;
        c->micro_batch = given ? given : 1;
        while (try_savings(s, c) && !given && 2 * c->micro_batch <= share)
            c->micro_batch *= 2;
    }
}

static void try_chunks(struct mesh_search *s, struct plan_choice *c)
{
    int most = c->mesh.pp == 1 ? 1 : s->job.model.layers / c->mesh.pp, given = s->limits->chunks;

    c->chunks = given;
    if (given && (given == 1 || c->mesh.pp > 1))
        try_stages(s, c);
    for (c->chunks = 1; !given && c->chunks <= most && c->chunks <= 8; c->chunks *= 2)
        try_stages(s, c);
}

static bool limits_allow(const struct plan_limits *limits, const struct model_shape *m, int tp, int pp)
{
    return (!limits->tp || tp == limits->tp) && (!limits->pp || pp == limits->pp) && model_kv_heads(m) % tp == 0 &&
           m->seq_length % tp == 0 && m->vocab >= tp;
}

static void try_meshes(struct mesh_search *s, int ranks)
{
    int most_tp = s->limits->tp ? s->limits->tp : s->machine->level[0].ranks;
    int smallest = s->job.batch.rampup_start ? s->job.batch.rampup_start : s->job.batch.global_batch;

    for (int tp = 1; tp <= ranks && tp <= most_tp; tp++)
        for (int pp = 1; pp <= ranks / tp && pp <= s->job.model.layers; pp++) {
            struct plan_choice c = {.mesh = {ranks / tp / pp, tp, pp}};

            if (mesh_world(&c.mesh) == ranks && limits_allow(s->limits, &s->job.model, tp, pp) && c.mesh.dp <= smallest)
                try_chunks(s, &c);
        }
}

int plan_search(const struct job *job, const struct plan_machine *machine, const struct stack *stack, int ranks,
                const struct plan_limits *limits, struct plan_results *results, struct error *err)
{
    struct mesh_search s = {
        .machine = machine, .stack = stack, .limits = limits, .results = results, .job = *job, .err = err};

    results->count = 0;
    results->tried = results->fitting = 0;
    try_meshes(&s, ranks);
    sort_choices(&s);
    free(s.fit);
    if (s.failed)
        return -1;
    if (results->tried > 0)
        return 0;
    return error_set(err, CODE_CONFIG,
                     "no mesh of %d ranks for %d layers, %d heads and a batch of %d: take another number of ranks",
                     ranks, job->model.layers, job->model.heads, job->batch.global_batch);
}
