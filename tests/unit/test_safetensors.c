/* crc32c's vectors; and safetensors headers: what we write, and everything that a strict reader must refuse. */
#include "common/crc32c.h"
#include "common/safetensors.h"
#include "tests/cmocka_test.h"
#include "tests/unit/test_ckpt_world.h"

#include <endian.h>

static void crc32c_has_the_published_values(void **state)
{
    unsigned char zeros[32] = {0}, ones[32];
    uint32_t crc = 0;

    memset(ones, 0xff, sizeof ones);
    assert_int_equal(crc32c(0, "123456789", 9), 0xe3069283);
    assert_int_equal(crc32c(0, zeros, sizeof zeros), 0x8a9136aa); /* RFC 3720, B.4 */
    assert_int_equal(crc32c(0, ones, sizeof ones), 0x62a8ab43);
    assert_int_equal(crc32c(0, "", 0), 0);
    for (int i = 0; i < 9; i++)
        crc = crc32c(crc, &"123456789"[i], 1);
    assert_int_equal(crc, 0xe3069283);
}

/* Parse `json` as the header of a file with data_bytes of data. */
static int parse(struct safetensors *st, const char *json, uint64_t data_bytes, struct error *err)
{
    size_t length = strlen(json);
    uint64_t prefix = htole64(length);
    unsigned char *file = malloc(8 + length);
    int result;

    assert_non_null(file);
    memcpy(file, &prefix, 8);
    memcpy(file + 8, json, length);
    result = safetensors_parse(st, file, 8 + length, 8 + length + data_bytes, err);
    free(file);
    return result;
}

#define ENTRY(name, dtype, shape, begin, end)                                                                          \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" begin "," end "]}"

static void what_the_format_allows_is_read(void **state)
{
    static const struct {
        const char *json;
        uint64_t bytes;
        size_t count;
    } good[] = {
        {"{}", 0, 0},
        {"{}       ", 0, 0},
        {"{" ENTRY("a", "F32", "[2,3]", "0", "24") "}", 24, 1},
        {"{" ENTRY("b", "F32", "[1]", "2", "6") "," ENTRY("a", "BF16", "[]", "0", "2") "} ", 6, 2},
        {"{" ENTRY("a", "F32", "[0]", "0", "0") "," ENTRY("b", "U8", "[3]", "0", "3") "," ENTRY("c", "I64", "[0,9]",
                                                                                                "3", "3") "}",
         3, 3},
        {"{\"__metadata__\":{\"format\":\"pt\"}," ENTRY("a", "F16", "[2]", "0", "4") "}", 4, 1},
    };
    struct safetensors st;
    struct error err;

    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        if (parse(&st, good[i].json, good[i].bytes, &err) < 0)
            fail_msg("%s: %s", good[i].json, err.text);
        assert_int_equal(st.count, good[i].count);
        assert_int_equal(st.data_offset, 8 + strlen(good[i].json));
        safetensors_destroy(&st);
    }
    assert_int_equal(parse(&st, good[3].json, good[3].bytes, &err), 0);
    assert_string_equal(st.entries[0].name, "a"); /* in the order of the data */
    assert_int_equal(safetensors_find(&st, "b")->begin, 2);
    assert_null(safetensors_find(&st, "c"));
    safetensors_destroy(&st);
    assert_int_equal(parse(&st, good[5].json, good[5].bytes, &err), 0); /* with metadata */
    safetensors_destroy(&st);
}

static void what_it_does_not_is_refused(void **state)
{
    static const struct {
        const char *json;
        uint64_t bytes;
        const char *why;
    } bad[] = {
        {"{" ENTRY("a", "F32", "[1]", "4", "8") "}", 8, "a hole before it"},
        {"{" ENTRY("a", "F32", "[1]", "0", "4") "," ENTRY("b", "F32", "[1]", "8", "12") "}", 12,
         "a hole before it at data offset 4"},
        {"{" ENTRY("a", "F32", "[2]", "0", "8") "," ENTRY("b", "F32", "[1]", "4", "8") "}", 8, "overlaps"},
        {"{" ENTRY("a", "F32", "[1]", "0", "4") "," ENTRY("b", "F32", "[1]", "0", "4") "}", 4, "overlaps"},
        {"{" ENTRY("a", "F32", "[1]", "0", "4") "}", 5, "1 bytes after the last tensor"},
        {"{" ENTRY("a", "F32", "[2]", "0", "8") "}", 7, "truncated"},
        {"{" ENTRY("a", "F32", "[2]", "0", "4") "}", 4, "needs 8 bytes"},
        {"{" ENTRY("a", "F32", "[1]", "4", "0") "}", 4, "needs 4 bytes"},
        {"{" ENTRY("a", "F32", "[4294967296,4294967296]", "0", "0") "}", 0, "overflows"},
        {"{" ENTRY("a", "F32", "[1]", "-4", "0") "}", 4, "two integers"},
        {"{" ENTRY("a", "F32", "[-1]", "0", "4") "}", 4, "integers of 0 or more"},
        {"{" ENTRY("a", "F32", "[1.0]", "0", "4") "}", 4, "integers of 0 or more"},
        {"{" ENTRY("a", "F32", "[1]", "0", "99999999999999999999") "}", 4, "must be two integers"},
        {"{" ENTRY("a", "F32", "[1,1,1,1,1,1,1,1,1]", "0", "4") "}", 4, "at most 8"},
        {"{" ENTRY("a", "F33", "[1]", "0", "4") "}", 4, "unknown dtype"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"x\":0}}", 1, "nothing else"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1]}}", 1, "must have"},
        {"{\"a\":{\"dtype\":8,\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "must be a string"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":1,\"data_offsets\":[0,1]}}", 1, "must be an array"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1,2]}}", 1, "two integers"},
        {"{\"a\":[]}", 0, "must have"},
        {"{" ENTRY("a", "U8", "[1]", "0", "1") "," ENTRY("a", "U8", "[1]", "1", "2") "}", 2, "duplicate"},
        {"{\"__metadata__\":{\"a\":1}}", 0, "must be a string"},
        {"{\"__metadata__\":[]}", 0, "object of strings"},
        {"{}\n", 0, "'}' and spaces"},
        {" {}", 0, "must start with '{'"},
        {"[]", 0, "must start with '{'"},
        {"", 0, "must start with '{'"},
        {"{", 0, "'}' and spaces"},
        {"{]}", 0, "offset"},
        {"{\"\xff\":0}", 0, "offset"},
    };
    struct safetensors st;
    struct error err;

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (parse(&st, bad[i].json, bad[i].bytes, &err) == 0)
            fail_msg("accepted: %s", bad[i].json);
        assert_int_equal(err.code, CODE_DATA);
        if (!strstr(err.text, bad[i].why))
            fail_msg("%s: \"%s\" does not say \"%s\"", bad[i].json, err.text, bad[i].why);
    }
}

static void wrong_lengths_are_refused(void **state)
{
    unsigned char file[16] = {2, 0, 0, 0, 0, 0, 0, 0, '{', '}', '\0'};
    struct safetensors st;
    struct error err;

    assert_int_equal(safetensors_parse(&st, file, 10, 10, &err), 0);
    safetensors_destroy(&st);
    assert_int_equal(safetensors_parse(&st, file, 7, 7, &err), -1);
    assert_int_equal(safetensors_parse(&st, file, 9, 9, &err), -1);
    assert_non_null(strstr(err.text, "truncated"));
    file[0] = 3; /* a zero byte as padding */
    assert_int_equal(safetensors_parse(&st, file, 11, 11, &err), -1);
    assert_int_equal(err.code, CODE_DATA);
    memset(file, 0xff, 8);
    assert_int_equal(safetensors_parse(&st, file, 10, UINT64_MAX, &err), -1);
    assert_non_null(strstr(err.text, "the limit is 100000000"));
}

static void what_is_laid_out_is_read_back(void **state)
{
    struct safetensors_entry entries[] = {
        {.name = "param", .dtype = "F32", .ndim = 1, .shape = {1025}},
        {.name = "quo\"te", .dtype = "BF16", .ndim = 2, .shape = {3, 5}},
        {.name = "empty", .dtype = "F32", .ndim = 1, .shape = {0}},
        {.name = "last", .dtype = "F64", .ndim = 0},
    };
    const char *metadata[] = {"format", "pt", NULL};
    struct safetensors st;
    struct error err;
    void *header;
    size_t bytes;

    for (size_t align = 1; align <= 4096; align *= 4096) {
        assert_int_equal(safetensors_layout(entries, 4, metadata, align, align, &header, &bytes, &err), 0);
        assert_int_equal(bytes % (align < 8 ? 8 : align), 0);
        assert_int_equal(safetensors_parse(&st, header, bytes, bytes + entries[3].end, &err), 0);
        assert_int_equal(st.count, align == 1 ? 4 : 6); /* two pads; the empty tensor and the last share a place */
        for (int i = 0; i < 4; i++) {
            const struct safetensors_entry *entry = safetensors_find(&st, entries[i].name);

            assert_non_null(entry);
            assert_int_equal(entry->begin, entries[i].begin);
            assert_int_equal(entry->end, entries[i].end);
            assert_int_equal(entry->begin % align, 0);
        }
        assert_non_null(memmem(header, bytes, "{\"format\":\"pt\"}", strlen("{\"format\":\"pt\"}")));
        safetensors_destroy(&st);
        free(header);
    }
    entries[1].name = "param";
    assert_int_equal(safetensors_layout(entries, 4, NULL, 1, 1, &header, &bytes, &err), -1);
    assert_non_null(strstr(err.text, "two tensors"));
}

/* Random damage to a header is never worse than an error; and what is still accepted is still seamless. */
static void mutated_headers_never_crash(void **state)
{
    struct safetensors_entry entries[] = {
        {.name = "param", .dtype = "F32", .ndim = 1, .shape = {1025}},
        {.name = "exp_avg", .dtype = "F32", .ndim = 1, .shape = {1025}},
    };
    uint64_t random = 5;
    struct safetensors st;
    struct error err;
    void *header;
    size_t bytes, accepted = 0;

    assert_int_equal(safetensors_layout(entries, 2, NULL, 8, 8, &header, &bytes, &err), 0);
    for (int i = 0; i < 20000; i++) {
        unsigned char *copy = malloc(bytes);

        memcpy(copy, header, bytes);
        for (uint64_t n = 1 + world_random(&random, 3); n > 0; n--)
            copy[world_random(&random, bytes)] = (unsigned char)world_random(&random, 256);
        if (safetensors_parse(&st, copy, bytes, bytes + entries[1].end, &err) == 0) {
            accepted++;
            for (size_t t = 0; t < st.count; t++)
                assert_int_equal(st.entries[t].begin, t ? st.entries[t - 1].end : 0);
            safetensors_destroy(&st);
        } else {
            assert_true(err.code == CODE_DATA ||
                        err.code == CODE_INTERNAL); /* the latter: N now says more than we gave */
            assert_null(strchr(err.text, '\n'));
        }
        free(copy);
    }
    assert_true(accepted > 0 && accepted < 20000); /* a changed letter of a name is none of the header's business */
    free(header);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(crc32c_has_the_published_values), cmocka_unit_test(what_the_format_allows_is_read),
        cmocka_unit_test(what_it_does_not_is_refused),     cmocka_unit_test(wrong_lengths_are_refused),
        cmocka_unit_test(what_is_laid_out_is_read_back),   cmocka_unit_test(mutated_headers_never_crash),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
