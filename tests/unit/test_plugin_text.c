/* What the plugin writes for itself and for programs: SLURM_MUSTER_STEP and JSON. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "srun-plugin/handoff.h"
#include "common/json_write.h"

static void a_handoff_arrives_as_it_was_sent(void **state)
{
    const struct handoff sent = {.head = "10.0.0.1",
                                 .peer = "nid00007",
                                 .head_node = 12,
                                 .port = 17499,
                                 .cpus_inherited = true,
                                 .user_binds = true,
                                 .ordered = true,
                                 .mapped = true,
                                 .cpus_are_cores = true};
    struct handoff came;
    char text[HANDOFF_SIZE];

    (void)state;
    handoff_read(handoff_text(&sent, text), &came);
    assert_true(came.here);
    assert_string_equal(came.head, sent.head);
    assert_string_equal(came.peer, sent.peer);
    assert_int_equal(came.head_node, 12);
    assert_int_equal(came.port, 17499);
    assert_true(came.cpus_inherited && came.user_binds && came.ordered && came.mapped && came.cpus_are_cores);
    handoff_read(handoff_text(&(struct handoff){.head = "two words"}, text), &came);
    assert_string_equal(came.head, "");
    assert_false(came.cpus_inherited || came.user_binds || came.ordered || came.mapped || came.cpus_are_cores);
}

static void nonsense_is_passed_over(void **state)
{
    static char longest[4 * HANDOFF_SIZE];
    struct handoff came;

    (void)state;
    handoff_read(NULL, &came);
    assert_false(came.here);
    handoff_read("", &came);
    assert_true(came.here);
    handoff_read("= head =x mapped=2 port=99999999999 head=a later=1 head_node=-", &came);
    assert_string_equal(came.head, "a");
    assert_false(came.mapped);
    assert_in_range(came.port, 0, 65535);
    memset(longest, 'h', sizeof longest - 1);
    memcpy(longest, "head=", 5);
    handoff_read(longest, &came);
    assert_int_equal(strlen(came.head), HANDOFF_ADDRESS_SIZE - 1);
}

static json_t *quoted(const char *text)
{
    char *out = NULL;
    size_t size;
    FILE *file = open_memstream(&out, &size);
    json_t *value;

    json_quote(file, text);
    fclose(file);
    value = json_loads(out, JSON_DECODE_ANY, NULL);
    if (!value)
        fail_msg("no JSON: %s", out);
    free(out);
    return value;
}

static void any_bytes_make_a_string(void **state)
{
    static const char *const good[] = {
        "", "plain", "a \"b\" \\c", "tab\tnew\nline\x01", "h\xc3\xb6he", "\xe2\x82\xac \xf0\x9f\x9a\x80"};
    static const char *const bad[] = {"\xff", "a\xc3", "\xc0\x80", "\xed\xa0\x80", "\xf5\x80\x80\x80", "\xe2\x82"};
    json_t *value;

    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        value = quoted(good[i]);
        assert_string_equal(json_string_value(value), good[i]);
        json_decref(value);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        value = quoted(bad[i]);
        assert_non_null(strstr(json_string_value(value), "\xef\xbf\xbd"));
        json_decref(value);
    }
    value = quoted(NULL);
    assert_true(json_is_null(value));
    json_decref(value);
}

static void random_bytes_make_a_string(void **state)
{
    unsigned seed = 7;

    (void)state;
    for (int round = 0; round < 3000; round++) {
        char text[12] = "";

        for (size_t i = 0; i + 1 < sizeof text; i++)
            text[i] = (char)(rand_r(&seed) % 255 + 1);
        json_decref(quoted(text));
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_handoff_arrives_as_it_was_sent),
        cmocka_unit_test(nonsense_is_passed_over),
        cmocka_unit_test(any_bytes_make_a_string),
        cmocka_unit_test(random_bytes_make_a_string),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
