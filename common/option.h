/*
 * option.h - the command lines of the programs: a table of long options, which getopt_long(3) reads; and a bar that
 * shows the progress of a long command.
 *
 *     const struct option_row rows[] = {
 *         {"tokens", OPTION_WHOLE, .to = &tokens},
 *         {"top-p", OPTION_REAL, .to = &top_p, .least = 1e-9, .most = 1},
 *         {0}};
 *
 *     code = options_read(rows, argc, argv, usage);
 *     if (code >= 0)
 *         return error_output(code);
 *     // argv[optind] is the first argument that is no option
 */
#ifndef MUSTER_COMMON_OPTION_H
#define MUSTER_COMMON_OPTION_H

#include <stdbool.h>
#include <stdint.h>

enum option_kind {
    OPTION_FLAG,  /* bool: true if it is given */
    OPTION_TEXT,  /* const char *: argv's */
    OPTION_WHOLE, /* long, from least to most */
    OPTION_REAL,  /* double, from least to most */
    OPTION_TIME,  /* double, in seconds: "90s", "30m", "24h" or "7d" */
    OPTION_TAKE,  /* `take` is called with the text and `to`; it returns -1 to go on, else the exit code */
};

struct option_row {
    const char *name; /* NULL ends the table */
    enum option_kind kind;
    void *to;
    double least, most; /* most 0: no limit */
    char letter;        /* the option is also -x; 0 for none */
    int (*take)(const char *text, void *to);
};

/* Also reads --help, -h, --version and -V. Returns -1 to go on; else the exit code, and the usage, the version or an
 * error was printed. */
int options_read(const struct option_row *rows, int argc, char **argv, const char *usage);

/* Prints "PROGRAM: what; PROGRAM --help lists the options" to stderr. Returns CODE_USAGE. */
int option_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* ---- progress, on standard error, if that is a terminal ---- */

struct bar {
    bool off, drawn;
    double begun, last; /* clock_monotonic: of bar_begin, and of what was drawn */
};

struct bar bar_begin(bool quiet);

/* Of `total` bytes, 0 if that is unknown. Draws at most five times a second: a fast disk must not wait for a slow
 * terminal. `bar` is a struct bar. */
void bar_draw(uint64_t done, uint64_t total, void *bar);

/* Erases it; the next bar_draw may draw it again. Returns the seconds since bar_begin. */
double bar_erase(struct bar *bar);

#endif
