/* Ranks that cannot see their neighbours' GPUs: what Slurm set, and the line that it gets. */
#include "srun-plugin/node/visible.h"
#include "tests/cmocka_test.h"

/* Rank 3 of four on a node with four GPUs. */
#define FOUR "SLURM_GPUS_ON_NODE=4"

#define GIVE   "give srun --gpus-per-node=4 --gpu-bind=none"
#define CHOOSE "choose its GPU by LOCAL_RANK"

static const struct row {
    unsigned local_ranks, openable;
    const char *environment[4];
    const char *cause, *mend; /* parts of the line; NULL: no line */
} rows[] = {
    /* What is well. */
    {4, 4, {FOUR, "CUDA_VISIBLE_DEVICES=0,1,2,3"}, NULL, NULL},
    {4, 4, {FOUR, "CUDA_VISIBLE_DEVICES=0,1,2,3", "SLURM_GPUS_PER_TASK=1", "SLURM_GPU_BIND=none"}, NULL, NULL},
    {4, 4, {FOUR}, NULL, NULL},
    {1, 1, {FOUR, "CUDA_VISIBLE_DEVICES=0"}, NULL, NULL},                   /* no neighbour */
    {4, 1, {"SLURM_GPUS_ON_NODE=1", "CUDA_VISIBLE_DEVICES=0"}, NULL, NULL}, /* one GPU, shared */
    {4, 0, {"SLURM_GPUS_ON_NODE=0"}, NULL, NULL},                           /* CPUs only */
    {4, 1, {"CUDA_VISIBLE_DEVICES=0"}, NULL, NULL},                         /* nothing is known */
    {4, 0, {FOUR, "CUDA_VISIBLE_DEVICES=NoDevFiles"}, NULL, NULL},          /* --gres=none, on purpose */
    {4, 4, {FOUR, "CUDA_VISIBLE_DEVICES="}, NULL, NULL},
    /* What is not. */
    {4, 4, {FOUR, "CUDA_VISIBLE_DEVICES=3", "SLURM_GPUS_PER_TASK=1"}, "--gpus-per-task=1:", GIVE},
    {4, 1, {FOUR, "CUDA_VISIBLE_DEVICES=0", "SLURM_GPUS_PER_TASK=1"}, "--gpus-per-task=1:", GIVE},
    {4, 1, {FOUR, "CUDA_VISIBLE_DEVICES=0", "SLURM_GPU_BIND=single:1"}, "--gpu-bind=single:1:", GIVE},
    {4,
     4,
     {FOUR, "ROCR_VISIBLE_DEVICES=0", "SLURM_TRES_BIND=gres/gpu:per_task:1", "SLURM_GPUS_PER_TASK=1"},
     "--gpu-bind=per_task:1:",
     GIVE},
    {4,
     4,
     {FOUR, "CUDA_VISIBLE_DEVICES=0", "SLURM_TRES_PER_TASK=cpu:4,gres/gpu:1"},
     "--tres-per-task=cpu:4,gres/gpu:1:",
     GIVE},
    {4, 2, {FOUR}, "sees 2 of the node's 4 GPUs, because of its cgroup:", GIVE},
    {4, 4, {FOUR, "CUDA_VISIBLE_DEVICES=3"}, "its CUDA_VISIBLE_DEVICES:", CHOOSE},
    {4, 4, {FOUR, "CUDA_VISIBLE_DEVICES=3", "SLURM_TRES_PER_TASK=cpu:4"}, "its CUDA_VISIBLE_DEVICES:", CHOOSE},
    {4, 4, {FOUR, "CUDA_VISIBLE_DEVICES=2,-1,3"}, "sees 1 of", CHOOSE}, /* CUDA stops at -1 */
    {4, 4, {FOUR, "CUDA_VISIBLE_DEVICES=GPU-e7b3bccd-51ac,GPU-989d4723-8384"}, "sees 2 of", CHOOSE},
};

static bool look_up(const char *name, char *value, size_t size, void *row)
{
    const char *const *environment = ((const struct row *)row)->environment;
    size_t length = strlen(name);

    for (int i = 0; i < 4 && environment[i]; i++)
        if (strncmp(environment[i], name, length) == 0 && environment[i][length] == '=')
            return snprintf(value, size, "%s", environment[i] + length + 1) >= 0;
    return false;
}

static void judge(const struct row *row, char line[ISOLATION_LINE_SIZE])
{
    struct node_gpu gpus[4] = {
        {.state = GPU_HIDDEN}, {.state = GPU_HIDDEN}, {.state = GPU_HIDDEN}, {.state = GPU_HIDDEN}};
    struct node node = {.gpus = gpus, .gpu_count = 4};

    for (unsigned i = 0; i < row->openable; i++)
        gpus[i].state = GPU_USABLE;
    isolation_judge(&node, 3, row->local_ranks, look_up, (void *)(uintptr_t)row, line);
}

static void judges_what_slurm_set(void **state)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char line[ISOLATION_LINE_SIZE];

        judge(&rows[i], line);
        if (rows[i].cause ? !strstr(line, rows[i].cause) || !strstr(line, rows[i].mend) : line[0])
            fail_msg("row %zu: %s", i, line);
    }
}

static void writes_one_whole_line(void **state)
{
    const struct row row = {4, 1, {FOUR, "CUDA_VISIBLE_DEVICES=0", "SLURM_GPUS_PER_TASK=1"}, NULL, NULL};
    char line[ISOLATION_LINE_SIZE];

    judge(&row, line);
    assert_string_equal(line,
                        "rank 3 sees 1 of the node's 4 GPUs, because of --gpus-per-task=1: NCCL cannot use NVLink "
                        "to its neighbours and silently falls back to slower transports; give srun "
                        "--gpus-per-node=4 --gpu-bind=none instead");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(judges_what_slurm_set),
        cmocka_unit_test(writes_one_whole_line),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
