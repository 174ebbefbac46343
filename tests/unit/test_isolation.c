/* Ranks that cannot see their neighbours' GPUs: what Slurm set, and the line that it gets. */
#include "srun-plugin/node/visible.h"
#include "tests/cmocka_test.h"

/* Rank 3 of four on a node with four GPUs. */
#define RANK .rank = 3, .local_ranks = 4, .node_gpus = 4

#define GIVE   "give srun --gpus-per-node=4 --gpu-bind=none"
#define CHOOSE "choose its GPU by LOCAL_RANK"

static const struct {
    struct isolation isolation;
    const char *cause, *mend; /* parts of the line; NULL: no line */
} rows[] = {
    /* What is well. */
    {{RANK, .openable = 4, .visible = "0,1,2,3"}, NULL, NULL},
    {{RANK, .openable = -1, .visible = "0,1,2,3", .gpus_per_task = "1", .gpu_bind = "none"}, NULL, NULL},
    {{RANK, .openable = 4}, NULL, NULL},
    {{RANK, .openable = -1}, NULL, NULL},                                            /* nothing is known */
    {{.local_ranks = 1, .node_gpus = 4, .openable = 1, .visible = "0"}, NULL, NULL}, /* no neighbour */
    {{.local_ranks = 4, .node_gpus = 1, .openable = 1, .visible = "0"}, NULL, NULL}, /* one GPU, shared */
    {{.local_ranks = 4, .node_gpus = 0, .openable = 0}, NULL, NULL},                 /* CPUs only */
    {{.local_ranks = 4, .node_gpus = -1, .openable = 1, .visible = "0"}, NULL, NULL},
    {{RANK, .openable = 0, .visible = "NoDevFiles"}, NULL, NULL}, /* --gres=none, on purpose */
    {{RANK, .openable = 4, .visible = ""}, NULL, NULL},
    /* What is not. */
    {{RANK, .openable = 4, .visible = "3", .gpus_per_task = "1"}, "--gpus-per-task=1:", GIVE},
    {{RANK, .openable = 1, .visible = "0", .gpus_per_task = "1"}, "--gpus-per-task=1:", GIVE},
    {{RANK, .openable = 1, .visible = "0", .gpu_bind = "single:1"}, "--gpu-bind=single:1:", GIVE},
    {{RANK, .openable = -1, .visible = "0", .gpu_bind = "gres/gpu:per_task:1", .gpus_per_task = "1"},
     "--gpu-bind=per_task:1:",
     GIVE},
    {{RANK, .openable = -1, .visible = "0", .tres_per_task = "cpu:4,gres/gpu:1"},
     "--tres-per-task=cpu:4,gres/gpu:1:",
     GIVE},
    {{RANK, .openable = 2, .visible = NULL}, "sees 2 of the node's 4 GPUs, because of its cgroup:", GIVE},
    {{RANK, .openable = 4, .visible = "3"}, "its CUDA_VISIBLE_DEVICES:", CHOOSE},
    {{RANK, .openable = 4, .visible = "3", .tres_per_task = "cpu:4"}, "its CUDA_VISIBLE_DEVICES:", CHOOSE},
    {{RANK, .openable = 4, .visible = "2,-1,3"}, "sees 1 of", CHOOSE}, /* CUDA stops at -1 */
    {{RANK, .openable = 4, .visible = "GPU-e7b3bccd-51ac,GPU-989d4723-8384"}, "sees 2 of", CHOOSE},
};

static void judges_what_slurm_set(void **state)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char line[ISOLATION_LINE_SIZE];

        isolation_judge(&rows[i].isolation, line);
        if (rows[i].cause ? !strstr(line, rows[i].cause) || !strstr(line, rows[i].mend) : line[0])
            fail_msg("row %zu: %s", i, line);
    }
}

static void writes_one_whole_line(void **state)
{
    struct isolation isolation = {RANK, .openable = 1, .visible = "0", .gpus_per_task = "1"};
    char line[ISOLATION_LINE_SIZE];

    isolation_judge(&isolation, line);
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
