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
    struct metrics m;
    struct error err = {0};

    if (metrics_read(test_file, &m, &damage, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(m.count, expected);
    free(m.starts);
    return m.steps;
}

static void writer_makes_a_file_that_reads_back(void **state)
{
    struct test_writer writer = open_writer(test_file, -1);
    struct metrics_step *steps;

    for (long step = 1; step <= 1000; step++) {
        struct metrics_step s = make_step(step, 4);

        write_step(&writer, &s);
    }
    send_text(&writer, "s\n");
    assert_string_equal(next_answer(&writer), "+");
    end_writer(&writer);
    assert_string_equal(writer.said, "");
    steps = read_steps(1000);
    assert_int_equal(steps[999].step, 1000);
    assert_same_bits(steps[6].loss, make_step(7, 4).loss);
    assert_same_bits(steps[49].valid_loss, 3.5);
    free(steps);
}

static void errors_name_file_and_line(void **state)
{
    char text[4 * METRICS_LINE_SIZE], expected[160];
    struct metrics_step *run = make_run(3, 3, 4);
    size_t used = format_run(text, run, 3);
    struct metrics m;
    struct error err = {0};

    used += (size_t)sprintf(text + used, "{\"step\":4}\n[]\n");
    write_file(test_file, text, used);
    free(read_steps(3));
    assert_int_equal(damage.lines, 2);
    snprintf(expected, sizeof expected, "%s:4: key ", test_file);
    assert_int_equal(strncmp(damage.first.text, expected, strlen(expected)), 0);
    write_file(test_file, "[]\n", 3);
    assert_int_equal(metrics_read(test_file, &m, &damage, &err), -1);
    assert_int_equal(err.code, CODE_DATA);
    assert_string_equal(err.text, damage.first.text);
    unlink(test_file);
    assert_int_equal(metrics_read(test_file, &m, &damage, &err), -1);
    assert_int_equal(err.code, CODE_IO);
    assert_int_equal(metrics_read(test_dir, &m, &damage, &err), -1);
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
    struct test_writer writer;
    struct stat before, after;

    write_file(test_file, text, format_run(text, run, 6) - torn);
    assert_int_equal(stat(test_file, &before), 0);
    writer = open_writer(test_file, resume);
    write_step(&writer, &next);
    end_writer(&writer);
    assert_int_equal(stat(test_file, &after), 0);
    assert_int_equal(after.st_ino, before.st_ino); /* cut in place */
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

/* Behind a link, with another hard link, in a group of its own, and where its directory is not writable. */
static void resume_cuts_the_file_and_changes_nothing_else(void **state)
{
    const double losses[] = {3.5, NAN};
    char text[4 * METRICS_LINE_SIZE], link_to[128], other[128], *now;
    struct metrics_step *run = make_run(3, 3, 4);
    bool root = geteuid() == 0;
    struct stat before, after;
    struct test_writer writer;

    run[1].sets = 2; /* lines are kept with all that they have */
    run[1].set_losses = losses;
    write_file(test_file, text, format_run(text, run, 3));
    snprintf(link_to, sizeof link_to, "%s/link", test_dir);
    snprintf(other, sizeof other, "%s/other", test_dir);
    assert_int_equal(symlink(test_file, link_to), 0);
    assert_int_equal(link(test_file, other), 0);
    assert_int_equal(chmod(test_file, 0640), 0);
    assert_int_equal(root ? chown(test_file, 65534, 4711) : 0, 0);
    assert_int_equal(chmod(test_dir, 0555), 0);
    assert_int_equal(stat(test_file, &before), 0);

    writer = serve_run(&(struct metrics_run){link_to, "77", 2, NULL, NULL}, root ? 65534 : 0);
    assert_string_equal(next_answer(&writer), "o2 0");
    end_writer(&writer);
    assert_int_equal(chmod(test_dir, 0755), 0);
    now = read_file(test_file, NULL);
    assert_int_equal(strlen(now), format_run(text, run, 2));
    assert_memory_equal(now, text, strlen(now));
    assert_int_equal(stat(test_file, &after), 0);
    assert_int_equal(after.st_mode, before.st_mode);
    assert_int_equal(after.st_uid, before.st_uid);
    assert_int_equal(after.st_gid, before.st_gid);
    assert_int_equal(after.st_ino, before.st_ino);
    assert_int_equal(after.st_nlink, 2);
    assert_int_equal(lstat(link_to, &after), 0);
    assert_true(S_ISLNK(after.st_mode));
    assert_int_equal(unlink(link_to), 0);
    assert_int_equal(unlink(other), 0);
    free(now);
    free(run);
}

/* Steps 1, 2, 5, 3: as two writers may have left them. */
static void lines_between_those_that_go_are_kept(void **state)
{
    char text[4 * METRICS_LINE_SIZE];
    struct metrics_step run[] = {make_step(1, 4), make_step(2, 4), make_step(5, 4), make_step(3, 4)}, *steps;
    struct stat before, after;
    struct test_writer writer;

    write_file(test_file, text, format_run(text, run, 4));
    assert_int_equal(chmod(test_file, 0604), 0);
    assert_int_equal(geteuid() == 0 ? chown(test_file, 65534, 4711) : 0, 0);
    assert_int_equal(stat(test_file, &before), 0);
    writer = open_writer(test_file, 3);
    run[2] = make_step(4, 2);
    write_step(&writer, &run[2]);
    end_writer(&writer);
    assert_int_equal(stat(test_file, &after), 0);
    assert_int_equal(after.st_mode, before.st_mode);
    assert_int_equal(after.st_uid, before.st_uid);
    assert_int_equal(after.st_gid, before.st_gid);
    steps = read_steps(4);
    for (long i = 0; i < 4; i++)
        assert_int_equal(steps[i].step, i + 1);
    free(steps);
}

static void resume_says_which_steps_are_missing(void **state)
{
    char text[4 * METRICS_LINE_SIZE], expected[256];
    struct metrics_step run[] = {make_step(1, 4), make_step(2, 4), make_step(5, 4)};

    write_file(test_file, text, format_run(text, run, 2));
    snprintf(expected, sizeof expected, "the metrics %s lack steps 3 to 6\n", test_file);
    assert_string_equal(cut_steps(test_file, 6).said, expected);
    write_file(test_file, text, format_run(text, run, 3));
    snprintf(expected, sizeof expected, "the metrics %s lack steps 3 to 4, and more\n", test_file);
    assert_string_equal(cut_steps(test_file, 6).said, expected);
    assert_string_equal(cut_steps(test_file, 2).said, "");
}

/* By a run that resumes at a step whose validation was interrupted. */
static void a_validation_is_added_to_the_last_line_alone(void **state)
{
    char text[4 * METRICS_LINE_SIZE];
    struct metrics_step *run = make_run(3, 3, 4), *steps;
    struct test_writer writer;

    write_file(test_file, text, format_run(text, run, 3));
    writer = open_writer(test_file, 2);
    send_text(&writer, "v2 ,\"valid_loss\":3.25}\n");
    assert_string_equal(next_answer(&writer), "+");
    send_text(&writer, "v2 ,\"valid_loss\":9}\n"); /* it has one */
    assert_string_equal(next_answer(&writer), "+");
    write_step(&writer, &run[2]);
    end_writer(&writer);
    steps = read_steps(3);
    assert_true(steps[1].validated && !steps[0].validated && !steps[2].validated);
    assert_same_bits(steps[1].valid_loss, 3.25);
    free(steps);
    writer = open_writer(test_file, 2);
    assert_string_equal(writer.answer, "o2 1");
    end_writer(&writer);
    free(run);
}

static void expect_kept(const struct test_writer *writer, const char *text, size_t length)
{
    char path[128], *kept;
    size_t bytes;

    snprintf(path, sizeof path, "%s.damaged", test_file);
    assert_non_null(strstr(writer->said, path));
    kept = read_file(path, &bytes);
    assert_int_equal(bytes, length);
    assert_memory_equal(kept, text, length);
    free(kept);
    assert_int_equal(unlink(path), 0);
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
    struct test_writer writer;

    for (size_t i = 0; i < sizeof damaged_lines / sizeof *damaged_lines; i++)
        for (size_t before = 0; before <= 4; before++) {
            size_t used = format_run(text, run, before), whole = format_run(rest, run, 4);
            size_t length = damaged_lines[i].length;

            memcpy(text + used, damaged_lines[i].text, length);
            memcpy(text + used + length, rest + used, whole - used);
            write_file(test_file, text, whole + length);
            writer = cut_steps(test_file, 3);
            assert_non_null(
                strstr(writer.said, text[used] == '\n' ? "; 3 such lines are left out" : "; 1 such line is"));
            expect_kept(&writer, text, whole + length);
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
    struct test_writer writer;

    write_file(test_file, text, strlen(text));
    writer = cut_steps(test_file, 1);
    assert_non_null(strstr(writer.said, "metrics.jsonl:1: "));
    expect_kept(&writer, text, strlen(text));
    free(read_steps(0));
}

static void a_last_line_without_its_newline_is_kept(void **state)
{
    char text[4 * METRICS_LINE_SIZE];
    struct metrics_step *run = make_run(3, 3, 4);

    write_file(test_file, text, format_run(text, run, 3) - 1);
    cut_steps(test_file, 3);
    free(read_steps(3));
    free(run);
}

static void a_later_releases_keys_are_kept(void **state)
{
    char text[METRICS_LINE_SIZE];
    size_t length = (size_t)snprintf(text, sizeof text, "{\"later\":[1],%s", LINE + 1);
    char *now;

    write_file(test_file, text, length);
    cut_steps(test_file, 1);
    now = read_file(test_file, NULL);
    assert_string_equal(now, text);
    free(now);
}

/* ---- what is no file to append to -------------------------------------------------------------------------------- */

static void expect_refused(const char *path, const char *says)
{
    struct test_writer writer = serve_run(&(struct metrics_run){path, "77", -1, NULL, NULL}, 0);
    char expected[256];

    snprintf(expected, sizeof expected, "xmetrics %s: %s", path, says);
    assert_string_equal(next_answer(&writer), expected);
    end_writer(&writer);
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
    struct test_writer writer;
    char line[METRICS_LINE_SIZE], got[METRICS_LINE_SIZE] = "";
    int fd;

    assert_int_equal(mkfifo(test_file, 0600), 0);
    fd = open(test_file, O_RDONLY | O_NONBLOCK);
    writer = open_writer(test_file, -1);
    write_step(&writer, &step);
    assert_int_equal(read(fd, got, sizeof got - 1), metrics_format(line, &step));
    assert_string_equal(got, line);
    send_text(&writer, "s\n");
    assert_string_equal(next_answer(&writer), "+");
    close(fd);
    send_step(&writer, &step);
    assert_non_null(strstr(next_answer(&writer), "Broken pipe"));
    end_writer(&writer);
}

/* A full disk, played by the limit on a file's size: the kernel writes what fits and refuses the rest. */
static void a_line_cut_short_is_taken_back_and_written_when_there_is_room(void **state)
{
    struct test_writer writer = open_writer(test_file, -1);
    struct metrics_step run[] = {make_step(1, 4), make_step(2, 4), make_step(3, 4)};
    struct rlimit before, limit;

    write_step(&writer, &run[0]);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = before;
    limit.rlim_cur = strlen(LINE) + 100;
    assert_int_equal(prlimit(writer.pid, RLIMIT_FSIZE, &limit, NULL), 0);
    send_step(&writer, &run[1]);
    send_step(&writer, &run[2]);
    assert_non_null(strstr(next_answer(&writer), "!cannot write metrics "));
    free(read_steps(1));
    assert_int_equal(prlimit(writer.pid, RLIMIT_FSIZE, &before, NULL), 0);
    end_writer(&writer); /* it tries again then, and not only after some seconds */
    free(read_steps(3));
}

/* A validation replaces the last line. When this does not fit, and is tried again, the line before it stays. */
static void a_validation_that_does_not_fit_is_added_when_there_is_room(void **state)
{
    struct metrics_step run[] = {make_step(1, 4), make_step(2, 4)}, *now;
    char text[4 * METRICS_LINE_SIZE];
    size_t length = format_run(text, run, 2);
    struct rlimit before, limit;
    struct test_writer writer;

    write_file(test_file, text, length);
    writer = open_writer(test_file, 2);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = before;
    limit.rlim_cur = length;
    assert_int_equal(prlimit(writer.pid, RLIMIT_FSIZE, &limit, NULL), 0);
    send_text(&writer, "v2 ,\"valid_loss\":3.5}\n");
    assert_non_null(strstr(next_answer(&writer), "!cannot write metrics "));
    assert_int_equal(prlimit(writer.pid, RLIMIT_FSIZE, &before, NULL), 0);
    end_writer(&writer);
    now = read_steps(2);
    assert_true(now[1].validated);
    free(now);
}

/* Where the steps after the checkpoint cannot be cut off, they would be there twice. */
static void nothing_is_appended_before_the_file_was_cut(void **state)
{
    struct metrics_step run[] = {make_step(1, 4), make_step(4, 4), make_step(2, 4)};
    char text[4 * METRICS_LINE_SIZE], beside[128];
    size_t length = format_run(text, run, 3), now;
    struct test_writer writer;

    write_file(test_file, text, length);
    snprintf(beside, sizeof beside, "%s.tmp", test_file);
    assert_int_equal(mkdir(beside, 0755), 0); /* where the copy should be */
    writer = serve_run(&(struct metrics_run){test_file, "77", 2, NULL, NULL}, 0);
    assert_non_null(strstr(next_answer(&writer), "!cannot create "));
    run[2] = make_step(3, 4);
    send_step(&writer, &run[2]);
    free(read_file(test_file, &now));
    assert_int_equal(now, length);
    assert_int_equal(rmdir(beside), 0);
    end_writer(&writer);
    free(read_steps(3));
}

/* A file system that does not answer, played by a pipe that is full: no line is lost. */
static void lines_wait_for_a_file_that_does_not_answer(void **state)
{
    enum { LINES = 40, SETS = 100 };
    double losses[SETS];
    struct test_writer writer;
    int fd, lines = 0;
    char text[4096];

    assert_int_equal(mkfifo(test_file, 0600), 0);
    fd = open(test_file, O_RDWR | O_NONBLOCK);
    writer = open_writer(test_file, -1);
    for (int i = 0; i < SETS; i++)
        losses[i] = 1.0 / 3.0 + i;
    for (int i = 1; i <= LINES; i++) { /* more bytes than a pipe takes */
        struct metrics_step step = make_step(i, 4);

        step.sets = SETS;
        step.set_losses = losses;
        send_step(&writer, &step);
    }
    while (lines < LINES) {
        ssize_t got = read(fd, text, sizeof text);

        for (ssize_t i = 0; i < got; i++)
            lines += text[i] == '\n';
    }
    end_writer(&writer);
    close(fd);
}

/* ---- whose file it is -------------------------------------------------------------------------------------------- */

static void another_live_run_writes_beside_the_file(void **state)
{
    struct metrics_step step = make_step(1, 4);
    struct test_writer first = open_writer(test_file, -1), second;
    char other[128], expected[512];

    write_step(&first, &step);
    snprintf(other, sizeof other, "%s.78", test_file);
    snprintf(expected, sizeof expected, "another run has the metrics %s: those of this run are in %s\n", test_file,
             other);
    for (int resumed = 0; resumed < 2; resumed++) { /* it goes on there, also when the first has ended */
        struct metrics_step next = make_step(resumed + 1, 2);

        second = serve_run(&(struct metrics_run){test_file, "78", resumed ? 1 : -1, NULL, NULL}, 0);
        assert_string_equal(next_answer(&second), resumed ? "o1 0" : "o0 0");
        assert_string_equal(second.said, expected);
        write_step(&second, &next);
        end_writer(&second);
        if (resumed == 0)
            end_writer(&first);
    }
    assert_string_equal(first.said, "");
    free(read_steps(1));
    strcpy(test_file, other);
    free(read_steps(2));
    assert_int_equal(unlink(other), 0);
    *strrchr(test_file, '.') = '\0';
}

static void a_resumed_run_waits_for_its_earlier_writer(void **state)
{
    struct metrics_step run[] = {make_step(1, 4), make_step(2, 4)};
    struct test_writer first = open_writer(test_file, -1), second;

    write_step(&first, &run[0]);
    second = serve_run(&(struct metrics_run){test_file, "78", 1, NULL, NULL},
                       0); /* of another job, on the same checkpoints */
    sleep(2);
    end_writer(&first);
    assert_string_equal(next_answer(&second), "o1 0");
    write_step(&second, &run[1]);
    end_writer(&second);
    assert_string_equal(second.said, "");
    free(read_steps(2));
}

static void a_new_run_keeps_the_lines_of_an_earlier_one(void **state)
{
    char old[128], link_to[128];
    struct metrics_step step = make_step(1, 4);
    struct test_writer writer = open_writer(test_file, -1);

    write_step(&writer, &step);
    end_writer(&writer);
    snprintf(old, sizeof old, "%s.old", test_file);
    snprintf(link_to, sizeof link_to, "%s/link", test_dir);
    assert_int_equal(symlink(test_file, link_to), 0);
    writer = cut_steps(link_to, -1);
    assert_non_null(strstr(writer.said, "the metrics of an earlier run are now "));
    free(read_steps(0));
    assert_int_equal(rename(old, test_file), 0);
    free(read_steps(1));
    assert_int_equal(chmod(test_dir, 0555), 0);
    assert_int_equal(geteuid() == 0 ? chown(test_file, 65534, 65534) : 0, 0);
    writer = serve_run(&(struct metrics_run){test_file, "77", -1, NULL, NULL}, geteuid() == 0 ? 65534 : 0);
    assert_non_null(strstr(next_answer(&writer), "!cannot keep the metrics of an earlier run as "));
    end_writer(&writer);
    assert_int_equal(chmod(test_dir, 0755), 0);
    free(read_steps(1));
    assert_int_equal(unlink(link_to), 0);
}

static void another_file_of_the_name_is_said_once(void **state)
{
    struct metrics_step step = make_step(1, 4);
    struct test_writer writer = open_writer(test_file, -1);
    char *said;

    assert_int_equal(unlink(test_file), 0);
    write_step(&writer, &step);
    said = strstr(writer.said, " were replaced or removed: does another job run in this directory?");
    assert_non_null(said);
    write_step(&writer, &step);
    assert_null(strstr(strchr(said, '\n'), "replaced"));
    end_writer(&writer);
}

/* Another user's link in a directory like /tmp leads to nothing, whatever the kernel's fs.protected_symlinks is. */
static void another_users_link_in_a_shared_directory_is_not_followed(void **state)
{
    static const char text[] = "a diary\n";
    struct test_writer writer;
    char mine[128], *now;

    if (geteuid() != 0)
        skip(); /* it needs two users */
    snprintf(mine, sizeof mine, "%s/mine", test_dir);
    write_file(mine, text, strlen(text));
    assert_int_equal(chmod(test_dir, 01777), 0);
    assert_int_equal(symlink(mine, test_file), 0);
    assert_int_equal(lchown(test_file, 65534, 65534), 0);
    writer = serve_run(&(struct metrics_run){test_file, "77", -1, NULL, NULL}, 0);
    assert_non_null(strstr(next_answer(&writer), ": another user's link, in a directory that all may write to"));
    end_writer(&writer);
    now = read_file(mine, NULL);
    assert_string_equal(now, text);
    free(now);
    assert_int_equal(unlink(mine), 0);
}

static void a_missing_directory_is_tried_again(void **state)
{
    struct test_writer writer = serve_run(&(struct metrics_run){"/nonexistent/metrics.jsonl", "77", -1, NULL, NULL}, 0);

    assert_string_equal(next_answer(&writer),
                        "!cannot open metrics /nonexistent/metrics.jsonl: No such file or directory");
    end_writer(&writer);
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

static void send_start(struct test_writer *w, const struct metrics_start *start)
{
    char line[METRICS_LINE_SIZE + 1] = "e";

    line[1 + metrics_format_start(line + 1, start)] = '\0';
    send_text(w, line);
    assert_string_equal(next_answer(w), "+");
}

/* Beside the file, a line for each time that the run began or went on. */
static void the_starts_of_a_run_are_kept(void **state)
{
    char text[4 * METRICS_LINE_SIZE], name[2][128];
    struct metrics_step run[] = {make_step(1, 4), make_step(2, 4), make_step(3, 4)};
    struct metrics_start start = {.step = 2,
                                  .repeated = 1,
                                  .last = 1764400003.25,
                                  .job = "17.1",
                                  .job_began = 1764400000,
                                  .drain_seconds = 0.5,
                                  .ready = 1764400010,
                                  .fault = 1764400004.125,
                                  .ended = 1764400006,
                                  .checked = 1764400007,
                                  .nodes = "n2,n3",
                                  .cause = "rank 1 on \"n2\" is dead"};
    struct test_writer writer;
    struct metrics m;
    struct error err;

    run[2].time = start.last;
    write_file(test_file, text, format_run(text, run, 3));
    snprintf(name[0], sizeof name[0], "%s.events", test_file);
    write_file(name[0], "{\"event\":\"sta", 13); /* torn */
    writer = open_writer(test_file, 2);
    send_start(&writer, &start);
    send_start(&writer, &(struct metrics_start){.first_step = 1764400012});
    send_start(&writer, &(struct metrics_start){.first_step = 1764409999}); /* of a start whose line is lost */
    send_text(&writer, "e[]\n");
    assert_string_equal(next_answer(&writer), "+");
    end_writer(&writer);
    assert_int_equal(metrics_read(test_file, &m, &damage, &err), 0);
    snprintf(text, sizeof text, "%s:1: not an event", name[0]);
    assert_string_equal(damage.first.text, text);
    assert_int_equal(damage.lines, 2);
    assert_int_equal(m.nstarts, 1);
    start.first_step = 1764400012;
    assert_memory_equal(&m.starts[0], &start, sizeof start);
    metrics_free(&m);

    end_writer(&(struct test_writer[]){open_writer(test_file, -1)}[0]); /* a new run */
    snprintf(name[0], sizeof name[0], "%s.old", test_file);
    snprintf(name[1], sizeof name[1], "%s.old.events", test_file);
    assert_int_equal(unlink(name[0]), 0);
    assert_int_equal(unlink(name[1]), 0);
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
        cmocka_unit_test_setup_teardown(resume_cuts_the_file_and_changes_nothing_else, make_dir, remove_dir),
        WITH_DIR(lines_between_those_that_go_are_kept),
        WITH_DIR(resume_says_which_steps_are_missing),
        WITH_DIR(a_validation_is_added_to_the_last_line_alone),
        WITH_DIR(a_damaged_line_costs_no_other),
        WITH_DIR(what_is_left_out_is_kept_beside_the_file),
        WITH_DIR(a_last_line_without_its_newline_is_kept),
        WITH_DIR(a_later_releases_keys_are_kept),
        WITH_DIR(what_is_no_file_is_refused_at_once),
        WITH_DIR(a_fifo_with_a_reader_gets_the_lines),
        WITH_DIR(a_line_cut_short_is_taken_back_and_written_when_there_is_room),
        WITH_DIR(a_validation_that_does_not_fit_is_added_when_there_is_room),
        cmocka_unit_test_setup_teardown(nothing_is_appended_before_the_file_was_cut, make_dir, remove_dir),
        WITH_DIR(lines_wait_for_a_file_that_does_not_answer),
        WITH_DIR(another_live_run_writes_beside_the_file),
        WITH_DIR(a_resumed_run_waits_for_its_earlier_writer),
        WITH_DIR(a_new_run_keeps_the_lines_of_an_earlier_one),
        WITH_DIR(another_file_of_the_name_is_said_once),
        cmocka_unit_test_setup_teardown(another_users_link_in_a_shared_directory_is_not_followed, make_dir, remove_dir),
        cmocka_unit_test(a_missing_directory_is_tried_again),
        cmocka_unit_test(other_conventions_are_kept),
        WITH_DIR(the_starts_of_a_run_are_kept),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
