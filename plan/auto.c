#include "plan/auto.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "plan/search.h"

#define GIB 0x1p30

const char *const auto_keys[AUTO_KEYS] = {"parallel.tp",   "parallel.pp",        "parallel.chunks",
                                          "parallel.zero", "parallel.recompute", "parallel.offload",
                                          "batch.micro_batch"};

/* What the job gives, and what it leaves free. */
static struct plan_limits limits_of(const struct job *job, const struct auto_start *start,
                                    const struct cluster *machine)
{
    struct plan_limits limits = PLAN_FREE;
    const struct {
        const char *key;
        int *limit, value;
    } given[] = {
        {"parallel.tp", &limits.tp, job->parallel.tp},
        {"parallel.pp", &limits.pp, job->parallel.pp},
        {"parallel.chunks", &limits.chunks, job->parallel.chunks},
        {"parallel.zero", &limits.zero, job->parallel.zero},
        {"parallel.recompute", &limits.recompute, (int)job->parallel.recompute},
        {"parallel.offload", &limits.offload, (int)job->parallel.offload},
        {"batch.micro_batch", &limits.micro_batch, job->batch.micro_batch},
    };
    double share = start->node_bytes / start->per_node;

    for (int i = 0; i < AUTO_KEYS; i++)
        if (job_gives(job, given[i].key))
            *given[i].limit = given[i].value;
    limits.most_tp = start->per_node;
    limits.memory = machine->memory;
    if (start->node_bytes > 0 && machine->gpu)
        limits.host_memory = share;
    else if (start->node_bytes > 0)
        limits.memory = fmin(limits.memory, share);
    return limits;
}

void auto_cut(struct auto_choice *choice)
{
    char *rest = choice->cut;

    memcpy(choice->cut, choice->text, sizeof choice->cut);
    for (int i = 0; i < AUTO_KEYS; i++)
        choice->set[i] = strsep(&rest, " ");
}

/* A number of nodes on which something fits: the fewest, if that is at most four times as many; 0: not 64 times. */
static int find_nodes(const struct job *job, const struct cluster *machine, const struct stack *stack,
                      const struct auto_start *start, const struct plan_limits *limits)
{
    int nodes = (start->ranks + start->per_node - 1) / start->per_node;
    struct plan_choice best;
    struct error ignored;

    for (int more = nodes + 1; more <= 64 * nodes; more = more < 4 * nodes ? more + 1 : 2 * more) {
        struct plan_results results = {.best = &best, .most = 1};

        if (plan_search(job, machine, stack, more * start->per_node, limits, &results, &ignored) == 0 &&
            results.count > 0)
            return more;
    }
    return 0;
}

/* ", or let the job not give KEY, KEY" */
static void advise_on_keys(const struct job *job, char *text, size_t size)
{
    text[0] = '\0';
    for (int i = 0; i < AUTO_KEYS; i++)
        if (job_gives(job, auto_keys[i]))
            snprintf(text + strlen(text), size - strlen(text), "%s%s", text[0] ? ", " : ", or let the job not give ",
                     auto_keys[i]);
}

static int fail_to_fit(const struct job *job, const struct cluster *machine, const struct stack *stack,
                       const struct auto_start *start, const struct plan_limits *limits,
                       const struct plan_choice *smallest, struct error *err)
{
    int nodes = find_nodes(job, machine, stack, start, limits);
    bool host = smallest->memory.needed <= limits->memory;
    char mesh[256], more[64] = "take nodes with more memory", given[256];

    if (nodes > 0)
        snprintf(more, sizeof more, "start %d nodes", nodes);
    advise_on_keys(job, given, sizeof given);
    return error_set(err, CODE_CONFIG,
                     "parallel.mesh = \"auto\": nothing fits %d rank%s of %s: %s needs %.3g GiB of a rank's %.3g "
                     "GiB%s: %s%s",
                     start->ranks, start->ranks == 1 ? "" : "s", machine->name,
                     plan_describe(smallest, mesh, sizeof mesh),
                     (host ? smallest->memory.host : smallest->memory.needed) / GIB,
                     (host ? limits->host_memory : limits->memory) / GIB, host ? " on the host" : "", more, given);
}

int auto_choose(struct auto_choice *choice, const struct job *job, const struct auto_start *at, struct error *err)
{
    struct auto_start start = *at;
    struct plan_choice best;
    struct plan_results results = {.best = &best, .most = 1};
    struct plan_limits limits;
    struct cluster machine;
    struct stack stack;
    char mesh[256], given[256];
    struct error why;

    if (cluster_read(&machine, start.machine, err) < 0 || stack_read(&stack, cluster_own_stack(&machine), err) < 0)
        return -1;
    if (job->device == (machine.gpu ? DEVICE_CPU : DEVICE_CUDA))
        return error_set(err, CODE_CONFIG, "parallel.mesh = \"auto\": %s is a machine %s GPUs, but device = \"%s\"",
                         machine.name, machine.gpu ? "with" : "without", machine.gpu ? "cpu" : "cuda");
    if (start.per_node == 0)
        start.per_node = start.ranks < machine.level[0].ranks ? start.ranks : machine.level[0].ranks;
    machine.level[0].ranks = start.per_node;
    limits = limits_of(job, &start, &machine);
    advise_on_keys(job, given, sizeof given);
    if (plan_search(job, &machine, &stack, start.ranks, &limits, &results, &why) < 0)
        return error_set(err, CODE_CONFIG, "parallel.mesh = \"auto\": %s%s", why.text, given);
    if (results.count == 0)
        return fail_to_fit(job, &machine, &stack, &start, &limits, &results.smallest, err);
    plan_sets(&best, choice->text, sizeof choice->text);
    auto_cut(choice);
    snprintf(choice->why, sizeof choice->why,
             "mesh \"auto\" on %s: %s; predicted %.3g s a step and %.3g of %.3g GiB a rank, the fastest of %ld that fit "
             "(%s)",
             machine.name, plan_describe(&best, mesh, sizeof mesh), best.cost.seconds, best.memory.needed / GIB,
             limits.memory / GIB, results.fitting, choice->text);
    return 0;
}

void auto_write(char text[AUTO_SIZE], const char *machine, const struct auto_choice *choice)
{
    snprintf(text, AUTO_SIZE, "%.*s%s%s", JOB_PATH_SIZE - 1, machine, choice->text[0] ? " " : "", choice->text);
}

void auto_read(char text[AUTO_SIZE], const char **machine, const char **choice)
{
    char *sets = strstr(text, " parallel.tp=");

    *machine = text;
    *choice = sets ? sets + 1 : "";
    if (sets)
        *sets = '\0';
}
