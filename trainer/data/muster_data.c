/* muster_data.c - the program muster-data: makes and checks data sets. See muster-data(1). */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/option.h"
#include "common/text.h"
#include "trainer/data/convert.h"
#include "trainer/data/indexed.h"

#define VALID_PERCENT 5

static const char usage[] =
    "usage: muster-data TEXT... --out PREFIX [--files-from FILE] [--sentences]\n"
    "                   [--valid-out PREFIX [--valid-percent P]]\n"
    "       muster-data --check PREFIX...\n"
    "Turns text into the data sets that muster-train reads, a byte a token; \"-\" is standard input.\n"
    "\n"
    "  --out PREFIX        write PREFIX.bin and PREFIX.idx\n"
    "  --files-from FILE   read the names of more texts from FILE, one a line; \"-\" is standard input\n"
    "  --sentences         make each sentence a sequence: for a BERT\n"
    "  --valid-out PREFIX  write the last part of the text there, for validation\n"
    "  --valid-percent P   the size of that part, in percent of all bytes (5)\n"
    "  --check             verify data sets and print their sizes\n"
    "  --help, --version\n";

static volatile sig_atomic_t stop_signal;

static void note_signal(int number)
{
    stop_signal = number;
}

/* Ctrl-C must not leave temporary files: the conversion ends and cleans up, then the signal is raised again. */
static void catch_signals(void)
{
    struct sigaction action = {.sa_handler = note_signal, .sa_flags = SA_RESETHAND};

    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

static void show_progress(uint64_t done, uint64_t total)
{
    static double shown;
    double now = clock_monotonic();

    if (now - shown < 0.2)
        return;
    shown = now;
    fprintf(stderr, "\rmuster-data: %.1f MB", (double)done * 1e-6);
    if (total)
        fprintf(stderr, " of %.1f MB", (double)total * 1e-6);
    fflush(stderr);
}

static const char *plural_end(uint64_t count)
{
    return count == 1 ? "" : "s";
}

/* "5 sentences, 2 documents", or only the documents where sequences are documents. */
static void print_documents(const struct indexed_facts *facts, bool sentences)
{
    if (sentences)
        printf("%" PRIu64 " sentence%s, ", facts->sequences, plural_end(facts->sequences));
    printf("%" PRIu64 " document%s", facts->documents, plural_end(facts->documents));
}

static void print_written(const char *prefix, const struct indexed_facts *facts, bool sentences)
{
    printf("%s: %" PRIu64 " token%s, ", prefix, facts->tokens, plural_end(facts->tokens));
    print_documents(facts, sentences);
    printf("; wrote %s.bin and %s.idx\n", prefix, prefix);
}

static int run_convert(struct convert *convert)
{
    struct converted converted;
    struct error err;
    int status;

    catch_signals();
    signal(SIGXFSZ, SIG_IGN); /* then a write beyond "ulimit -f" fails like one to a full disk */
    convert->stop = &stop_signal;
    if (isatty(STDERR_FILENO))
        convert->progress = show_progress;
    status = convert_texts(convert, &converted, &err);
    if (convert->progress)
        fprintf(stderr, "\r\033[K");
    if (status < 0 && err.code == CODE_STOPPED) {
        error_report(&err);
        raise(stop_signal);
    }
    if (status < 0)
        return error_report(&err);
    if (converted.empty)
        printf("left out %d of %d texts, which %s empty: %s%s\n", converted.empty, convert->ntexts,
               converted.empty == 1 ? "is" : "are", converted.first_empty, converted.empty == 1 ? "" : ", ...");
    print_written(convert->out, &converted.train, convert->sentences);
    if (convert->valid_out)
        print_written(convert->valid_out, &converted.valid, convert->sentences);
    return CODE_OK;
}

/* Reads every token and prints their range. */
static int check_one(const char *prefix, struct error *err)
{
    static int32_t tokens[1 << 16];
    const size_t chunk = sizeof tokens / sizeof tokens[0];
    struct indexed *indexed = indexed_open(prefix, err);
    struct indexed_facts facts;
    int32_t least = INT32_MAX, most = 0;
    int status = -1;

    if (!indexed)
        return -1;
    facts = indexed_facts(indexed);
    for (uint64_t at = 0; at < facts.tokens; at += chunk) {
        size_t count = facts.tokens - at < chunk ? (size_t)(facts.tokens - at) : chunk;

        if (indexed_read(indexed, at, count, INT_MAX, tokens, err) < 0)
            goto done;
        for (size_t i = 0; i < count; i++) {
            least = tokens[i] < least ? tokens[i] : least;
            most = tokens[i] > most ? tokens[i] : most;
        }
    }
    printf("%s: %" PRIu64 " tokens (%s), ", prefix, facts.tokens, indexed_type_name(facts.type));
    print_documents(&facts, facts.longest_document > 1);
    printf(", longest %s %" PRIu64, facts.longest_document > 1 ? "sentence" : "sequence", facts.longest);
    if (facts.tokens)
        printf("; tokens are %" PRId32 " to %" PRId32 ": model.vocab must be at least %" PRId64, least, most,
               (int64_t)most + 1);
    putchar('\n');
    status = 0;

done:
    indexed_close(indexed);
    return status;
}

static int run_check(char *const *prefixes, int count)
{
    int worst = CODE_OK;

    for (int i = 0; i < count; i++) {
        struct error err;

        if (check_one(prefixes[i], &err) < 0)
            worst = error_report(&err);
    }
    return worst;
}

/* The files would be hidden ones, ".bin" and ".idx": probably an unset shell variable. */
static bool is_nameless(const char *prefix)
{
    return !*prefix || prefix[strlen(prefix) - 1] == '/';
}

/* "./set" is "set". Links to the same directory are found when the second file is created. */
static bool is_same_prefix(const char *a, const char *b)
{
    while (strncmp(a, "./", 2) == 0)
        a += 1 + strspn(a + 1, "/");
    while (strncmp(b, "./", 2) == 0)
        b += 1 + strspn(b + 1, "/");
    return strcmp(a, b) == 0;
}

/* Users of tools that read the "text" field of such files get a hint. */
static void note_json(const struct convert *convert)
{
    for (int i = 0; i < convert->ntexts; i++) {
        const char *text = convert->texts[i], *suffix = strrchr(text, '.');

        if (!suffix || (strcmp(suffix, ".jsonl") != 0 && strcmp(suffix, ".json") != 0))
            continue;
        fprintf(stderr,
                "muster-data: note: %s is read as plain text, including JSON's keys and braces; to read only its "
                "texts: jq -r .text FILE | muster-data - ...\n",
                text);
        return;
    }
}

/* The texts of the command line, then those of the list. */
static int convert_all(struct convert *convert, const char *list)
{
    struct text_names names = {0};
    struct error err;
    int code;

    if (text_names_add(&names, convert->texts, convert->ntexts, &err) < 0 ||
        (list && text_names_read(&names, list, &err) < 0)) {
        code = error_report(&err);
    } else if (names.count == 0) {
        code = option_fail("%s names no text", list);
    } else {
        convert->texts = names.names;
        convert->ntexts = names.count;
        note_json(convert);
        code = error_output(run_convert(convert));
    }
    text_names_destroy(&names);
    return code;
}

static int check_options(struct convert *convert, const char *list, const char *percent)
{
    if (convert->ntexts == 0 && !list)
        return option_fail("no text was given");
    if (!convert->out)
        return option_fail("no --out PREFIX was given");
    if (is_nameless(convert->out) || (convert->valid_out && is_nameless(convert->valid_out)))
        return option_fail("the prefix \"%s\" names no file",
                           is_nameless(convert->out) ? convert->out : convert->valid_out);
    if (percent && !convert->valid_out)
        return option_fail("--valid-percent was given without --valid-out");
    if (convert->valid_out && is_same_prefix(convert->valid_out, convert->out))
        return option_fail("--out and --valid-out are the same prefix");
    if (percent && (!text_to_double(percent, 0, 100, &convert->valid_percent) || convert->valid_percent == 0 ||
                    convert->valid_percent == 100))
        return option_fail("--valid-percent must be a number, more than 0 and less than 100");
    return CODE_OK;
}

int main(int argc, char **argv)
{
    enum { OUT = 1, FILES_FROM, SENTENCES, VALID_OUT, VALID_PERCENT_OPTION, CHECK };
    static const struct option options[] = {
        {"out", required_argument, NULL, OUT},
        {"files-from", required_argument, NULL, FILES_FROM},
        {"sentences", no_argument, NULL, SENTENCES},
        {"valid-out", required_argument, NULL, VALID_OUT},
        {"valid-percent", required_argument, NULL, VALID_PERCENT_OPTION},
        {"check", no_argument, NULL, CHECK},
        {"version", no_argument, NULL, 'V'},
        {"help", no_argument, NULL, 'h'},
        {0},
    };
    struct convert convert = {.valid_percent = VALID_PERCENT};
    const char *list = NULL, *percent = NULL;
    int option, check = 0, code;

    opterr = 0;
    while ((option = getopt_long(argc, argv, ":", options, NULL)) != -1) {
        switch (option) {
        case OUT:
            convert.out = optarg;
            break;
        case FILES_FROM:
            list = optarg;
            break;
        case SENTENCES:
            convert.sentences = true;
            break;
        case VALID_OUT:
            convert.valid_out = optarg;
            break;
        case VALID_PERCENT_OPTION:
            percent = optarg;
            break;
        case CHECK:
            check = 1;
            break;
        default:
            return error_output(option_standard(option, argv, usage));
        }
    }
    convert.texts = argv + optind;
    convert.ntexts = argc - optind;
    if (check && (list || convert.out || convert.valid_out || convert.sentences || percent))
        return option_fail("--check takes prefixes only");
    if (check)
        return convert.ntexts ? error_output(run_check(convert.texts, convert.ntexts))
                              : option_fail("no prefix was given");
    code = check_options(&convert, list, percent);
    return code ? code : convert_all(&convert, list);
}
