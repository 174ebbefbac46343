#include "tests/unit/test_report.h"

#include "trainer/report/progress.h"

/* ---- the log line ---- */

/* A line of BigScience's 104B run. */
static const struct log_line SECOND = {
    .mean = {.step = 2,
             .consumed_samples = 4096,
             .loss = 63.84045,
             .lr = 3.787e-6,
             .grad_norm = 15906.21,
             .loss_scale = 4096.0,
             .step_seconds = 769.99,
             .tflops = 108.47,
             .mfu = NAN,
             .hfu = NAN},
    .steps = 95367,
    .consumed_tokens = 8388608,
    .global_batch = 2048,
};
static const char SECOND_TEXT[] =
    " iteration        2/   95367 | consumed samples:         4096 | consumed tokens:      8388608 |"
    " elapsed time per iteration (s): 769.99 | learning rate: 3.787E-06 | global batch size:  2048 |"
    " lm loss: 6.384045E+01 | loss scale: 4096.0 | grad norm: 15906.210 | num zeros: 0.0 |"
    " number of skipped iterations:   0 | number of nan iterations:   0 | samples per second: 2.660 | TFLOPs: 108.47 |";

static void log_line_is_megatrons(void **state)
{
    char text[LOG_LINE_SIZE];

    log_line_format(text, &SECOND);
    assert_string_equal(text, SECOND_TEXT);
}

static void log_line_ends_with_mfu_and_hfu(void **state)
{
    struct log_line line = SECOND;
    char text[LOG_LINE_SIZE], expected[LOG_LINE_SIZE];

    line.mean.mfu = 0.412345;
    line.mean.hfu = 0.55;
    log_line_format(text, &line);
    snprintf(expected, sizeof expected, "%s MFU: 41.23%% | HFU: 55.00%% |", SECOND_TEXT);
    assert_string_equal(text, expected);
}

static void log_line_of_a_bert_has_both_losses(void **state)
{
    struct log_line line = SECOND;
    char text[LOG_LINE_SIZE];

    line.bert = true;
    line.mean.order_loss = 0.6931472;
    log_line_format(text, &line);
    assert_non_null(strstr(text, " | lm loss: 6.384045E+01 | sop loss: 6.931472E-01 | loss scale: 4096.0 | "));
}

static void log_line_is_cut_to_the_buffer(void **state)
{
    struct log_line line = SECOND;
    char text[LOG_LINE_SIZE + 1];

    line.mean.grad_norm = line.mean.loss_scale = line.mean.lr = 1e308;
    line.mean.step_seconds = line.mean.tflops = 1e308;
    memset(text, '#', sizeof text);
    log_line_format(text, &line);
    assert_int_equal(strlen(text), LOG_LINE_SIZE - 1);
    assert_int_equal(text[LOG_LINE_SIZE], '#');
}

/* ---- the progress line ---- */

static const struct metrics_step PROGRESS = {
    .step = 120, .loss = 5.0625, .tokens_per_second = 12345.0, .mfu = 0.412, .world = 4};

static const struct terminal ASCII = {.live = true};

/* Columns that a terminal would use: escape sequences take none, and each character here one. */
static int columns_of(const char *text)
{
    int columns = 0;

    while (*text) {
        if (*text == '\033') {
            text += strcspn(text, "m") + 1;
            continue;
        }
        columns += ((unsigned char)*text & 0xc0) != 0x80;
        text++;
    }
    return columns;
}

static void progress_line_shows_all_when_wide(void **state)
{
    char text[PROGRESS_SIZE];

    progress_line(text, 82, &ASCII, &PROGRESS, 200, 83);
    assert_string_equal(text, "120/200  ==========.......  loss 5.0625  12.3k tok/s  4 ranks  MFU 41.2%  ETA 1:23");
    progress_line(text, 82, &(struct terminal){0}, &PROGRESS, 200, 83);
    assert_string_equal(text, "120/200  loss 5.0625  12.3k tok/s  4 ranks  MFU 41.2%  ETA 1:23");
}

static void progress_line_fits_every_width(void **state)
{
    char text[PROGRESS_SIZE];

    for (unsigned flags = 0; flags < 8; flags++) {
        for (int columns = 20; columns <= 200; columns++) {
            bool bar = flags & 4;
            const struct terminal terminal = {.utf8 = flags & 1, .colour = flags & 2, .live = bar};

            progress_line(text, columns, &terminal, &PROGRESS, 200, 83);
            assert_true(columns_of(text) <= columns);
            assert_non_null(strstr(text, "120/200"));
            assert_non_null(strstr(text, "loss 5.0625")); /* 20 columns are just enough for it */
            assert_true(columns < 30 || strstr(text, "ETA 1:23"));
            assert_true(columns < 75 ||
                        (strstr(text, "12.3k tok/s") && strstr(text, "4 ranks") && strstr(text, "MFU")));
            if (bar && columns >= 40 && columns <= 100) /* the bar takes all that is free */
                assert_int_equal(columns_of(text), columns);
            assert_int_equal(strchr(text, '\033') != NULL, bar && columns >= 40 && terminal.colour);
        }
    }
}

static void progress_line_survives_absurd_numbers(void **state)
{
    const struct metrics_step huge = {
        .step = LONG_MAX, .loss = -1e308, .tokens_per_second = 1e300, .mfu = 1e300, .world = INT_MAX};
    char text[PROGRESS_SIZE];

    for (int columns = -5; columns < 300; columns++) {
        progress_line(text, columns, &(struct terminal){.live = true, .utf8 = true, .colour = true}, &huge, LONG_MAX,
                      1e300);
        assert_true(columns_of(text) <= (columns > 0 ? columns : 0));
        assert_true(strlen(text) < PROGRESS_SIZE / 2);
    }
}

static void progress_line_without_an_end_has_no_bar(void **state)
{
    struct metrics_step open_ended = PROGRESS;
    char text[PROGRESS_SIZE];

    open_ended.mfu = open_ended.tokens_per_second = NAN;
    open_ended.loss = NAN;
    progress_line(text, 80, &ASCII, &open_ended, 0, 83);
    assert_string_equal(text, "step 120  loss nan  4 ranks");
}

static void bar_is_empty_at_the_start_and_full_at_the_end(void **state)
{
    struct metrics_step progress = PROGRESS;
    char text[PROGRESS_SIZE];

    progress.step = 0;
    progress_line(text, 80, &ASCII, &progress, 200, 83);
    assert_null(strchr(text, '='));
    progress.step = 199;
    progress_line(text, 80, &ASCII, &progress, 200, 83);
    assert_non_null(strstr(text, "=.  "));
    progress.step = 200;
    progress_line(text, 80, &ASCII, &progress, 200, 83);
    assert_non_null(strstr(text, "==  "));
    assert_null(strstr(text, ".  "));
}

/* ---- numbers ---- */

struct number {
    double value;
    const char *text;
};

static void counts_have_three_digits(void **state)
{
    static const struct number cases[] = {
        {0, "0"},         {7, "7"},          {7.25, "7.25"},    {12.34, "12.3"},  {999, "999"},
        {999.4, "999"},   {999.6, "1.00k"},  {1000, "1.00k"},   {12345, "12.3k"}, {131072, "131k"},
        {999499, "999k"}, {999501, "1.00M"}, {1.05e9, "1.05G"}, {2e12, "2.00T"},  {-4321, "-4.32k"},
        {9.996, "10.0"},  {99.96, "100"},    {NAN, "-"},        {INFINITY, "-"},
    };
    char buf[UNITS_SIZE];

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_string_equal(units_count(buf, cases[i].value), cases[i].text);
    assert_true(strlen(units_count(buf, -1.7976931348623157e308)) < UNITS_SIZE - 1);
}

static void durations_read_as_clocks(void **state)
{
    static const struct number cases[] = {
        {0, "0:00"},       {6.7, "0:07"},      {83, "1:23"}, {3599.4, "59:59"},   {3599.6, "1:00:00"},
        {3723, "1:02:03"}, {86400, "1d00:00"}, {-1, "-"},    {273906, "3d04:05"}, {NAN, "-"},
    };
    char buf[UNITS_SIZE];

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_string_equal(units_duration(buf, cases[i].value), cases[i].text);
}

static void thousands_are_grouped(void **state)
{
    char buf[UNITS_SIZE];

    assert_string_equal(units_grouped(buf, 0), "0");
    assert_string_equal(units_grouped(buf, 999), "999");
    assert_string_equal(units_grouped(buf, 1000), "1,000");
    assert_string_equal(units_grouped(buf, -123456), "-123,456");
    assert_string_equal(units_grouped(buf, 1234567), "1,234,567");
    assert_string_equal(units_grouped(buf, LONG_MIN), "-9,223,372,036,854,775,808");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(log_line_is_megatrons),
        cmocka_unit_test(log_line_ends_with_mfu_and_hfu),
        cmocka_unit_test(log_line_of_a_bert_has_both_losses),
        cmocka_unit_test(log_line_is_cut_to_the_buffer),
        cmocka_unit_test(progress_line_shows_all_when_wide),
        cmocka_unit_test(progress_line_fits_every_width),
        cmocka_unit_test(progress_line_survives_absurd_numbers),
        cmocka_unit_test(progress_line_without_an_end_has_no_bar),
        cmocka_unit_test(bar_is_empty_at_the_start_and_full_at_the_end),
        cmocka_unit_test(counts_have_three_digits),
        cmocka_unit_test(durations_read_as_clocks),
        cmocka_unit_test(thousands_are_grouped),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
