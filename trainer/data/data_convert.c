/* data_convert.c - muster-data TEXT... --out PREFIX. */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/text.h"
#include "trainer/data/convert.h"
#include "trainer/data/data_tool.h"

#define VALID_PERCENT 5

static void print_converted(const struct convert *convert, const struct converted *converted)
{
    if (converted->bad)
        printf("skipped %" PRIu64 " bad place%s, the first: %s\n", converted->bad, data_plural(converted->bad),
               converted->first_bad);
    if (converted->lost)
        printf("%" PRIu64 " byte%s of the texts %s no token in the vocabulary, the first: %s\n", converted->lost,
               data_plural(converted->lost), converted->lost == 1 ? "has" : "have", converted->first_lost);
    if (converted->empty)
        printf("left out %" PRIu64 " of %" PRIu64 " documents, which %s empty: %s%s\n", converted->empty,
               converted->documents, converted->empty == 1 ? "is" : "are", converted->first_empty,
               converted->empty == 1 ? "" : ", ...");
    for (int i = 0; i < converted->count; i++)
        data_print_written(converted->sets[i].prefix, &converted->sets[i].facts, convert->sentences);
}

static volatile sig_atomic_t stop;

static void note_signal(int number)
{
    stop = number;
}

/* Ctrl-C must not leave temporary files: the command ends and cleans up, then the signal is raised again. */
static void catch_signals(void)
{
    struct sigaction action = {.sa_handler = note_signal, .sa_flags = SA_RESETHAND};

    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    signal(SIGXFSZ, SIG_IGN); /* then a write beyond "ulimit -f" fails like one to a full disk */
}

static int run_convert(struct convert *convert)
{
    static struct converted converted;
    struct error err;
    int status, code;

    catch_signals();
    convert->texts.stop = &stop;
    status = convert_texts(convert, &converted, &err);
    bar_erase(&data_bar);
    if (status == 0) {
        print_converted(convert, &converted);
        return CODE_OK;
    }
    code = error_report(&err);
    if (code == CODE_STOPPED && stop)
        raise(stop);
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
static int take_split(const char *text, void *to)
{
    struct convert *convert = to;
    char parts[200], *rest = parts, *part;
    bool good = strlen(text) < sizeof parts;

    snprintf(parts, sizeof parts, "%s", text);
    for (int count = 0; good && (part = strsep(&rest, ",")); count++)
        good = count < CONVERT_SETS && text_to_double(part, 0, 1e9, &convert->split[count]);
    return good && convert_is_split(convert)
               ? -1
               : option_fail("--split %s: expected up to three weights, as 969,30,1", text);
}

/* The prefix of a data set would name hidden files, ".bin" and ".idx": probably an unset shell variable. */
static bool is_nameless(const char *prefix)
{
    return !*prefix || prefix[strlen(prefix) - 1] == '/';
}

static int check_sets(struct convert *convert)
{
    const char *valid = convert->valid_out;

    if (!convert->out)
        return option_fail("no --out PREFIX was given");
    if (is_nameless(convert->out) || (valid && is_nameless(valid)))
        return option_fail("the prefix \"%s\" names no file", is_nameless(convert->out) ? convert->out : valid);
    if (convert->valid_percent >= 0 && !valid)
        return option_fail("--valid-percent was given without --valid-out");
    if (valid && is_same_prefix(valid, convert->out))
        return option_fail("--out and --valid-out are the same prefix");
    if (convert->valid_percent == 0 || convert->valid_percent == 100)
        return option_fail("--valid-percent must be a number, more than 0 and less than 100");
    if (valid && convert_is_split(convert))
        return option_fail("--split and --valid-out were both given");
    return CODE_OK;
}

int data_convert(int argc, char **argv)
{
    static struct convert convert = {.valid_percent = -1};
    const char *list = NULL;
    const struct option_row rows[] = {
        {"out", OPTION_TEXT, .to = &convert.out},
        {"tokenizer", OPTION_TEXT, .to = &convert.tokenizer},
        {"files-from", OPTION_TEXT, .to = &list},
        {"key", OPTION_TEXT, .to = &convert.key},
        {"bos", OPTION_TEXT, .to = &convert.begin},
        {"append-eod", OPTION_FLAG, .to = &convert.append_end},
        {"split", OPTION_TAKE, .to = &convert, .take = take_split},
        {"sentences", OPTION_FLAG, .to = &convert.sentences},
        {"raw", OPTION_FLAG, .to = &convert.texts.raw},
        {"valid-out", OPTION_TEXT, .to = &convert.valid_out},
        {"valid-percent", OPTION_REAL, .to = &convert.valid_percent, .most = 100},
        {"skip-bad", OPTION_WHOLE, .to = &convert.skip_bad, .most = INT_MAX},
        {"workers", OPTION_WHOLE, .to = &convert.workers, .least = 1, .most = CONVERT_WORKERS_MOST},
        {0},
    };
    int code = options_read(rows, argc, argv, data_usage);

    if (code >= 0)
        return code;
    if (optind == argc && !list)
        return option_fail("no text was given");
    code = check_sets(&convert);
    if (code)
        return code;
    if (convert.begin && !convert.tokenizer)
        return option_fail("--bos was given without --tokenizer");
    if (convert.key && convert.texts.raw)
        return option_fail("--key and --raw were both given");
    convert.texts.json_input = convert.key;
    convert.key = convert.key ? convert.key : "text";
    convert.workers = convert.workers ? convert.workers : data_processors();
    convert.valid_percent = convert.valid_percent < 0 ? VALID_PERCENT : convert.valid_percent;
    code = data_read_texts(&convert.texts, argv + optind, argc - optind, list);
    if (code == CODE_OK)
        code = run_convert(&convert);
    data_free_texts(&convert.texts);
    return code;
}
