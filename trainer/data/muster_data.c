/* muster_data.c - the program muster-data: makes, checks and prints data sets. See muster-data(1). */
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/text.h"
#include "trainer/data/data_tool.h"

const char data_usage[] =
    "usage: muster-data TEXT... --out PREFIX [OPTION]...\n"
    "       muster-data show PREFIX... [--json]\n"
    "       muster-data verify PREFIX... [--json]\n"
    "       muster-data decode PREFIX [--documents N[-M]] [--tokenizer PATH]\n"
    "       muster-data train-tokenizer TEXT... --out FOLDER --vocab-size N [OPTION]...\n"
    "Turns text into the data sets that muster-train reads. A TEXT is plain text, one document, or JSON lines\n"
    "(by its name or its first line), a document a line; either may be compressed (.gz, .zst); \"-\" is standard "
    "input.\n"
    "\n"
    "  --out PREFIX        write PREFIX.bin, PREFIX.idx and the folder PREFIX.tokenizer\n"
    "  --tokenizer PATH    a tokenizer's folder, or one of its files; without it a byte is a token\n"
    "  --files-from FILE   read the names of more texts from FILE, one a line; \"-\" is standard input\n"
    "  --key KEY           the key of the text in JSON lines (text); all but *.txt are JSON lines then\n"
    "  --raw               each text is one document, also JSON lines\n"
    "  --bos TOKEN         begin each document with this token; \"template\": with that of the tokenizer's template\n"
    "  --append-eod        end each document with the tokenizer's end-of-document token\n"
    "  --split A,B,C       write PREFIX_train, PREFIX_valid, PREFIX_test: documents in order, in these proportions\n"
    "  --valid-out PREFIX  write the last part of the tokens there, for validation\n"
    "  --valid-percent P   the size of that part, in percent of all tokens (5)\n"
    "  --sentences         make each sentence a sequence: for a BERT\n"
    "  --skip-bad N        leave out up to N broken documents and places that are not UTF-8\n"
    "  --workers N         threads that encode (all processors); the data set is the same for any N\n"
    "\n"
    "  show                print the sizes of data sets\n"
    "  verify              the same, and read every token\n"
    "  decode              print the text of a data set's documents, from number N to M; the first is 0\n"
    "  train-tokenizer     make a SentencePiece vocabulary of N tokens; also takes --files-from, --key, --raw, "
    "--workers\n"
    "  --kind KIND         of train-tokenizer: bpe or unigram (bpe)\n"
    "  --json              of show and verify: one JSON object a line\n"
    "  --help, --version\n";

const char *data_plural(uint64_t count)
{
    return count == 1 ? "" : "s";
}

int data_processors(void)
{
    cpu_set_t set;

    return sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0 ? CPU_COUNT(&set) : 1;
}

struct bar data_bar;

static void print_notice(const char *line)
{
    bar_erase(&data_bar);
    fprintf(stderr, "muster-data: %s\n", line);
}

/* ---- lists of texts ---------------------------------------------------------------------------------------------- */

static int add_name(char ***names, size_t *count, const char *name, struct error *err)
{
    if (*count < INT_MAX && text_add_line(names, count, "%s", name))
        return 0;
    return error_errno(err, CODE_IO, "no memory for the names of %zu texts", *count + 1);
}

static int read_list(char ***names, size_t *count, const char *list, struct error *err)
{
    FILE *file = strcmp(list, "-") == 0 ? stdin : fopen(list, "re");
    char *line = NULL;
    size_t size = 0;
    ssize_t length;
    int result = 0;

    if (!file)
        return error_errno(err, CODE_DATA, "cannot read %s", list);
    for (bool first = true; result == 0 && (length = getline(&line, &size, file)) > 0; first = false) {
        bool zero = memchr(line, '\0', (size_t)length);
        char *name = line + (first ? text_mark(line, (size_t)length, list) : 0);

        name[strcspn(name, "\n")] = '\0';
        if (text_ends_with(name, "\r")) /* of a list that was written on Windows */
            name[strlen(name) - 1] = '\0';
        if (zero)
            result =
                error_set(err, CODE_DATA, "%s: a zero byte; names must be one a line (of find, without -print0)", list);
        else if (*name)
            result = add_name(names, count, name, err);
    }
    if (result == 0 && ferror(file))
        result = error_errno(err, CODE_IO, "cannot read %s", list);
    free(line);
    if (file != stdin)
        fclose(file);
    return result;
}

int data_read_texts(struct text_inputs *texts, char *const *given, int count, const char *list)
{
    char **names = NULL;
    size_t total = 0;
    struct error err;
    int result = 0;

    for (int i = 0; i < count && result == 0; i++)
        result = add_name(&names, &total, given[i], &err);
    if (list && result == 0)
        result = read_list(&names, &total, list, &err);
    texts->paths = names;
    texts->count = (int)total;
    text_notice = print_notice;
    texts->progress = bar_draw;
    texts->progress_arg = &data_bar;
    if (result == 0 && total == 0)
        return option_fail("%s names no text", list);
    return result < 0 ? error_report(&err) : CODE_OK;
}

void data_free_texts(struct text_inputs *texts)
{
    text_free_lines((char **)(uintptr_t)texts->paths, (size_t)texts->count);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*run)(int argc, char **argv);
    } commands[] = {
        {"show", data_show},
        {"verify", data_show},
        {"decode", data_decode},
        {"train-tokenizer", data_train_tokenizer},
    };

    data_bar = bar_begin(false);
    for (size_t i = 0; argc > 1 && i < sizeof commands / sizeof commands[0]; i++)
        if (strcmp(argv[1], commands[i].name) == 0)
            return error_output(commands[i].run(argc - 1, argv + 1));
    return error_output(data_convert(argc, argv));
}
