/* What the optimizer's numbers are at a step: learning rate, batch size, loss scale; and what is a spike. */
#include <math.h>

#include "tests/cmocka_test.h"
#include "trainer/optim/optim.h"

/* ---- learning rates ---------------------------------------------------------------------------------------------- */

static struct job lr_job(enum lr_schedule schedule)
{
    struct job job = {0};

    job.batch.steps = 100;
    job.optimizer.lr = 1e-3;
    job.optimizer.min_lr = 1e-4;
    job.optimizer.warmup_steps = 10;
    job.optimizer.schedule = schedule;
    job.optimizer.cooldown_steps = schedule == LR_WSD ? 20 : 0;
    return job;
}

static void assert_rate(const struct job *job, long step, double expected)
{
    if (fabs(learning_rate(job, step) - expected) > 1e-15)
        fail_msg("step %ld: %.17g, not %.17g", step, learning_rate(job, step), expected);
}

static void warm_up_is_linear(void **state)
{
    for (int schedule = LR_COSINE; schedule <= LR_WSD; schedule++) {
        struct job job = lr_job((enum lr_schedule)schedule);

        for (long step = 1; step <= 10; step++)
            assert_rate(&job, step, 1e-4 * (double)step);
    }
}

static void decay(void **state)
{
    struct job cosine = lr_job(LR_COSINE), linear = lr_job(LR_LINEAR), constant = lr_job(LR_CONSTANT);

    assert_rate(&cosine, 55, 5.5e-4); /* half way: the mean */
    assert_rate(&linear, 55, 5.5e-4);
    assert_rate(&linear, 28, 1e-3 - 0.2 * 9e-4);
    assert_true(learning_rate(&cosine, 28) > learning_rate(&linear, 28));
    assert_true(learning_rate(&cosine, 100) == 1e-4 && learning_rate(&cosine, 1000) == 1e-4);
    assert_true(learning_rate(&constant, 100) == 1e-3);
    cosine.optimizer.decay_steps = 55;
    assert_true(learning_rate(&cosine, 55) == 1e-4);
}

static void no_warm_up(void **state)
{
    struct job job = lr_job(LR_LINEAR);

    job.optimizer.warmup_steps = 0;
    assert_rate(&job, 1, 1e-3 - 9e-6);
}

static void wsd_is_stable_then_falls(void **state)
{
    struct job job = lr_job(LR_WSD);

    for (long step = 10; step <= 80; step++)
        assert_true(learning_rate(&job, step) == 1e-3);
    assert_rate(&job, 81, 1e-3 - 9e-4 / 20);
    assert_rate(&job, 90, 5.5e-4);
    assert_true(learning_rate(&job, 100) == 1e-4 && learning_rate(&job, 101) == 1e-4);
    job.optimizer.decay_steps = 50;
    assert_true(learning_rate(&job, 30) == 1e-3);
    assert_rate(&job, 40, 5.5e-4);
    job.optimizer.cooldown_steps = 40; /* all that the warm-up leaves */
    assert_rate(&job, 11, 1e-3 - 9e-4 / 40);
    assert_true(learning_rate(&job, 50) == 1e-4);
}

/* ---- batch ramp-up ----------------------------------------------------------------------------------------------- */

static struct job ramp_job(int global, int start, int increment, uint64_t samples)
{
    struct job job = {0};

    job.batch.global_batch = global;
    job.batch.rampup_start = start;
    job.batch.rampup_increment = increment;
    job.batch.rampup_samples = samples;
    return job;
}

static void no_ramp_up(void **state)
{
    struct job job = ramp_job(48, 0, 0, 0);

    assert_int_equal(batch_size_at(&job, 0), 48);
    assert_int_equal(batch_size_at(&job, UINT64_MAX), 48);
}

/* BigScience's 104B run: "--rampup-batch-size 16 16 6_000_000" to 2048, which is 127 sizes of 47244.09 samples each. */
static void ramp_up_as_bigscience_had_it(void **state)
{
    struct job job = ramp_job(2048, 16, 16, 6000000);

    assert_int_equal(batch_size_at(&job, 0), 16);
    assert_int_equal(batch_size_at(&job, 47244), 16);
    assert_int_equal(batch_size_at(&job, 47245), 32);
    assert_int_equal(batch_size_at(&job, 94488), 32);
    assert_int_equal(batch_size_at(&job, 94489), 48);
    assert_int_equal(batch_size_at(&job, 5999999), 2032);
    assert_int_equal(batch_size_at(&job, 6000000), 2048);
    assert_int_equal(batch_size_at(&job, UINT64_MAX), 2048);
}

/* Where a size lasts for a whole number of samples, floating point may fall short of it: 3 * (1 / 3.0) and the like. */
static void sizes_change_exactly_where_they_should(void **state)
{
    for (int sizes = 1; sizes <= 60; sizes++)
        for (uint64_t each = 1; each <= 60; each++) {
            struct job job = ramp_job(7 + 3 * sizes, 7, 3, each * (uint64_t)sizes);

            for (int size = 0; size < sizes; size++) {
                assert_int_equal(batch_size_at(&job, each * (uint64_t)size), 7 + 3 * size);
                assert_int_equal(batch_size_at(&job, each * (uint64_t)(size + 1) - 1), 7 + 3 * size);
            }
            assert_int_equal(batch_size_at(&job, each * (uint64_t)sizes), 7 + 3 * sizes);
        }
}

static void large_ramps_do_not_overflow(void **state)
{
    const uint64_t samples = UINT64_C(1) << 53;
    struct job job = ramp_job(1000000, 1, 1, samples);

    assert_int_equal(batch_size_at(&job, samples - 1), 999999);
    assert_int_equal(batch_size_at(&job, samples / 2), 500000);
}

/* ---- loss scale -------------------------------------------------------------------------------------------------- */

static struct job scale_job(enum dtype compute, double constant)
{
    struct job job = {0};

    job.precision.compute = compute;
    job.precision.loss_scale = constant;
    job.precision.loss_scale_start = 0x1p32;
    job.precision.loss_scale_min = 1;
    job.precision.loss_scale_window = 1000;
    job.precision.loss_scale_hysteresis = 2;
    return job;
}

static void assert_scale(const struct loss_scale *s, double scale, int good_steps, int hysteresis_left)
{
    if (s->scale != scale || s->good_steps != good_steps || s->hysteresis_left != hysteresis_left)
        fail_msg("%a after %d good steps with %d left; expected %a, %d, %d", s->scale, s->good_steps,
                 s->hysteresis_left, scale, good_steps, hysteresis_left);
}

static void update(struct loss_scale *s, const struct job *job, int times, bool overflow)
{
    for (int i = 0; i < times; i++)
        loss_scale_update(s, job, overflow);
}

static void none_or_constant_stays(void **state)
{
    static const struct {
        enum dtype compute;
        double constant, scale;
    } rows[] = {{DTYPE_F32, 0, 1}, {DTYPE_BF16, 0, 1}, {DTYPE_F16, 128, 128}, {DTYPE_BF16, 8, 8}};

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct job job = scale_job(rows[i].compute, rows[i].constant);
        struct loss_scale s = loss_scale_init(&job);

        assert_false(loss_scale_can_fall(&s, &job));
        update(&s, &job, 5, true);
        update(&s, &job, 3000, false);
        assert_scale(&s, rows[i].scale, 0, 0);
    }
}

static void hysteresis_forgives_once(void **state)
{
    struct job job = scale_job(DTYPE_F16, 0);
    struct loss_scale s = loss_scale_init(&job);

    assert_scale(&s, 0x1p32, 0, 2);
    update(&s, &job, 1, true);
    assert_scale(&s, 0x1p32, 0, 1);
    update(&s, &job, 500, false);
    update(&s, &job, 1, true); /* good steps do not give it back */
    assert_scale(&s, 0x1p31, 0, 1);
    update(&s, &job, 19, true); /* and from now on each overflow halves: a run begins with a few of them */
    assert_scale(&s, 0x1p12, 0, 1);
}

static void a_window_of_good_steps_doubles(void **state)
{
    struct job job = scale_job(DTYPE_F16, 0);
    struct loss_scale s = loss_scale_init(&job);

    update(&s, &job, 1, true);
    update(&s, &job, 999, false);
    assert_scale(&s, 0x1p32, 999, 1);
    update(&s, &job, 1, false);
    assert_scale(&s, 0x1p33, 0, 2); /* only now the hysteresis is whole again */
    update(&s, &job, 999, false);
    update(&s, &job, 1, true);
    update(&s, &job, 999, false); /* the overflow began the row anew */
    assert_scale(&s, 0x1p33, 999, 1);
}

static void the_scale_has_bounds(void **state)
{
    struct job job = scale_job(DTYPE_F16, 0);
    struct loss_scale s;

    job.precision.loss_scale_min = 3;
    s = loss_scale_init(&job);
    for (int i = 0; i < 32; i++) { /* 2^32 / 2^31 is the first below 3, and the first overflow is forgiven */
        assert_true(loss_scale_can_fall(&s, &job));
        update(&s, &job, 1, true);
    }
    assert_scale(&s, 3, 0, 1);
    assert_false(loss_scale_can_fall(&s, &job));
    update(&s, &job, 100, true);
    assert_scale(&s, 3, 0, 1);
    job.precision.loss_scale_window = 1;
    update(&s, &job, 1000, false);
    assert_true(s.scale <= 0x1p100 && s.scale > 0x1p98 && isfinite((float)s.scale));
}

static void a_resumed_run_goes_on_with_its_scale(void **state)
{
    struct job dynamic = scale_job(DTYPE_F16, 0), fixed = scale_job(DTYPE_F16, 64), none = scale_job(DTYPE_F32, 0);
    struct loss_scale kept = {.scale = 0x1p15, .good_steps = 77, .hysteresis_left = 2}, s;

    s = loss_scale_resume(&dynamic, kept);
    assert_scale(&s, 0x1p15, 77, 2);
    s = loss_scale_resume(&fixed, kept);
    assert_scale(&s, 64, 0, 0);
    s = loss_scale_resume(&none, kept);
    assert_scale(&s, 1, 0, 0);
    s = loss_scale_resume(&dynamic, loss_scale_init(&none)); /* a checkpoint of fp32 goes on in fp16 */
    assert_scale(&s, 0x1p32, 0, 2);
    dynamic.precision.loss_scale_min = 0x1p16;
    dynamic.precision.loss_scale_hysteresis = 1;
    s = loss_scale_resume(&dynamic, kept);
    assert_scale(&s, 0x1p16, 77, 1);
}

/* ---- spikes ------------------------------------------------------------------------------------------------------ */

static void a_spike_is_more_than_the_factor_times_the_mean(void **state)
{
    struct job job = {.optimizer.spike_factor = 2};
    struct spike spike = {0};

    for (int i = 0; i < 10; i++) {
        assert_false(spike_check(&spike, &job, 1e9)); /* too few to know */
        spike_update(&spike, i % 2 ? 3.0 : 5.0);
    }
    assert_true(fabs(spike.mean - 4) < 1e-12);
    spike.mean = 4;
    assert_false(spike_check(&spike, &job, 8.0));
    assert_true(spike_check(&spike, &job, 8.0000001));
    assert_true(spike_check(&spike, &job, HUGE_VAL));
    assert_false(spike_check(&spike, &job, (double)NAN));
    job.optimizer.spike_factor = 0;
    assert_false(spike_check(&spike, &job, 1e9));
}

/* After 100 losses, one that is older than n steps weighs 0.99^n. */
static void the_mean_forgets(void **state)
{
    struct spike spike = {0};
    double expected;

    for (int i = 0; i < 100; i++)
        spike_update(&spike, 10.0);
    assert_true(fabs(spike.mean - 10) < 1e-12);
    for (int i = 0; i < 300; i++)
        spike_update(&spike, 2.0);
    expected = 2 + 8 * pow(0.99, 300);
    assert_true(fabs(spike.mean - expected) < 1e-12);
    assert_int_equal(spike.count, 400);
}

static void what_is_not_finite_does_not_enter_the_mean(void **state)
{
    struct spike spike = {.mean = 3, .count = 50};

    spike_update(&spike, HUGE_VAL);
    spike_update(&spike, (double)NAN);
    assert_true(spike.mean == 3 && spike.count == 50);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(warm_up_is_linear),
        cmocka_unit_test(decay),
        cmocka_unit_test(no_warm_up),
        cmocka_unit_test(wsd_is_stable_then_falls),
        cmocka_unit_test(no_ramp_up),
        cmocka_unit_test(ramp_up_as_bigscience_had_it),
        cmocka_unit_test(sizes_change_exactly_where_they_should),
        cmocka_unit_test(large_ramps_do_not_overflow),
        cmocka_unit_test(none_or_constant_stays),
        cmocka_unit_test(hysteresis_forgives_once),
        cmocka_unit_test(a_window_of_good_steps_doubles),
        cmocka_unit_test(the_scale_has_bounds),
        cmocka_unit_test(a_resumed_run_goes_on_with_its_scale),
        cmocka_unit_test(a_spike_is_more_than_the_factor_times_the_mean),
        cmocka_unit_test(the_mean_forgets),
        cmocka_unit_test(what_is_not_finite_does_not_enter_the_mean),
    };

    return cmocka_run_group_tests_name("optim", tests, NULL, NULL);
}
