/*
 * search.h - which mesh to take: tries every mesh, ZeRO stage, recompute, offload and micro-batch that the model's
 * shape and the limits allow, with tp up to the ranks of a node unless the limits give it. Memory and time are
 * plan/cost.h's. Deterministic: equal arguments give equal results.
 *
 * Choices whose times differ by less than the stack's error count as equal: predictions cannot tell them apart. The
 * simplest of them is first: without offload, with a smaller tp x pp, with a shorter pipeline, with
 * fewer chunks, with less recomputation, with ZeRO-1, which is the default.
 */
#ifndef MUSTER_PLAN_SEARCH_H
#define MUSTER_PLAN_SEARCH_H

#include "plan/cost.h"

/* Values that a choice must have. 0 is any; for zero, recompute and offload -1 is. */
struct plan_limits {
    int tp, pp, chunks, micro_batch;
    int zero, recompute, offload;
    double host_memory; /* bytes of a rank; 0: not limited */
};
#define PLAN_FREE ((struct plan_limits){.zero = -1, .recompute = -1, .offload = -1})

struct plan_choice {
    struct mesh mesh;
    int chunks, zero, micro_batch;
    enum recompute recompute;
    enum offload offload;
    struct plan_memory memory;
    struct plan_cost cost;
    int place; /* 0: as fast as the fastest; each place more is slower by the stack's error */
};

struct plan_results {
    struct plan_choice *best; /* [most], one for each mesh, best first; `count` of them are set */
    int most, count;
    long tried, fitting;
    struct plan_choice smallest; /* what needs least memory, if nothing fits */
};

/* The job's mesh keys are not read; its model, batch, precision and the rest are. -1 with CODE_CONFIG if the model has
 * no mesh of so many ranks; results->count 0 if there are meshes but none fits. */
int plan_search(const struct job *job, const struct plan_machine *machine, const struct stack *stack, int ranks,
                const struct plan_limits *limits, struct plan_results *results, struct error *err);

/* Sets the job's parallel and batch keys to the choice. parallel.reduce and recompute_layers stay as the job gives them,
 * else they get their defaults. */
void plan_apply(const struct plan_choice *choice, struct job *job);

/* The choice as overrides of a job (job_override): "parallel.tp=4 parallel.pp=2 ..." */
void plan_sets(const struct plan_choice *choice, char *text, size_t size);

/* "dp 8 x tp 4 x pp 2, ZeRO-1, ..." Returns text. */
const char *plan_describe(const struct plan_choice *choice, char *text, size_t size);

#endif
