#include "srun-plugin/spank/rank_plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "srun-plugin/fabric/fabric_facts.h"
#include "srun-plugin/node/visible.h"

struct making {
    const struct rank_ask *ask;
    struct rank_plan *plan;
    size_t gpus[VISIBLE_MOST]; /* that the rank sees */
    size_t gpu_count;
    char record[ENV_VALUE_SIZE]; /* MUSTER_SET of an srun --muster around this one */
};

/* A variable of the task's; NULL when it is not set. */
static const char *look_up(const struct making *making, const char *name, char *value, size_t size)
{
    return making->ask->environment(name, value, size, making->ask->environment_arg) ? value : NULL;
}

/* What the user set, and not an srun --muster around this one. */
static bool users_own(const char *name, char *value, size_t size, void *arg)
{
    const struct making *making = arg;

    return look_up(making, name, value, size) && !env_was_set(making->record, name, value);
}

/* ---- GPUs -------------------------------------------------------------------------------------------------------- */

static void see_gpus(struct making *making)
{
    char cuda[ENV_VALUE_SIZE], rocr[ENV_VALUE_SIZE], ze[ENV_VALUE_SIZE];
    const struct visible visible = {
        .cuda = look_up(making, "CUDA_VISIBLE_DEVICES", cuda, sizeof cuda),
        .rocr = look_up(making, "ROCR_VISIBLE_DEVICES", rocr, sizeof rocr),
        .ze = look_up(making, "ZE_AFFINITY_MASK", ze, sizeof ze),
    };

    making->gpu_count = visible_gpus(making->ask->view->node, &visible, making->gpus);
}

static void judge_isolation(struct making *making)
{
    const struct rank_ask *ask = making->ask;
    char visible[ENV_VALUE_SIZE], on_node[32], per_task[256], tres_per_task[512], bind[256];
    struct isolation isolation = {
        .rank = ask->task.rank,
        .local_ranks = ask->task.local_ranks,
        .node_gpus = look_up(making, "SLURM_GPUS_ON_NODE", on_node, sizeof on_node) ? atoi(on_node) : -1,
        .openable = ask->view->node ? (int)node_usable_gpus(ask->view->node, NULL) : -1,
        .gpus_per_task = look_up(making, "SLURM_GPUS_PER_TASK", per_task, sizeof per_task),
        .tres_per_task = look_up(making, "SLURM_TRES_PER_TASK", tres_per_task, sizeof tres_per_task),
    };

    isolation.visible = look_up(making, "CUDA_VISIBLE_DEVICES", visible, sizeof visible);
    if (!isolation.visible)
        isolation.visible = look_up(making, "ROCR_VISIBLE_DEVICES", visible, sizeof visible);
    isolation.gpu_bind = look_up(making, "SLURM_GPU_BIND", bind, sizeof bind);
    if (!isolation.gpu_bind)
        isolation.gpu_bind = look_up(making, "SLURM_TRES_BIND", bind, sizeof bind);
    making->plan->isolation = isolation_judge(&isolation, making->plan->isolation_line);
}

/* ---- CPUs -------------------------------------------------------------------------------------------------------- */

static int make_bind_plan(struct making *making, const struct cpus *given, const size_t *gpus, size_t gpu_count,
                          struct error *err)
{
    const struct bind_request request = {
        .local_ranks = making->ask->task.local_ranks, .given = given, .gpus = gpus, .gpu_count = gpu_count};

    making->plan->bind = bind_plan_create(making->ask->view->node, &request, err);
    return making->plan->bind ? 0 : -1;
}

/*
 * Where each rank sees a GPU of its own, the others' are not known here. They are as a rule the node's in turn: then
 * this rank's row is that of its GPU. Where a cgroup hides the others' altogether, the ranks share the cores beside the
 * GPU of each by their numbers: too few for each, but no two on the same.
 */
static int bind_isolated(struct making *making, const struct cpus *given, struct error *err)
{
    struct rank_plan *plan = making->plan;

    if (node_usable_gpus(making->ask->view->node, NULL) < making->ask->task.local_ranks)
        return make_bind_plan(making, given, making->gpus, making->gpu_count, err);
    if (make_bind_plan(making, given, NULL, 0, err) < 0)
        return -1;
    for (size_t r = 0; r < plan->bind->count; r++)
        if (plan->bind->ranks[r].gpu == (int)making->gpus[0]) {
            plan->row = r;
            return 0;
        }
    bind_plan_destroy(plan->bind);
    return make_bind_plan(making, given, making->gpus, making->gpu_count, err);
}

/* Every rank's row is what Slurm left to this one: of the others it is not known, nor needed. */
static struct cpus *given_to_all(const struct rank_ask *ask)
{
    struct cpus *given = calloc(ask->task.local_ranks, sizeof *given);

    for (unsigned r = 0; given && r < ask->task.local_ranks; r++)
        given[r] = ask->affinity.own;
    return given;
}

static const char *reason_not_to_bind(const struct rank_ask *ask)
{
    const struct node *node = ask->view->node;

    if (ask->user_binds)
        return "the user asked Slurm for a binding";
    if (!ask->may_bind)
        return "srun's plan of the step did not arrive: what the user asked for is not known";
    if (!ask->affinity_known)
        return "the kernel does not tell this process's CPUs";
    if (!affinity_is_steps(&ask->affinity.all, node, ask->task.node_cpus, ask->cpus_are_cores))
        return "Slurm does not confine the step to its own CPUs here (no cgroup): which of them are its own is not "
               "known";
    return NULL;
}

static int bind_rank(struct making *making, struct error *err)
{
    const struct rank_ask *ask = making->ask;
    struct rank_plan *plan = making->plan;
    struct cpus *given = NULL;
    int rc;

    plan->unbound = reason_not_to_bind(ask);
    if (plan->unbound && ask->affinity_known && !(given = given_to_all(ask)))
        return error_errno(err, CODE_IO, "no memory for the CPUs of %u ranks", ask->task.local_ranks);
    plan->row = ask->task.local_rank;
    if (plan->isolation != ISOLATION_NONE && making->gpu_count == 1)
        rc = bind_isolated(making, given, err);
    else
        rc = make_bind_plan(making, given, making->gpus, making->gpu_count, err);
    free(given);
    if (rc < 0)
        return -1;
    plan->binds = !plan->unbound && cpus_count(&plan->bind->ranks[plan->row].cpus) > 0;
    if (plan->binds) {
        plan->task.bound_cpus = cpus_count(&plan->bind->ranks[plan->row].cpus);
        plan->task.bound_cores = plan->bind->ranks[plan->row].threads;
    }
    return 0;
}

/* ---- variables --------------------------------------------------------------------------------------------------- */

static int plan_fabric(struct making *making, struct error *err)
{
    const struct rank_ask *ask = making->ask;
    const struct node_view *view = ask->view;
    char cluster[256];
    const struct fabric_facts_request request = {
        .nodes = ask->task.nodes,
        .job_nodes = ask->job_nodes,
        .local_ranks = ask->task.local_ranks,
        .local_rank = ask->task.local_rank,
        .cores = making->plan->bind->ranks[making->plan->row].threads,
        .gpus = making->gpus,
        .gpu_count = making->gpu_count,
        .cluster = look_up(making, "SLURM_CLUSTER_NAME", cluster, sizeof cluster),
        .interface = view->way.interface[0] ? view->way.interface : NULL,
        .files = ask->files,
        .files_arg = ask->files_arg,
    };
    const struct fabric_inputs inputs = {.user = users_own, .user_arg = making, .job = ask->job, .conf = ask->conf};
    struct fabric_facts facts;

    if (fabric_facts_fill(view->node, &request, &facts, err) < 0)
        return -1;
    making->plan->fabric = fabric_plan_create(view->fabric, &facts, &inputs, err);
    fabric_facts_clear(&facts);
    return making->plan->fabric ? 0 : -1;
}

/* MUSTER_SET, the last of the entries, tells an srun inside the step of the fabric's variables too. */
static void record_fabric(struct rank_plan *plan)
{
    for (size_t i = 0; i < plan->fabric->count; i++)
        if (fabric_sets(&plan->fabric->variables[i]))
            env_record(plan->env->record, sizeof plan->env->record, plan->fabric->variables[i].name,
                       plan->fabric->variables[i].value);
}

static int make_plan(struct making *making, struct error *err)
{
    const struct rank_ask *ask = making->ask;
    struct rank_plan *plan = making->plan;

    if (!look_up(making, "MUSTER_SET", making->record, sizeof making->record))
        making->record[0] = '\0';
    plan->env = malloc(sizeof *plan->env);
    if (!plan->env)
        return error_errno(err, CODE_IO, "no memory for the variables of a rank");
    if (ask->view->node) {
        see_gpus(making);
        judge_isolation(making);
        plan->task.sees_nvidia = making->gpu_count && ask->view->node->gpus[making->gpus[0]].vendor == 0x10de;
        if (bind_rank(making, err) < 0 || (ask->view->fabric && plan_fabric(making, err) < 0))
            return -1;
    }
    env_plan(&plan->task, ask->environment, ask->environment_arg, plan->env);
    if (plan->fabric)
        record_fabric(plan);
    return 0;
}

struct rank_plan *rank_plan_create(const struct rank_ask *ask, struct error *err)
{
    struct rank_plan *plan = calloc(1, sizeof *plan);
    struct making *making = calloc(1, sizeof *making);
    int rc = -1;

    if (plan && making) {
        plan->task = ask->task;
        if (ask->affinity_known)
            plan->task.bound_cpus = cpus_count(&ask->affinity.own);
        *making = (struct making){.ask = ask, .plan = plan};
        rc = make_plan(making, err);
    } else {
        error_errno(err, CODE_IO, "no memory for the plan of a rank");
    }
    free(making);
    if (rc == 0)
        return plan;
    rank_plan_destroy(plan);
    return NULL;
}

void rank_plan_destroy(struct rank_plan *plan)
{
    if (!plan)
        return;
    bind_plan_destroy(plan->bind);
    fabric_plan_destroy(plan->fabric);
    free(plan->env);
    free(plan);
}
