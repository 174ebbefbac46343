/* The program itself: exit codes, what goes where, and following a run that is being written. */
#include "tests/unit/test_report.h"

#include <fcntl.h>
#include <signal.h>
#include <time.h>

/* Runs `muster-report ARGUMENTS`, FILE standing for the metrics file. */
static void expect(int code, const char *arguments, const char *expected)
{
    char filled[512];
    int got;

    snprintf(filled, sizeof filled, "%s", arguments);
    for (char *at; (at = strstr(filled, "FILE"));) {
        char rest[512];

        snprintf(rest, sizeof rest, "%s", at + 4);
        snprintf(at, sizeof filled - (size_t)(at - filled), "%s%s", test_file, rest);
    }
    got = run_program("muster-report", "%s", filled);
    if (got != code || !strstr(output, expected))
        fail_msg("muster-report %s: exit code %d, not %d, or no \"%s\" in: %s", arguments, got, code, expected, output);
}

static void write_run(size_t count, long until, int world)
{
    struct metrics_step *run = make_run(count, until, world);
    char *text = malloc((count + 1) * METRICS_LINE_SIZE);

    assert_non_null(text);
    write_file(test_file, text, format_run(text, run, count));
    free(text);
    free(run);
}

static void wrong_command_lines_are_64(void **state)
{
    expect(64, "", "missing command: follow, plot, html, compare, summary or where");
    expect(64, "draw", "unknown command draw");
    expect(64, "summary", "needs 1 metrics file, not 0");
    expect(64, "summary --fast x", "unknown option --fast");
    expect(64, "plot -xy x", "unknown option -xy");
    expect(64, "follow x --steps 0", "--steps needs a whole number of at least 1, not 0");
    expect(64, "compare a b --tolerance nan", "--tolerance needs a number of at least 0, not nan");
    expect(0, "--help", "usage: muster-report follow");
    expect(0, "--version", "muster-report ");
}

static void bad_files_are_65_and_74(void **state)
{
    char link[128];

    expect(74, "summary FILE", "No such file");
    write_file(test_file, "", 0);
    expect(65, "summary FILE", "no step yet");
    expect(65, "plot FILE", "no step with a finite loss");
    write_file(test_file, "{}\n", 3);
    expect(65, "compare FILE FILE", "metrics.jsonl:1: key \"step\" is missing");
    expect(65, "follow FILE", "metrics.jsonl:1: key \"step\" is missing");
    write_run(3, 3, 4);
    expect(0, "compare FILE FILE && printf '\\0\\0\\n' >>FILE && tail -n 1 FILE >>FILE", "the same");
    expect(0, "summary FILE", "/metrics.jsonl:4: column ");
    expect(0, "summary FILE", "; 2 such lines are left out\n");
    expect(0, "follow FILE --steps 3", "/metrics.jsonl:4: column ");
    write_run(3, 3, 4);
    expect(74, "plot FILE -o /nonexistent/loss.svg", "cannot create /nonexistent/loss.svg");
    expect(74, "summary FILE >/dev/full", "No space left");
    /* By a link: a program that removes what it could not write must not get at the device. */
    snprintf(link, sizeof link, "%s.full", test_file);
    assert_int_equal(symlink("/dev/full", link), 0);
    expect(74, "plot FILE -o FILE.full", "No space left");
    assert_int_equal(unlink(link), 0); /* it is still there */
}

static void compare_exits_as_diff_does(void **state)
{
    char command[256];

    write_run(20, 20, 4);
    expect(0, "compare FILE FILE", "20 steps, 20 with exactly the same loss");
    snprintf(command, sizeof command, "sed 's/\"loss\":3.5,/\"loss\":3.507,/' %s > %s.other", test_file, test_file);
    assert_int_equal(system(command), 0);
    expect(1, "compare FILE FILE.other", "0.002 at step 16 (3.5 and 3.507)");
    expect(1, "compare FILE FILE.other --tolerance 0.0019", "different");
    expect(0, "compare FILE FILE.other --tolerance 0.002", "the same");
    snprintf(command, sizeof command, "sed -i 5d %s.other", test_file);
    assert_int_equal(system(command), 0);
    expect(1, "compare FILE FILE.other --tolerance 1", "1 only here, from step 5 on");
    expect(0, "compare FILE FILE.other --tolerance 1 --common", "the same");
    snprintf(command, sizeof command, "%s.other", test_file);
    assert_int_equal(unlink(command), 0);
}

static void plot_goes_to_the_file_or_stdout(void **state)
{
    char path[128];

    write_run(20, 12, 4);
    snprintf(path, sizeof path, "%s.svg", test_file);
    expect(0, "plot FILE", "shrunk: 4 \u2192 2 ranks at step 12");
    expect(0, "plot FILE --reference FILE --title T -o FILE.svg && grep -c '</svg>' FILE.svg", "1\n");
    assert_int_equal(unlink(path), 0);
    expect(64, "plot FILE -o FILE.png", ": the picture is SVG; name it FILE.svg, and convert that with rsvg-convert");
    expect(64, "plot FILE -o FILE", ": would write the picture over the metrics; name another file");
    expect(64, "plot /dev/null --reference FILE -o FILE", ": would write the picture over the metrics");
    expect(0, "summary FILE", "steps       1 to 20");
    expect(0, "summary --json FILE", ",\"lowest_loss\":{\"step\":20,\"loss\":3.4},");
}

static void several_runs_are_shown_together(void **state)
{
    char path[128];

    write_run(20, 12, 4);
    snprintf(path, sizeof path, "%s.html", test_file);
    expect(0, "summary FILE FILE | grep -c '^  steps       1 to 20'", "2\n");
    expect(0, "summary --json FILE FILE | python3 -c 'import json,sys; print(len(json.load(sys.stdin)))'", "2\n");
    expect(0, "plot FILE FILE | grep -A 1 'line class=\"other1\"' | grep -c metrics.jsonl", "1\n");
    expect(64, "plot FILE FILE FILE FILE FILE FILE FILE FILE FILE", "a plot shows at most 8 runs");
    expect(64, "html", "html: needs 1 metrics file, not 0");
    expect(0, "html FILE", "</html>\n");
    expect(0, "html FILE FILE -o FILE.html && grep -c '</html>' FILE.html", "1\n");
    assert_int_equal(unlink(path), 0);
    expect(64, "html /dev/null FILE -o FILE", ": would write the page over the metrics; name another file");
    expect(65, "html FILE /dev/null", "/dev/null: no step yet");
    expect(74, "html FILE FILE.none", "No such file");
    expect(74, "html FILE -o /dev/full", "No space left");
}

/* A child that plays the job: steps 1 to 30 on 4 ranks, a crash, and from 21 to 40 on 2. */
static pid_t start_writer(void)
{
    const struct timespec pause = {.tv_nsec = 10 * 1000 * 1000};
    pid_t child = fork();

    assert_true(child >= 0);
    if (child)
        return child;
    for (int job = 0; job < 2; job++) {
        struct test_writer writer = open_writer(test_file, job ? 20 : -1);

        for (long step = job ? 21 : 1; step <= (job ? 40 : 30); step++) {
            struct metrics_step s = make_step(step, job ? 2 : 4);

            write_step(&writer, &s);
            nanosleep(&pause, NULL);
        }
        end_writer(&writer);
    }
    _exit(0);
}

static void follow_ends_at_the_last_step(void **state)
{
    pid_t writer = start_writer();
    int status;

    expect(0, "follow FILE --steps 40 --interval 0", "resumed at step 21 on 2 ranks (was 4)\n");
    assert_int_equal(waitpid(writer, &status, 0), writer);
    assert_int_equal(status, 0);
    expect(0, "follow FILE --steps 40", "40/40  loss 3.2000  6.00k tok/s  2 ranks  MFU 50.0%  ETA 0:00\n");
}

static void follow_ends_with_the_process_or_a_signal(void **state)
{
    expect(0, "follow FILE.not-there --pid $(sh -c 'echo $$')", "waiting for ");
    write_run(7, 7, 4);
    expect(0, "follow FILE --pid $(sh -c 'echo $$')", "step 7  loss"); /* that shell is gone */
    expect(124,
           "follow FILE >FILE.out & until grep -q 'step 7' FILE.out; do sleep 0.05; done; kill -TERM $!;"
           " wait $!; code=$?; cat FILE.out; rm FILE.out; exit $((code + 124))",
           "step 7  loss"); /* 124: the shell and not the program must have made the code */
}

/* Steps from..to on `world` ranks, as text. */
static size_t format_steps(char *text, long from, long to, int world)
{
    size_t used = 0;

    for (long step = from; step <= to; step++) {
        struct metrics_step s = make_step(step, world);

        used += metrics_format(text + used, &s);
    }
    return used;
}

/* By one write. */
static void append_file(const char *path, const char *text, size_t length)
{
    int fd = open(path, O_WRONLY | O_APPEND);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, length), length);
    close(fd);
}

/* A job resumes at step 125 with one rank: the file is written anew, and read again from its beginning. */
static void follow_reads_a_replaced_file_again_and_tells_changes_once(void **state)
{
    static char text[200 * METRICS_LINE_SIZE];
    size_t length = format_steps(text, 1, 120, 4), half;
    char path[128], live[128], beside[128];
    char *shown;

    length += format_steps(text + length, 121, 130, 2);
    write_file(test_file, text, length);
    snprintf(path, sizeof path, "%s.out", test_file);
    snprintf(live, sizeof live, "%s.live", test_file);
    assert_int_equal(rename(test_file, live), 0);
    snprintf(beside, sizeof beside, "%s.old", test_file);
    expect(0,
           "follow FILE.live --steps 140 --interval 0 >FILE.out 2>&1 & until grep -q '130/140' FILE.out; do sleep "
           "0.05; done",
           "");
    assert_int_equal(rename(live, beside), 0); /* gone for a moment: not news */
    expect(0, "--version >/dev/null; sleep 0.5", "");
    length = format_steps(text, 1, 120, 4);
    length += format_steps(text + length, 121, 124, 2);
    write_file(test_file, text, length);
    assert_int_equal(rename(test_file, live), 0);
    expect(0, "--version >/dev/null; until grep -q 'back at' FILE.out; do sleep 0.05; done", "");
    length = format_steps(text, 125, 140, 1);
    half = strlen("{\"step\"");
    append_file(live, text, half); /* half a line is none */
    expect(0, "--version >/dev/null; sleep 0.5", "");
    append_file(live, text + half, length - half);
    expect(0, "--version >/dev/null; until grep -q '140/140' FILE.out; do sleep 0.05; done", "");
    shown = read_file(path, NULL);
    assert_string_equal(shown, "resumed at step 121 on 2 ranks (was 4)\n"
                               "130/140  loss 3.0615  6.00k tok/s  2 ranks  MFU 50.0%  ETA 0:05\n"
                               "back at step 124 (was 130): going on from a checkpoint\n"
                               "124/140  loss 3.0645  6.00k tok/s  2 ranks  MFU 50.0%  ETA 0:08\n"
                               "resumed at step 125 on 1 rank (was 2)\n"
                               "140/140  loss 3.0571  3.00k tok/s  1 rank  MFU 50.0%  ETA 0:00\n");
    free(shown);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(unlink(live), 0);
    assert_int_equal(unlink(beside), 0);
}

/* A job resumes at step 100 and is fast: when follow looks again, the file is as long as before. */
static void follow_notices_lines_that_took_the_place_of_others(void **state)
{
    static char text[200 * METRICS_LINE_SIZE];
    size_t kept = format_steps(text, 1, 100, 4), length = kept + format_steps(text + kept, 101, 130, 4);
    char path[128], *shown;

    write_file(test_file, text, length);
    snprintf(path, sizeof path, "%s.out", test_file);
    expect(
        0,
        "follow FILE --steps 140 --interval 0 >FILE.out 2>&1 & until grep -q '130/140' FILE.out; do sleep 0.05; done",
        "");
    assert_int_equal(truncate(test_file, (off_t)kept), 0);
    length = format_steps(text, 101, 140, 2);
    append_file(test_file, text, length);
    expect(0, "--version >/dev/null; until grep -q '140/140' FILE.out; do sleep 0.05; done", "");
    shown = read_file(path, NULL);
    assert_non_null(strstr(shown, "resumed at step 101 on 2 ranks (was 4)\n"));
    assert_null(strstr(shown, "left out"));
    free(shown);
    assert_int_equal(unlink(path), 0);
}

#define WITH_DIR(test) cmocka_unit_test_setup_teardown(test, make_dir, remove_dir)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_command_lines_are_64),
        WITH_DIR(bad_files_are_65_and_74),
        WITH_DIR(compare_exits_as_diff_does),
        WITH_DIR(plot_goes_to_the_file_or_stdout),
        WITH_DIR(several_runs_are_shown_together),
        WITH_DIR(follow_ends_at_the_last_step),
        WITH_DIR(follow_ends_with_the_process_or_a_signal),
        WITH_DIR(follow_reads_a_replaced_file_again_and_tells_changes_once),
        WITH_DIR(follow_notices_lines_that_took_the_place_of_others),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
