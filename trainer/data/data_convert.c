/* data_convert.c - muster-data TEXT... --out PREFIX. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/option.h"
#include "common/text.h"
#include "trainer/data/convert.h"
#include "trainer/data/data_tool.h"

#define VALID_PERCENT 5

/* The options as they are written. */
struct convert_options {
    const char *list, *percent, *split, *key;
    long workers, skip;
};

static void print_converted(const struct convert *convert, const struct converted *converted)
{
    if (converted->bad)
        printf("skipped %" PRIu64 " bad place%s, the first: %s\n", converted->bad, data_plural(converted->bad),
               converted->first_bad);
    if (converted->empty)
        printf("left out %" PRIu64 " of %" PRIu64 " documents, which %s empty: %s%s\n", converted->empty,
               converted->documents, converted->empty == 1 ? "is" : "are", converted->first_empty,
               converted->empty == 1 ? "" : ", ...");
    for (int i = 0; i < converted->count; i++) {
        const struct converted_set *set = &converted->sets[i];

        printf("%s: %" PRIu64 " token%s, ", set->prefix, set->facts.tokens, data_plural(set->facts.tokens));
        data_print_documents(&set->facts, convert->sentences);
        printf("; wrote %s.bin and %s.idx\n", set->prefix, set->prefix);
    }
}

static int run_convert(struct convert *convert)
{
    static struct converted converted;
    struct error err;
    int status;

    data_catch_signals();
    convert->texts.stop = &data_stop;
    convert->texts.notice = data_notice;
    convert->progress = data_progress();
    status = convert_texts(convert, &converted, &err);
    data_end_progress();
    if (status < 0)
        return data_fail(&err);
    print_converted(convert, &converted);
    return CODE_OK;
}

/* The texts of the command line, then those of the list. */
static int convert_all(struct convert *convert, const char *list)
{
    char **names;
    size_t count;
    int code = data_read_names(convert->texts.paths, convert->texts.count, list, &names, &count);

    if (code == CODE_OK) {
        convert->texts.paths = names;
        convert->texts.count = (int)count;
        code = run_convert(convert);
    }
    text_free_lines(names, count);
    return code;
}

/* ---- options ----------------------------------------------------------------------------------------------------- */

/* "./set" is "set". Links to the same directory are found when the second file is created. */
static bool is_same_prefix(const char *a, const char *b)
{
    while (strncmp(a, "./", 2) == 0)
        a += 1 + strspn(a + 1, "/");
    while (strncmp(b, "./", 2) == 0)
        b += 1 + strspn(b + 1, "/");
    return strcmp(a, b) == 0;
}

/* "969,30,1", or fewer numbers, with a sum above 0. */
static bool read_split(const char *text, double split[CONVERT_SETS])
{
    char part[64];
    double sum = 0;
    int count = 0;

    for (const char *at = text; at; count++) {
        size_t length = strcspn(at, ",");

        if (count == CONVERT_SETS || length >= sizeof part)
            return false;
        memcpy(part, at, length);
        part[length] = '\0';
        if (!text_to_double(part, 0, 1e9, &split[count]))
            return false;
        sum += split[count];
        at = at[length] ? at + length + 1 : NULL;
    }
    return sum > 0;
}

static int check_sets(struct convert *convert, const struct convert_options *options)
{
    const char *valid = convert->valid_out;

    if (!convert->out)
        return option_fail("no --out PREFIX was given");
    if (data_is_nameless(convert->out) || (valid && data_is_nameless(valid)))
        return option_fail("the prefix \"%s\" names no file", data_is_nameless(convert->out) ? convert->out : valid);
    if (options->percent && !valid)
        return option_fail("--valid-percent was given without --valid-out");
    if (valid && is_same_prefix(valid, convert->out))
        return option_fail("--out and --valid-out are the same prefix");
    if (options->percent && (!text_to_double(options->percent, 0, 100, &convert->valid_percent) ||
                             convert->valid_percent == 0 || convert->valid_percent == 100))
        return option_fail("--valid-percent must be a number, more than 0 and less than 100");
    if (valid && options->split)
        return option_fail("--split and --valid-out were both given");
    if (options->split && !read_split(options->split, convert->split))
        return option_fail("--split %s: expected up to three weights, as 969,30,1", options->split);
    return CODE_OK;
}

static int check_options(struct convert *convert, const struct convert_options *options)
{
    int code;

    if (convert->texts.count == 0 && !options->list)
        return option_fail("no text was given");
    code = check_sets(convert, options);
    if (code)
        return code;
    convert->workers = options->workers ? (int)options->workers : data_processors();
    convert->skip_bad = (uint64_t)options->skip;
    if (options->key && convert->texts.raw)
        return option_fail("--key and --raw were both given");
    convert->key = options->key ? options->key : "text";
    convert->texts.json_input = options->key;
    return CODE_OK;
}

/* Returns -1, or an exit code. */
static int read_options(int argc, char **argv, struct convert *convert, struct convert_options *options)
{
    const struct option_row rows[] = {
        {"out", OPTION_TEXT, .to = &convert->out},
        {"tokenizer", OPTION_TEXT, .to = &convert->tokenizer},
        {"files-from", OPTION_TEXT, .to = &options->list},
        {"key", OPTION_TEXT, .to = &options->key},
        {"append-eod", OPTION_FLAG, .to = &convert->append_end},
        {"split", OPTION_TEXT, .to = &options->split},
        {"sentences", OPTION_FLAG, .to = &convert->sentences},
        {"raw", OPTION_FLAG, .to = &convert->texts.raw},
        {"valid-out", OPTION_TEXT, .to = &convert->valid_out},
        {"valid-percent", OPTION_TEXT, .to = &options->percent},
        {"skip-bad", OPTION_WHOLE, .to = &options->skip, .most = INT_MAX},
        {"workers", OPTION_WHOLE, .to = &options->workers, .least = 1, .most = CONVERT_WORKERS_MOST},
        {0},
    };
    int code = options_read(rows, argc, argv, data_usage);

    if (code >= 0)
        return code;
    convert->texts.paths = argv + optind;
    convert->texts.count = argc - optind;
    return -1;
}

int data_convert(int argc, char **argv)
{
    static struct convert convert = {.valid_percent = VALID_PERCENT};
    struct convert_options options = {0};
    int code = read_options(argc, argv, &convert, &options);

    if (code >= 0)
        return code;
    code = check_options(&convert, &options);
    return code ? code : convert_all(&convert, options.list);
}
