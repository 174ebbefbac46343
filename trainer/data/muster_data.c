/* muster_data.c - the program muster-data: makes, checks, prints and merges data sets. See muster-data(1). */
#include <string.h>

#include "trainer/data/data_tool.h"

const char data_usage[] =
    "usage: muster-data TEXT... --out PREFIX [OPTION]...\n"
    "       muster-data show PREFIX...\n"
    "       muster-data verify PREFIX...\n"
    "       muster-data decode PREFIX [--documents N[-M]] [--tokenizer PATH]\n"
    "       muster-data merge PREFIX... --out PREFIX\n"
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
    "  --append-eod        end each document with the tokenizer's end-of-document token\n"
    "  --split A,B,C       write PREFIX_train, PREFIX_valid, PREFIX_test: documents in order, in these proportions\n"
    "  --valid-out PREFIX  write the last part of the tokens there, for validation\n"
    "  --valid-percent P   the size of that part, in percent of all tokens (5)\n"
    "  --sentences         make each sentence a sequence: for a BERT\n"
    "  --skip-bad N        leave out up to N broken documents and places that are not UTF-8\n"
    "  --workers N         threads that encode (all processors); the data set is the same for any N\n"
    "\n"
    "  show                print the sizes of data sets\n"
    "  verify, --check     the same, and read every token\n"
    "  decode              print the text of a data set's documents, from number N to M; the first is 0\n"
    "  merge               write the documents of several data sets to one\n"
    "  train-tokenizer     make a SentencePiece vocabulary of N tokens; also takes --files-from, --key, --raw, "
    "--workers\n"
    "  --kind KIND         of train-tokenizer: bpe or unigram (bpe)\n"
    "  --help, --version\n";

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*run)(int argc, char **argv);
    } commands[] = {
        {"show", data_show},
        {"verify", data_verify},
        {"decode", data_decode},
        {"merge", data_merge},
        {"train-tokenizer", data_train_tokenizer},
    };

    for (size_t i = 0; argc > 1 && i < sizeof commands / sizeof commands[0]; i++)
        if (strcmp(argv[1], commands[i].name) == 0)
            return error_output(commands[i].run(argc - 1, argv + 1));
    return error_output(data_convert(argc, argv));
}
