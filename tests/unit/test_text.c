/* Numbers in texts are taken whole or not at all; files are read to their end, and FIFOs do not hang. */
#include <sys/stat.h>
#include <unistd.h>

#include "common/text.h"
#include "tests/cmocka_test.h"

static void integers_are_whole_and_in_range(void **state)
{
    static const char *const bad[] = {"", " 1", "1 ", "1x", "x", "11", "-1", "1e0", "99999999999999999999", "0x1"};
    long value = 7;

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_false(text_to_long(bad[i], 0, 10, &value));
    assert_int_equal(value, 7);
    assert_true(text_to_long("10", 0, 10, &value));
    assert_int_equal(value, 10);
    assert_true(text_to_long("-3", -3, 10, &value));
    assert_int_equal(value, -3);
}

static void numbers_are_finite_and_in_range(void **state)
{
    static const char *const bad[] = {"", " 1", "1 ", "nan", "inf", "1e400", "2", "-1", "0,5"};
    double value = 7;

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_false(text_to_double(bad[i], 0, 1, &value));
    assert_true(value == 7);
    assert_true(text_to_double("5e-1", 0, 1, &value));
    assert_true(value == 0.5);
}

static void numbers_are_taken_one_by_one(void **state)
{
    const char *text = "12-007,99";
    long value = 0;

    assert_true(text_take_number(&text, 12, &value));
    assert_int_equal(value, 12);
    assert_false(text_take_number(&text, 99, &value)); /* "-" */
    assert_string_equal(text++, "-007,99");
    assert_true(text_take_number(&text, 7, &value));
    assert_int_equal(value, 7);
    text++;
    assert_false(text_take_number(&text, 98, &value));
    assert_string_equal(text, "99");
    text = "9223372036854775808";
    assert_false(text_take_number(&text, INT64_MAX, &value));
    text = "9223372036854775807";
    assert_true(text_take_number(&text, INT64_MAX, &value));
    assert_true(value == INT64_MAX);
}

static void files_are_read_whole(void **state)
{
    char path[] = "/tmp/muster-test-text.XXXXXX", fifo[64];
    int fd = mkstemp(path);
    struct error err;
    size_t bytes = 0;
    char *text;

    assert_true(fd >= 0 && write(fd, "a\0b", 3) == 3);
    text = text_read_file(path, 3, &bytes, &err);
    assert_non_null(text);
    assert_int_equal(bytes, 3);
    assert_memory_equal(text, "a\0b", 4);
    free(text);
    assert_null(text_read_file(path, 2, &bytes, &err));
    assert_int_equal(err.code, CODE_DATA);
    close(fd);
    unlink(path);
    assert_null(text_read_file(path, 3, NULL, &err));
    assert_int_equal(err.code, CODE_IO);
    assert_null(text_read_file("/tmp", 3, NULL, &err));
    assert_int_equal(err.code, CODE_DATA);
    snprintf(fifo, sizeof fifo, "%s.fifo", path);
    assert_int_equal(mkfifo(fifo, 0600), 0);
    assert_null(text_read_file(fifo, 3, NULL, &err));
    assert_int_equal(err.code, CODE_DATA);
    unlink(fifo);
    text = text_read_file("/proc/self/status", 1 << 20, &bytes, &err); /* whose size is 0 for stat */
    assert_non_null(text);
    assert_true(bytes > 100 && strlen(text) == bytes);
    free(text);
}

static char said[500];

static void keep_notice(const char *line)
{
    strcat(said, line);
}

static void a_byte_order_mark_is_dropped_and_said(void **state)
{
    char path[] = "/tmp/muster-test-text.XXXXXX", expected[200];
    int fd = mkstemp(path);
    size_t bytes = 0;
    char *text;

    text_notice = keep_notice;
    assert_true(fd >= 0 && write(fd, "\xef\xbb\xbf\xef\xbb\xbf", 6) == 6 && write(fd, "a\0b", 3) == 3);
    text = text_load(path, 9, &bytes, NULL);
    assert_non_null(text);
    assert_int_equal(bytes, 6); /* only the first is a mark */
    assert_memory_equal(text,
                        "\xef\xbb\xbf"
                        "a\0b",
                        7);
    free(text);
    snprintf(expected, sizeof expected, "%s begins with a byte order mark: such marks are dropped", path);
    assert_string_equal(said, expected);
    assert_null(text_load(path, 8, NULL, NULL));
    close(fd);
    unlink(path);
    said[0] = 0;
    assert_int_equal(text_mark("\xef\xbb\xbf", 3, "a\nb"), 3);
    assert_string_equal(said, "a b begins with a byte order mark: such marks are dropped");
    assert_int_equal(text_mark("\xef\xbb\xbf", 2, "x") + text_mark("\xef\xbb\xbe", 3, "x"), 0);
    text_notice = NULL;
    assert_int_equal(text_mark("\xef\xbb\xbf", 3, "x"), 3);
    assert_null(strchr(said, 'x'));
}

/* At every place among ASCII, with the end of the text right behind it. */
static void the_end_of_utf8_is_found(void **state)
{
    static const struct {
        const char *character;
        size_t good; /* bytes of it */
    } rows[] = {
        {"a", 1},
        {"\xc3\xa9", 2},
        {"\xe2\x82\xac", 3},
        {"\xf0\x9f\x98\x80", 4},
        {"\xff", 0},
        {"\x80", 0},
        {"\xc3", 0},
        {"\xe2\x82", 0},
        {"\xf0\x9f\x98", 0},
        {"\xc0\x80", 0},
        {"\xed\xa0\x80", 0},
        {"\xf4\x90\x80\x80", 0},
    };

    for (size_t row = 0; row < sizeof rows / sizeof rows[0]; row++)
        for (size_t before = 0; before < 20; before++) {
            size_t length = strlen(rows[row].character), bytes = before + length;
            char *text = malloc(bytes);

            assert_non_null(text);
            memset(text, 'x', before);
            memcpy(text + before, rows[row].character, length);
            assert_int_equal(text_utf8_end(text, bytes), rows[row].good ? bytes : before);
            free(text);
        }
    assert_int_equal(text_utf8_end("a\0b", 3), 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(integers_are_whole_and_in_range), cmocka_unit_test(numbers_are_finite_and_in_range),
        cmocka_unit_test(numbers_are_taken_one_by_one),    cmocka_unit_test(files_are_read_whole),
        cmocka_unit_test(the_end_of_utf8_is_found),        cmocka_unit_test(a_byte_order_mark_is_dropped_and_said),
    };

    return cmocka_run_group_tests_name("text", tests, NULL, NULL);
}
