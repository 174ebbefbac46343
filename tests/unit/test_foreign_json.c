/* JSON that Python's json module takes is read, whatever values it has; anything else is refused at its place. */
#include "common/foreign/foreign_json.h"
#include "tests/cmocka_test.h"

static struct error err;

static void becomes(const char *text, const char *expected)
{
    json_t *json = foreign_json_object(text, strlen(text), "f.json", &err);
    char *dump;

    if (!json)
        fail_msg("%s: %s", text, err.text);
    dump = json_dumps(json, JSON_COMPACT);
    assert_string_equal(dump, expected);
    free(dump);
    json_decref(json);
}

static void numbers_of_any_size_are_taken(void **state)
{
    becomes("{\"a\": 1000000000000000019884624838656}", "{\"a\":1e30}");
    becomes("{\"a\":[9223372036854775807,9223372036854775808,-9223372036854775808,-9223372036854775809]}",
            "{\"a\":[9223372036854775807,9.2233720368547758e18,-9223372036854775808,-9.2233720368547758e18]}");
    becomes("{\"a\": [NaN, Infinity,-Infinity, 1e999, -1.5E+400,1e-999]}",
            "{\"a\":[[\"NaN\"],[\"Infinity\"],[\"-Infinity\"],[\"1e999\"],[\"-1.5E+400\"],0.0]}");
    becomes("{\"NaN\": \"Infinity 12345678901234567890 \\\" NaN\", \"b\": 1e308}",
            "{\"NaN\":\"Infinity 12345678901234567890 \\\" NaN\",\"b\":1e308}");
}

static void an_integer_of_many_digits_is_taken(void **state)
{
    char text[600] = "{\"a\": 1", expected[600] = "{\"a\":[\"1";

    memset(text + 7, '0', 400);
    strcat(text, "}");
    memset(expected + 8, '0', 400);
    strcat(expected, "\"]}");
    becomes(text, expected);
}

static void strings_that_are_not_unicode_are_taken(void **state)
{
    becomes("\xef\xbb\xbf{\"a\": \"\\ud83d\\ude00 \\ud83d \\ude00 \\ud83d\\u0041 \\\\ud800\"}",
            "{\"a\":\"\xf0\x9f\x98\x80 \xef\xbf\xbd \xef\xbf\xbd \xef\xbf\xbd"
            "A \\\\ud800\"}");
    becomes("{\"\\u0000\\ud800\" : \"\\u0000\"}", "{\"\xef\xbf\xbd\xef\xbf\xbd\":\"\\u0000\"}");
}

static void the_last_of_two_values_counts(void **state)
{
    json_error_t where;

    becomes("{\"a\": 1, \"a\": 2}", "{\"a\":2}");
    assert_null(foreign_json_load("{\"a\": 1, \"a\": 2}", 16, JSON_REJECT_DUPLICATES, &where));
}

/* With and without a replaced value before it, an error has the same place. */
static void errors_have_their_place_in_the_text(void **state)
{
    static const struct {
        const char *text, *says;
    } bad[] = {
        {"{\"a\": 1,\n \"b\": x}", "f.json:2:7: "},
        {"{\"a\": [NaN, 1e999, 12345678901234567890],\n \"b\": x}", "f.json:2:7: "},
        {"{\"a\": [NaN,\n NaN,\n NaN, \"\xc3\xbc\" x]}", "f.json:3:11: "},
        {"{\"a\": NaN", "f.json:1:9: "},
        {"{\"a\": 1", "f.json:1:7: "},
        {"{\"a\": 12345678901234567890.}", "f.json:1:"},
        {"{\"a\": 012345678901234567890}", "f.json:1:"},
        {"{\"a\": -NaN}", "f.json:1:"},
        {"{\"a\": 1NaN}", "f.json:1:"},
        {"{\"a\": \"\\ud80\"}", "f.json:1:"},
        {"{\"a\\", "f.json:1:"},
        {"", "f.json:1:0: "},
        {"[NaN]", "f.json: must be an object"},
    };

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_null(foreign_json_object(bad[i].text, strlen(bad[i].text), "f.json", &err));
        assert_int_equal(err.code, CODE_DATA);
        if (strncmp(err.text, bad[i].says, strlen(bad[i].says)) != 0)
            fail_msg("%s: \"%s\" does not begin with \"%s\"", bad[i].text, err.text, bad[i].says);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_of_any_size_are_taken),          cmocka_unit_test(an_integer_of_many_digits_is_taken),
        cmocka_unit_test(strings_that_are_not_unicode_are_taken), cmocka_unit_test(the_last_of_two_values_counts),
        cmocka_unit_test(errors_have_their_place_in_the_text),
    };

    return cmocka_run_group_tests_name("foreign_json", tests, NULL, NULL);
}
