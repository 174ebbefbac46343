#include "tests/unit/test_report.h"

#include "trainer/report/report_commands.h"

/* The picture is XML that another program reads. */
static void check_xml(const char *text)
{
    FILE *parser = popen("python3 -c 'import sys, xml.dom.minidom; xml.dom.minidom.parse(sys.stdin.buffer)'", "w");

    assert_non_null(parser);
    assert_true(fputs(text, parser) >= 0);
    assert_int_equal(pclose(parser), 0);
}

/* ---- plots ---- */

/* The SVG; the caller frees it. */
static char *plot_text(const struct plot *plot)
{
    struct error err = {0};
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);

    assert_non_null(out);
    if (plot_write(out, plot, &err) < 0)
        fail_msg("%s", err.text);
    fclose(out);
    assert_int_equal(strlen(text), length);
    assert_null(strstr(text, "nan"));
    assert_null(strstr(text, "inf"));
    return text;
}

static void plot_shows_run_reference_mesh_and_starts(void **state)
{
    struct metrics_step *run = make_run(200, 120, 4), *reference = make_run(200, 200, 4);
    struct plot plot = {.title = "Training loss", .run = {.steps = run, .count = 200}};
    char *text = plot_text(&plot);

    check_xml(text);
    assert_non_null(strstr(text, ">shrunk: 4 \u2192 2 ranks at step 120<"));
    assert_non_null(strstr(text, ">validation<"));
    assert_null(strstr(text, ">reference run<"));
    free(text);
    plot.reference = (struct metrics){.steps = reference, .count = 200};
    plot.run.starts =
        (struct metrics_start[]){{.step = 0}, {.step = 80}, {.step = 120}, {.step = 60, .fault = 1, .nodes = "n2"}};
    plot.run.nstarts = 4;
    text = plot_text(&plot);
    assert_non_null(strstr(text, ">reference run<"));
    assert_non_null(strstr(text, ">resumed<"));
    assert_non_null(strstr(text, ">restart: n2<"));
    assert_non_null(strstr(text, ">4 \u2192 2 ranks<")); /* the mesh says more than the start at that step */
    assert_null(strstr(text, "step 0"));
    free(text);
    free(run);
    free(reference);
}

static void any_title_is_well_formed(void **state)
{
    struct metrics_step *run = make_run(200, 120, 4);
    struct plot plot = {.title = "\"quoted\" & <tagged>, bad \xff byte \x01, good \u00fc",
                        .run = {.steps = run, .count = 200}};
    char *text = plot_text(&plot);

    check_xml(text);
    assert_non_null(strstr(text, "&#34;quoted&#34; &#38; &#60;tagged&#62;, bad ? byte ?, good \u00fc<"));
    free(text);
    free(run);
}

static void plot_of_a_long_run_is_small_and_keeps_the_spike(void **state)
{
    struct metrics_step *run = make_run(200000, 200000, 4);
    struct plot plot = {.title = "long", .run = {.steps = run, .count = 200000}};
    char *text;

    run[123456].loss = 99.0;
    text = plot_text(&plot);
    assert_true(strlen(text) < 200 * 1024);
    assert_non_null(strstr(text, ">100<")); /* the axis reaches up to it */
    free(text);
    free(run);
}

static void plot_takes_gaps_and_single_steps(void **state)
{
    struct metrics_step *run = make_run(10, 10, 4);
    struct plot plot = {.title = "gaps", .run = {.steps = run, .count = 10}};
    struct error err = {0};
    FILE *sink = fopen("/dev/null", "w");

    run[3].loss = run[7].loss = NAN;
    run[9].step = 2; /* another run in the same file */
    free(plot_text(&plot));
    plot.run.count = 1;
    free(plot_text(&plot));
    plot.run.count = 0;
    assert_non_null(sink);
    assert_int_equal(plot_write(sink, &plot, &err), -1);
    assert_int_equal(err.code, CODE_DATA);
    fclose(sink);
    free(run);
}

/* ---- what is in the picture ---- */

struct label {
    double x, y;
    char text[64];
};

/* The texts of a class, in order; returns how many. */
static size_t find_labels(const char *svg, const char *class, struct label *labels, size_t most)
{
    char begin[64];
    size_t count = 0;

    snprintf(begin, sizeof begin, "<text class=\"%s\" ", class);
    for (const char *at = svg; (at = strstr(at, begin)); at++) {
        assert_true(count < most);
        assert_int_equal(sscanf(at + strlen(begin), "x=\"%lf\" y=\"%lf\">%63[^<]", &labels[count].x, &labels[count].y,
                                labels[count].text),
                         3);
        count++;
    }
    return count;
}

/* The plot of losses from lo to hi; the numbers at its axis of losses, without the axis' name. */
static size_t plot_losses(double lo, double hi, struct label labels[16])
{
    struct metrics_step *run = make_run(200, 200, 4);
    struct plot plot = {.title = "axes", .run = {.steps = run, .count = 200}};
    size_t count;
    char *text;

    for (int i = 0; i < 200; i++) {
        run[i].loss = i % 2 ? lo : hi;
        run[i].valid_loss = NAN;
    }
    text = plot_text(&plot);
    count = find_labels(text, "left", labels, 16);
    assert_string_equal(labels[--count].text, "loss");
    free(text);
    free(run);
    return count;
}

/* At equal distances, which are 1, 2 or 5 times a power of ten, from at or below lo to at or above hi. */
static void check_ticks(const struct label *labels, size_t count, double lo, double hi)
{
    double first = strtod(labels[0].text, NULL), step = strtod(labels[1].text, NULL) - first, slack = 1e-3 * step;
    double mantissa = step / pow(10.0, floor(log10(step) + 1e-6));

    assert_in_range(count, 2, 11);
    assert_true(fabs(mantissa - 1) < 1e-3 || fabs(mantissa - 2) < 1e-3 || fabs(mantissa - 5) < 1e-3);
    assert_true(first <= lo + slack && first + step > lo - slack);
    assert_true(first + step * (double)(count - 1) >= hi - slack);
    for (size_t i = 1; i < count; i++) {
        assert_true(fabs(strtod(labels[i].text, NULL) - first - step * (double)i) < slack);
        assert_true(labels[i].y < labels[i - 1].y - 20);
    }
}

static void axes_have_nice_ticks_for_any_range(void **state)
{
    struct label labels[16];

    srand48(7);
    for (int i = 0; i < 500; i++) {
        double lo = (drand48() - 0.5) * pow(10.0, 5.0 * drand48() - 3.0), span = pow(10.0, 5.0 * drand48() - 3.0);

        if (span > 1e-5 * fabs(lo) && fabs(lo) + span < 1000) /* no commas */
            check_ticks(labels, plot_losses(lo, lo + span, labels), lo, lo + span);
    }
}

static void axes_have_the_expected_ticks(void **state)
{
    struct label labels[16];

    assert_int_equal(plot_losses(3.13, 11.44, labels), 10);
    assert_string_equal(labels[0].text, "3");
    assert_string_equal(labels[9].text, "12");
    plot_losses(0, 95367, labels);
    assert_string_equal(labels[9].text, "90,000");
    plot_losses(3.31, 3.42, labels);
    assert_string_equal(labels[1].text, "3.32");
    plot_losses(-1, 1, labels);
    assert_string_equal(labels[5].text, "0.0");
}

static void axes_take_degenerate_ranges(void **state)
{
    static const double ends[][2] = {
        {0, 0},      {3, 3},           {-3, -3},        {1e300, -1e300}, {1.7e308, -1.7e308},
        {5e-324, 0}, {1e15, 1e15 + 1}, {1e-300, 2e-300}};
    struct label labels[16];

    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        size_t count = plot_losses(ends[i][0], ends[i][1], labels);

        assert_in_range(count, 1, 11);
        for (size_t k = 0; k < count; k++)
            assert_true(strlen(labels[k].text) < 24);
    }
}

/* At 11 pixels, DejaVu Sans averages 0.58 em; the arrow is one character of three bytes. */
static double text_width(const char *text)
{
    return 6.4 * (double)(strlen(text) - 2);
}

static void labels_never_overlap(void **state)
{
    struct metrics_step *run = make_run(1000, 1000, 4);
    struct plot plot = {.title = "marks", .run = {.steps = run, .count = 1000}};

    srand48(11);
    for (int round = 0; round < 300; round++) {
        struct label labels[40];
        size_t right, count, changes = 1 + (size_t)(lrand48() % 40), at = 0;
        char *text;

        for (size_t i = 0; i <= changes; i++) {
            size_t end = i < changes ? 1000 * (i + 1) / (changes + 1) + (size_t)(lrand48() % 10) : 1000;

            for (int world = 1 + (int)(lrand48() >> (lrand48() % 31)); at < end; at++)
                run[at].world = world;
        }
        text = plot_text(&plot);
        right = find_labels(text, "mark", labels, 40);
        count = right + find_labels(text, "mark-left", labels + right, 40 - right);
        assert_in_range(count, 1, changes);
        for (size_t i = 0; i < count; i++) {
            double width = text_width(labels[i].text);

            labels[i].x -= i < right ? 0 : width;
            assert_true(labels[i].x >= 76 && labels[i].x + width <= 928);
            for (size_t k = 0; k < i; k++)
                if (labels[i].y == labels[k].y)
                    assert_true(labels[i].x >= labels[k].x + text_width(labels[k].text) ||
                                labels[k].x >= labels[i].x + width);
        }
        free(text);
    }
    free(run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plot_shows_run_reference_mesh_and_starts),
        cmocka_unit_test(any_title_is_well_formed),
        cmocka_unit_test(plot_of_a_long_run_is_small_and_keeps_the_spike),
        cmocka_unit_test(plot_takes_gaps_and_single_steps),
        cmocka_unit_test(axes_have_nice_ticks_for_any_range),
        cmocka_unit_test(axes_have_the_expected_ticks),
        cmocka_unit_test(axes_take_degenerate_ranges),
        cmocka_unit_test(labels_never_overlap),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
