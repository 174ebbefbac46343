/* The scanners of split.h against PCRE2 with their patterns; the classes of unicode.h against PCRE2's properties. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "tests/cmocka_test.h"
#include "tokenizer/split.h"
#include "tokenizer/unicode.h"

#define LENGTH(array) (sizeof(array) / sizeof(array)[0])

static pcre2_match_data *match_data;

static pcre2_code *compile_pattern(const char *pattern)
{
    int code;
    PCRE2_SIZE at;
    pcre2_code *compiled =
        pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP, &code, &at, NULL);

    assert_non_null(compiled);
    pcre2_jit_compile(compiled, PCRE2_JIT_COMPLETE);
    return compiled;
}

static bool matches(const pcre2_code *code, const char *text, size_t bytes)
{
    return pcre2_match(code, (PCRE2_SPTR)text, bytes, 0, PCRE2_ANCHORED, match_data, NULL) > 0;
}

/* The code points on which both Unicodes agree: *count of them, malloc'ed. U+180E is white space to PCRE2 only. */
static uint32_t *agreed_points(size_t *count, size_t *others)
{
    const char *const properties[] = {"\\p{L}", "\\p{N}", "\\s", "\\p{Mn}", "[!-/:-@\\[-`{-~\\p{P}]", "\\p{Cn}"};
    const int bits[] = {CLASS_LETTER, CLASS_NUMBER, CLASS_SPACE, CLASS_ACCENT, CLASS_PUNCT};
    uint32_t *points = malloc(CODE_POINTS * sizeof *points);
    pcre2_code *codes[6];

    *count = *others = 0;
    for (int i = 0; i < 6; i++)
        codes[i] = compile_pattern(properties[i]);
    for (uint32_t point = 0; point < CODE_POINTS; point++) {
        char text[4];
        size_t bytes;
        bool same = true;

        if (point >= 0xd800 && point <= 0xdfff)
            continue;
        bytes = (size_t)utf8_write(point, text);
        for (int i = 0; i < 5; i++)
            same &= matches(codes[i], text, bytes) == !!(unicode_classes()[point] & bits[i]);
        if (same)
            points[(*count)++] = point;
        else if (point != 0x180e && !matches(codes[5], text, bytes))
            (*others)++;
    }
    for (int i = 0; i < 6; i++)
        pcre2_code_free(codes[i]);
    return points;
}

static void classes_are_those_of_pcre2_where_it_knows_a_character(void **state)
{
    size_t count, others;
    uint32_t *points = agreed_points(&count, &others);

    assert_int_equal(others, 0);
    assert_in_range(count, CODE_POINTS - 2048 - 12000, CODE_POINTS - 2048);
    free(points);
}

/* Every word of the text: the ends that PCRE2 finds must be those of the scanner. */
static void check_text(enum split_pattern pattern, const pcre2_code *code, const char *text, size_t bytes)
{
    const uint8_t *begin = (const uint8_t *)text, *end = begin + bytes;
    size_t at = 0;

    while (at < bytes) {
        const PCRE2_SIZE *found = pcre2_get_ovector_pointer(match_data);
        size_t stop = (size_t)(split_scan(pattern, unicode_classes(), begin + at, end) - begin);

        assert_true(pcre2_match(code, (PCRE2_SPTR)text, bytes, at, PCRE2_NO_UTF_CHECK, match_data, NULL) > 0);
        if (found[0] != at || found[1] != stop)
            fail_msg("pattern %d, byte %zu of '%.*s': PCRE2 %zu to %zu, scanner to %zu", pattern, at, (int)bytes, text,
                     found[0], found[1], stop);
        at = stop;
    }
}

/* All texts of up to 5 of these. */
static void all_short_texts_are_split_as_by_pcre2(void **state)
{
    static const char *const letters[] = {
        " ", "\n",       "\r",           "\t",           "a",       "S", "'", "s", "l", "1",
        "!", "\xc5\xbf", "\xe3\x80\x80", "\xe6\x96\x87", "\xcc\x81"};
    const size_t kinds = LENGTH(letters);

    for (int pattern = 0; pattern < SPLIT_SCANNERS; pattern++) {
        pcre2_code *code = compile_pattern(split_patterns[pattern]);

        for (size_t number = 0; number < kinds * kinds * kinds * kinds * kinds; number++) {
            char text[32] = "";
            size_t rest = number, bytes = 0;

            for (int i = 0; i < 5; i++, rest /= kinds)
                bytes += (size_t)sprintf(text + bytes, "%s", letters[rest % kinds]);
            check_text((enum split_pattern)pattern, code, text, bytes);
        }
        pcre2_code_free(code);
    }
}

static uint32_t next_random(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*seed >> 33);
}

/* Random texts: each of a few kinds of characters, among them all that both Unicodes know. */
static void random_texts_are_split_as_by_pcre2(void **state)
{
    static const char plain[] = "  \n\t\r''sStTmMdDrReEvVlLaz0123..!-_/";
    size_t count, others;
    uint32_t *points = agreed_points(&count, &others);
    pcre2_code *codes[SPLIT_SCANNERS];
    uint64_t seed = 20;

    for (int i = 0; i < SPLIT_SCANNERS; i++)
        codes[i] = compile_pattern(split_patterns[i]);
    for (int round = 0; round < 100000; round++) {
        uint32_t length = next_random(&seed) % 40, strange = next_random(&seed) % 4;
        char text[200];
        size_t bytes = 0;

        for (uint32_t i = 0; i < length; i++) {
            uint32_t pick = next_random(&seed);
            /* half of the strange ones are of the first planes' 12,000 code points */
            uint32_t point = points[pick % (pick & 1 ? 12000 : count)];

            if (pick % 4 >= strange)
                point = (uint8_t)plain[pick / 4 % (sizeof plain - 1)];
            bytes += (size_t)utf8_write(point, text + bytes);
        }
        for (int i = 0; i < SPLIT_SCANNERS; i++)
            check_text((enum split_pattern)i, codes[i], text, bytes);
    }
    for (int i = 0; i < SPLIT_SCANNERS; i++)
        pcre2_code_free(codes[i]);
    free(points);
}

/* One match of the pattern at the beginning of the text; 0 for none. */
static size_t match_length(const char *pattern, const char *text)
{
    struct splitter splitter = {0};
    struct split_memory *memory;
    struct error err = {0};
    size_t begin = 1, stop = 0;

    assert_int_equal(splitter_add(&splitter, pattern, false, false, &err), 0);
    assert_int_equal(split_memory_create(&splitter, &memory, &err), 0);
    if (split_search(&splitter.steps[0], memory, text, 0, strlen(text), &begin, &stop, &err) != 1 || begin != 0)
        stop = 0;
    split_memory_destroy(memory);
    splitter_free(&splitter);
    return stop;
}

/* U+180E, a format character that Perl and PCRE2's own \s take for a blank. */
static void white_space_of_a_pattern_is_that_of_unicode(void **state)
{
    if (PCRE2_MAJOR * 100 + PCRE2_MINOR < 1040)
        skip();
    assert_int_equal(match_length("\\s+", "\xe1\xa0\x8e"), 0);
    assert_int_equal(match_length("\\S+", "a\xe1\xa0\x8e b"), 4);
    assert_int_equal(match_length("[^\\s\\p{L}]+", "\xe1\xa0\x8e!\xc2\xa0"), 4);
    assert_int_equal(match_length("[^\\S\n]+", " \xe3\x80\x80\t\xc2\x85\n"), 7);
    assert_int_equal(match_length("\\s+(?!\\S)", "   a"), 2);
    assert_int_equal(match_length("a$", "a\nb"), 1); /* line ends, as in Oniguruma */
    /* an escaped backslash before an s is no escape */
    assert_int_equal(match_length("\\\\s", "\\s"), 2);
    assert_int_equal(match_length("[\\\\s]+", "s\\ "), 2);
}

static int set_up(void **state)
{
    match_data = pcre2_match_data_create(1, NULL);
    return match_data ? 0 : -1;
}

static int tear_down(void **state)
{
    pcre2_match_data_free(match_data);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(classes_are_those_of_pcre2_where_it_knows_a_character),
        cmocka_unit_test(all_short_texts_are_split_as_by_pcre2),
        cmocka_unit_test(random_texts_are_split_as_by_pcre2),
        cmocka_unit_test(white_space_of_a_pattern_is_that_of_unicode),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
