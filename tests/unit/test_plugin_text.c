/* What the plugin writes for itself and for programs: SLURM_MUSTER_STEP and JSON. */
#include <jansson.h>

#include "common/text.h"
#include "srun-plugin/spank/handoff.h"
#include "tests/cmocka_test.h"

/* Reads the text and frees it. */
static void read_own(char *text, struct handoff *handoff)
{
    struct error err = {0};

    if (!text || handoff_read(text, handoff, &err) < 0)
        fail_msg("%s", err.text);
    free(text);
}

static void a_plan_arrives_as_it_was_sent(void **state)
{
    struct handoff sent = {.step_known = true,
                           .master_address = "10.0.0.1",
                           .peer = "nid00007",
                           .rank0_node = 8191,
                           .port = 17499,
                           .exit_code = 76,
                           .cpus_inherited = true,
                           .user_binds = true,
                           .by_hostfile = true,
                           .by_map = true,
                           .cpus_are_cores = true,
                           .job_file = "/home/a user/100%/g\xc3\xb6.cfg"};
    struct handoff came;

    assert_int_equal(file_variables_add(&sent.variables, "NCCL_DEBUG", "INFO", 12, NULL), 0);
    assert_int_equal(file_variables_add(&sent.variables, "A", "b=c d%20 \t:e", 13, NULL), 0);
    assert_int_equal(file_variables_add(&sent.variables, "EMPTY", "", 14, NULL), 0);
    read_own(handoff_text(&sent, NULL), &came);
    assert_string_equal(came.master_address, sent.master_address);
    assert_string_equal(came.peer, sent.peer);
    assert_string_equal(came.job_file, sent.job_file);
    assert_int_equal(came.rank0_node, 8191);
    assert_int_equal(came.port, 17499);
    assert_int_equal(came.exit_code, 76);
    assert_true(came.step_known && came.cpus_inherited && came.user_binds && came.by_hostfile && came.by_map &&
                came.cpus_are_cores);
    assert_int_equal(came.variables.count, 3);
    for (size_t i = 0; i < 3; i++) {
        assert_string_equal(came.variables.items[i].name, sent.variables.items[i].name);
        assert_string_equal(came.variables.items[i].value, sent.variables.items[i].value);
        assert_int_equal(came.variables.items[i].line, sent.variables.items[i].line);
    }
    handoff_clear(&came);
    handoff_clear(&sent);
    read_own(handoff_text(&(struct handoff){.port = 0}, NULL), &came);
    assert_false(came.step_known || came.cpus_inherited || came.user_binds || came.by_hostfile || came.by_map ||
                 came.cpus_are_cores || came.exit_code || came.variables.count || came.job_file[0]);
}

/* What the first release's srun sends (doc/COMPATIBILITY.md): every later node must read it. */
static void a_plan_of_format_1_is_read(void **state)
{
    struct handoff came;

    read_own(
        strdup("1 head=10.0.0.1 peer=n2 head_node=3 port=17499 refused=76 complete=1 cpus_inherited=1 user_binds=1 "
               "by_hostfile=1 by_map=1 cpus_are_cores=1 job_file=/u/a%20b.cfg env=12:NCCL_DEBUG=INFO"),
        &came);
    assert_string_equal(came.master_address, "10.0.0.1");
    assert_string_equal(came.peer, "n2");
    assert_int_equal(came.rank0_node, 3);
    assert_int_equal(came.port, 17499);
    assert_int_equal(came.exit_code, 76);
    assert_true(came.step_known && came.cpus_inherited && came.user_binds && came.by_hostfile && came.by_map &&
                came.cpus_are_cores);
    assert_string_equal(came.job_file, "/u/a b.cfg");
    assert_int_equal(came.variables.count, 1);
    assert_int_equal(came.variables.items[0].line, 12);
    assert_string_equal(came.variables.items[0].name, "NCCL_DEBUG");
    assert_string_equal(came.variables.items[0].value, "INFO");
    handoff_clear(&came);
}

static void unknown_keys_and_bad_values_are_ignored(void **state)
{
    char longest[2 * HANDOFF_ADDRESS_SIZE] = "1 head=";
    struct handoff came;

    read_own(strdup("1 = head =x by_map=2 port=99999999999 refused=-1 head=a%zz%2 later=1 head_node=- env=A env=A=1 "
                    "env=:B=2"),
             &came);
    assert_string_equal(came.master_address, "a%zz%2");
    assert_false(came.by_map || came.port || came.exit_code || came.rank0_node);
    assert_int_equal(came.variables.count, 1);
    assert_string_equal(came.variables.items[0].name, "B");
    handoff_clear(&came);
    memset(longest + 7, 'h', sizeof longest - 8);
    read_own(strdup(longest), &came);
    assert_string_equal(came.master_address, "");
}

/* Of another release of muster: its keys may mean something else. */
static void another_format_is_refused(void **state)
{
    static const char *const texts[] = {
        "", " ", "2 head=a", "head=a port=1", "1head=a", "-1 head=a", "99999999999999999999"};
    struct handoff came;
    struct error err;

    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        assert_int_equal(handoff_read(texts[i], &came, &err), -1);
        assert_int_equal(err.code, CODE_DATA);
        assert_non_null(strstr(err.text, "SLURM_MUSTER_STEP"));
        assert_string_equal(came.master_address, "");
    }
}

/* A variable that Linux can pass to a program. */
static void too_many_variables_are_refused(void **state)
{
    struct handoff handoff = {.port = 1};
    char value[1025], *text;
    struct error err;

    memset(value, 'v', sizeof value - 1);
    value[sizeof value - 1] = '\0';
    for (int i = 0; i < 90; i++)
        assert_int_equal(file_variables_add(&handoff.variables, "NAME", value, i, NULL), 0);
    text = handoff_text(&handoff, &err);
    assert_non_null(text);
    assert_in_range(strlen(text), 90 * 1024, HANDOFF_MOST);
    free(text);
    for (int i = 0; i < 8; i++)
        assert_int_equal(file_variables_add(&handoff.variables, "NAME", value, i, NULL), 0);
    assert_null(handoff_text(&handoff, &err));
    assert_int_equal(err.code, CODE_CONFIG);
    handoff_clear(&handoff);
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
        cmocka_unit_test(a_plan_arrives_as_it_was_sent),
        cmocka_unit_test(a_plan_of_format_1_is_read),
        cmocka_unit_test(unknown_keys_and_bad_values_are_ignored),
        cmocka_unit_test(another_format_is_refused),
        cmocka_unit_test(too_many_variables_are_refused),
        cmocka_unit_test(any_bytes_make_a_string),
        cmocka_unit_test(random_bytes_make_a_string),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
