/* The page of muster-report html, without a browser: the data in it. tests/engine/html.bats opens pages in one. */
#include "tests/unit/test_report.h"

#include <jansson.h>

#include "trainer/report/report_commands.h"

static char *page;
static json_t *shown; /* the data in it */

/* Of these runs, as `page` and `shown`. */
static void make_page(const struct report_run *runs, size_t count)
{
    static const char begin[] = "id=\"data\">";
    struct error err = {0};
    size_t length = 0;
    FILE *out = open_memstream(&page, &length);
    const char *data;

    assert_non_null(out);
    if (html_write(out, runs, count, &err) < 0)
        fail_msg("%s", err.text);
    fclose(out);
    assert_true(length < 2000000);
    data = strstr(page, begin) + strlen(begin);
    shown = json_loadb(data, (size_t)(strstr(data, "</script>") - data), 0, NULL);
    assert_non_null(shown);
    assert_int_equal(json_array_size(json_object_get(shown, "runs")), count);
}

static void free_page(void)
{
    json_decref(shown);
    free(page);
}

static json_t *member_of(size_t run, const char *object, const char *key)
{
    return json_object_get(json_object_get(json_array_get(json_object_get(shown, "runs"), run), object), key);
}

/* A value of a series of the first run; NaN for null. */
static double value_of(const char *series, size_t column, size_t bucket)
{
    json_t *value = json_array_get(json_array_get(member_of(0, "series", series), column), bucket);

    assert_non_null(value);
    return json_is_null(value) ? NAN : json_number_value(value);
}

static void each_step_of_a_short_run_is_there(void **state)
{
    struct metrics_step *steps = make_run(2000, 1200, 4);
    struct report_run run = {"run", {.steps = steps, .count = 2000}};

    steps[6].loss = NAN;
    make_page(&run, 1);
    assert_int_equal(json_array_size(member_of(0, "series", "step")), 2000);
    assert_int_equal(json_array_size(member_of(0, "series", "loss")), 1);
    for (size_t i = 0; i < 2000; i++) {
        assert_int_equal(json_integer_value(json_array_get(member_of(0, "series", "step"), i)), i + 1);
        assert_true(i == 6 ? isnan(value_of("loss", 0, i)) : fabs(value_of("loss", 0, i) / steps[i].loss - 1) < 1e-8);
        assert_true(isnan(value_of("valid_loss", 0, i)) == !steps[i].validated);
    }
    assert_null(member_of(0, "series", "order_loss"));
    assert_int_equal(json_array_size(member_of(0, "summary", "meshes")), 2);
    free_page();
    free(steps);
}

static void a_long_run_is_thinned_and_keeps_each_spike(void **state)
{
    struct metrics_step *steps = make_run(100001, 100001, 4);
    struct report_run run = {"run", {.steps = steps, .count = 100001}};
    long before = 0;
    int spikes = 0;

    steps[54321].loss = 99.0;
    steps[54322].loss = INFINITY;
    make_page(&run, 1);
    assert_int_equal(json_array_size(member_of(0, "series", "step")), 2000);
    for (size_t i = 0; i < 2000; i++) {
        long last = (long)json_integer_value(json_array_get(member_of(0, "series", "step"), i));
        double mean = value_of("loss", 0, i), least = value_of("loss", 1, i), most = value_of("loss", 2, i);

        assert_in_range(last - before, 50, 51);
        assert_true(least <= mean && mean <= most);
        if (most == 99.0) {
            spikes++;
            assert_true(before < 54322 && 54322 <= last);
        }
        before = last;
    }
    assert_int_equal(before, 100001);
    assert_int_equal(spikes, 1);
    free_page();
    free(steps);
}

static void the_page_is_small_for_any_input(void **state)
{
    struct metrics_step *steps = make_run(7000, 7000, 4);
    struct metrics_start *starts = calloc(1000, sizeof *starts);
    struct report_run runs[HTML_RUNS_MOST + 1];
    const size_t counts[] = {1, 3, 10, HTML_RUNS_MOST};
    struct error err;

    assert_non_null(starts);
    for (size_t i = 0; i < 7000; i++) { /* a mesh for each step, and long numbers */
        steps[i].world = 1000000000 + (int)i;
        steps[i].loss = steps[i].valid_loss = steps[i].order_loss = steps[i].valid_order_loss = -1.2345678e-100;
        steps[i].lr = steps[i].grad_norm = steps[i].loss_scale = steps[i].tokens_per_second = -1.2345678e-100;
    }
    for (size_t i = 0; i < 1000; i++) {
        starts[i] = (struct metrics_start){.step = 1000000 + (long)i, .fault = 1};
        memset(starts[i].cause, 'c', sizeof starts[i].cause - 1);
        memset(starts[i].nodes, 'n', sizeof starts[i].nodes - 1);
    }
    for (size_t i = 0; i <= HTML_RUNS_MOST; i++)
        runs[i] = (struct report_run){"run", {.steps = steps, .count = 7000, .starts = starts, .nstarts = 1000}};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        size_t last = 300 / counts[i] - 1;

        make_page(runs, counts[i]);
        assert_int_equal(json_array_size(member_of(0, "summary", "meshes")), last + 1);
        assert_int_equal(
            json_integer_value(json_object_get(json_array_get(member_of(0, "summary", "starts"), last), "step")),
            1000999);
        free_page();
    }
    assert_int_equal(html_write(stderr, runs, HTML_RUNS_MOST + 1, &err), -1);
    assert_int_equal(err.code, CODE_USAGE);
    runs[1].metrics.count = 0;
    assert_int_equal(html_write(stderr, runs, 2, &err), -1);
    assert_int_equal(err.code, CODE_DATA);
    free(starts);
    free(steps);
}

static void no_name_ends_the_element(void **state)
{
    static const char name[] = "</script><!--<script>\"\\ & \u00fc";
    struct metrics_step *steps = make_run(3, 3, 4);
    struct metrics_start start = {.step = 1, .fault = 1, .cause = "</script>"};
    struct report_run run = {name, {.steps = steps, .count = 3, .starts = &start, .nstarts = 1}};
    int ends = 0;

    make_page(&run, 1);
    assert_string_equal(json_string_value(member_of(0, "summary", "metrics")), name);
    for (const char *at = page; (at = strstr(at, "</script")); at++)
        ends++;
    assert_int_equal(ends, 2);
    assert_null(strstr(page, "<!--"));
    free_page();
    free(steps);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_step_of_a_short_run_is_there),
        cmocka_unit_test(a_long_run_is_thinned_and_keeps_each_spike),
        cmocka_unit_test(the_page_is_small_for_any_input),
        cmocka_unit_test(no_name_ends_the_element),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
