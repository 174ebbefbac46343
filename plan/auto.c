#include "plan/auto.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "plan/search.h"

#define GIB 0x1p30

static const char *const keys[] = {"parallel.tp",        "parallel.pp",      "parallel.chunks",  "parallel.zero",
                                   "parallel.recompute", "parallel.offload", "batch.micro_batch"};
enum { KEYS = sizeof keys / sizeof *keys };

/* What the job gives, and what it leaves free. */
static struct plan_limits limits_of(const struct job *job)
{
    struct plan_limits limits = PLAN_FREE;
    const struct {
        int *limit, value;
    } given[KEYS] = {
        {&limits.tp, job->parallel.tp},
        {&limits.pp, job->parallel.pp},
        {&limits.chunks, job->parallel.chunks},
        {&limits.zero, job->parallel.zero},
        {&limits.recompute, (int)job->parallel.recompute},
        {&limits.offload, (int)job->parallel.offload},
        {&limits.micro_batch, job->batch.micro_batch},
    };

    for (int i = 0; i < KEYS; i++)
        if (job_gives(job, keys[i]))
            *given[i].limit = given[i].value;
    return limits;
}

/* A number of nodes on which something fits: the fewest, if that is at most four times as many; 0: not 64 times. */
static int find_nodes(const struct job *job, const struct plan_machine *machine, const struct stack *stack, int ranks,
                      const struct plan_limits *limits)
{
    int per_node = machine->level[0].ranks, nodes = (ranks + per_node - 1) / per_node;
    struct plan_choice best;
    struct error ignored;

    for (int more = nodes + 1; more <= 64 * nodes; more = more < 4 * nodes ? more + 1 : 2 * more) {
        struct plan_results results = {.best = &best, .most = 1};

        if (plan_search(job, machine, stack, more * per_node, limits, &results, &ignored) == 0 && results.count > 0)
            return more;
    }
    return 0;
}

/* ", or let the job not give KEY, KEY" */
static void advise_on_keys(const struct job *job, char *text, size_t size)
{
    text[0] = '\0';
    for (int i = 0; i < KEYS; i++)
        if (job_gives(job, keys[i]))
            snprintf(text + strlen(text), size - strlen(text), "%s%s", text[0] ? ", " : ", or let the job not give ",
                     keys[i]);
}

/* `given` is advise_on_keys's text. */
static int fail_to_fit(const struct job *job, const struct plan_machine *machine, const struct stack *stack, int ranks,
                       const struct plan_limits *limits, const struct plan_choice *smallest, const char *given,
                       struct error *err)
{
    int nodes = find_nodes(job, machine, stack, ranks, limits);
    bool host = smallest->memory.needed <= machine->memory;
    char mesh[256], more[64] = "take nodes with more memory";

    if (nodes > 0)
        snprintf(more, sizeof more, "start %d nodes", nodes);
    return error_set(err, CODE_CONFIG,
                     "parallel.mesh = \"auto\": nothing fits %d rank%s of %s: %s needs %.3g GiB of a rank's %.3g "
                     "GiB%s: %s%s",
                     ranks, ranks == 1 ? "" : "s", machine->name, plan_describe(smallest, mesh, sizeof mesh),
                     (host ? smallest->memory.host : smallest->memory.needed) / GIB,
                     (host ? limits->host_memory : machine->memory) / GIB, host ? " on the host" : "", more, given);
}

int auto_choose(struct auto_choice *choice, const struct job *job, const struct auto_start *start, struct error *err)
{
    struct plan_limits limits = limits_of(job);
    struct plan_choice best;
    struct plan_results results = {.best = &best, .most = 1};
    struct plan_machine machine;
    int *per_node = &machine.level[0].ranks;
    struct stack stack;
    char mesh[256], given[256];
    double spared = 0;
    struct error why;

    if (plan_machine_read(&machine, start->machine, err) < 0 ||
        stack_read(&stack, plan_machine_stack(&machine), err) < 0)
        return -1;
    if (job->device == (machine.gpu ? DEVICE_CPU : DEVICE_CUDA))
        return error_set(err, CODE_CONFIG, "parallel.mesh = \"auto\": %s is a machine %s GPUs, but device = \"%s\"",
                         machine.name, machine.gpu ? "with" : "without", machine.gpu ? "cpu" : "cuda");
    if (start->per_node > 0)
        *per_node = start->per_node;
    else if (start->ranks < *per_node)
        *per_node = start->ranks;
    if (start->process > 0) /* predictions include process_bytes */
        spared = process_bytes(machine.gpu) - start->process;
    if (start->node_bytes > 0 && machine.gpu)
        limits.host_memory = start->node_bytes / *per_node + spared;
    else if (start->node_bytes > 0)
        machine.memory = fmin(machine.memory, start->node_bytes / *per_node + spared);
    advise_on_keys(job, given, sizeof given);
    if (plan_search(job, &machine, &stack, start->ranks, &limits, &results, &why) < 0)
        return error_set(err, CODE_CONFIG, "parallel.mesh = \"auto\": %s%s", why.text, given);
    if (results.count == 0)
        return fail_to_fit(job, &machine, &stack, start->ranks, &limits, &results.smallest, given, err);
    plan_sets(&best, choice->text, sizeof choice->text);
    snprintf(choice->why, sizeof choice->why,
             "mesh \"auto\" on %s: %s; predicted %.3g s a step and %.3g of %.3g GiB a rank, the best of %ld that fit "
             "(%s)",
             machine.name, plan_describe(&best, mesh, sizeof mesh), best.cost.seconds, best.memory.needed / GIB,
             machine.memory / GIB, results.fitting, choice->text);
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
