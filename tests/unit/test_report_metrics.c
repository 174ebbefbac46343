#include "tests/unit/test_report.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static struct metrics_damage damage;

static const char LINE[] =
    "{\"step\":1,\"consumed_samples\":256,\"loss\":11,\"lr\":0.00015,\"grad_norm\":0.3333333333333333,"
    "\"loss_scale\":1,\"skipped\":0,\"step_seconds\":0.5,\"tokens_per_second\":12000,"
    "\"tflops\":1.25,\"mfu\":0.5,\"hfu\":0.5,\"world\":4,\"dp\":4,\"tp\":1,\"pp\":1}\n";

/* ---- one line ---- */

static void line_has_exactly_the_keys_in_order(void **state)
{
    struct metrics_step step = make_step(1, 4);
    char line[METRICS_LINE_SIZE];

    assert_int_equal(metrics_format(line, &step), strlen(LINE));
    assert_string_equal(line, LINE);
    step.validated = true;
    metrics_format(line, &step); /* of nothing */
    assert_non_null(strstr(line, ",\"pp\":1,\"valid_loss\":null}\n"));
    step.valid_loss = 3.5;
    metrics_format(line, &step);
    assert_non_null(strstr(line, ",\"pp\":1,\"valid_loss\":3.5}\n"));
    step.order_loss = 0.75;
    step.valid_order_loss = 0.5;
    metrics_format(line, &step);
    assert_non_null(strstr(line, ",\"pp\":1,\"order_loss\":0.75,\"valid_loss\":3.5,\"valid_order_loss\":0.5}\n"));
}

static void losses_of_data_sets_follow(void **state)
{
    const double losses[] = {3.5, NAN, 1.0 / 3.0};
    struct metrics_step out, step = make_step(1, 4);
    char line[METRICS_LINE_SIZE];

    step.sets = 3;
    step.valid_sets = 1;
    step.set_losses = step.valid_set_losses = losses;
    metrics_format(line, &step);
    assert_non_null(
        strstr(line, ",\"pp\":1,\"set_losses\":[3.5,null,0.3333333333333333],\"valid_set_losses\":[3.5]}\n"));
    assert_int_equal(metrics_parse(&out, line, strlen(line), NULL), 0);
    assert_int_equal(out.sets + out.valid_sets, 0);
}

static void assert_same_bits(double a, double b)
{
    assert_memory_equal(&a, &b, sizeof a);
}

static void results_come_back_bit_for_bit(void **state)
{
    static const double values[] = {0.1,  1.0 / 3.0,  11.019471168518066, 5e-324, 1.7976931348623157e308,
                                    -0.0, 1.5e-4 / 7, 6.384045e+01,       0.1f,   123456789.123456789};
    struct metrics_step out, in = make_step(1, 4);
    char line[METRICS_LINE_SIZE];

    in.validated = true;
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        in.loss = in.lr = in.grad_norm = in.loss_scale = in.valid_loss = values[i];
        metrics_format(line, &in);
        assert_int_equal(metrics_parse(&out, line, strlen(line), NULL), 0);
        assert_same_bits(out.loss, in.loss);
        assert_same_bits(out.lr, in.lr);
        assert_same_bits(out.grad_norm, in.grad_norm);
        assert_same_bits(out.loss_scale, in.loss_scale);
        assert_same_bits(out.valid_loss, in.valid_loss);
    }
}

static void the_longest_line_fits(void **state)
{
    const double longest = -2.2250738585072014e-308;
    struct metrics_step out, in = make_step(1, INT_MAX);
    double losses[METRICS_SETS_MOST];
    char line[METRICS_LINE_SIZE];

    for (int i = 0; i < METRICS_SETS_MOST; i++)
        losses[i] = longest;
    in.sets = in.valid_sets = METRICS_SETS_MOST;
    in.set_losses = in.valid_set_losses = losses;
    in.step = in.consumed_samples = LONG_MAX;
    in.skipped = in.tp = in.pp = INT_MAX;
    in.loss = in.lr = in.grad_norm = in.loss_scale = in.valid_loss = longest;
    in.order_loss = in.valid_order_loss = longest;
    in.validated = true;
    in.step_seconds = in.tokens_per_second = in.tflops = in.mfu = in.hfu = longest;
    assert_true(metrics_format(line, &in) < METRICS_LINE_SIZE - 100);
    assert_int_equal(metrics_parse(&out, line, strlen(line), NULL), 0);
    assert_int_equal(out.step, LONG_MAX);
    assert_int_equal(out.pp, INT_MAX);
    assert_same_bits(out.valid_loss, longest);
}

static void not_finite_is_null_and_reads_as_nan(void **state)
{
    struct metrics_step out, in = make_step(7, 4);
    char line[METRICS_LINE_SIZE];

    in.loss = NAN;
    in.grad_norm = INFINITY;
    in.mfu = -INFINITY;
    metrics_format(line, &in);
    assert_non_null(strstr(line, "\"loss\":null,"));
    assert_non_null(strstr(line, "\"grad_norm\":null,"));
    assert_int_equal(metrics_parse(&out, line, strlen(line), NULL), 0);
    assert_true(isnan(out.loss) && isnan(out.grad_norm) && isnan(out.mfu));
    assert_true(isnan(out.valid_loss) && !out.validated); /* for it was not there */
}

/* LINE with one piece replaced must fail, and say so. */
static void refuses(const char *from, const char *to, const char *expected)
{
    char text[1024];
    struct metrics_step step;
    struct error err = {0};
    const char *at = strstr(LINE, from);

    assert_non_null(at);
    snprintf(text, sizeof text, "%.*s%s%s", (int)(at - LINE), LINE, to, at + strlen(from));
    assert_int_equal(metrics_parse(&step, text, strlen(text), &err), -1);
    assert_int_equal(err.code, CODE_DATA);
    if (!strstr(err.text, expected))
        fail_msg("\"%s\" does not say \"%s\"", err.text, expected);
}

static void parse_is_strict(void **state)
{
    refuses("\"lr\":0.00015,", "", "key \"lr\" is missing");
    refuses("\"lr\"", "\"l\\u0007r\"", "key \"lr\" is missing");
    refuses("\"lr\":0.00015", "\"loss\":1", "duplicate");
    refuses("\"lr\":0.00015", "\"lr\":\"fast\"", "\"lr\" must be a number");
    refuses("\"pp\":1", "\"pp\":1,\"set_losses\":3", "\"set_losses\" must be an array");
    refuses("\"pp\":1", "\"pp\":1,\"valid_set_losses\":[3,\"x\"]", "\"valid_set_losses\" must have numbers");
    refuses("\"step\":1", "\"step\":1.5", "\"step\" must be a whole number");
    refuses("\"step\":1", "\"step\":-1", "from 0");
    refuses("\"step\":1", "\"step\":null", "\"step\" must be a whole number");
    refuses("\"world\":4", "\"world\":0", "from 1");
    refuses("\"world\":4", "\"world\":2147483648", "to 2147483647");
    refuses("\"loss\":11", "\"loss\":NaN", "one JSON object");
    refuses("\"loss\":11", "\"loss\":1e999", "one JSON object");
    refuses("{", "[{", "one JSON object");
    refuses("}", "}]", "one JSON object");
    refuses(LINE, "[]", "one JSON object");
    refuses(LINE, "", "one JSON object");
}

/* ---- reading ---- */

/* The file's steps, which must be so many; the caller frees them. */
static struct metrics_step *read_steps(size_t expected)
{
    struct metrics_step *steps;
    struct error err = {0};
    size_t count;

    if (metrics_read(test_file, &steps, &count, &damage, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(count, expected);
    return steps;
}

static void writer_makes_a_file_that_reads_back(void **state)
{
    struct metrics_writer *writer = metrics_open(test_file, 0, &damage, NULL);
    struct metrics_step *steps;

    assert_non_null(writer);
    for (long step = 1; step <= 1000; step++) {
        struct metrics_step s = make_step(step, 4);

        assert_int_equal(metrics_write(writer, &s, NULL), 0);
    }
    assert_int_equal(metrics_sync(writer, NULL), 0);
    metrics_close(writer);
    steps = read_steps(1000);
    assert_int_equal(steps[999].step, 1000);
    assert_same_bits(steps[6].loss, make_step(7, 4).loss);
    assert_same_bits(steps[49].valid_loss, 3.5);
    free(steps);
}

static void errors_name_file_and_line(void **state)
{
    char text[4 * METRICS_LINE_SIZE], expected[160];
    struct metrics_step *run = make_run(3, 3, 4), *steps;
    size_t count, used = format_run(text, run, 3);
    struct error err = {0};

    used += (size_t)sprintf(text + used, "{\"step\":4}\n[]\n");
    write_file(test_file, text, used);
    free(read_steps(3));
    assert_int_equal(damage.lines, 2);
    snprintf(expected, sizeof expected, "%s:4: key ", test_file);
    assert_int_equal(strncmp(damage.first.text, expected, strlen(expected)), 0);
    write_file(test_file, "[]\n", 3);
    assert_int_equal(metrics_read(test_file, &steps, &count, &damage, &err), -1);
    assert_int_equal(err.code, CODE_DATA);
    assert_string_equal(err.text, damage.first.text);
    unlink(test_file);
    assert_int_equal(metrics_read(test_file, &steps, &count, &damage, &err), -1);
    assert_int_equal(err.code, CODE_IO);
    assert_int_equal(metrics_read(test_dir, &steps, &count, &damage, &err), -1);
    assert_int_equal(err.code, CODE_IO);
    free(run);
}

static void reader_leaves_out_a_torn_last_line(void **state)
{
    char text[4 * METRICS_LINE_SIZE];
    struct metrics_step *run = make_run(3, 3, 4);
    size_t two = format_run(text, run, 2), whole = format_run(text, run, 3);

    for (size_t length = two; length < whole; length++) {
        write_file(test_file, text, length);
        free(read_steps(length + 1 < whole ? 2 : 3)); /* without its newline a step is whole */
    }
    write_file(test_file, text, whole);
    free(read_steps(3));
    write_file(test_file, "", 0);
    free(read_steps(0));
    free(run);
}

/* ---- resuming ---- */

/* Six steps, `torn` bytes off the end, go on after step `resume` on two ranks. */
static void check_resume(const struct metrics_step *run, long resume, size_t torn)
{
    char text[8 * METRICS_LINE_SIZE];
    long kept = torn && resume == 6 ? 5 : resume;
    struct metrics_step next = make_step(resume + 1, 2), *steps;
    struct metrics_writer *writer;

    write_file(test_file, text, format_run(text, run, 6) - torn);
    writer = metrics_open(test_file, resume, &damage, NULL);
    assert_non_null(writer);
    assert_int_equal(metrics_write(writer, &next, NULL), 0);
    metrics_close(writer);
    steps = read_steps((size_t)kept + 1);
    for (long i = 0; i < kept; i++)
        assert_int_equal(steps[i].step, i + 1);
    assert_int_equal(steps[kept].step, resume + 1);
    assert_int_equal(steps[kept].world, 2);
    free(steps);
}

/* Whatever the crash left and wherever the checkpoint was, no step is there twice. */
static void resume_drops_what_will_be_done_again(void **state)
{
    struct metrics_step *run = make_run(6, 6, 4);

    for (long resume = 0; resume <= 6; resume++)
        for (size_t torn = 0; torn < strlen(LINE) - 10; torn += 17)
            check_resume(run, resume, torn);
    free(run);
}

static void resume_replaces_the_file_behind_a_link_and_keeps_its_mode(void **state)
{
    const double losses[] = {3.5, NAN};
    char text[4 * METRICS_LINE_SIZE], link[128], *now;
    struct metrics_step *run = make_run(3, 3, 4);
    struct stat before, after;

    run[1].sets = 2; /* lines are kept with all that they have */
    run[1].set_losses = losses;
    write_file(test_file, text, format_run(text, run, 3));
    assert_int_equal(chmod(test_file, 0640), 0);
    assert_int_equal(stat(test_file, &before), 0);
    snprintf(link, sizeof link, "%s/link", test_dir);
    assert_int_equal(symlink(test_file, link), 0);

    metrics_close(metrics_open(link, 2, &damage, NULL));
    now = read_file(test_file, NULL);
    assert_int_equal(strlen(now), format_run(text, run, 2));
    assert_memory_equal(now, text, strlen(now));
    assert_int_equal(stat(test_file, &after), 0);
    assert_int_equal(after.st_mode, before.st_mode);
    assert_int_not_equal(after.st_ino, before.st_ino); /* renamed over, not written in place */
    assert_int_equal(lstat(link, &after), 0);
    assert_true(S_ISLNK(after.st_mode));
    assert_int_equal(unlink(link), 0);
    free(now);
    free(run);
}

static void resume_with_nothing_to_drop_leaves_the_file_alone(void **state)
{
    char text[4 * METRICS_LINE_SIZE];
    struct metrics_step *run = make_run(3, 3, 4);
    struct stat before, after;

    write_file(test_file, text, format_run(text, run, 3));
    assert_int_equal(stat(test_file, &before), 0);
    metrics_close(metrics_open(test_file, 3, &damage, NULL));
    assert_int_equal(stat(test_file, &after), 0);
    assert_int_equal(before.st_ino, after.st_ino);
    assert_int_equal(before.st_size, after.st_size);
    free(run);
}

static void expect_kept(const char *text, size_t length)
{
    char expected[160], *kept;
    size_t bytes;

    snprintf(expected, sizeof expected, "%s.damaged", test_file);
    assert_string_equal(damage.kept, expected);
    kept = read_file(damage.kept, &bytes);
    assert_int_equal(bytes, length);
    assert_memory_equal(kept, text, length);
    free(kept);
    assert_int_equal(unlink(damage.kept), 0);
}

static const struct {
    const char *text;
    size_t length;
} damaged_lines[] = {
#define DAMAGED(text)                                                                                                  \
    {                                                                                                                  \
        text, sizeof text - 1                                                                                          \
    }
    DAMAGED("\0\0\0\0\0\0\0\0\n"),
    DAMAGED("\0\0\0tokens_per_second\":1,\"pp\":1}\n"),
    DAMAGED("{\"step\":3,\"consumed_sam\n"),
    DAMAGED("\377\376{}\n"),
    DAMAGED("{\"step\":3,\"loss\":1e999}\n"),
    DAMAGED("{\"step\":1000000000000000019884624838656}\n"),
    DAMAGED("\n\n\n"),
};

/* Wherever the line is: the steps after it are kept too, as far as the checkpoint goes. */
static void a_damaged_line_costs_no_other(void **state)
{
    struct metrics_step *run = make_run(4, 4, 4), *steps;
    char text[8 * METRICS_LINE_SIZE], rest[8 * METRICS_LINE_SIZE];

    for (size_t i = 0; i < sizeof damaged_lines / sizeof *damaged_lines; i++)
        for (size_t before = 0; before <= 4; before++) {
            size_t used = format_run(text, run, before), whole = format_run(rest, run, 4);
            size_t length = damaged_lines[i].length;

            memcpy(text + used, damaged_lines[i].text, length);
            memcpy(text + used + length, rest + used, whole - used);
            write_file(test_file, text, whole + length);
            metrics_close(metrics_open(test_file, 3, &damage, NULL));
            assert_true(damage.lines == (text[used] == '\n' ? 3 : 1));
            expect_kept(text, whole + length);
            steps = read_steps(3);
            assert_int_equal(damage.lines, 0);
            assert_int_equal(steps[2].step, 3);
            free(steps);
        }
    free(run);
}

/* Even a file that is none of metrics: the job file may name another one by mistake. */
static void what_is_left_out_is_kept_beside_the_file(void **state)
{
    static const char text[] = "a diary\nof mine\n";

    write_file(test_file, text, strlen(text));
    metrics_close(metrics_open(test_file, 1, &damage, NULL));
    assert_non_null(strstr(damage.first.text, "metrics.jsonl:1: "));
    expect_kept(text, strlen(text));
    free(read_steps(0));
}

static void a_last_line_without_its_newline_is_kept(void **state)
{
    char text[4 * METRICS_LINE_SIZE];
    struct metrics_step *run = make_run(3, 3, 4);

    write_file(test_file, text, format_run(text, run, 3) - 1);
    metrics_close(metrics_open(test_file, 3, &damage, NULL));
    free(read_steps(3));
    free(run);
}

static void a_later_releases_keys_are_kept(void **state)
{
    char text[METRICS_LINE_SIZE];
    size_t length = (size_t)snprintf(text, sizeof text, "{\"later\":[1],%s", LINE + 1);
    char *now;

    write_file(test_file, text, length);
    metrics_close(metrics_open(test_file, 1, &damage, NULL));
    now = read_file(test_file, NULL);
    assert_string_equal(now, text);
    free(now);
}

/* ---- what is no file to append to -------------------------------------------------------------------------------- */

static void expect_refused(const char *path, const char *says)
{
    struct error err = {0};

    assert_null(metrics_open(path, 0, &damage, &err));
    if (err.code != CODE_CONFIG || !strstr(err.text, says))
        fail_msg("%s: %d, \"%s\" should say \"%s\"", path, err.code, err.text, says);
}

static void what_is_no_file_is_refused_at_once(void **state)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);

    expect_refused(test_dir, "it is a directory; name a file");
    assert_int_equal(mkfifo(test_file, 0600), 0);
    expect_refused(test_file, "it is a FIFO that nobody reads; start the reader first, or name a file");
    assert_int_equal(unlink(test_file), 0);
    snprintf(address.sun_path, sizeof address.sun_path, "%s", test_file);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    expect_refused(test_file, "it is a socket; name a file");
    close(fd);
}

static void a_fifo_with_a_reader_gets_the_lines(void **state)
{
    struct metrics_step step = make_step(1, 4);
    struct metrics_writer *writer;
    char line[METRICS_LINE_SIZE], got[METRICS_LINE_SIZE] = "";
    struct error err = {0};
    int fd;

    signal(SIGPIPE, SIG_IGN); /* as in muster-train */
    assert_int_equal(mkfifo(test_file, 0600), 0);
    fd = open(test_file, O_RDONLY | O_NONBLOCK);
    writer = metrics_open(test_file, 0, &damage, NULL);
    assert_non_null(writer);
    assert_int_equal(metrics_write(writer, &step, NULL), 0);
    assert_int_equal(read(fd, got, sizeof got - 1), metrics_format(line, &step));
    assert_string_equal(got, line);
    assert_int_equal(metrics_sync(writer, NULL), 0);
    close(fd);
    assert_int_equal(metrics_write(writer, &step, &err), -1);
    assert_non_null(strstr(err.text, "Broken pipe"));
    metrics_close(writer);
}

/* A full disk, played by the limit on a file's size: the kernel writes what fits and refuses the rest. */
static void a_line_cut_short_is_taken_back(void **state)
{
    struct metrics_writer *writer = metrics_open(test_file, 0, &damage, NULL);
    struct metrics_step step = make_step(1, 4);
    struct rlimit before, limit;
    struct error err = {0};

    assert_non_null(writer);
    assert_int_equal(metrics_write(writer, &step, NULL), 0);
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = before;
    limit.rlim_cur = strlen(LINE) + 100;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    step = make_step(2, 4);
    assert_int_equal(metrics_write(writer, &step, &err), -1);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(err.code, CODE_IO);
    assert_non_null(strstr(err.text, "step 2"));
    free(read_steps(1));
    assert_int_equal(metrics_write(writer, &step, NULL), 0); /* there is room again */
    metrics_close(writer);
    free(read_steps(2));
}

/* A file system that does not answer, played by a pipe that is full: nobody waits for long, and no line is lost. */
static void a_file_that_does_not_answer_is_not_waited_for(void **state)
{
    enum { LINES = 300 };
    struct metrics_writer *writer;
    struct error err;
    int fd, lines = 0;
    char text[4096];

    assert_int_equal(mkfifo(test_file, 0600), 0);
    fd = open(test_file, O_RDWR | O_NONBLOCK);
    writer = metrics_open(test_file, 0, &damage, NULL);
    assert_non_null(writer);
    for (int i = 1; i <= LINES; i++) {
        struct metrics_step step = make_step(i, 4);

        assert_int_equal(metrics_write(writer, &step, &err), 0);
    }
    assert_int_equal(metrics_sync(writer, &err), -1);
    assert_non_null(strstr(err.text, "does not answer"));
    while (lines < LINES) {
        ssize_t got = read(fd, text, sizeof text);

        for (ssize_t i = 0; i < got; i++)
            lines += text[i] == '\n';
    }
    assert_int_equal(metrics_sync(writer, &err), 0);
    metrics_close(writer);
    close(fd);
}

static void another_file_of_the_name_is_seen_once(void **state)
{
    struct metrics_step step = make_step(1, 4);
    struct metrics_writer *first, *second;

    first = metrics_open(test_file, 0, &damage, NULL);
    assert_int_equal(metrics_write(first, &step, NULL), 0);
    second =
        metrics_open(test_file, 0, &damage, NULL); /* the same job again: it takes back what the first has written */
    assert_non_null(second);
    assert_true(metrics_displaced(first));
    assert_false(metrics_displaced(first));
    assert_false(metrics_displaced(second));
    metrics_close(first);
    metrics_close(second);
    second = metrics_open("/dev/null", 0, &damage, NULL);
    assert_false(metrics_displaced(second));
    metrics_close(second);
}

static void a_missing_directory_is_an_io_error(void **state)
{
    struct error err = {0};

    assert_null(metrics_open("/nonexistent/metrics.jsonl", 0, &damage, &err));
    assert_int_equal(err.code, CODE_IO);
    metrics_close(NULL);
}

#define WITH_DIR(test) cmocka_unit_test_setup_teardown(test, make_dir, remove_dir)

/* Rates by other conventions are written where there are any, and read back. */
static void other_conventions_are_kept(void **state)
{
    struct metrics_step out, in = make_step(1, 4);
    char line[METRICS_LINE_SIZE];
    struct error err;

    metrics_format(line, &in);
    assert_null(strstr(line, "mosaicml"));
    in.tflops_before_2022 = 100;
    in.mosaicml_mfu = 0.5, in.mosaicml_hfu = 0.625;
    in.mosaicml_mfu_params = 0.25, in.mosaicml_hfu_params = 0.375;
    assert_int_equal(metrics_parse(&out, line, metrics_format(line, &in), &err), 0);
    assert_non_null(strstr(line, "\"tflops_before_2022\":100,\"mosaicml_mfu\":0.5,\"mosaicml_hfu\":0.625,"
                                 "\"mosaicml_mfu_params\":0.25,\"mosaicml_hfu_params\":0.375"));
    assert_memory_equal(&out.tflops_before_2022, &in.tflops_before_2022, 5 * sizeof(double));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(line_has_exactly_the_keys_in_order),
        cmocka_unit_test(losses_of_data_sets_follow),
        cmocka_unit_test(results_come_back_bit_for_bit),
        cmocka_unit_test(the_longest_line_fits),
        cmocka_unit_test(not_finite_is_null_and_reads_as_nan),
        cmocka_unit_test(parse_is_strict),
        WITH_DIR(writer_makes_a_file_that_reads_back),
        WITH_DIR(errors_name_file_and_line),
        WITH_DIR(reader_leaves_out_a_torn_last_line),
        WITH_DIR(resume_drops_what_will_be_done_again),
        WITH_DIR(resume_replaces_the_file_behind_a_link_and_keeps_its_mode),
        WITH_DIR(resume_with_nothing_to_drop_leaves_the_file_alone),
        WITH_DIR(a_damaged_line_costs_no_other),
        WITH_DIR(what_is_left_out_is_kept_beside_the_file),
        WITH_DIR(a_last_line_without_its_newline_is_kept),
        WITH_DIR(a_later_releases_keys_are_kept),
        WITH_DIR(what_is_no_file_is_refused_at_once),
        WITH_DIR(a_fifo_with_a_reader_gets_the_lines),
        WITH_DIR(a_line_cut_short_is_taken_back),
        cmocka_unit_test_setup_teardown(a_file_that_does_not_answer_is_not_waited_for, make_dir, remove_dir),
        WITH_DIR(another_file_of_the_name_is_seen_once),
        cmocka_unit_test(a_missing_directory_is_an_io_error),
        cmocka_unit_test(other_conventions_are_kept),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
