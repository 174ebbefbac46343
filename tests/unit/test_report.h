/*
 * test_report.h - what the tests of trainer/report share: a directory of their own, files, and a run to look at.
 */
#ifndef MUSTER_TESTS_UNIT_TEST_REPORT_H
#define MUSTER_TESTS_UNIT_TEST_REPORT_H

#include <limits.h>
#include <math.h>
#include <unistd.h>

#include "tests/unit/test_files.h"
#include "trainer/report/metrics.h"

static char test_dir[64];
static char test_file[96]; /* metrics.jsonl in it */

static inline int make_dir(void **state)
{
    snprintf(test_dir, sizeof test_dir, "/tmp/muster-report-XXXXXX");
    if (!mkdtemp(test_dir))
        return -1;
    snprintf(test_file, sizeof test_file, "%s/metrics.jsonl", test_dir);
    return 0;
}

static inline int remove_dir(void **state)
{
    unlink(test_file);
    return rmdir(test_dir); /* fails, and the test with it, where something was left behind */
}

static inline struct metrics_step make_step(long step, int world)
{
    return (struct metrics_step){
        .step = step,
        .consumed_samples = 256 * step,
        .loss = 3.0 + 8.0 / (double)step,
        .lr = 1.5e-4,
        .grad_norm = 1.0 / 3.0,
        .loss_scale = 1.0,
        .step_seconds = 0.5,
        .tokens_per_second = 3000.0 * world,
        .tflops = 1.25,
        .mfu = 0.5,
        .hfu = 0.5,
        .world = world,
        .dp = world,
        .tp = 1,
        .pp = 1,
        .order_loss = NAN,
        .validated = step % 50 == 0,
        .valid_loss = step % 50 == 0 ? 3.5 : NAN,
        .valid_order_loss = NAN,
    };
}

/* Steps 1 to `count`, by `world` ranks up to step `until` and by half of them after it. The caller frees it. */
static inline struct metrics_step *make_run(size_t count, long until, int world)
{
    struct metrics_step *steps = calloc(count + 1, sizeof *steps);

    assert_non_null(steps);
    for (size_t i = 0; i < count; i++)
        steps[i] = make_step((long)i + 1, (long)i + 1 > until ? world / 2 : world);
    return steps;
}

/* As text, into buf; returns its length. */
static inline size_t format_run(char *buf, const struct metrics_step *steps, size_t count)
{
    size_t used = 0;

    for (size_t i = 0; i < count; i++)
        used += metrics_format(buf + used, &steps[i]);
    return used;
}

#endif
