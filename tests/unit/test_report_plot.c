#include "tests/unit/test_report.h"

#include <ctype.h>

#include "trainer/report/plot.h"
#include "common/svg.h"
#include "trainer/report/summary.h"

/* ---- axes ---- */

static void check_ticks(const struct axis *axis, double lo, double hi, int most, bool cover)
{
    double mantissa = axis->step / pow(10.0, floor(log10(axis->step) + 1e-9)), slack = 1e-6 * axis->step;
    char a[64], b[64];

    assert_true(fabs(mantissa - 1) < 1e-9 || fabs(mantissa - 2) < 1e-9 || fabs(mantissa - 5) < 1e-9);
    assert_true(axis->count >= 1 && axis->count <= most);
    assert_true(axis->lo <= lo + slack && axis->hi >= hi - slack && axis->lo < axis->hi);
    for (int i = 0; i < axis->count; i++) {
        double tick = axis_tick(axis, i);

        assert_true(tick >= axis->lo - slack && tick <= axis->hi + slack);
        assert_true(fabs(tick / axis->step - round(tick / axis->step)) < 1e-6);
        if (i > 0) /* neighbours can be told apart */
            assert_string_not_equal(axis_label(axis, i - 1, a, sizeof a), axis_label(axis, i, b, sizeof b));
    }
    if (cover) {
        assert_true(fabs(axis_tick(axis, 0) - axis->lo) <= slack);
        assert_true(fabs(axis_tick(axis, axis->count - 1) - axis->hi) <= slack);
    }
}

static void axes_have_nice_ticks_for_any_range(void **state)
{
    (void)state;
    srand48(7);
    for (int i = 0; i < 20000; i++) {
        double lo = (drand48() - 0.5) * pow(10.0, 12.0 * drand48() - 6.0), span = pow(10.0, 12.0 * drand48() - 6.0);
        int most = 4 + i % 9;
        struct axis cover, inside;

        if (span < 1e-6 * fabs(lo))
            continue;
        cover = axis_make(lo, lo + span, most, true);
        inside = axis_make(lo + span, lo, most, false);
        check_ticks(&cover, lo, lo + span, most, true);
        check_ticks(&inside, lo, lo + span, most, false);
    }
}

static void axes_have_the_expected_ticks(void **state)
{
    struct axis axis = axis_make(3.13, 11.44, 9, true);
    char label[64];

    (void)state;
    assert_int_equal(axis.count, 6);
    assert_string_equal(axis_label(&axis, 0, label, sizeof label), "2");
    assert_string_equal(axis_label(&axis, 5, label, sizeof label), "12");
    axis = axis_make(0, 95367, 11, false);
    assert_int_equal(axis.count, 10);
    assert_string_equal(axis_label(&axis, 9, label, sizeof label), "90,000");
    axis = axis_make(3.31, 3.42, 9, true);
    assert_string_equal(axis_label(&axis, 1, label, sizeof label), "3.32");
    axis = axis_make(-1, 1, 9, true);
    assert_string_equal(axis_label(&axis, axis.count / 2, label, sizeof label), "0.0");
}

static void axes_take_degenerate_ranges(void **state)
{
    static const double ends[][2] = {
        {0, 0},      {3, 3},           {-3, -3},        {1e300, -1e300}, {1.7e308, -1.7e308},
        {5e-324, 0}, {1e15, 1e15 + 1}, {1e-300, 2e-300}};

    (void)state;
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        struct axis cover = axis_make(ends[i][0], ends[i][1], 8, true),
                    inside = axis_make(ends[i][0], ends[i][1], 8, false);
        char label[64];

        assert_true(isfinite(cover.lo) && isfinite(cover.hi) && cover.lo < cover.hi);
        assert_in_range(cover.count, 1, 8);
        assert_in_range(inside.count, 1, 8);
        assert_true(strlen(axis_label(&cover, 0, label, sizeof label)) < 24);
    }
}

/* ---- well-formed? ---- */

/* What XML 1.0 asks of a document without DTD, comments and CDATA: one root, nested elements, quoted attributes,
 * entities. */
struct xml {
    const char *at;
    char open[32][16];
    int depth, roots;
};

static bool xml_name(struct xml *xml, char *name, size_t size)
{
    size_t length = 0;

    while (isalnum((unsigned char)xml->at[length]) || (length && strchr("-:_", xml->at[length]) && xml->at[length]))
        length++;
    snprintf(name, size, "%.*s", (int)length, xml->at);
    xml->at += length;
    return length > 0 && length < size;
}

static bool xml_entity(struct xml *xml)
{
    static const char *const known[] = {"&amp;", "&lt;", "&gt;", "&quot;"};

    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strncmp(xml->at, known[i], strlen(known[i])) == 0) {
            xml->at += strlen(known[i]);
            return true;
        }
    return false;
}

static bool xml_attributes(struct xml *xml)
{
    char name[32];

    while (*xml->at == ' ') {
        xml->at += strspn(xml->at, " ");
        if (*xml->at == '/' || *xml->at == '>')
            return true;
        if (!xml_name(xml, name, sizeof name) || strncmp(xml->at, "=\"", 2) != 0)
            return false;
        for (xml->at += 2; *xml->at != '"';)
            if (!*xml->at || *xml->at == '<' || (*xml->at == '&' && !xml_entity(xml)) || !*xml->at++)
                return false;
        xml->at++;
    }
    return true;
}

static bool xml_tag(struct xml *xml)
{
    char name[16];

    if (*++xml->at == '/') {
        xml->at++;
        return xml_name(xml, name, sizeof name) && xml->depth > 0 && strcmp(name, xml->open[--xml->depth]) == 0 &&
               *xml->at++ == '>';
    }
    if (xml->depth == 32 || !xml_name(xml, name, sizeof name) || !xml_attributes(xml))
        return false;
    xml->roots += xml->depth == 0;
    if (strncmp(xml->at, "/>", 2) == 0) {
        xml->at += 2;
        return true;
    }
    strcpy(xml->open[xml->depth++], name);
    return *xml->at++ == '>';
}

static bool well_formed(const char *text)
{
    static const char header[] = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";
    struct xml xml = {.at = text + strlen(header)};

    if (strncmp(text, header, strlen(header)) != 0)
        return false;
    while (*xml.at) {
        if (*xml.at == '<' ? !xml_tag(&xml) : *xml.at == '&' ? !xml_entity(&xml) : !xml.at++)
            return false;
        if (xml.depth == 0 && *xml.at && !strchr("<\n", *xml.at)) /* text outside the root */
            return false;
    }
    return xml.depth == 0 && xml.roots == 1;
}

static void the_check_itself_can_fail(void **state)
{
#define XML "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
    (void)state;
    assert_true(well_formed(XML "<a b=\"1\"><c d=\"2\"/>x &lt; y</a>\n"));
    assert_false(well_formed("<a></a>"));
    assert_false(well_formed(XML "<a><b></a></b>"));
    assert_false(well_formed(XML "<a>"));
    assert_false(well_formed(XML "<a></a><b></b>"));
    assert_false(well_formed(XML "<a b=1></a>"));
    assert_false(well_formed(XML "<a b=\"<\"></a>"));
    assert_false(well_formed(XML "<a>R&D</a>"));
#undef XML
}

/* ---- plots ---- */

/* The SVG, which must be well-formed; the caller frees it. */
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
    assert_true(well_formed(text));
    assert_null(strstr(text, "nan"));
    assert_null(strstr(text, "inf"));
    return text;
}

static void plot_shows_run_reference_and_the_change_of_mesh(void **state)
{
    struct metrics_step *run = make_run(200, 120, 4), *reference = make_run(200, 200, 4);
    struct plot plot = {.title = "Training loss", .steps = run, .nsteps = 200};
    char *text = plot_text(&plot);

    (void)state;
    assert_non_null(strstr(text, ">shrunk: 4 \u2192 2 ranks at step 120<"));
    assert_non_null(strstr(text, ">validation<"));
    assert_null(strstr(text, ">reference run<"));
    free(text);
    plot.reference = reference;
    plot.nreference = 200;
    text = plot_text(&plot);
    assert_non_null(strstr(text, ">reference run<"));
    free(text);
    free(run);
    free(reference);
}

static void users_mark_replaces_the_automatic_one(void **state)
{
    const struct mark marks[] = {{.step = 120, .label = "node 3 & 4 <lost>"},
                                 {.step = 60, .label = "bad \xff byte \x01, good \u00fc"}};
    struct metrics_step *run = make_run(200, 120, 4);
    struct plot plot = {.title = "\"quoted\" & <tagged>", .steps = run, .nsteps = 200, .marks = marks, .nmarks = 2};
    char *text = plot_text(&plot);

    (void)state;
    assert_null(strstr(text, "preempted"));
    assert_non_null(strstr(text, ">node 3 &amp; 4 &lt;lost&gt;<"));
    assert_non_null(strstr(text, ">bad ? byte ?, good \u00fc<"));
    assert_non_null(strstr(text, "&quot;quoted&quot; &amp; &lt;tagged&gt;"));
    free(text);
    free(run);
}

static void plot_of_a_long_run_is_small_and_keeps_the_spike(void **state)
{
    struct metrics_step *run = make_run(200000, 200000, 4);
    struct plot plot = {.title = "long", .steps = run, .nsteps = 200000};
    char *text;

    (void)state;
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
    struct plot plot = {.title = "gaps", .steps = run, .nsteps = 10};
    struct error err = {0};
    FILE *sink = fopen("/dev/null", "w");

    (void)state;
    run[3].loss = run[7].loss = NAN;
    run[9].step = 2; /* another run in the same file */
    free(plot_text(&plot));
    plot.nsteps = 1;
    free(plot_text(&plot));
    plot.nsteps = 0;
    assert_non_null(sink);
    assert_int_equal(plot_write(sink, &plot, &err), -1);
    assert_int_equal(err.code, CODE_DATA);
    fclose(sink);
    free(run);
}

static void labels_never_overlap(void **state)
{
    struct mark marks[40];

    (void)state;
    srand48(11);
    for (int round = 0; round < 300; round++) {
        size_t count = 1 + (size_t)(lrand48() % 40);
        int rows, placed = 0;

        memset(marks, 0, sizeof marks);
        for (size_t i = 0; i < count; i++) {
            marks[i].x = 76.0 + 852.0 * (double)i / (double)count + drand48();
            snprintf(marks[i].label, sizeof marks[i].label, "%.*s", 3 + (int)(lrand48() % 30),
                     "shrunk: 4 to 2 ranks at step 120");
        }
        rows = marks_place(marks, count, 76, 928);
        for (size_t i = 0; i < count; i++) {
            placed += marks[i].row >= 0;
            assert_true(marks[i].row < rows && rows <= MARKS_ROWS);
            if (marks[i].row >= 0)
                assert_true(marks[i].from >= 76 && marks[i].to <= 928);
            for (size_t k = 0; k < i; k++)
                if (marks[i].row >= 0 && marks[i].row == marks[k].row)
                    assert_true(marks[i].from >= marks[k].to || marks[k].from >= marks[i].to);
        }
        assert_true(placed >= 1);
    }
}

/* ---- the chart of characters ---- */

static void chart_draws_a_falling_line(void **state)
{
    const struct metrics_step steps[] = {
        {.step = 1, .loss = 4}, {.step = 2, .loss = 3}, {.step = 3, .loss = 2}, {.step = 4, .loss = 1}};
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);

    (void)state;
    assert_non_null(out);
    summary_chart(out, steps, 4, 4, 4, false);
    fclose(out);
    assert_string_equal(text, "          4 |*   \n            | *  \n            |  * \n          1 |   *\n"
                              "            +----\n             1  4\n");
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(axes_have_nice_ticks_for_any_range),
        cmocka_unit_test(axes_have_the_expected_ticks),
        cmocka_unit_test(axes_take_degenerate_ranges),
        cmocka_unit_test(the_check_itself_can_fail),
        cmocka_unit_test(plot_shows_run_reference_and_the_change_of_mesh),
        cmocka_unit_test(users_mark_replaces_the_automatic_one),
        cmocka_unit_test(plot_of_a_long_run_is_small_and_keeps_the_spike),
        cmocka_unit_test(plot_takes_gaps_and_single_steps),
        cmocka_unit_test(labels_never_overlap),
        cmocka_unit_test(chart_draws_a_falling_line),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
