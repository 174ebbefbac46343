/* Ranks that cannot see their neighbours' GPUs: what Slurm set, and the line that it gets. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "srun-plugin/node/visible.h"

/* Rank 3 of four on a node with four GPUs. */
#define RANK .rank = 3, .local_ranks = 4, .node_gpus = 4

static const struct {
    struct isolation isolation;
    enum isolation_state state;
    const char *cause, *mend; /* parts of the line */
} rows[] = {
    /* What is well. */
    {{RANK, .openable = 4, .visible = "0,1,2,3"}, ISOLATION_NONE, NULL, NULL},
    {{RANK, .openable = -1, .visible = "0,1,2,3", .gpus_per_task = "1", .gpu_bind = "none"},
     ISOLATION_NONE,
     NULL,
     NULL},
    {{RANK, .openable = 4}, ISOLATION_NONE, NULL, NULL},
    {{RANK, .openable = -1}, ISOLATION_NONE, NULL, NULL}, /* nothing is known */
    {{.local_ranks = 1, .node_gpus = 4, .openable = 1, .visible = "0"}, ISOLATION_NONE, NULL, NULL}, /* no neighbour */
    {{.local_ranks = 4, .node_gpus = 1, .openable = 1, .visible = "0"},
     ISOLATION_NONE,
     NULL,
     NULL},                                                                          /* one GPU, shared */
    {{.local_ranks = 4, .node_gpus = 0, .openable = 0}, ISOLATION_NONE, NULL, NULL}, /* CPUs only */
    {{.local_ranks = 4, .node_gpus = -1, .openable = 1, .visible = "0"}, ISOLATION_NONE, NULL, NULL},
    {{RANK, .openable = 0, .visible = "NoDevFiles"}, ISOLATION_NONE, NULL, NULL}, /* --gres=none, on purpose */
    /* What is not. */
    {{RANK, .openable = 4, .visible = "3", .gpus_per_task = "1"},
     ISOLATION_MASKED,
     "--gpus-per-task=1:",
     "give srun --gpus-per-node=4 --gpu-bind=none"},
    {{RANK, .openable = 1, .visible = "0", .gpus_per_task = "1"},
     ISOLATION_HIDDEN,
     "--gpus-per-task=1:",
     "give srun --gpus-per-node=4 --gpu-bind=none"},
    {{RANK, .openable = 1, .visible = "0", .gpu_bind = "single:1"},
     ISOLATION_HIDDEN,
     "--gpu-bind=single:1:",
     "--gpu-bind=none"},
    {{RANK, .openable = -1, .visible = "0", .gpu_bind = "gres/gpu:per_task:1", .gpus_per_task = "1"},
     ISOLATION_MASKED,
     "--gpu-bind=per_task:1:",
     "--gpu-bind=none"},
    {{RANK, .openable = -1, .visible = "0", .tres_per_task = "cpu:4,gres/gpu:1"},
     ISOLATION_MASKED,
     "--tres-per-task=cpu:4,gres/gpu:1:",
     "--gpu-bind=none"},
    {{RANK, .openable = 2, .visible = NULL}, ISOLATION_HIDDEN, "its cgroup:", "--gpu-bind=none"},
    {{RANK, .openable = 4, .visible = "3"}, ISOLATION_MASKED, "its CUDA_VISIBLE_DEVICES:", "choose its GPU by LOCAL_RANK"},
    {{RANK, .openable = 4, .visible = "3", .tres_per_task = "cpu:4"},
     ISOLATION_MASKED,
     "its CUDA_VISIBLE_DEVICES:",
     "choose its GPU by LOCAL_RANK"},
};

static void judges_what_slurm_set(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char line[ISOLATION_LINE_SIZE];
        enum isolation_state found = isolation_judge(&rows[i].isolation, line);

        if (found != rows[i].state)
            fail_msg("row %zu: %d: %s", i, found, line);
        if (!rows[i].cause) {
            assert_string_equal(line, "");
            continue;
        }
        if (!strstr(line, rows[i].cause) || !strstr(line, rows[i].mend))
            fail_msg("row %zu: %s", i, line);
    }
}

static void writes_one_whole_line(void **state)
{
    struct isolation isolation = {RANK, .openable = 1, .visible = "0", .gpus_per_task = "1"};
    char line[ISOLATION_LINE_SIZE];

    (void)state;
    isolation_judge(&isolation, line);
    assert_string_equal(line, "rank 3 sees 1 of the node's 4 GPUs, because of --gpus-per-task=1: NCCL cannot use NVLink "
                              "to its neighbours and silently falls back to slower transports; give srun "
                              "--gpus-per-node=4 --gpu-bind=none instead");
}

static void counts_visible_devices(void **state)
{
    (void)state;
    assert_int_equal(isolation_count(NULL), -1);
    assert_int_equal(isolation_count(""), 0);
    assert_int_equal(isolation_count("0"), 1);
    assert_int_equal(isolation_count("0,1,2,3"), 4);
    assert_int_equal(isolation_count("2,-1,3"), 1);
    assert_int_equal(isolation_count("GPU-e7b3bccd-51ac,GPU-989d4723-8384"), 2);
    assert_int_equal(isolation_count("NoDevFiles"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(judges_what_slurm_set),
        cmocka_unit_test(writes_one_whole_line),
        cmocka_unit_test(counts_visible_devices),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
