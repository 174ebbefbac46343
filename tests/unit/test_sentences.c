/* Where sentences end. */
#include "tests/cmocka_test.h"
#include "trainer/data/parcel.h"

/* The text with '|' between its sentences, as they come when it is given in chunks of this size. */
static void divide(const char *text, size_t length, size_t chunk, char *divided)
{
    struct sentences sentences = {0};

    for (size_t at = 0; at < length; at += chunk) {
        size_t left = length - at < chunk ? length - at : chunk;
        const char *next = text + at;

        while (left > 0) {
            bool ended;
            size_t here = sentences_next(&sentences, next, left, &ended);

            assert_true(here <= left);
            assert_true(ended ? here < left : here == left);
            memcpy(divided, next, here);
            divided += here;
            next += here;
            left -= here;
            if (ended)
                *divided++ = '|';
        }
    }
    *divided = '\0';
}

static void the_rule_is_as_described(void **state)
{
    static const char *const rows[] = {
        ""
        "one",
        "one.",
        "one. ",
        "One. |Two! |Three? |Four",
        "One.\n|Two.\t\r\n  |Three.",
        "3.14 is no end, nor is www.example.org.",
        "\"Go.\" |He went. |(He did.) |He said 'no.'",
        "[See there.]  |Where?!\" |Here...\n|Yes",
        "wait... |what",
        "one line\nand the next\n \t one, indented",
        "a heading\n\n|a paragraph\n \t\n|another\r\n\r\n|and one more",
        "spaces   are kept.   \n\n\n   |So are these.   ",
        "\n\n  begins with blank lines. |Then",
        ". |. |. |.",
        ".\" |\"",
        "n\303\266 ASCII\342\200\246 no end\343\200\202 nor here. |End",
        "a form feed.\f|and\va tab",
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char text[256], divided[512];
        size_t length = 0;

        for (const char *c = rows[i]; *c; c++)
            if (*c != '|')
                text[length++] = *c;
        for (size_t chunk = 1; chunk <= length + 1; chunk++) {
            divide(text, length, chunk, divided);
            assert_string_equal(divided, rows[i]);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_rule_is_as_described),
    };

    return cmocka_run_group_tests_name("sentences", tests, NULL, NULL);
}
