#include "tests/unit/test_report.h"

#include "trainer/report/report_commands.h"
#include "trainer/report/progress.h"

static struct metrics_damage damage;

/* ---- segments and summary ---- */

static void a_run_is_cut_where_its_mesh_changes(void **state)
{
    struct metrics_step *run = make_run(200, 120, 4);
    struct run_segment *segments;
    size_t count;

    run[199].tp = 2; /* the same world, another mesh */
    run[120].mfu = 0.3;
    run[120].step_seconds = 78 * 0.5; /* a slow step counts for its time, as it does in the totals */
    assert_int_equal(segments_make(run, 200, &segments, &count, NULL), 0);
    assert_int_equal(count, 3);
    assert_int_equal(segments[0].first->step, 1);
    assert_int_equal(segments[0].last->step, 120);
    assert_int_equal(segments[0].first->world, 4);
    assert_true(fabs(segments[0].tokens - 120 * 0.5 * 12000) < 1e-6);
    assert_true(fabs(segments[1].mfu - 0.4) < 1e-9);
    assert_int_equal(segments[1].last->step, 199);
    assert_int_equal(segments[2].steps, 1);
    assert_int_equal(segments[2].first->tp, 2);
    free(segments);
    assert_int_equal(segments_make(run, 0, &segments, &count, NULL), 0);
    assert_int_equal(count, 0);
    assert_null(segments);
    free(run);
}

/* A job that was restarted, and requeued. */
static const struct metrics_start starts[] = {
    {.job = "17", .job_began = 1000, .ready = 1010, .first_step = 1010.5},
    {.step = 120,
     .repeated = 3,
     .last = 1061.5,
     .job = "17",
     .job_began = 1000,
     .drain_seconds = 0.5,
     .ready = 1070,
     .first_step = 1071,
     .fault = 1062,
     .ended = 1064,
     .checked = 1065,
     .nodes = "n2",
     .cause = "rank 1 on n2 is dead"},
    {.step = 150, .last = 1081, .job = "17.1", .job_began = 1200, .ready = 1204, .first_step = 1205},
    {.step = 160, .last = 1220, .job_began = 1200, .ready = 1230},
};

static char *summary_text(const struct metrics *metrics, bool json)
{
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);

    assert_non_null(out);
    assert_int_equal(summary_print(out, "run", json ? SIZE_MAX : 0, metrics, NULL), 0);
    fclose(out);
    return text;
}

static void summary_says_what_happened(void **state)
{
    static const char *const expected[] = {
        "steps       1 to 200\n",
        "loss        11.0000 at step 1, 3.0400 at step 200; lowest 3.0400 at step 200\n",
        "valid loss  best 3.2500 at step 150, last 3.5000 at step 200\n",
        "samples     51,200\n",
        "tokens      960k in 1:40 of training\n",
        "speed       9.60k tokens/s, 0.5 s a step\n",
        "efficiency  MFU 50.0%, HFU 50.0%, 1.25 TFLOP/s a rank\n",
        "also        Megatron before 2022 1.2 TFLOP/s; MosaicML MFU 40.0%, HFU 45.0%; without attention 30.0%, 35.0%\n",
        "  1-120                   4  4 x 1 x 1        12.0k       1:00   50.0%\n",
        "  121-200                 2  2 x 1 x 1        6.00k       0:40   50.0%\n",
    };
    struct metrics_step *run = make_run(200, 120, 4);
    struct error err = {0};
    char *text;

    run[149].valid_loss = 3.25;
    for (int i = 0; i < 200; i++) {
        run[i].tflops_before_2022 = 1.2;
        run[i].mosaicml_mfu = 0.4, run[i].mosaicml_hfu = 0.45;
        run[i].mosaicml_mfu_params = 0.3, run[i].mosaicml_hfu_params = 0.35;
    }
    text = summary_text(&(struct metrics){.steps = run, .count = 200}, false);
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++)
        if (!strstr(text, expected[i]))
            fail_msg("\"%s\" is not in\n%s", expected[i], text);
    free(text);
    assert_int_equal(summary_print(stdout, "none", 0, &(struct metrics){0}, &err), -1);
    assert_int_equal(err.code, CODE_DATA);
    free(run);
}

/* ---- compare ---- */

/* Allocated are 1000 to 1081, and 1200 to 1240; a step of each of the 200 steps took 0.5 s. */
static void summary_says_what_restarts_cost(void **state)
{
    static const char *const expected[] = {
        "goodput     82.6%: 1:40 of steps that counted, 2:01 of allocated time\n",
        "went on      repeated  seconds   wait    end  check   load  drain   step  cause\n",
        "at 120              3      9.0      -    2.0    1.0    4.5    0.5    1.0  rank 1 on n2 is dead\n",
        "at 150              0    124.0  119.0      -      -    4.0    0.0    1.0  job 17.1\n",
        "at 160              0        -      -      -      -   10.0    0.0      -  -\n",
        "\"allocated_seconds\":121,\"counted_seconds\":100,\"starts\":[{\"step\":0,\"repeated\":0,\"seconds\":10.5,",
        "\"seconds\":9,\"wait\":null,\"end\":2,\"check\":1,\"load\":4.5,\"drain\":0.5,\"first_step\":1,"
        "\"job\":\"17\",\"nodes\":\"n2\",\"cause\":\"rank 1 on n2 is dead\"}",
    };
    struct metrics m = {.steps = make_run(200, 200, 4), .count = 200, .starts = (struct metrics_start *)starts, 4};
    char *text[2];

    m.steps[199].time = 1240;
    text[0] = summary_text(&m, false);
    text[1] = summary_text(&m, true);
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++)
        if (!strstr(text[i > 4], expected[i]))
            fail_msg("\"%s\" is not in\n%s", expected[i], text[i > 4]);
    free(text[0]);
    free(text[1]);
    free(m.steps);
}

static void equal_runs_compare_equal(void **state)
{
    struct metrics_step *a = make_run(50, 50, 4), *b = make_run(50, 20, 2);
    struct comparison c;

    a[7].loss = b[7].loss = NAN;
    assert_int_equal(compare_runs(&c, a, 50, b, 50, NULL), 0);
    assert_int_equal(c.common, 50);
    assert_int_equal(c.equal, 50);
    assert_true(c.worst == 0.0);
    assert_int_equal(c.a.only_here + c.b.only_here + c.a.repeated + c.b.repeated, 0);
    free(a);
    free(b);
}

static void compare_finds_the_greatest_difference(void **state)
{
    struct metrics_step *a = make_run(50, 50, 4), *b = make_run(50, 50, 4);
    struct comparison c;

    b[9].loss *= 1.0 + 1e-6;
    b[30].loss *= 1.0 - 1e-4;
    b[40].loss = nextafter(b[40].loss, 0.0);
    assert_int_equal(compare_runs(&c, a, 50, b, 50, NULL), 0);
    assert_int_equal(c.equal, 47);
    assert_int_equal(c.worst_at, 31);
    assert_true(fabs(c.worst - 1e-4) < 1e-9);
    assert_true(c.loss_a == a[30].loss && c.loss_b == b[30].loss);
    b[2].loss = NAN;
    assert_int_equal(compare_runs(&c, a, 50, b, 50, NULL), 0);
    assert_true(isinf(c.worst));
    assert_int_equal(c.worst_at, 3);
    free(a);
    free(b);
}

static void compare_finds_missing_and_repeated_steps(void **state)
{
    struct metrics_step *a = make_run(50, 50, 4), *b = make_run(40, 40, 4);
    struct comparison c;

    a[49] = make_step(12, 4); /* for step 50; the later line counts */
    a[49].loss = 1.0;
    b[4].step = 105;
    assert_int_equal(compare_runs(&c, a, 50, b, 40, NULL), 0);
    assert_int_equal(c.a.steps, 49);
    assert_int_equal(c.a.repeated, 1);
    assert_int_equal(c.a.repeated_at, 12);
    assert_int_equal(c.a.only_here, 10); /* 5, and 41 to 49 */
    assert_int_equal(c.a.only_here_at, 5);
    assert_int_equal(c.b.only_here, 1);
    assert_int_equal(c.b.only_here_at, 105);
    assert_int_equal(c.b.last, 105);
    assert_int_equal(c.common, 39);
    assert_int_equal(c.worst_at, 12);
    free(a);
    free(b);
}

/* Of two runs of one step with these losses. */
static double relative_worst(double a, double b)
{
    const struct metrics_step x = {.step = 1, .loss = a}, y = {.step = 1, .loss = b};
    struct comparison c;

    assert_int_equal(compare_runs(&c, &x, 1, &y, 1, NULL), 0);
    return c.worst;
}

static void relative_difference_has_no_bad_corner(void **state)
{
    assert_true(relative_worst(0.0, -0.0) == 0.0);
    assert_true(relative_worst(1.0, 0.0) == 1.0);
    assert_true(relative_worst(5e-324, 0.0) == 1.0);
    assert_true(relative_worst(1e308, -1e308) == 2.0);
    assert_true(isinf(relative_worst(INFINITY, 1.0)));
    assert_true(relative_worst(INFINITY, INFINITY) == 0.0);
}

/* ---- anything at all ---- */

/* Flip, drop, double or overwrite a few bytes; or cut. */
static size_t mutate(char *text, size_t length, size_t room)
{
    for (long n = 1 + lrand48() % 6; n > 0 && length > 1; n--) {
        size_t at = (size_t)lrand48() % length;

        switch (lrand48() % 6) {
        case 0:
            text[at] ^= (char)(1 << (lrand48() % 8));
            break;
        case 1:
            memmove(text + at, text + at + 1, --length - at);
            break;
        case 2:
            if (length < room)
                memmove(text + at + 1, text + at, length++ - at);
            break;
        case 3:
            text[at] = "0123456789-eE.,:{}[]\"\n\0"[lrand48() % 23];
            break;
        case 4: /* a digit for a digit: most such files stay valid, with strange numbers */
            at += strcspn(text + at, "0123456789");
            if (at < length)
                text[at] = (char)('0' + lrand48() % 10);
            break;
        default:
            if (lrand48() % 10 == 0)
                length = at + 1;
        }
    }
    text[length] = '\0';
    return length;
}

/* Everything muster-report does with a file. */
static bool use_file(FILE *sink)
{
    struct plot plot = {.title = "mutated"};
    struct metrics m;
    struct comparison comparison;
    struct error err = {0};

    if (metrics_read(test_file, &m, &damage, &err) < 0) {
        assert_int_equal(err.code, CODE_DATA);
        assert_non_null(strstr(err.text, "metrics.jsonl:"));
        return false;
    }
    plot.run = plot.reference = m;
    plot_write(sink, &plot, NULL);
    if (m.count)
        free(summary_text(&m, false));
    assert_int_equal(compare_runs(&comparison, m.steps, m.count, m.steps, m.count, &err), 0);
    assert_true(comparison.worst == 0.0);
    metrics_free(&m);
    return damage.lines == 0;
}

static void no_mutation_of_a_file_crashes_anything(void **state)
{
    struct metrics_step *run = make_run(12, 8, 4);
    char original[16 * METRICS_LINE_SIZE], text[16 * METRICS_LINE_SIZE];
    size_t length = format_run(original, run, 12);
    FILE *sink = fopen("/dev/null", "w");
    int good = 0, bad = 0;
    char kept[128];

    assert_non_null(sink);
    srand48(42);
    for (int i = 0; i < 1000; i++) {
        memcpy(text, original, length + 1);
        write_file(test_file, text, mutate(text, length, sizeof text - 1));
        if (use_file(sink))
            good++;
        else
            bad++;
        cut_steps(test_file, 5);
        snprintf(kept, sizeof kept, "%s.damaged", test_file);
        if (damage.lines > 0)
            assert_int_equal(unlink(kept), 0);
    }
    assert_true(good > 50 && bad > 50); /* both ways were taken */
    fclose(sink);
    free(run);
}

#define WITH_DIR(test) cmocka_unit_test_setup_teardown(test, make_dir, remove_dir)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_is_cut_where_its_mesh_changes),
        cmocka_unit_test(summary_says_what_happened),
        cmocka_unit_test(summary_says_what_restarts_cost),
        cmocka_unit_test(equal_runs_compare_equal),
        cmocka_unit_test(compare_finds_the_greatest_difference),
        cmocka_unit_test(compare_finds_missing_and_repeated_steps),
        cmocka_unit_test(relative_difference_has_no_bad_corner),
        WITH_DIR(no_mutation_of_a_file_crashes_anything),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
