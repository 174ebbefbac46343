#include "tests/unit/test_report.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "common/crc32c.h"
#include "trainer/report/event.pb-c.h"

static char board[128]; /* the directory of event files, in test_dir */

/* The steps that TensorBoard shows, in its order; of each, what the tests look at. */
static struct shown {
    long step;
    double time;
    float loss, validation; /* -1: it has none */
    size_t values;
} shown[64];
static int shown_count, starts, torn; /* torn: files that end with a part of a record */

static int make_board(void **state)
{
    int result = make_dir(state);

    snprintf(board, sizeof board, "%s/board", test_dir);
    return result;
}

static int is_visible(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

static void empty_board(void)
{
    struct dirent **files;
    int count = scandir(board, &files, is_visible, alphasort);
    char path[512];

    for (int i = 0; i < count; i++) {
        snprintf(path, sizeof path, "%s/%s", board, files[i]->d_name);
        unlink(path);
        free(files[i]);
    }
    if (count >= 0)
        free(files);
    rmdir(board);
}

static int remove_board(void **state)
{
    empty_board();
    return remove_dir(state);
}

static void show_summary(const Tensorboard__Event *event)
{
    struct shown *s = NULL;

    for (int i = 0; i < shown_count; i++) /* a validation that was added */
        if (shown[i].step == event->step)
            s = &shown[i];
    if (!s) {
        s = &shown[shown_count++];
        *s = (struct shown){.step = event->step, .loss = -1, .validation = -1};
    }
    s->time = event->wall_time;
    s->values += event->summary->n_value;
    for (size_t i = 0; i < event->summary->n_value; i++) {
        const Tensorboard__Summary__Value *value = event->summary->value[i];
        float *at = strcmp(value->tag, "train/loss") == 0        ? &s->loss
                    : strcmp(value->tag, "validation/loss") == 0 ? &s->validation
                                                                 : NULL;

        if (at) {
            assert_true(*at == -1); /* once */
            *at = value->simple_value;
        }
    }
}

static void check_sum(const char *data, size_t bytes, const char *stored)
{
    uint32_t crc = crc32c(0, data, bytes), wanted = (crc >> 15 | crc << 17) + 0xa282ead8u;

    assert_memory_equal(&wanted, stored, sizeof wanted);
}

static void show_record(const char *data, size_t bytes, bool first)
{
    Tensorboard__Event *event = tensorboard__event__unpack(NULL, bytes, (const uint8_t *)data);

    assert_non_null(event);
    if (first) {
        assert_string_equal(event->file_version, "brain.Event:2");
    } else if (event->session_log) {
        starts++;
        while (shown_count > 0 && shown[shown_count - 1].step >= event->step)
            shown_count--;
    } else {
        show_summary(event);
    }
    tensorboard__event__free_unpacked(event, NULL);
}

/* Reads all event files; how many there are. */
static int show_files(void)
{
    struct dirent **files;
    int count = scandir(board, &files, is_visible, alphasort);
    char path[512], *text;
    size_t size;

    shown_count = starts = torn = 0;
    for (int i = 0; i < count; i++) {
        assert_int_equal(strncmp(files[i]->d_name, "events.out.tfevents.", 20), 0);
        snprintf(path, sizeof path, "%s/%s", board, files[i]->d_name);
        text = read_file(path, &size);
        for (size_t at = 0, bytes; at < size; at += bytes + 16) {
            memcpy(&bytes, text + at, sizeof bytes);
            if (at + 16 > size || at + bytes + 16 > size) {
                torn++;
                break;
            }
            check_sum(text + at, 8, text + at + 8);
            check_sum(text + at + 12, bytes, text + at + 12 + bytes);
            show_record(text + at + 12, bytes, at == 0);
        }
        free(text);
        free(files[i]);
    }
    if (count >= 0)
        free(files);
    return count;
}

/* Each of the steps 1 to `count` is there once. */
static void expect_steps(int files, int count)
{
    assert_int_equal(show_files(), files);
    assert_int_equal(torn, 0);
    assert_int_equal(shown_count, count);
    for (int i = 0; i < count; i++) {
        assert_int_equal(shown[i].step, i + 1);
        assert_true(shown[i].loss == (float)make_step(i + 1, 4).loss);
    }
}

static struct test_writer serve_board(const char *dir, long after)
{
    struct test_writer w = serve_run(&(struct metrics_run){test_file, "77", after, dir, NULL}, 0);

    assert_int_equal(*next_answer(&w), 'o');
    return w;
}

static void write_steps(struct test_writer *w, long first, long last)
{
    for (long step = first; step <= last; step++) {
        struct metrics_step s = make_step(step, 4);

        write_step(w, &s);
    }
}

/* A run that does these steps and ends. */
static void run_steps(const char *dir, long after, long last)
{
    struct test_writer w = serve_board(dir, after);

    write_steps(&w, after < 0 ? 1 : after + 1, last);
    end_writer(&w);
    assert_string_equal(w.said, "");
}

/* ---- */

static void a_line_is_an_event(void **state)
{
    struct metrics_step step = make_step(1, 4);
    struct test_writer w = serve_board(board, -1);
    mode_t mask = umask(0);
    struct stat now;

    umask(mask);
    step.time = 1764400000.5;
    write_step(&w, &step);
    step.step = 2;
    step.loss = step.grad_norm = NAN;
    step.order_loss = 0.5;
    step.validated = true;
    write_step(&w, &step);
    end_writer(&w);
    assert_int_equal(show_files(), 1);
    assert_int_equal(starts, 1);
    assert_int_equal(shown_count, 2);
    assert_true(shown[0].time == 1764400000.5 && shown[0].loss == 11 && shown[0].validation == -1);
    assert_int_equal(shown[0].values, 11);
    assert_true(isnan(shown[1].loss) && isnan(shown[1].validation));
    assert_int_equal(shown[1].values, 12); /* without grad_norm, with order_loss and a validation of nothing */
    assert_int_equal(stat(board, &now), 0);
    assert_int_equal(now.st_mode & 0777, 0777 & ~mask);
}

static void a_resumed_run_goes_on_without_overlap(void **state)
{
    run_steps(board, -1, 6);
    run_steps(board, 4, 9);
    expect_steps(2, 9);
    run_steps(board, 9, 9); /* nothing was left to do */
    run_steps(board, 2, 3);
    expect_steps(4, 3);
    assert_int_equal(starts, 4);
    assert_int_equal(unlink(test_file), 0);
    run_steps(board, -1, 2); /* a new run hides an earlier one */
    expect_steps(5, 2);
}

/* In both orders: TensorBoard's fast loader forgets by steps, the other one by marks. */
static void a_validation_that_was_cut_off_is_forgotten(void **state)
{
    run_steps(board, -1, 51);
    run_steps(board, 51, 51);
    assert_int_equal(show_files(), 2);
    assert_int_equal(shown[shown_count - 2].step, 50);
    run_steps(board, 49, 49);
    expect_steps(3, 49);
}

static void an_interrupted_validation_is_added(void **state)
{
    struct test_writer w;

    run_steps(board, -1, 3);
    w = serve_board(board, 3);
    send_text(&w, "v3 ,\"valid_loss\":3.25}\n");
    assert_string_equal(next_answer(&w), "+");
    write_steps(&w, 4, 5);
    end_writer(&w);
    expect_steps(2, 5);
    assert_true(shown[2].validation == 3.25f && shown[3].validation == -1);
}

static void earlier_steps_come_first_where_there_are_no_events_of_them(void **state)
{
    run_steps(NULL, -1, 5);
    run_steps(board, 5, 7);
    expect_steps(1, 7);
    run_steps(NULL, 7, 9);
    run_steps(board, 8, 10);
    expect_steps(2, 10);
}

/* By a power loss or a node that was lost: the steps of the lost records are written again. */
static void a_torn_file_costs_no_step(void **state)
{
    struct dirent **files;
    char path[512];
    struct stat now;

    run_steps(board, -1, 5);
    assert_int_equal(scandir(board, &files, is_visible, alphasort), 1);
    snprintf(path, sizeof path, "%s/%s", board, files[0]->d_name);
    free(files[0]);
    free(files);
    assert_int_equal(stat(path, &now), 0);
    assert_int_equal(truncate(path, now.st_size - 500), 0);
    run_steps(board, 5, 6);
    assert_int_equal(show_files(), 2);
    assert_int_equal(torn, 1);
    assert_int_equal(shown_count, 6);
    assert_int_equal(shown[5].step, 6);
}

/* A full disk, played by the limit on a file's size: the events need more than the lines. */
static void a_full_disk_is_said_once_and_costs_no_step(void **state)
{
    struct test_writer w = serve_board(board, -1);
    struct rlimit before, limit;

    write_steps(&w, 1, 1);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = before;
    limit.rlim_cur = 800;
    assert_int_equal(prlimit(w.pid, RLIMIT_FSIZE, &limit, NULL), 0);
    write_steps(&w, 2, 3);
    send_text(&w, "s\n"); /* its answer follows the events of step 3 */
    assert_string_equal(next_answer(&w), "+");
    assert_int_equal(prlimit(w.pid, RLIMIT_FSIZE, &before, NULL), 0);
    write_steps(&w, 4, 5);
    end_writer(&w);
    assert_non_null(strstr(w.said, "TensorBoard's events cannot be written, which is tried again; training goes on: "));
    assert_string_equal(strchr(w.said, '\n'), "\nTensorBoard's events can be written again\n");
    expect_steps(1, 5);
}

static void a_directory_that_is_missing_is_said_once_and_costs_no_step(void **state)
{
    char above[128], expected[512];
    struct test_writer w;

    strcpy(above, board);
    strcat(board, "/inner");
    w = serve_board(board, -1);
    write_steps(&w, 1, 3);
    assert_int_equal(mkdir(above, 0755), 0);
    end_writer(&w);
    snprintf(expected, sizeof expected,
             "TensorBoard's events cannot be written, which is tried again; training goes on: cannot make %s: No such "
             "file or directory\nTensorBoard's events can be written again\n",
             board);
    assert_string_equal(w.said, expected);
    expect_steps(1, 3);
    empty_board();
    strcpy(board, above);
}

static void another_live_run_has_a_directory_of_its_own(void **state)
{
    struct test_writer first = serve_board(board, -1), second;
    char name[160];

    write_steps(&first, 1, 3);
    second = serve_run(&(struct metrics_run){test_file, "78", -1, board, NULL}, 0);
    assert_int_equal(*next_answer(&second), 'o');
    write_steps(&second, 1, 2);
    end_writer(&second);
    end_writer(&first);
    expect_steps(1, 3);
    snprintf(name, sizeof name, "%s.78", test_file);
    assert_int_equal(unlink(name), 0);
    empty_board();
    strcat(board, ".78");
    expect_steps(1, 2);
}

static void metrics_that_are_no_file_have_no_events(void **state)
{
    struct test_writer w;
    int fd;

    assert_int_equal(mkfifo(test_file, 0600), 0);
    fd = open(test_file, O_RDONLY | O_NONBLOCK);
    w = serve_board(board, -1);
    write_steps(&w, 1, 1);
    end_writer(&w);
    close(fd);
    assert_non_null(strstr(w.said, "there are no event files for TensorBoard: the metrics "));
    assert_int_equal(show_files(), -1);
}

#define WITH_BOARD(test) cmocka_unit_test_setup_teardown(test, make_board, remove_board)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_BOARD(a_line_is_an_event),
        WITH_BOARD(a_resumed_run_goes_on_without_overlap),
        WITH_BOARD(a_validation_that_was_cut_off_is_forgotten),
        WITH_BOARD(an_interrupted_validation_is_added),
        WITH_BOARD(earlier_steps_come_first_where_there_are_no_events_of_them),
        WITH_BOARD(a_torn_file_costs_no_step),
        WITH_BOARD(a_full_disk_is_said_once_and_costs_no_step),
        WITH_BOARD(a_directory_that_is_missing_is_said_once_and_costs_no_step),
        WITH_BOARD(another_live_run_has_a_directory_of_its_own),
        WITH_BOARD(metrics_that_are_no_file_have_no_events),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
